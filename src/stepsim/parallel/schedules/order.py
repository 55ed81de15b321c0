"""What a rank runs, as columns, and how many activations it holds at most.

Alternating orders are those of 1F1B (arXiv:2104.04473).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stepsim.base.arrays import Bools, Ints, Small
from stepsim.base.structs import Count, Entry
from stepsim.parallel.schedules.base import Action, ActionKind, FusedPair, OrderEntry, Schedule

ACTION_KINDS = tuple(ActionKind)
"""Kinds by the numbers that columns have for them."""
_NUMBERS = {kind: number for number, kind in enumerate(ACTION_KINDS)}


# no struct: the metaclass of sequences is another
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Order(Sequence[OrderEntry]):
    """What a rank runs, in order, as columns; entries are made when they are looked at.

    All have shape (entries, parts): parts are one, or two where some entry is a fused pair, and
    `kind` (a place in `KINDS`) is -1 where there is no second.
    """

    kind: NDArray[np.int8]
    stage: Small
    chunk: Small
    microbatch: Small

    @classmethod
    def of(cls, entries: Sequence[OrderEntry]) -> Self:
        """The columns of entries."""
        if isinstance(entries, cls):
            return entries
        parts = [entry.parts() for entry in entries]
        width = max(map(len, parts), default=1)
        rows = [
            (_NUMBERS[action.kind], action.stage, action.chunk, action.microbatch)
            for actions in parts
            for action in actions
        ]
        found = np.full((4, len(parts), width), -1, np.int32)
        there = np.arange(width) < np.array([*map(len, parts)]).reshape(-1, 1)
        found[:, there] = np.array(rows, np.int32).reshape(-1, 4).T
        kind, stage, chunk, microbatch = found
        return cls(kind=kind.astype(np.int8), stage=stage, chunk=chunk, microbatch=microbatch)

    @classmethod
    def of_actions(
        cls, kind: ArrayLike, stage: ArrayLike, chunk: ArrayLike, microbatch: ArrayLike
    ) -> Self:
        """An order of single actions, from a number or a column of each."""
        columns = np.broadcast_arrays(kind, stage, chunk, microbatch)
        first, *others = (column.reshape(-1, 1) for column in columns)
        second, third, fourth = (column.astype(np.int32) for column in others)
        return cls(kind=first.astype(np.int8), stage=second, chunk=third, microbatch=fourth)

    def __len__(self) -> int:
        return len(self.kind)

    def __iter__(self) -> Iterator[OrderEntry]:
        columns = (self.kind, self.stage, self.chunk, self.microbatch)
        for parts in zip(*(column.tolist() for column in columns), strict=True):
            yield _entry(*parts)

    @overload
    def __getitem__(self, place: int) -> OrderEntry: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[OrderEntry, ...]: ...
    def __getitem__(self, place: int | slice) -> OrderEntry | tuple[OrderEntry, ...]:
        if isinstance(place, slice):
            return tuple(self)[place]
        columns = (self.kind, self.stage, self.chunk, self.microbatch)
        return _entry(*(column[place].tolist() for column in columns))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def runs(self, *kinds: ActionKind) -> Bools:
        """Which parts are of these kinds: (entries, parts)."""
        found = np.zeros(self.kind.shape, bool)
        for kind in kinds:
            found |= self.kind == ACTION_KINDS.index(kind)
        return found


def _entry(
    kinds: list[int], stages: list[int], chunks: list[int], microbatches: list[int]
) -> OrderEntry:
    parts = [
        Action(kind=ACTION_KINDS[kind], stage=stage, chunk=chunk, microbatch=microbatch)
        for kind, stage, chunk, microbatch in zip(kinds, stages, chunks, microbatches, strict=True)
        if kind >= 0
    ]
    return parts[0] if len(parts) == 1 else FusedPair(forward=parts[0], backward=parts[1])


def alternating(
    ranks: int,
    warm_up: Sequence[int],
    forwards: Sequence[tuple[int, int]],
    backwards: Sequence[tuple[int, int]],
) -> tuple[Order, ...]:
    """So many forwards of every rank, then by turns a forward and a backward, then the rest.

    Forwards and backwards are tables of chunk and microbatch; chunk c of rank r is stage cP + r.
    """
    table = np.array([*forwards, *backwards], np.int32).T
    return tuple(
        _alternating(rank, ranks, lead, table, len(forwards)) for rank, lead in enumerate(warm_up)
    )


def _alternating(rank: int, ranks: int, lead: int, table: Small, forwards: int) -> Order:
    """One rank's order, with `lead` forwards before the first backward."""
    turns = 2 * np.arange(table.shape[1])
    turns[forwards:] += 2 * (lead - forwards) + 1
    order = np.argsort(turns, kind="stable")
    chunk, microbatch = table[:, order]
    numbers = ACTION_KINDS.index(ActionKind.FORWARD), ACTION_KINDS.index(ActionKind.BACKWARD)
    kind = np.where(order < forwards, *numbers)
    return Order.of_actions(kind, chunk * ranks + rank, chunk, microbatch)


class PeakLive(Entry):
    """Most live activations of a rank, in (chunk, microbatch) pairs.

    An activation lives from its forward to its backward. Where that is split, `freed_at_b` counts
    it until the input gradient, `freed_at_w` until the weight gradient.
    """

    freed_at_b: Count = 0
    freed_at_w: Count = 0


def peak_live(schedule: Schedule) -> tuple[PeakLive, ...]:
    """Peak live activations of every rank; a fused pair adds one before it frees one."""
    return tuple(
        PeakLive(
            freed_at_b=int(_live(order, ActionKind.INPUT_GRAD).max(initial=0)),
            freed_at_w=int(_live(order, ActionKind.WEIGHT_GRAD).max(initial=0)),
        )
        for order in schedule.columns
    )


def _live(order: Order, split_frees: ActionKind) -> Ints:
    """Live activations after every part of every entry."""
    frees = order.runs(ActionKind.BACKWARD, split_frees)
    return np.cumsum(order.runs(ActionKind.FORWARD).astype(np.int64) - frees)
