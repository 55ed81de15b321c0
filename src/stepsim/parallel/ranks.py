"""Ranks of a job: how many along each parallel axis, and who talks to whom.

Rank order is Megatron's: tp fastest, then cp, dp, pp slowest,
`rank = tp + TP * (cp + CP * (dp + DP * pp))`. NPUs are taken in the same order, or in another one
(`RankOrder`), in which cp stays beside dp.
"""

from math import gcd, lcm

import numpy as np
from numpy.typing import NDArray

from stepsim.base.errors import PlanError
from stepsim.base.structs import Noun
from stepsim.parallel.modes import EpLayout, RankOrder
from stepsim.workload.rows import Group, ParallelAxis

Ranks = NDArray[np.int64]


class ParallelPlan(Noun):
    """Degrees of a job of `tp * cp * dp * pp` NPUs and the microbatches of each pipeline per step.

    `expert_tp` consecutive ranks of a stage share an expert, and an expert-parallel group steps
    over these: with None they are the tp ranks, and a group is `ep` consecutive cp and dp indices;
    with 1 it is `ep` consecutive ranks (parallel folding). Parameters are in `fsdp` shards, over
    consecutive cp and dp indices. `rank_order` says which NPU each rank is.
    """

    tp: int = 1
    cp: int = 1
    dp: int = 1
    pp: int = 1
    ep: int = 1
    expert_tp: int | None = None
    fsdp: int = 1
    microbatches: int = 1
    rank_order: RankOrder = RankOrder.TP_DP_PP

    def __post_init__(self) -> None:
        for name, value in (*self.degrees().items(), ("microbatches", self.microbatches)):
            if value < 1:
                raise PlanError(f"{name} is {value}: expected at least 1")
        self._check_experts()
        if self.replicas % self.fsdp:
            raise PlanError(
                f"fsdp is {self.fsdp}: it must divide {self._replicas_shown} ({self.replicas})"
            )

    def _check_experts(self) -> None:
        """Raise PlanError where experts cannot be spread as asked."""
        if self.expert_degree >= 1 and self.stage_ranks % (self.expert_degree * self.ep) == 0:
            return
        if self.expert_tp is not None:
            raise PlanError(
                f"expert_tp * ep is {self.expert_tp} * {self.ep}: it must divide the "
                f"{self.stage_ranks} ranks of a stage"
            )
        shown = f"{self._replicas_shown} ({self.replicas})"
        fits = self.stage_ranks % self.ep == 0
        other = ", or be folded over tp (--ep-layout folded)" if fits else ""
        raise PlanError(f"ep is {self.ep}: expert groups must divide {shown}{other}")

    @property
    def _replicas_shown(self) -> str:
        return "dp" if self.cp == 1 else "cp*dp"

    def degrees(self) -> dict[ParallelAxis, int]:
        """The degree of every axis: those that split the NPUs, the fastest first, then others."""
        axes = sorted(ParallelAxis, key=lambda axis: not axis.splits)
        return {axis: getattr(self, axis) for axis in axes}

    @property
    def words(self) -> str:
        """Its size and degrees, e.g. `64 NPUs (tp 4, dp 4, pp 4)`, as figures are titled."""
        named = (ParallelAxis.TP, ParallelAxis.DP, ParallelAxis.PP)
        shown = [f"{a} {size}" for a, size in self.degrees().items() if size > 1 or a in named]
        return f"{self.npus:,} NPUs ({', '.join(shown)})"

    @property
    def npus(self) -> int:
        """NPUs of the job."""
        return self.stage_ranks * self.pp

    @property
    def replicas(self) -> int:
        """Ranks that hold the same parameters unless these are sharded: over cp and dp."""
        return self.cp * self.dp

    @property
    def stage_ranks(self) -> int:
        """Ranks of one pipeline stage."""
        return self.tp * self.replicas

    @property
    def expert_degree(self) -> int:
        """Ranks that share an expert."""
        return self.tp if self.expert_tp is None else self.expert_tp

    @property
    def ep_layout(self) -> EpLayout:
        """Whether expert groups lie inside cp and dp, or are folded over tp too."""
        return EpLayout.FOLDED if self.expert_degree % self.tp else EpLayout.DP

    def stage_of(self, rank: int) -> int:
        """Pipeline stage (pp index) of a rank."""
        return rank // self.stage_ranks

    def npus_of(self, ranks: Ranks) -> Ranks:
        """Number in the network of the NPU that each rank is."""
        number = np.zeros_like(ranks)
        for (low, high), stride in self._strides.items():
            number += ranks % high // low * stride
        return number

    def npu_block(self, group: Group) -> int:
        """NPUs of aligned blocks of NPU numbers, of which each holds whole groups of a kind.

        E.g. 16 for groups of 8 every second NPU. Groups that begin or end inside tp groups need
        room for whole ones where the NPUs of tp and dp are apart.
        """
        low, high = self.span(group)
        strides = self._strides
        inner, outer = strides[1, self.tp], strides[self.tp, self.stage_ranks]
        if outer == self.tp and (inner == 1 or self.tp == 1):
            return high if high > low else 1
        low = gcd(low, self.tp) if low % self.tp else low
        high = lcm(high, self.tp) if self.tp % high else high
        ends = [
            min(high, end) // first * stride
            for (first, end), stride in strides.items()
            if max(low, first) < min(high, end)
        ]
        return max(ends, default=1)

    @property
    def _strides(self) -> dict[tuple[int, int], int]:
        """Digits of rank numbers for tp, replicas and stages, and each one's stride in NPUs."""
        spans = {
            "tp": (1, self.tp),
            "dp": (self.tp, self.stage_ranks),
            "pp": (self.stage_ranks, self.npus),
        }
        strides, stride = {}, 1
        for axis in self.rank_order.split("-"):
            low, high = spans[axis]
            strides[axis] = stride
            stride *= high // low
        return {span: strides[axis] for axis, span in spans.items()}

    def span(self, group: Group) -> tuple[int, int]:
        """Digit of rank numbers, `rank % high // low`, that tells members of a group apart."""
        expert, stage = self.expert_degree, self.stage_ranks
        spans = {
            Group.TP: (1, self.tp),
            Group.INNER: (1, self.tp),
            Group.CP: (self.tp, self.tp * self.cp),
            Group.DP: (self.tp * self.cp, stage),
            Group.DP_CP: (self.tp, stage),
            Group.OUTER: (self.tp, stage),
            Group.EP: (expert, expert * self.ep),
            Group.DP_EP: (expert * self.ep, stage),
            Group.ETP: (1, expert),
            Group.FSDP: (self.tp, self.tp * self.fsdp),
            Group.DP_FSDP: (self.tp * self.fsdp, stage),
            Group.PP: (stage, self.npus),
            Group.STAGE: (1, stage),
        }
        return spans[group]

    def groups(self, group: Group, ranks: int | None = None) -> Ranks:
        """All groups of a kind, an array of shape (groups, ranks of a group), members ascending.

        Groups inside a stage are listed stage by stage; of so many `ranks` only, where given.
        """
        low, high = self.span(group)
        grid = np.arange(ranks or self.npus, dtype=np.int64).reshape(-1, high // low, low)
        return grid.transpose(0, 2, 1).reshape(-1, high // low)

    @property
    def alone(self) -> frozenset[Group]:
        """Kinds of groups in which every rank is by itself."""
        return frozenset(group for group in Group if self.group_size(group) == 1)

    def group_size(self, group: Group) -> int:
        """Ranks of each group of a kind."""
        low, high = self.span(group)
        return high // low


"""Groups whose exchanges are waited for in every layer: they should not leave a block."""
"""Options that say how large these groups are."""
