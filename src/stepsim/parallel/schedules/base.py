"""What a pipeline schedule is: an ordered list of actions per rank, with no durations.

What a rank runs is stored as columns, which also tell how many activations it holds at most.
Alternating orders are those of 1F1B (arXiv:2104.04473).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple, Self, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stepsim.base.arrays import Bools, Ints, Small, among, rows_of
from stepsim.base.errors import ScheduleError, bad_value, within
from stepsim.base.structs import Count, Entry, Noun, Numbers

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


class Schedule(Noun, kw_only=False, dict=True):
    """`orders[r]` is what pipeline rank r runs, in order.

    `warm_up[r]` forwards of it come before its steady state, whose first backward follows one
    forward more; empty where a schedule has none.
    `fills_once`: with even stages it is idle only while the pipeline fills and drains. `megatron`:
    Megatron-LM's runtime runs it and decides when messages are posted, not torch's.
    """

    name: str
    placement: Placement
    microbatches: int
    orders: tuple[Sequence[OrderEntry], ...]
    warm_up: Numbers = ()
    megatron: bool = False
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


def not_taken(name: str, field: str, value: object, allowed: str) -> ScheduleError:
    """That a schedule does not take a value, and what it takes."""
    return ScheduleError(bad_value(f"schedule {name}", field, value, allowed))


def chunks_on_ranks(
    name: str,
    ranks: int,
    microbatches: int,
    chunks: int = 1,
    kind: PlacementKind = PlacementKind.LOOP,
) -> Placement:
    """How a schedule lies on ranks; raises ScheduleError for a shape that it cannot have.

    All three numbers are positive, and their product is not too large for a computer's memory.
    """
    for field, value in (("ranks", ranks), ("microbatches", microbatches), ("chunks", chunks)):
        within(f"schedule {name}: {field}", value, 1, error=ScheduleError)
    if ranks * microbatches * chunks > _MAX_FORWARDS:
        raise ScheduleError(
            f"schedule {name}: ranks * microbatches * chunks is {ranks * microbatches * chunks}: "
            f"expected a product of at most {_MAX_FORWARDS}"
        )
    enters = microbatches if kind is PlacementKind.BIDIRECTIONAL else 1
    return Placement(ranks=ranks, chunks=chunks, kind=kind, microbatches=enters)


ACTION_KINDS = tuple(ActionKind)
"""Kinds by the numbers that columns have for them."""
FORWARD, BACKWARD, INPUT_GRAD, WEIGHT_GRAD = range(len(ACTION_KINDS))


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
            (ACTION_KINDS.index(action.kind), action.stage, action.chunk, action.microbatch)
            for actions in parts
            for action in actions
        ]
        found = np.full((4, len(parts), width), -1, np.int32)
        there = np.arange(width) < np.array([*map(len, parts)]).reshape(-1, 1)
        found[:, there] = np.array(rows, np.int32).reshape(-1, 4).T
        kind, stage, chunk, microbatch = found
        return cls(kind=kind.astype(np.int8), stage=stage, chunk=chunk, microbatch=microbatch)

    def __len__(self) -> int:
        return len(self.kind)

    def __iter__(self) -> Iterator[OrderEntry]:
        for parts in rows_of(self.kind, self.stage, self.chunk, self.microbatch):
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
        return among(self.kind, map(ACTION_KINDS.index, kinds))


def _entry(
    kinds: list[int], stages: list[int], chunks: list[int], microbatches: list[int]
) -> OrderEntry:
    parts = [
        Action(kind=ACTION_KINDS[kind], stage=stage, chunk=chunk, microbatch=microbatch)
        for kind, stage, chunk, microbatch in zip(kinds, stages, chunks, microbatches, strict=True)
        if kind >= 0
    ]
    return parts[0] if len(parts) == 1 else FusedPair(forward=parts[0], backward=parts[1])


def forward_table(chunks: int, microbatches: int, group_size: int) -> Small:
    """Chunk and microbatch of a rank's forwards in order, as two rows.

    Groups of `group_size` microbatches pass chunk after chunk; the last may be short.
    """
    chunk, microbatch = np.divmod(np.arange(chunks * microbatches, dtype=np.int32), microbatches)
    order = np.lexsort((microbatch, chunk, microbatch // group_size))
    return np.stack((chunk[order], microbatch[order]))


def backward_table(forwards: Small) -> Small:
    """The same microbatches in the same order, from the last chunk to the first."""
    chunk, microbatch = forwards
    return np.stack((chunk.max(initial=0) - chunk, microbatch))


def warm_up(ranks: int, most: int, step: int = 1, more: int = 0) -> Numbers:
    """Forwards of every rank before it alternates: `more` on the last, so many more on each before.

    None runs more than `most`.
    """
    return tuple(min(step * (ranks - 1 - rank) + more, most) for rank in range(ranks))


class Turns(NamedTuple):
    """Actions of a rank: the number of their `kind`, or of each one's, in `ACTION_KINDS`.

    `table` has the chunk and the microbatch of each; the first waits for `late` turns.
    """

    kind: ArrayLike
    table: Small
    late: int = 0


def by_turns(rank: int, ranks: int, *columns: Turns) -> Order:
    """One of each column by turns, while it has any; chunk c of rank r is stage cP + r.

    For example forwards 0, 1, 2 that are -1 turns late and backwards are F0, F1, B0, F2, B1, B2.
    """
    counts = [each.table.shape[1] for each in columns]
    turns = [
        (np.arange(count) + each.late) * len(columns) + place
        for place, (count, each) in enumerate(zip(counts, columns, strict=True))
    ]
    order = np.argsort(np.concatenate(turns), kind="stable")
    every = zip(counts, columns, strict=True)
    kind = np.concatenate([np.broadcast_to(each.kind, count) for count, each in every])
    chunk, microbatch = np.concatenate([each.table for each in columns], axis=1)[:, order, None]
    return Order(
        kind=kind[order, None].astype(np.int8),
        stage=chunk * ranks + rank,
        chunk=chunk,
        microbatch=microbatch,
    )


def alternating(warm_up: Sequence[int], forwards: Small, backwards: Small) -> tuple[Order, ...]:
    """So many forwards of every rank, then by turns a forward and a backward, then the rest."""
    return tuple(
        by_turns(rank, len(warm_up), Turns(FORWARD, forwards, -lead), Turns(BACKWARD, backwards))
        for rank, lead in enumerate(warm_up)
    )


def of_slots(
    name: str,
    placement: Placement,
    microbatches: int,
    slots: Iterable[Sequence[str]],
    warm_up: Numbers = (),
) -> Schedule:
    """A schedule of what every rank runs, as `numbered` takes it."""
    orders = (numbered(own, rank, placement, microbatches) for rank, own in enumerate(slots))
    return Schedule(name, placement, microbatches, orders=tuple(orders), warm_up=warm_up)


def numbered(slots: Sequence[str], rank: int, placement: Placement, microbatches: int) -> Order:
    """What a rank runs, of kinds and chunks: texts such as `F0`, or `F0 B1` for a fused pair.

    Microbatches count up from the first that comes by this rank, in every chunk those of forwards
    and those of backwards; a weight gradient is of the chunk's oldest input gradient that has none
    yet. What comes after so many `microbatches` is left out.
    """
    names, place = np.unique(slots, return_inverse=True)
    parts = [name.split() for name in names.tolist()]
    table = np.full((2, len(parts), max(map(len, parts))), -1, np.int32)
    for i, actions in enumerate(parts):
        for j, action in enumerate(actions):
            table[:, i, j] = ACTION_KINDS.index(ActionKind(action[0])), int(action[1:])
    kind, chunk = table[:, place]
    stage, microbatch = np.full((2, *kind.shape), -1, np.int32)
    for number in range(placement.chunks):
        own = chunk == number
        stage[own] = held = placement.stage(rank, number)
        first = 0 if placement.rank(held) == rank else placement.microbatches // 2
        input_grad = own & (kind == INPUT_GRAD)
        for each in (own & (kind == FORWARD), own & (kind == BACKWARD) | input_grad):
            microbatch[each] = first + np.arange(np.count_nonzero(each))
        microbatch[own & (kind == WEIGHT_GRAD)] = microbatch[input_grad]
    kept = microbatch[:, 0] < microbatches
    return Order(
        kind=kind[kept].astype(np.int8),
        stage=stage[kept],
        chunk=chunk[kept],
        microbatch=microbatch[kept],
    )


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
