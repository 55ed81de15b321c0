"""The steps of a pipelined profile under another order, or with other chunks or microbatches.

Every stage keeps the work that was recorded. Forwards, backwards and messages that exist in both
keep their own durations and the host's delays before them; of others a stage's work is shared out
evenly. All else runs as it did, at its place among the computes. Messages are posted as far ahead
as they were, and block where they did.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct, field

from stepsim.base.arrays import Floats, Ints
from stepsim.base.structs import replace
from stepsim.explain.pipelined import (
    BACKWARD_SLOTS,
    FORWARD_SLOTS,
    Orders,
    Pipelined,
    PipelineSlot,
)
from stepsim.measured.layers import WEIGHT_GRAD_SHARE
from stepsim.measured.profile.events import Events, counted, same
from stepsim.measured.profile.pipeline import gradient_waits, parameter_waits
from stepsim.measured.profile.waits import Waits, chained
from stepsim.parallel.schedules import Action, ActionKind
from stepsim.tables.spans import UNKNOWN, TaskKind, TaskPhase

_WEIGHT_NAME = "weight-compute"
"""Name of the weight gradients that a split backward runs apart."""
_SHARES = {
    ActionKind.INPUT_GRAD: 1 - WEIGHT_GRAD_SHARE,
    ActionKind.WEIGHT_GRAD: WEIGHT_GRAD_SHARE,
}
"""What an action takes of the time of a whole backward; all of it where it is not listed."""
_PLACES_PER_COMPUTE = 4


_C, _S, _R = TaskKind.COMPUTE, TaskKind.SEND, TaskKind.RECV
_KINDS = (_C, _C, _S, _R, _S, _R)
_F, _B = TaskPhase.FORWARD, TaskPhase.BACKWARD
_PHASES = (_F, _B, _F, _F, _B, _B)


def rescheduled(
    run: Pipelined, orders: Orders, *, chunks: int, microbatches: int
) -> tuple[Waits, Ints, Ints]:
    """The steps with other orders: their waits, what operations take, and the host's delays.

    A backward that is split takes `WEIGHT_GRAD_SHARE` of its time for the weights. Raises
    TraceError for orders that wait for themselves.
    """
    own, delay = (
        _reshaped(table, chunks, microbatches, whole=whole)
        for table, whole in ((run.own_ps, True), (run.delay_ps, False))
    )
    parts = [_stage(run, stage, orders[stage], own, delay) for stage in range(run.stages)]
    parts.append(_others(run, {stage: len(order) for stage, order in orders.items()}, chunks))
    skipped = np.cumsum([0, *(len(part.own) for part in parts[:-1])]).tolist()
    place = np.concatenate([part.columns["place"] for part in parts])
    events = _joined_events(parts, place)
    pairs = [
        *((part.before + n, part.after + n) for part, n in zip(parts, skipped, strict=True)),
        chained(events.rank, events.step, events.stream, order=place),
        *parameter_waits(events, place),
        *gradient_waits(events, place),
    ]
    before, after = (np.concatenate(each) for each in zip(*pairs, strict=True))
    names = (*run.waits.profile.names, _WEIGHT_NAME)
    profile = replace(run.waits.profile, events=events, names=names)
    own_ps, delay_ps = (
        np.concatenate([part.own for part in parts]),
        np.concatenate([part.delay for part in parts]),
    )
    return Waits(profile=profile, before=before, after=after), own_ps, delay_ps


class _Part(Struct, frozen=True, kw_only=True, eq=False):
    """Operations of a stage, or those that no schedule orders, and their pairs that wait."""

    columns: dict[str, Ints]
    own: Ints
    delay: Ints
    before: Ints
    after: Ints


_COLUMNS = (
    *("rank", "step", "kind", "name", "stream", "phase", "chunk", "microbatch"),
    *("size_bytes", "group", "peer", "meeting"),
)


def _reshaped(table: Floats, chunks: int, microbatches: int, *, whole: bool) -> Floats:
    """A table for other chunks and microbatches.

    What operations take is shared out as a `whole`, the host's delay before each stays as long.
    """
    had, many = table.shape[-2:]
    if (had, many) == (chunks, microbatches):
        return _filled(table)
    computes, messages = table[: PipelineSlot.FORWARD_SEND], table[PipelineSlot.FORWARD_SEND :]
    share = many / microbatches if whole else 1.0
    of_stage = computes.sum(axis=3, keepdims=True) / (chunks if whole else had)
    if many != microbatches:
        of_stage = of_stage.mean(axis=4, keepdims=True) * share
    shape = (*table.shape[1:3], chunks, microbatches)
    of_messages = _filled(messages).mean(axis=(3, 4), keepdims=True) * share
    return np.concatenate(
        [
            np.broadcast_to(of_stage, (len(computes), *shape)),
            np.broadcast_to(of_messages, (len(messages), *shape)),
        ]
    )


def _filled(table: Floats) -> Floats:
    """A table with means where nothing ran: of its rank and step, else of all; 0 without any."""
    found = table
    for axes in ((3, 4), (2, 3, 4), (1, 2, 3, 4), (0, 1, 2, 3, 4)):
        known = ~np.isnan(found)
        count = known.sum(axis=axes, keepdims=True)
        total = np.where(known, found, 0).sum(axis=axes, keepdims=True)
        mean = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
        found = np.where(known, found, mean)
    return np.nan_to_num(found)


class _Program(Struct, kw_only=True):
    """Operations of a stage in columns, and pairs of them that wait for each other.

    `end` is the chunk at the other end of a message, `share` what is taken of the table's times.
    """

    slot: list[int] = field(default_factory=list)
    chunk: list[int] = field(default_factory=list)
    microbatch: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    place: list[int] = field(default_factory=list)
    share: list[float] = field(default_factory=list)
    weight: list[bool] = field(default_factory=list)
    pairs: list[tuple[int, int]] = field(default_factory=list)

    def add(self, slot: PipelineSlot, action: Action, place: int, end: int = UNKNOWN) -> int:
        """Add an operation of an action; returns its place among them."""
        compute = slot in (PipelineSlot.FORWARD, PipelineSlot.BACKWARD)
        self.slot.append(slot)
        self.chunk.append(action.stage)
        self.microbatch.append(action.microbatch)
        self.end.append(end)
        self.place.append(place)
        self.share.append(_SHARES.get(action.kind, 1.0) if compute else 1.0)
        self.weight.append(action.kind is ActionKind.WEIGHT_GRAD)
        return len(self.slot) - 1


def _program(run: Pipelined, actions: Sequence[Action], chunks: int) -> _Program:
    """What a stage runs: a message is posted `ahead`, and its sender waits for it if it blocks.

    No program with other chunks blocks: their orders would wait for themselves.
    """
    last, blocks = run.stages * chunks - 1, run.blocks and chunks == run.chunks
    found, computes, sent = _Program(), list[int](), UNKNOWN
    for number, action in enumerate(actions):
        ahead = action.kind is ActionKind.FORWARD
        slots, base = FORWARD_SLOTS if ahead else BACKWARD_SLOTS, number * _PLACES_PER_COMPUTE
        source, target = action.stage - (1 if ahead else -1), action.stage + (1 if ahead else -1)
        talks = action.kind is not ActionKind.WEIGHT_GRAD
        received = UNKNOWN
        if talks and 0 <= source <= last:
            received = found.add(slots["recv"], action, base, source)
            posted = number - run.ahead[slots["recv"]]
            found.pairs += [(computes[posted], received)] if posted >= 0 else []
        computes.append(found.add(slots["compute"], action, base + 1))
        found.pairs += [(each, computes[-1]) for each in (received, sent) if each != UNKNOWN]
        sent = UNKNOWN
        if talks and 0 <= target <= last:
            message = found.add(slots["send"], action, base + 2, target)
            found.pairs.append((computes[-1], message))
            sent = message if blocks else UNKNOWN
    return found


def _stage(
    run: Pipelined, stage: int, actions: Sequence[Action], own: Floats, delay: Floats
) -> _Part:
    """The operations of all ranks of a stage in all steps."""
    profile, chunks = run.waits.profile, own.shape[3]
    program = _program(run, actions, chunks)
    slot, chunk, microbatch, end, place = (
        np.array(getattr(program, name), dtype=np.int64)
        for name in ("slot", "chunk", "microbatch", "end", "place")
    )
    ranks = np.array([i for i, each in enumerate(profile.ranks) if each.stage == stage])
    steps, count = len(profile.steps), len(slot)
    copies = steps * len(ranks)
    step = np.repeat(np.arange(steps), len(ranks) * count)
    rank = np.tile(np.repeat(ranks, count), steps)
    at = tuple(np.tile(each, copies) for each in (slot, chunk // run.stages, microbatch))
    where = (at[0], step, rank, at[1], at[2])
    share = np.tile(np.array(program.share), copies)
    shift = np.repeat(np.arange(copies) * count, len(program.pairs))
    pairs = np.tile(np.array(program.pairs, dtype=np.int64).reshape(-1, 2), (copies, 1))
    told = _told(run, program, slot)
    columns = {name: np.tile(column, copies) for name, column in told.items()}
    columns |= {"step": step, "rank": rank, "place": np.tile(place, copies)}
    columns |= _messages(run, columns, np.tile(end, copies), own.shape[4])
    return _Part(
        columns=columns,
        own=np.rint(own[where] * share).astype(np.int64),
        delay=np.rint(delay[where]).astype(np.int64),
        before=pairs[:, 0] + shift,
        after=pairs[:, 1] + shift,
    )


def _told(run: Pipelined, program: _Program, slot: Ints) -> dict[str, Ints]:
    """Columns of a stage's operations that are the same on all its ranks."""
    profile = run.waits.profile
    usual, stream = zip(*(_usual(run, each) for each in PipelineSlot), strict=True)
    weight = np.array(program.weight)
    unknown = np.full(len(slot), UNKNOWN, dtype=np.int64)
    return {
        "kind": np.array(_KINDS, dtype=np.int64)[slot],
        "name": np.where(weight, len(profile.names), np.array(usual)[slot]),
        "stream": np.array(stream)[slot],
        "phase": np.array(_PHASES, dtype=np.int64)[slot],
        "chunk": np.array(program.chunk, dtype=np.int64),
        "microbatch": np.array(program.microbatch, dtype=np.int64),
        "size_bytes": unknown,
        "group": unknown,
    }


