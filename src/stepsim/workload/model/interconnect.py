"""What a closed form knows of the network: two levels, bandwidth and latency of each."""

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.structs import Noun
from stepsim.base.units import PS_PER_S
from stepsim.workload.axes import CollectiveKind

_STEPS = {CollectiveKind.ALL_REDUCE: 2.0, CollectiveKind.ALL_TO_ALL: 1.0}

_RAMP_BYTES = 12e6  # nccl-tests in one domain: a collective as if it sent so much more
_FEW_RANKS = 0.75  # nccl-tests in one domain of A100, H100 and B200: 2, 4 and 8 ranks
_FEW_REDUCING = 0.3  # the same of all-reduces, and vTrain's table of A100


class Interconnect(Noun):
    """Domains of `domain` NPUs; bandwidths are an NPU's, one way, of payload, in bytes/s.

    `inner` is the network inside a domain, `outer` the one between; a collective costs `launch_ps`
    and a hop from one rank of a ring to the next `inner_ps` or `outer_ps`. Where NPUs of a domain
    are `meshed`, each pair has a cable of its own, so that a group uses those between its members.
    `inner` is that of `cables`, of which a message takes one.
    """

    domain: int
    inner: float
    outer: float
    launch_ps: int = 0
    inner_ps: int = 0
    outer_ps: int = 0
    meshed: bool = False
    cables: float = 1.0

    @property
    def is_known(self) -> bool:
        """Whether anything is known of the network."""
        return self != NO_NETWORK

    def _inside(self, ranks: Floats, lost: float = _FEW_RANKS) -> Floats:
        """Bandwidth between so many ranks of a domain: few ranks have fewer channels."""
        used = np.maximum(ranks - 1, 1) / (self.domain - 1) if self.meshed else 1.0
        return self.inner * used * (1 - lost / np.maximum(ranks, 2))

    def seconds(
        self, kind: CollectiveKind, size_bytes: Floats, ranks: Floats, stride: Floats
    ) -> Floats:
        """Time of a collective of `ranks` ranks, `stride` apart; 0 where there is nothing to send.

        A ring sends (n - 1) / n of the bytes over each link, an all-reduce twice. Where it leaves a
        domain, its members there share their NICs: the ring is as fast as all of them together.
        Small messages do not fill the links: every pass costs `_RAMP_BYTES` / 2 more.
        An all-to-all sends to each other member directly. A message goes to the next member round
        one ring, over one cable or NIC.
        """
        local = np.clip(self.domain // np.maximum(stride, 1), 1, ranks)
        far = ranks > local
        passes, nodes = _STEPS.get(kind, 1.0), np.ceil(ranks / local)
        hops = (local - 1) * self.inner_ps + np.log2(nodes) * self.outer_ps
        if kind is CollectiveKind.ALL_TO_ALL:
            inner = size_bytes * (local - 1) / ranks / self._inside(local)
            outer = size_bytes * (ranks - local) / ranks / self.outer
            busy = np.maximum(inner, outer)
        elif kind is CollectiveKind.SEND_RECV:
            one = self.inner / self.cables
            bandwidth = np.where(far, min(one, self.outer), one)
            busy, hops = size_bytes / bandwidth, np.where(far, self.outer_ps, self.inner_ps)
        else:
            reduces = kind is CollectiveKind.ALL_REDUCE
            inside = self._inside(local, _FEW_REDUCING if reduces else _FEW_RANKS)
            bandwidth = np.where(far, np.minimum(inside, local * self.outer), inside)
            busy = passes * (size_bytes * (ranks - 1) / ranks + _RAMP_BYTES / 2) / bandwidth
        latency = (self.launch_ps + passes * hops) / PS_PER_S
        return np.where((size_bytes > 0) & (ranks > 1), busy + latency, 0.0)


NO_NETWORK = Interconnect(domain=1 << 40, inner=np.inf, outer=np.inf)
"""One of which nothing is known: a single domain, in which what is sent takes no time."""
