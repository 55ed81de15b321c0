"""What the communication library of a machine does beside the links: its protocols.

NCCL sends in several protocols (LL, LL128, Simple): a small latency and a part of the bandwidth, or
more of both. How long each takes was fitted to measured collectives; where it was measured, and how
well the fit meets it, is stated with it.
"""

from collections.abc import Sequence
from math import inf

from msgspec import Struct

from stepsim.base.documents import Entry
from stepsim.base.errors import TopologyError
from stepsim.base.fields import Bytes, Share
from stepsim.base.units import MAX_INT64

SIZE_BANDS = ((0, 10**7), (10**7, 10**8), (10**8, MAX_INT64))
"""Sizes whose accuracy is stated together: from so many bytes to below so many."""
GOOD = (0.2, 0.15, 0.1)
"""The mean error up to which the times of each band count as good."""


def size_band(size_bytes: int) -> int:
    """Number of the band of `SIZE_BANDS` that a size is in."""
    return next(i for i, (_, end) in enumerate(SIZE_BANDS) if size_bytes < end)


class Protocol(Struct, frozen=True, kw_only=True):
    """A way to send what some `algorithms` send in some `kinds` of collectives; empty: all.

    Groups over fewer nodes than `least_nodes` or more than `most_nodes` (0: any) do not use it.
    Of each class of links, `rates` is the share of the capacity it gets (1 if not named), and
    `steps_ps` what a message over it costs beside the endpoint latency. `launch_ps` comes on top of
    the topology's launch latency. A rank's own share of the data is read and written at
    `copy_bandwidth` bytes/s before it is sent.
    """

    name: str
    algorithms: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    least_nodes: int = 1
    most_nodes: int = 0
    launch_ps: int = 0
    steps_ps: tuple[tuple[str, int], ...] = ()
    rates: tuple[tuple[str, float], ...] = ()
    copy_bandwidth: float = inf

    def __post_init__(self) -> None:
        if min(self.launch_ps, *(step for _, step in self.steps_ps), 0) < 0:
            raise TopologyError(f"protocol {self.name}: a latency is negative")
        for link, rate in self.rates:
            if not 0 < rate <= 1:
                found = f"rate of {link} is {rate}"
                raise TopologyError(f"protocol {self.name}: {found}: expected above 0, at most 1")
        if not self.copy_bandwidth > 0:
            raise TopologyError(f"protocol {self.name}: copy must be positive")

    def serves(self, kind: str, algorithm: str, nodes: int) -> bool:
        """Whether it carries a kind of collective with an algorithm over so many nodes."""
        fits = not self.kinds or kind in self.kinds
        known = not self.algorithms or algorithm in self.algorithms
        return fits and known and self.least_nodes <= nodes <= (self.most_nodes or nodes)

    @property
    def links(self) -> set[str]:
        """Classes of links that it names."""
        return {link for link, _ in (*self.steps_ps, *self.rates)}


class Accuracy(Entry, frozen=True, kw_only=True):
    """How well collectives of `kind` were met where they were measured.

    Errors are |ours / measured - 1|. Over groups of up to `most_ranks` ranks in `nodes` nodes, the
    most measured, sizes from `first_bytes` to `last_bytes`, which are of one band of `SIZE_BANDS`;
    `samples` times, the mean and the largest error.
    """

    kind: str
    nodes: int
    most_ranks: int
    first_bytes: Bytes
    last_bytes: Bytes
    mean: Share
    largest: Share
    samples: int
    source: str

    @property
    def good(self) -> bool:
        """Whether the mean error is within what counts as good for its sizes."""
        return self.mean <= GOOD[size_band(self.first_bytes)]


class Library(Struct, frozen=True, kw_only=True):
    """The protocols of a machine, and how well they meet measurements.

    Without protocols links alone set the times. Of a class in `reach`, the ranks of a node use at
    most so many links together: the NICs that a group reaches.
    """

    protocols: tuple[Protocol, ...] = ()
    reach: tuple[tuple[str, int], ...] = ()
    accuracy: tuple[Accuracy, ...] = ()

    def check(self, name: str, links: Sequence[str]) -> None:
        """Raise TopologyError where it names links that the topology `name` does not have."""
        named = {link for protocol in self.protocols for link in protocol.links}
        for link in sorted(named | {link for link, _ in self.reach}):
            if link not in links:
                expected = ", ".join(links)
                raise TopologyError(f"{name}: protocols name links {link!r}: expected {expected}")


PLAIN = Library()
"""Links alone set the times."""
