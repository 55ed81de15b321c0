"""What a pipeline schedule is: an ordered list of actions per rank, with no durations.

What a rank runs is stored as columns, which also tell how many activations it holds at most.
Alternating orders are those of 1F1B (arXiv:2104.04473).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Self, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stepsim.base.arrays import Bools, Ints, Small
from stepsim.base.errors import ScheduleError, bad_value
from stepsim.base.structs import Count, Entry, Noun

_Number = TypeVar("_Number", int, "Ints")


class ActionKind(StrEnum):
    """Forward, full backward, input gradient, weight gradient of one microbatch in one stage."""

    FORWARD = "F"
    BACKWARD = "B"
    INPUT_GRAD = "I"
    WEIGHT_GRAD = "W"


class Action(Noun):
    """One action: its virtual stage, the chunk of the rank that holds it, and the microbatch."""

    kind: ActionKind
    stage: int
    chunk: int
    microbatch: int

    @property
    def token(self) -> str:
        """Torch's notation, e.g. `2F0`."""
        return f"{self.stage}{self.kind}{self.microbatch}"

    def parts(self) -> tuple["Action", ...]:
        """The single action, as a tuple of one."""
        return (self,)


class FusedPair(Noun):
    """A forward and a backward of different microbatches that run as one."""

    forward: Action
    backward: Action

    @property
    def token(self) -> str:
        """Torch's notation, e.g. `(0F4;3B1)OVERLAP_F_B`."""
        return f"({self.forward.token};{self.backward.token})OVERLAP_F_B"

    def parts(self) -> tuple[Action, ...]:
        """The forward and the backward of the pair."""
        return self.forward, self.backward


OrderEntry = Action | FusedPair
"""What a rank runs as one."""


class PlacementKind(StrEnum):
    """How virtual stages lie on ranks.

    `loop`: stage s on rank s mod P. `v`: two chunks, down the ranks and back up. `bidirectional`:
    P stages, held twice, from both ends (DualPipe).
    """

    LOOP = "loop"
    V = "v"
    BIDIRECTIONAL = "bidirectional"


class Placement(Noun):
    """Which rank holds which virtual stage; `microbatches` matter where they enter at both ends."""

    ranks: int
    chunks: int = 1
    kind: PlacementKind = PlacementKind.LOOP
    microbatches: int = 1

    @property
    def stages(self) -> int:
        """Virtual stages of the model."""
        return self.ranks if self.kind is PlacementKind.BIDIRECTIONAL else self.ranks * self.chunks

    def stage(self, rank: int, chunk: int) -> int:
        """Virtual stage of a rank's chunk."""
        match self.kind:
            case PlacementKind.LOOP:
                return chunk * self.ranks + rank
            case PlacementKind.V:
                return rank if chunk == 0 else 2 * self.ranks - 1 - rank
            case PlacementKind.BIDIRECTIONAL:
                upper = rank >= self.ranks // 2
                return rank if (chunk == 1) == upper else self.ranks - 1 - rank

    def rank(self, stage: _Number, microbatch: _Number | int = 0) -> _Number:
        """Rank that runs a virtual stage for a microbatch; the same of columns."""
        match self.kind:
            case PlacementKind.LOOP:
                return stage - stage // self.ranks * self.ranks  # quicker than % for columns
            case PlacementKind.V:
                return stage + (stage >= self.ranks) * (2 * self.ranks - 1 - 2 * stage)
            case PlacementKind.BIDIRECTIONAL:
                far = microbatch >= self.microbatches // 2
                return stage + far * (self.ranks - 1 - 2 * stage)


class Runtime(StrEnum):
    """Whose pipeline runtime runs a schedule: it decides when messages are posted."""

    MEGATRON = "megatron"
    TORCH = "torch"


class Schedule(Noun, dict=True):
    """`orders[r]` is what pipeline rank r runs, in order.

    `warm_up[r]` forwards of it come before its steady state, whose first backward follows one
    forward more; empty where a schedule has none.
    `fills_once`: with even stages it is idle only while the pipeline fills and drains.
    """

    name: str
    placement: Placement
    microbatches: int
    orders: tuple[Sequence[OrderEntry], ...]
    warm_up: tuple[int, ...] = ()
    runtime: Runtime = Runtime.TORCH
    fills_once: bool = False

    @property
    def label(self) -> str:
        """The name, with the chunks where a rank has several, e.g. `interleaved:4`."""
        chunks = self.placement.chunks
        return f"{self.name}:{chunks}" if chunks > 1 else self.name

    @property
    def splits_backward(self) -> bool:
        """Whether some backward runs its weight gradients apart from its input gradients."""
        return any(order.runs(ActionKind.WEIGHT_GRAD).any() for order in self.columns)

    @property
    def megatron(self) -> bool:
        """Whether Megatron-LM's runtime runs it."""
        return self.runtime is Runtime.MEGATRON

    @property
    def has_pairs(self) -> bool:
        """Whether some forward and backward run as one."""
        return any(order.kind.shape[1] > 1 for order in self.columns)

    @cached_property
    def columns(self) -> "tuple[Order, ...]":
        """The orders as columns."""
        return tuple(map(Order.of, self.orders))

    def tokens(self) -> list[list[str]]:
        """The orders in torch's notation."""
        return [[entry.token for entry in order] for order in self.orders]

    def actions(self, rank: int) -> Iterator[Action]:
        """The actions of a rank, fused pairs taken apart."""
        for entry in self.orders[rank]:
            yield from entry.parts()


_MAX_FORWARDS = 1 << 22


def check_shape(
    name: str,
    *,
    ranks: int,
    microbatches: int,
    chunks: int,
    held: int = 0,
    more: str = "",
) -> None:
    """Raise ScheduleError unless all three are positive and their product is not too large.

    `held` is the only number of chunks that it has (0: any), and `more` says who has others.
    """
    for field, value in (("ranks", ranks), ("microbatches", microbatches), ("chunks", chunks)):
        if value < 1:
            raise ScheduleError(f"schedule {name}: {field} is {value}: expected at least 1")
    if ranks * microbatches * chunks > _MAX_FORWARDS:
        raise ScheduleError(
            f"schedule {name}: ranks * microbatches * chunks is {ranks * microbatches * chunks}: "
            f"expected at most {_MAX_FORWARDS}"
        )
    if held and chunks != held:
        raise ScheduleError(bad_value(f"schedule {name}", "chunks", chunks, f"{held}{more}"))


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
