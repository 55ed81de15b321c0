"""One collective by itself: time, bandwidth and links used, for a range of sizes.

Bandwidths are those of nccl-tests (doc/PERFORMANCE.md): algbw is size over time, busbw the rate at
which the bottleneck works if it does no more than it must. `stepsim collective --json` writes the
prices as a document.
"""

import re
from collections.abc import Sequence

from stepsim.base.arrays import Floats, Ints, Summand, distinct, first_largest, ints
from stepsim.base.axes import CollectiveKind
from stepsim.base.errors import PlanError
from stepsim.base.structs import Bytes, BytesPerSecond, Document, Entry, Noun, Numbers, Picoseconds
from stepsim.base.units import PS_PER_S, parse_size_bytes
from stepsim.network.collectives import (
    Algorithm,
    AlgorithmChoice,
    able_algorithms,
    collective_cost,
    collective_shape,
    flow_steps,
)
from stepsim.network.collectives.algorithms import FASTEST
from stepsim.network.collectives.flows import bus_factor, steps_load
from stepsim.network.topology import Topology
from stepsim.network.topology.network import MAX_NPUS

_MOST_SIZES = 1000


class LinkTraffic(Noun):
    """What one class of links carries: `links` of them carry anything, one direction each.

    `utilisation` is how long the busiest works, over the time of the collective.
    """

    name: str
    links: int
    total_bytes: float
    busiest: str
    busiest_bytes: float
    utilisation: float


class ProbeRow(Entry):
    """A size; `latency_ps` is what infinitely fast links would leave, `algorithm` the one used.

    algbw and busbw are None, null in JSON, where no time passes.
    """

    size_bytes: Bytes
    time_ps: Picoseconds
    latency_ps: Picoseconds
    algbw: BytesPerSecond | None
    busbw: BytesPerSecond | None
    algorithm: str
    links: tuple[LinkTraffic, ...]


class AlgorithmEntry(Entry):
    """Prices with the algorithm that was asked for."""

    algorithm: str
    rows: tuple[ProbeRow, ...]


class CollectiveDocument(Document):
    """`stepsim collective --json`: one collective; algbw and busbw as nccl-tests count them."""

    topology: str
    kind: str
    ranks: Numbers
    algorithms: tuple[AlgorithmEntry, ...]


def probe_collective(
    topology: Topology,
    kind: CollectiveKind,
    sizes: Sequence[int],
    ranks: Sequence[int],
    algorithm: AlgorithmChoice = FASTEST,
) -> AlgorithmEntry:
    """Price a collective over these ranks for each size, ascending, the network to itself.

    Raises PlanError when the ranks do not exist or the algorithm cannot carry out the kind there.
    """
    members = members_of(topology, ranks)
    shape = collective_shape(topology, kind, members, algorithm)
    traffic: dict[AlgorithmChoice, Summand] = {}
    rows = []
    for size in sorted(sizes):
        cost = collective_cost(topology, shape, size)
        if cost.algorithm not in traffic:
            steps = flow_steps(kind, topology.layout(members), cost.algorithm)
            traffic[cost.algorithm] = steps_load(topology, members, steps)
        links, loads = traffic[cost.algorithm]
        classes, carried = topology.link_class(links), loads * size
        algbw = size / cost.time_ps * PS_PER_S if cost.time_ps else None
        row = ProbeRow(
            size_bytes=size,
            time_ps=cost.time_ps,
            latency_ps=cost.latency_ps,
            algbw=algbw,
            busbw=None if algbw is None else algbw * bus_factor(kind, len(members)),
            algorithm=str(cost.algorithm),
            links=tuple(
                _link_traffic(topology, c, links[classes == c], carried[classes == c], cost.time_ps)
                for c in (distinct(classes) if size else ())
            ),
        )
        rows.append(row)
    return AlgorithmEntry(algorithm=str(algorithm), rows=tuple(rows))


def probe_algorithms(
    topology: Topology, kind: CollectiveKind, ranks: Sequence[int]
) -> tuple[Algorithm, ...]:
    """All algorithms that can carry out the kind there, whether the machine offers them or not."""
    return able_algorithms(kind, topology.layout(members_of(topology, ranks)))


def parse_sizes(text: str) -> Numbers:
    """Bytes in `64MiB`, or in a range such as `8..1GiB:x2`: first, last, factor (2 if left out).

    A number without a unit is bytes. Raises PlanError or UnitError.
    """
    first, dots, rest = text.partition("..")
    if not dots:
        return (_size(first),)
    last, colon, step = rest.partition(":")
    factor = re.fullmatch(r"x(\d+(?:\.\d+)?)", step.strip()) if colon else None
    grows = float(factor[1]) if factor else 2.0
    low, high = _size(first), _size(last)
    if (colon and not factor) or not grows > 1 or not 0 < low <= high:
        raise PlanError(f"size is {text!r}: expected a range such as 8..1GiB:x2, upwards")
    sizes, size = [], float(low)
    while size < float("inf") and round(size) <= high:
        sizes.append(round(size))
        size = max(size * grows, size + 1)
        if len(sizes) > _MOST_SIZES:
            raise PlanError(f"size is {text!r}: more than {_MOST_SIZES} sizes")
    return tuple(sizes)


def parse_ranks(text: str) -> Numbers:
    """Ranks in `0-7,16`; raises PlanError."""
    ranks: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?", part)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (1, 0)
        if last < first:
            raise PlanError(f"ranks is {text!r}: expected numbers and ranges such as 0-7,16")
        if last >= MAX_NPUS:
            raise PlanError(f"ranks is {text!r}: expected at most {MAX_NPUS - 1}")
        ranks += range(first, last + 1)
    if len(set(ranks)) < len(ranks):
        raise PlanError(f"ranks is {text!r}: a rank is named twice")
    return tuple(ranks)


def _size(text: str) -> int:
    return parse_size_bytes(f"{text} B" if text.strip().isdecimal() else text)


def members_of(topology: Topology, ranks: Sequence[int]) -> Ints:
    """The ranks of a group; raises PlanError for others than those there are, or one twice."""
    known = ranks and all(0 <= rank < topology.npus for rank in ranks)
    if not known or len(set(ranks)) < len(ranks):
        raise PlanError(f"ranks: expected distinct numbers from 0 to {topology.npus - 1}")
    return ints(ranks)


def _link_traffic(
    topology: Topology, c: int, links: Ints, carried: Floats, time_ps: int
) -> LinkTraffic:
    top = first_largest(carried)
    link = topology.link_classes[c]
    busy_ps = carried[top] / link.capacity * PS_PER_S
    return LinkTraffic(
        name=link.name,
        links=len(links),
        total_bytes=float(carried.sum()),
        busiest=" to ".join(topology.link_ends(int(links[top]))),
        busiest_bytes=float(carried[top]),
        utilisation=float(busy_ps / time_ps) if time_ps else 0.0,
    )
