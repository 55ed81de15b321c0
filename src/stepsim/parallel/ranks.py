"""Ranks of a job: how many along each parallel axis, who talks to whom, and who sits where.

Rank order is Megatron's: tp fastest, then dp, pp slowest, `rank = tp + TP * (dp + DP * pp)`. NPUs
are taken in the same order, or in another one (`RankOrder`).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepsim.base.errors import PlanError
from stepsim.parallel.modes import RankOrder
from stepsim.workload.axes import ParallelAxis
from stepsim.workload.rows import Group

Ranks = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelPlan:
    """Degrees of a job of `tp * dp * pp` NPUs and the microbatches each pipeline runs per step.

    An expert-parallel group is `ep` consecutive dp indices of a stage; where `ep` does not divide
    `dp` it is `ep` consecutive ranks of the stage (parallel folding), so `ep` must divide `tp*dp`.
    `rank_order` says which NPU of the network each rank is.
    """

    tp: int = 1
    dp: int = 1
    pp: int = 1
    ep: int = 1
    microbatches: int = 1
    rank_order: RankOrder = RankOrder.TP_DP_PP

    def __post_init__(self) -> None:
        for name, value in (*self.degrees().items(), ("microbatches", self.microbatches)):
            if value < 1:
                raise PlanError(f"{name} is {value}: it must be at least 1")
        if self.dp % self.ep and (self.tp * self.dp) % self.ep:
            raise PlanError(
                f"ep is {self.ep}: it must divide dp ({self.dp}) or tp*dp ({self.tp * self.dp})"
            )

    def degrees(self) -> dict[ParallelAxis, int]:
        """The degree of every axis: those that split the NPUs, the fastest first, then others."""
        axes = sorted(ParallelAxis, key=lambda axis: not axis.splits)
        return {axis: getattr(self, axis) for axis in axes}

    @property
    def npus(self) -> int:
        """NPUs of the job."""
        return self.tp * self.dp * self.pp

    @property
    def stage_ranks(self) -> int:
        """Ranks of one pipeline stage."""
        return self.tp * self.dp

    def stage_of(self, rank: int) -> int:
        """Pipeline stage (pp index) of a rank."""
        return rank // self.stage_ranks

    def coordinates(self, rank: int) -> tuple[int, int, int]:
        """(tp, dp, pp) indices of a rank; raises PlanError for a rank beyond the job."""
        if not 0 <= rank < self.npus:
            raise PlanError(f"rank is {rank}: the job has ranks 0 to {self.npus - 1}")
        return rank % self.tp, rank // self.tp % self.dp, self.stage_of(rank)

    def npus_of(self, ranks: Ranks) -> Ranks:
        """Number in the network of the NPU that each rank is."""
        index = {
            "tp": ranks % self.tp,
            "dp": ranks // self.tp % self.dp,
            "pp": ranks // self.stage_ranks,
        }
        number, stride = np.zeros_like(ranks), 1
        for axis in self.rank_order.split("-"):
            number += index[axis] * stride
            stride *= getattr(self, axis)
        return number

    def groups(self, group: Group) -> Ranks:
        """All groups of a kind, an array of shape (groups, ranks of a group), members ascending.

        Groups inside a stage are listed stage by stage.
        """
        grid = np.arange(self.npus, dtype=np.int64).reshape(self.pp, self.dp, self.tp)
        match group:
            case Group.TP | Group.INNER:
                return grid.reshape(-1, self.tp)
            case Group.DP | Group.OUTER:
                return grid.transpose(0, 2, 1).reshape(-1, self.dp)
            case Group.PP:
                return grid.reshape(self.pp, -1).T
            case Group.STAGE:
                return grid.reshape(self.pp, -1)
            case Group.EP:
                return self._expert_grid(grid).reshape(-1, self.ep)
            case Group.DP_EP:
                across = np.swapaxes(self._expert_grid(grid), -1, -2)
                return across.reshape(-1, across.shape[-1])

    def group_size(self, group: Group) -> int:
        """Ranks of each group of a kind."""
        sizes = {
            Group.TP: self.tp,
            Group.INNER: self.tp,
            Group.DP: self.dp,
            Group.OUTER: self.dp,
            Group.EP: self.ep,
            Group.DP_EP: self.stage_ranks // self.ep // (self.tp if self.dp % self.ep == 0 else 1),
            Group.PP: self.pp,
            Group.STAGE: self.stage_ranks,
        }
        return sizes[group]

    def _expert_grid(self, grid: Ranks) -> Ranks:
        """Ranks with the ep index last and the index across ep groups before it."""
        if self.dp % self.ep == 0:
            by_tp = grid.transpose(0, 2, 1)
            return by_tp.reshape(self.pp, self.tp, self.dp // self.ep, self.ep)
        return grid.reshape(self.pp, self.stage_ranks // self.ep, self.ep)
