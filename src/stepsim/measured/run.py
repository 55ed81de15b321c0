"""What a measured training step is told in: operations by their kinds, and the run's degrees."""

import hashlib
from collections.abc import Iterable
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from stepsim.base.arrays import Ints, ints
from stepsim.base.axes import Group
from stepsim.base.errors import TraceError, within
from stepsim.base.structs import Noun, Numbers, replace
from stepsim.run.spans import ColumnTable
from stepsim.workload.plan import Plan

PS_PER_US = 1_000_000
PS_PER_MS = 1_000_000_000


class OpKind(IntEnum):
    """What a traced operation is.

    A backward that runs its weight gradients apart is `BACKWARD` and `WEIGHT_GRAD`. `OTHER` are
    per-step operations known by their label only, `COLLECTIVE` those of them that communicate.
    """

    GET_BATCH = 0
    FORWARD = 1
    LOSS = 2
    BACKWARD = 3
    WEIGHT_GRAD = 4
    SEND_FORWARD = 5
    RECV_FORWARD = 6
    SEND_BACKWARD = 7
    RECV_BACKWARD = 8
    DP_ALLREDUCE = 9
    EP_DP_ALLREDUCE = 10
    OPTIMIZER = 11
    OTHER = 12
    COLLECTIVE = 13


GRADIENT_KINDS = (OpKind.DP_ALLREDUCE, OpKind.EP_DP_ALLREDUCE, OpKind.COLLECTIVE)
"""What data-parallel ranks exchange in a step."""


WORK_KINDS = (
    OpKind.GET_BATCH,
    OpKind.FORWARD,
    OpKind.LOSS,
    OpKind.BACKWARD,
    OpKind.WEIGHT_GRAD,
)
MESSAGE_KINDS = (
    OpKind.SEND_FORWARD,
    OpKind.RECV_FORWARD,
    OpKind.SEND_BACKWARD,
    OpKind.RECV_BACKWARD,
)


HOST_IDLE = "idle"
"""What time after the pipeline is called in which nothing runs: the host has not launched it."""


class Degrees(Noun):
    """What is known of a run's shape; None where neither a name nor the trace tells it.

    `npus` ranks in `pp` stages; `message_bytes` is what neighbours exchange per microbatch.
    """

    pp: int = 1
    microbatches: int = 1
    npus: int | None = None
    tp: int | None = None
    dp: int | None = None
    ep: int | None = None
    experts: int | None = None
    layers: int | None = None
    hidden: int | None = None
    sequence: int | None = None
    message_bytes: int = 0

    def __post_init__(self) -> None:
        for name in ("pp", "microbatches", "npus", "tp", "dp", "ep", "experts", "layers"):
            within(name, getattr(self, name), 1, error=TraceError)
        if self.npus is not None and self.npus % self.pp:
            raise TraceError(f"{self.npus} ranks in {self.pp} stages: expected a multiple")

    def untraced(self, ranks: Iterable[int]) -> list[int]:
        """Ranks of the job that are not among those that were traced."""
        return sorted(set(range(self.npus or 0)) - {*ranks})

    @property
    def stage_ranks(self) -> int | None:
        """Ranks of one stage, None where unknown."""
        return None if self.npus is None else self.npus // self.pp


class InnerOps(ColumnTable, eq=False):
    """Collectives inside operations: `parent` is the operation's place among all.

    `tokens` are those that an all-to-all sends, `UNKNOWN` for another collective.
    """

    parent: Ints
    duration_ps: Ints
    tokens: Ints

    def since(self, first: int) -> "InnerOps":
        """Those of the operations from place `first` on, which are counted from there."""
        later = self.taken(self.parent >= first)
        return replace(later, parent=later.parent - first)


NO_INNER = InnerOps(parent=ints([]), duration_ps=ints([]), tokens=ints([]))
"""No collective inside any operation."""


def times_hash(*columns: Ints | NDArray[np.int8]) -> str:
    """A short text that tells columns from others."""
    times = hashlib.blake2b(digest_size=4)
    for column in columns:
        times.update(np.ascontiguousarray(column).tobytes())
    return times.hexdigest()


_GROUPS = {OpKind.DP_ALLREDUCE: Group.DP, OpKind.EP_DP_ALLREDUCE: Group.DP_EP}


def gradient_groups(degrees: Degrees, kind: OpKind, stage: int) -> list[Numbers]:
    """Groups of ranks of a gradient all-reduce on a stage; none where degrees do not tell them."""
    return groups_on(degrees, _GROUPS[kind], stage) if kind in _GROUPS else []


def groups_on(degrees: Degrees, group: Group, stage: int) -> list[Numbers]:
    """Groups of ranks of a kind on a stage, in Megatron's order; none where degrees tell none."""
    width, tp, ep = degrees.stage_ranks, degrees.tp or 1, degrees.ep
    if group is Group.DP:
        ep = 1
    if not (width and ep) or width % (tp * ep):
        return []
    plan = Plan(tp=tp, dp=width // tp, pp=degrees.pp, ep=ep)
    on_stages = np.split(plan.groups(group), plan.pp)
    return [*map(tuple, on_stages[stage].tolist())]
