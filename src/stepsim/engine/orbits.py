"""Ranks that job and network cannot tell apart: a digit of rank numbers that may be shifted.

A shift of a digit `rank % high // low` takes groups of ranks to groups where all spans of groups
are whole digits, and the network to itself where the same digit of NPU numbers turns. One rank of
each orbit then says all that a million could.
"""

from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Ints
from stepsim.network.topology import Topology
from stepsim.network.topology.placed import Turn
from stepsim.parallel.ranks import ParallelPlan
from stepsim.workload.rows import Group


class Orbits(Struct, frozen=True, kw_only=True, dict=True):
    """Orbits of the numbers below `count` under shifts of the digits `turns`, which ascend."""

    count: int
    turns: tuple[Turn, ...] = ()

    @cached_property
    def size(self) -> int:
        """Numbers of each orbit."""
        size = 1
        for low, high in self.turns:
            size *= high // low
        return size

    @cached_property
    def lowest(self) -> Ints:
        """The lowest number of each orbit, ascending."""
        ends = [1, *(end for turn in self.turns for end in turn), self.count]
        found = np.zeros(1, dtype=np.int64)
        for low, high in zip(ends[::2], ends[1::2], strict=True):
            digits = np.arange(0, high, low, dtype=np.int64)
            found = (digits[:, None] + found).reshape(-1)
        return found

    def of(self, numbers: Ints) -> Ints:
        """The lowest number of the orbit of each."""
        return lowered(numbers, self.turns)

    def places(self, numbers: Ints) -> Ints:
        """The place of each number's orbit among `lowest`."""
        return np.searchsorted(self.lowest, self.of(numbers)).astype(np.int64)


def lowered(numbers: Ints, turns: Iterable[Turn]) -> Ints:
    """The numbers with these digits 0."""
    for low, high in turns:
        numbers = numbers - numbers % high // low * low
    return numbers


def turns_of_ranks(
    plan: ParallelPlan, kinds: Iterable[Group], topology: Topology
) -> tuple[Turn, ...]:
    """Digits of the ranks of a stage that may be shifted, for groups of these kinds; ascending.

    None where the spans of groups are not nested: then no rank is like another by its number.
    """
    stage = plan.stage_ranks
    own = {1, plan.tp, stage, *(end for kind in kinds for end in plan.span(kind))}
    cuts = sorted(each for each in own if each <= stage)
    if any(high % low for low, high in pairwise(cuts)):
        return ()
    for bound in map(plan.rank_bound, topology.bounds):
        if 0 < bound < stage and _fits(bound, cuts):
            cuts = sorted({*cuts, bound})
    return tuple(
        (low, high) for low, high in pairwise(cuts) if topology.turns(plan.npu_digit(low, high))
    )


def _fits(bound: int, cuts: Iterable[int]) -> bool:
    return all(cut % bound == 0 or bound % cut == 0 for cut in cuts)


def stages_turn(plan: ParallelPlan, topology: Topology) -> bool:
    """Whether all stages lie alike on the network."""
    return topology.turns(plan.npu_digit(plan.stage_ranks, plan.npus))


def lies_in(turn: Turn, span: Turn) -> bool:
    """Whether a digit is part of another."""
    return span[0] <= turn[0] and turn[1] <= span[1]
