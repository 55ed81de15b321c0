"""A pipelined profile as tables: its forwards, backwards and messages, and their order."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from typing import Self

import numpy as np

from stepsim.base.arrays import Floats, Ints
from stepsim.base.errors import PlanError
from stepsim.base.structs import Noun
from stepsim.measured.profile.events import Events, Profile, same, unknown
from stepsim.measured.profile.pipeline import last_computes, messages_block
from stepsim.measured.profile.waits import Waits, chained
from stepsim.parallel.schedules import Action, ActionKind
from stepsim.run.spans import UNKNOWN, TaskKind, TaskPhase


class PipelineSlot(IntEnum):
    """Kinds of operations that a schedule orders."""

    FORWARD = 0
    BACKWARD = 1
    FORWARD_SEND = 2
    FORWARD_RECV = 3
    BACKWARD_SEND = 4
    BACKWARD_RECV = 5


SLOTS = (
    (TaskPhase.FORWARD, TaskKind.COMPUTE),
    (TaskPhase.BACKWARD, TaskKind.COMPUTE),
    (TaskPhase.FORWARD, TaskKind.SEND),
    (TaskPhase.FORWARD, TaskKind.RECV),
    (TaskPhase.BACKWARD, TaskKind.SEND),
    (TaskPhase.BACKWARD, TaskKind.RECV),
)
"""Phase and kind of the operations of each slot."""
Orders = Mapping[int, Sequence[Action]]
"""What every stage runs, in order."""


class Pipelined(Noun, eq=False, dict=True):
    """A profile's forwards, backwards and messages, as tables of what they take.

    `own_ps` and `delay_ps` have axes slot, step, rank, chunk of the stage and microbatch, without
    a number where nothing ran. `ordered` are the operations they hold, `orders` those of each stage
    in the first step. `ahead` is by how many computes messages are received ahead, by slot.
    """

    waits: Waits
    stages: int
    chunks: int
    microbatches: int
    own_ps: Floats
    delay_ps: Floats
    slot: Ints
    orders: Orders
    ahead: Mapping[int, int]
    blocks: bool

    @property
    def busiest_ps(self) -> Ints:
        """Work of the busiest rank of every step: no schedule of this work is shorter."""
        work = (np.nan_to_num(self.own_ps) + np.nan_to_num(self.delay_ps))[
            : PipelineSlot.FORWARD_SEND
        ]
        return np.asarray(work.sum(axis=(0, 3, 4)).max(axis=1), np.int64)

    @cached_property
    def usual(self) -> tuple[Ints, Ints]:
        """Name and stream of the operations that take most of each slot's time, 0 without any."""
        events, found = self.waits.profile.events, np.zeros((2, len(PipelineSlot)), np.int64)
        for slot in PipelineSlot:
            chosen = np.flatnonzero(self.slot == slot)
            if len(chosen):
                names = events.name[chosen]
                total = np.bincount(names, self.waits.own_ps[chosen])
                # of those that are there, also where none takes time
                first = chosen[np.argmax(total[names])]
                found[:, slot] = events.name[first], events.stream[first]
        return found[0], found[1]