def _usual(run: Pipelined, slot: PipelineSlot) -> tuple[int, int]:
    """Name and stream of the operations of a slot that take most of its time; 0 without any."""
    chosen = np.flatnonzero(run.slot == slot)
    if not len(chosen):
        return 0, 0
    events = run.waits.profile.events
    names = events.name[chosen]
    total = np.bincount(names, run.waits.own_ps[chosen])
    first = chosen[np.argmax(total[names])]  # of those that are there, also where none takes time
    return int(events.name[first]), int(events.stream[first])


def _messages(
    run: Pipelined, columns: Mapping[str, Ints], end: Ints, microbatches: int
) -> dict[str, Ints]:
    """The other end of messages, and numbers that both ends have in common."""
    profile, stages = run.waits.profile, run.stages
    replica = [each.replica or 0 for each in profile.ranks]
    table = np.full((stages, max(replica) + 1), UNKNOWN, dtype=np.int64)
    for place, each in enumerate(profile.ranks):
        table[each.stage or 0, replica[place]] = place
    of_rank = np.array(replica)[columns["rank"]]
    number = np.minimum(columns["chunk"], end)
    for column, size in (
        (columns["phase"], len(TaskPhase)),
        (columns["step"], len(profile.steps)),
        (of_rank, table.shape[1]),
        (columns["microbatch"], microbatches),
    ):
        number = number * size + column
    number += int(profile.events.meeting.max(initial=-1)) + 1
    is_message = end != UNKNOWN
    return {
        "peer": np.where(is_message, table[end % stages, of_rank], UNKNOWN),
        "meeting": np.where(is_message, number, UNKNOWN),
    }


