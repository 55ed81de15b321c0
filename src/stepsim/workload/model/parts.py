"""What layers are made of: operators, exchanges of ranks, and blocks of both.

Sizes are a rank's, per microbatch, arrays over plans. What an exchange takes in a closed form is
known of a network in two levels, with the bandwidth and latency of each.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.axes import CollectiveKind, Group
from stepsim.base.structs import Noun, replace
from stepsim.base.units import PS_PER_S, NameWithFields
from stepsim.workload.model.choices import GraphScope, RecomputeModule
from stepsim.workload.model.device import GroupedShape, ScanShape
from stepsim.workload.model.dispatch import ExpertWay
from stepsim.workload.plan import PlanTable

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
        passes, lost, nodes = 1.0, _FEW_RANKS, np.ceil(ranks / local)
        if kind is CollectiveKind.ALL_REDUCE:
            passes, lost = 2.0, _FEW_REDUCING
        hops = (local - 1) * self.inner_ps + np.log2(nodes) * self.outer_ps
        # few ranks of a domain have fewer channels
        used = np.maximum(local - 1, 1) / (self.domain - 1) if self.meshed else 1.0
        inside = self.inner * used * (1 - lost / np.maximum(local, 2))
        if kind is CollectiveKind.ALL_TO_ALL:
            inner = size_bytes * (local - 1) / ranks / inside
            outer = size_bytes * (ranks - local) / ranks / self.outer
            busy = np.maximum(inner, outer)
        elif kind is CollectiveKind.SEND_RECV:
            one = self.inner / self.cables
            bandwidth = np.where(far, min(one, self.outer), one)
            busy, hops = size_bytes / bandwidth, np.where(far, self.outer_ps, self.inner_ps)
        else:
            bandwidth = np.where(far, np.minimum(inside, local * self.outer), inside)
            busy = passes * (size_bytes * (ranks - 1) / ranks + _RAMP_BYTES / 2) / bandwidth
        latency = (self.launch_ps + passes * hops) / PS_PER_S
        return np.where((size_bytes > 0) & (ranks > 1), busy + latency, 0.0)


NO_NETWORK = Interconnect(domain=1 << 40, inner=np.inf, outer=np.inf)
"""One of which nothing is known: a single domain, in which what is sent takes no time."""


class OperatorKind(NameWithFields):
    """How an operator's time is found, and what PyTorch calls those of the kind.

    `MATRIX` products at the precision's rate, `HEAD` products in bf16 whatever the precision,
    `GROUPED` products of experts, `ATTENTION` fused core attention, `SCORES` its unfused products,
    `SCAN` kernels of a mixer that go through chunks of a sequence with a state passed on, and
    `MIXED` ones with products in bf16 of their own: products or bytes, whatever takes longer;
    `MEMORY` kernels that only move bytes.
    """

    pytorch: str

    MATRIX = "matrix", "aten::mm"
    HEAD = "head", "aten::mm"
    GROUPED = "grouped", "aten::_grouped_mm"
    ATTENTION = "attention", "aten::_flash_attention_forward"
    SCORES = "scores", "aten::baddbmm"
    SCAN = "scan", "selective_scan"
    MIXED = "mixed", "selective_scan"
    MEMORY = "memory", "aten::add"


FORWARD_ALONE = np.array([[1.0], [0.0], [0.0]])
"""The share of an operator that has no backward, by phase."""


class Operator(Noun):
    """One operator, phase by phase: the forward, input gradients, weight gradients.

    Floating-point operations, bytes and launches are arrays of shape (3, plans); without weights
    the last phase is empty.
    `sides` are tokens, inner and outer width of a product, of one expert where it has several.
    `rows` are batch x heads of attention, `head_dim` its width, `length` the tokens of its kernels'
    sequences (None: those of a sample),
    `keys` what a token reads where that is not all before it, `sharing` the heads of a rank that
    read the same ones.
    `groups` are products of experts by phase, `scanned` the chunks of a scan.
    What is done `apart` is part of another kernel in some frameworks, `inside` of the products of
    experts in some. `module` is that with which it is recomputed. One that is
    not `called` is part of what the host calls for its product. PyTorch has such an operator
    under the name `pytorch`.
    """

    name: str
    kind: OperatorKind
    flops: Floats
    bytes_moved: Floats
    launches: Floats
    core: bool = False
    head_dim: int = 0
    rows: Floats | None = None
    length: Floats | None = None
    keys: Floats | None = None
    sharing: Floats | None = None
    sides: tuple[Floats, Floats, Floats] | None = None
    groups: GroupedShape | None = None
    scanned: ScanShape | None = None
    apart: bool = False
    inside: bool = False
    called: bool = True
    module: RecomputeModule | None = None
    pytorch: str = ""

    def times(self, share: Floats | float) -> "Operator":
        """A share of the operator: one, or one by plan, or by phase and plan."""
        return replace(
            self,
            flops=share * self.flops,
            bytes_moved=share * self.bytes_moved,
            launches=share * self.launches,
        )


Operators = tuple[Operator, ...]


def operator_of(
    name: str,
    kind: OperatorKind,
    flops: Sequence[Floats],
    moved: Sequence[Floats],
    launches: Sequence[Floats | float],
    pytorch: str = "",
    **said: Any,
) -> Operator:
    """An operator by operations, bytes and launches of each phase, with what else is `said` of it.

    One without weights has two phases: its third is empty. PyTorch calls it as usual for its kind,
    where no other name is given.
    """
    one = np.ones_like(flops[0])
    operations, size, count = (
        np.stack([each * one for each in (*phases, 0.0)[:3]]) for phases in (flops, moved, launches)
    )
    return Operator(
        name=name,
        kind=kind,
        flops=operations,
        bytes_moved=size,
        launches=count,
        pytorch=pytorch or kind.pytorch,
        **said,
    )


class Exchange(Noun, kw_only=False):
    """One collective of a block; `size_bytes` as in CommOp, an array over plans, 0 where none.

    One that carries tokens to or from their experts names its `way`. One with `beside` 1 runs
    beside the operators of the block that follows in its pass, one with 0 before them.
    """

    kind: CollectiveKind
    group: Group
    size_bytes: Floats
    way: ExpertWay | None = None
    beside: Floats | float = 0.0

    def asks(self, columns: PlanTable, network: Interconnect) -> tuple[Floats, Floats, Floats]:
        """Bytes that ranks send, seconds that it takes at least, and what goes ahead of it.

        The latter two are of ways of tokens to experts alone: see `ExpertWay`.
        """
        if self.way is None:
            return self.size_bytes, columns.nothing, columns.nothing
        return self.way.asks(self.size_bytes, columns, network.domain, network.inner)

    def alone_s(self, columns: PlanTable, network: Interconnect) -> Floats:
        """Seconds that it takes with the network to itself, and with what goes ahead of it."""
        ranks, stride = {
            Group.TP: (columns.tp, columns.nothing + 1.0),
            Group.ETP: (columns.expert_tp, columns.nothing + 1.0),
            Group.CP: (columns.cp, columns.tp),
            Group.EP: (columns.ep, columns.expert_tp),
        }[self.group]
        sent, least, notices = self.asks(columns, network)
        seconds = np.maximum(network.seconds(self.kind, sent, ranks, stride), least)
        ahead = notices * network.launch_ps / PS_PER_S
        return np.where(seconds > 0, seconds + ahead, 0.0)


Exchanges = tuple[Exchange, ...]


class Block(Noun, kw_only=False):
    """Operators in order, and the exchanges that follow them in each pass.

    `scope` is the part of a layer that CUDA graphs may hold, None where they hold it never but with
    a whole step; `module` that with which the block and its exchanges are recomputed.
    What comes `after_counts` is launched once the host has read how many tokens each expert has.
    Those of the backward run beside the block's own weight gradients where `beside_weights` is 1,
    else after them. `routed` operators are those of experts on their tokens.
    """

    name: str
    operators: Operators
    forward: Exchanges = ()
    backward: Exchanges = ()
    scope: GraphScope | None = None
    module: RecomputeModule | None = None
    after_counts: bool = False
    beside_weights: Floats | float = 1.0
    routed: bool = False


Blocks = tuple[Block, ...]
Mixing = tuple[Block, Block, Block]
"""What runs before tokens are mixed, what mixes them, and what runs after, with what is sent."""


class Held(Noun, eq=False):
    """What attention, a mixer or an MLP keeps of a microbatch for its backward, arrays over plans.

    `kept` are bytes without `scores` of unfused attention; those `dropped` of them go where modules
    of a layer are recomputed. `result` are elements of what core attention makes, `outputs` those
    of what each product makes, in order.
    """

    kept: Floats
    outputs: Sequence[Floats]
    result: Floats | float = 0.0
    scores: Floats | float = 0.0
    dropped: Floats | float = 0.0