def pipelined(waits: Waits) -> Pipelined:
    """The tables of a profile; raises PlanError that says what a schedule cannot be told from."""
    profile, events = waits.profile, waits.profile.events
    if profile.follows is not None:
        raise PlanError("the trace says what each operation waits for, not the order of a schedule")
    slot = _slots(events)
    compute = (slot == PipelineSlot.FORWARD) | (slot == PipelineSlot.BACKWARD)
    if not compute.any():
        raise PlanError("the run does not name forwards, backwards and their microbatches")
    stage = profile.column_of_ranks("stage")
    stages, numbers = int(stage.max()) + 1, np.unique(events.microbatch[compute])
    if stages == 1:
        raise PlanError("the run has one stage")
    if (events.chunk[compute] % stages != stage[compute]).any():
        raise PlanError("chunks do not lie on the stages in turn")
    chunks = int(events.chunk[compute].max()) // stages + 1
    shape = (len(PipelineSlot), len(profile.steps), len(profile.ranks), chunks, len(numbers))
    held = np.flatnonzero(slot >= 0)
    number = np.searchsorted(numbers, events.microbatch[held]).clip(max=len(numbers) - 1)
    at = (slot[held], events.step[held], events.rank[held], events.chunk[held] // stages, number)
    posted = _Posted.of(events, slot)
    ahead = posted.ahead(events, slot)
    times = waits.own_ps, posted.delay_ps(waits, slot, ahead)
    own, delay = (_table(shape, at, each[held]) for each in times)
    if np.isnan(own[: PipelineSlot.FORWARD_SEND]).any():
        raise PlanError("not every stage ran every microbatch forward and backward in every step")
    return Pipelined(
        waits=waits,
        stages=stages,
        chunks=chunks,
        microbatches=len(numbers),
        own_ps=own,
        delay_ps=delay,
        slot=slot,
        orders=_orders(profile, slot, numbers, stages),
        ahead=ahead,
        blocks=messages_block(events),
    )


def _slots(events: Events) -> Ints:
    """The slot of every operation, `UNKNOWN` for one that no schedule orders."""
    told = (events.microbatch != UNKNOWN) & (events.chunk != UNKNOWN)
    found = unknown(len(events))
    for slot, (phase, kind) in enumerate(SLOTS):
        found[told & (events.phase == phase) & events.of_kind(kind)] = slot
    return found


def _table(shape: tuple[int, ...], at: tuple[Ints, ...], values: Ints) -> Floats:
    """Sums of the values at each place, no number where there is none."""
    found, count = np.zeros(shape), np.zeros(shape)
    np.add.at(found, at, values)
    np.add.at(count, at, 1)
    return np.where(count > 0, found, np.nan)


def _orders(profile: Profile, slot: Ints, numbers: Ints, stages: int) -> Orders:
    """Forwards and backwards of each stage's first rank in the first step, as they ran."""
    events, found = profile.events, {}
    kinds = {PipelineSlot.FORWARD: ActionKind.FORWARD, PipelineSlot.BACKWARD: ActionKind.BACKWARD}
    stage = profile.column_of_ranks("stage")
    for number in range(stages):
        of_stage = (stage == number) & (events.step == 0) & np.isin(slot, [*kinds])
        first = events.rank[of_stage].min()
        places = np.flatnonzero(of_stage & (events.rank == first))
        actions = [
            Action(
                kind=kinds[PipelineSlot(int(slot[place]))],
                stage=int(events.chunk[place]),
                chunk=int(events.chunk[place]) // stages,
                microbatch=int(np.searchsorted(numbers, events.microbatch[place])),
            )
            for place in places[np.lexsort((events.order[places], events.start_ps[places]))]
        ]
        found[number] = [*dict.fromkeys(actions)]
    return found


class _Posted(Noun, eq=False):
    """Messages, the place of each one's compute among `computes`, and these rank by rank.

    Of several computes of a microbatch a message is received before the first, sent after the last.
    """

    computes: Ints
    messages: Ints
    of_compute: Ints

    @classmethod
    def of(cls, events: Events, slot: Ints) -> Self:
        """The messages of an operation's rank, step, phase, chunk and microbatch."""
        compute = np.flatnonzero((slot == PipelineSlot.FORWARD) | (slot == PipelineSlot.BACKWARD))
        order = (events.start_ps[compute], events.step[compute], events.rank[compute])
        compute = compute[np.lexsort(order)]
        key = same(events.rank, events.step, events.phase, events.chunk, events.microbatch)
        first, last = np.full((2, int(key.max()) + 1), -1, np.int64)
        last[key[compute]] = np.arange(len(compute))
        first[key[compute[::-1]]] = np.arange(len(compute))[::-1]
        message = np.flatnonzero(slot >= PipelineSlot.FORWARD_SEND)
        message = message[last[key[message]] >= 0]
        sent = events.of_kind(TaskKind.SEND)[message]
        of_compute = np.where(sent, last[key[message]], first[key[message]])
        return cls(computes=compute, messages=message, of_compute=of_compute)

    def ahead(self, events: Events, slot: Ints) -> dict[int, int]:
        """By how many computes of its rank a message is received ahead, usually, by slot."""
        place = np.full(len(events) + 1, -1, np.int64)
        place[self.computes] = np.arange(len(self.computes))
        last = place[last_computes(events, self.computes, self.messages)]
        apart = (self.of_compute - last)[last >= 0]
        kinds = slot[self.messages][last >= 0]
        received = (PipelineSlot.FORWARD_RECV, PipelineSlot.BACKWARD_RECV)
        chosen = {int(each): apart[kinds == each] for each in received}
        return {s: max(int(np.median(each)), 1) if len(each) else 1 for s, each in chosen.items()}

    def delay_ps(self, waits: Waits, slot: Ints, ahead: Mapping[int, int]) -> Ints:
        """The host's delays; those of messages from where a program posts them."""
        events, found = waits.profile.events, waits.delay_ps.copy()
        received = np.isin(slot[self.messages], [*ahead])
        back = np.select([slot[self.messages] == s for s in ahead], [*ahead.values()])
        place = np.where(received, self.of_compute - back, self.of_compute)
        after = self.computes[np.maximum(place, 0)]
        known = (place >= 0) & (events.rank[after] == events.rank[self.messages])
        known &= events.step[after] == events.step[self.messages]
        ready = np.full(len(events), np.iinfo(np.int64).min)
        ready[self.messages] = np.where(known, events.end_ps[after], ready[self.messages])
        earlier, later = chained(events.rank, events.step, events.stream, order=events.start_ps)
        np.maximum.at(ready, later, events.end_ps[earlier])
        told = self.messages[ready[self.messages] > np.iinfo(np.int64).min]
        found[told] = np.maximum(events.start_ps[told] - ready[told], 0)
        return found