def _others(run: Pipelined, lengths: Mapping[int, int], chunks: int) -> _Part:
    """Operations that no schedule orders, after as large a part of the computes as before."""
    waits, profile = run.waits, run.waits.profile
    kept = np.flatnonzero(run.slot == UNKNOWN)
    kept = kept[np.argsort(profile.events.start_ps[kept], kind="stable")]
    taken = profile.events.taken(kept)
    compute = np.flatnonzero(
        (run.slot == PipelineSlot.FORWARD) | (run.slot == PipelineSlot.BACKWARD)
    )
    stage = profile.column_of_ranks("stage")[kept]
    rank_step = same(profile.events.rank, profile.events.step)
    earlier = _earlier(profile.events, rank_step, compute, kept)
    total = np.bincount(rank_step[compute], minlength=int(rank_step.max()) + 1)[rank_step[kept]]
    many = np.array([lengths[each] for each in range(run.stages)])[stage]
    place = (earlier * many // np.maximum(total, 1)) * _PLACES_PER_COMPUTE - 1
    none = np.array([], dtype=np.int64)
    columns = {name: getattr(taken, name) for name in _COLUMNS}
    if chunks != run.chunks:
        columns["chunk"] = np.full(len(kept), UNKNOWN, dtype=np.int64)
    return _Part(
        columns=columns | {"place": place},
        own=waits.own_ps[kept],
        delay=waits.delay_ps[kept],
        before=none,
        after=none,
    )


def _earlier(events: Events, rank_step: Ints, compute: Ints, others: Ints) -> Ints:
    """How many of these computes of its rank and step started before each of the others."""
    places = np.concatenate([compute, others])
    is_compute = np.arange(len(places)) < len(compute)
    order = np.lexsort((~is_compute, events.start_ps[places], rank_step[places]))
    so_far = np.cumsum(is_compute[order])
    key = rank_step[places][order]
    begins = np.flatnonzero(np.diff(key, prepend=-1))
    skipped: Ints = (so_far - is_compute[order])[begins]
    found = np.empty(len(places), dtype=np.int64)
    found[order] = so_far - np.repeat(skipped, np.diff(np.append(begins, len(key))))
    return found[len(compute) :]


def _joined_events(parts: Sequence[_Part], place: Ints) -> Events:
    """All parts in one table; times are not known yet."""
    columns = {n: np.concatenate([part.columns[n] for part in parts]) for n in _COLUMNS}
    count = len(place)
    nothing = np.zeros(count, dtype=np.int64)
    by_place = np.argsort(place, kind="stable")
    order = np.empty(count, dtype=np.int64)
    keys = (columns["rank"], columns["step"], columns["name"])
    order[by_place] = counted(*(key[by_place] for key in keys))
    return Events.of(count, **columns, start_ps=nothing, end_ps=nothing, order=order)
