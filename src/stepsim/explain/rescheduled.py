"""The steps of a pipelined profile under another order, or with other chunks or microbatches.

Every stage keeps the work that was recorded. Forwards, backwards and messages that exist in both
keep their own durations and the host's delays before them; of others a stage's work is shared out
evenly. All else runs as it did, at its place among the computes. Messages are posted as far ahead
as they were, and block where they did.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from stepsim.base.arrays import Bools, Floats, Ints, ints
from stepsim.base.structs import Noun, replace
from stepsim.explain.pipelined import (
    SLOTS,
    Orders,
    Pipelined,
    PipelineSlot,
)
from stepsim.measured.layers import WEIGHT_GRAD_SHARE
from stepsim.measured.profile.events import Events, begun, same, unknown
from stepsim.measured.profile.pipeline import gradient_waits, parameter_waits
from stepsim.measured.profile.waits import Waits, chained
from stepsim.parallel.schedules import Action, ActionKind
from stepsim.parallel.schedules.base import ACTION_KINDS
from stepsim.run.spans import UNKNOWN, TaskKind, TaskPhase

_WEIGHT_NAME = "weight-compute"
"""Name of the weight gradients that a split backward runs apart."""
_FORWARD, _WEIGHT = map(ACTION_KINDS.index, (ActionKind.FORWARD, ActionKind.WEIGHT_GRAD))
_SHARES = {
    ActionKind.INPUT_GRAD: 1 - WEIGHT_GRAD_SHARE,
    ActionKind.WEIGHT_GRAD: WEIGHT_GRAD_SHARE,
}
"""What an action takes of the time of a whole backward; all of it where it is not listed."""
_PLACES_PER_COMPUTE = 4


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
    events = _joined_events(parts)
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
    waits = Waits(profile=profile, before=before, after=after)
    return waits, own_ps, delay_ps


class _Part(Noun, eq=False):
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


class _Program(Noun, eq=False):
    """Operations of a stage in columns, and pairs of them that wait for each other.

    `end` is the chunk at the other end of a message, `share` what is taken of the table's times.
    """

    slot: Ints
    chunk: Ints
    microbatch: Ints
    end: Ints
    place: Ints
    share: Floats
    weight: Bools
    pairs: Ints


_PARTS = (TaskKind.RECV, TaskKind.COMPUTE, TaskKind.SEND)
"""What an action may be made of, in order."""


def _program(run: Pipelined, actions: Sequence[Action], chunks: int) -> _Program:
    """What a stage runs: an action receives its message, computes and sends, as far as it does."""
    rows = [
        (ACTION_KINDS.index(action.kind), action.stage, action.microbatch) for action in actions
    ]
    kind, stage, microbatch = ints(rows).T
    forward, weight = kind == _FORWARD, kind == _WEIGHT
    ahead = np.where(forward, 1, -1)
    end = np.stack((stage - ahead, unknown(len(kind)), stage + ahead), axis=1)
    runs = (end >= 0) & (end < run.stages * chunks) & ~weight[:, None]
    runs[:, 1] = True
    action, part = np.nonzero(runs)
    ways = (TaskPhase.BACKWARD, TaskPhase.FORWARD)
    slots = np.array([[SLOTS.index((phase, part)) for part in _PARTS] for phase in ways])
    shares = np.array([_SHARES.get(kind, 1.0) for kind in ACTION_KINDS])
    computes = part == 1
    return _Program(
        slot=slots[forward.astype(np.int64)[action], part],
        chunk=stage[action],
        microbatch=microbatch[action],
        end=np.where(computes, UNKNOWN, end[action, part]),
        place=action * _PLACES_PER_COMPUTE + part,
        share=np.where(computes, shares[kind[action]], 1.0),
        weight=weight[action],
        pairs=_pairs(run, runs, forward, blocks=run.blocks and chunks == run.chunks),
    )


def _pairs(run: Pipelined, runs: Bools, forward: Bools, *, blocks: bool) -> Ints:
    """Pairs of operations of a stage that wait for each other: of shape (pairs, 2).

    Rows of `runs` are actions, its columns the parts that each has. A message is posted `ahead`,
    and the next action waits for it if it `blocks`; no program with other chunks does: their orders
    would wait for themselves. For example an action that receives and computes has the rows
    `(posted, recv), (recv, compute)`.
    """
    number = np.where(runs, np.cumsum(runs).reshape(runs.shape) - 1, UNKNOWN)
    received, computed, sent = number.T
    place = np.arange(len(runs))
    ahead = run.ahead[PipelineSlot.FORWARD_RECV], run.ahead[PipelineSlot.BACKWARD_RECV]
    posted = place - np.where(forward, *ahead)
    before = np.stack(
        (
            np.where(posted >= 0, computed[posted], UNKNOWN),
            received,
            np.append(UNKNOWN, sent[:-1]) if blocks else unknown(len(runs)),
            computed,
        ),
        axis=1,
    )
    after = np.stack((received, computed, computed, sent), axis=1)
    waits = (before != UNKNOWN) & (after != UNKNOWN)
    return np.stack((before[waits], after[waits]), axis=1)


def _stage(
    run: Pipelined, stage: int, actions: Sequence[Action], own: Floats, delay: Floats
) -> _Part:
    """The operations of all ranks of a stage in all steps."""
    profile, chunks = run.waits.profile, own.shape[3]
    program = _program(run, actions, chunks)
    slot, chunk, microbatch = program.slot, program.chunk, program.microbatch
    ranks = np.array([i for i, each in enumerate(profile.ranks) if each.stage == stage])
    steps, count = len(profile.steps), len(slot)
    copies = steps * len(ranks)
    step = np.repeat(np.arange(steps), len(ranks) * count)
    rank = np.tile(np.repeat(ranks, count), steps)
    at = tuple(np.tile(each, copies) for each in (slot, chunk // run.stages, microbatch))
    where = (at[0], step, rank, at[1], at[2])
    share = np.tile(program.share, copies)
    shift = np.repeat(np.arange(copies) * count, len(program.pairs))
    pairs = np.tile(program.pairs, (copies, 1))
    columns = {name: np.tile(column, copies) for name, column in _told(run, program).items()}
    columns |= {"step": step, "rank": rank, "place": np.tile(program.place, copies)}
    columns |= _messages(run, columns, np.tile(program.end, copies), own.shape[4])
    return _Part(
        columns=columns,
        own=np.rint(own[where] * share).astype(np.int64),
        delay=np.rint(delay[where]).astype(np.int64),
        before=pairs[:, 0] + shift,
        after=pairs[:, 1] + shift,
    )


def _told(run: Pipelined, program: _Program) -> dict[str, Ints]:
    """Columns of a stage's operations that are the same on all its ranks."""
    slot, (names, streams) = program.slot, run.usual
    nothing = unknown(len(slot))
    return {
        "kind": ints([kind for _, kind in SLOTS])[slot],
        "name": np.where(program.weight, len(run.waits.profile.names), names[slot]),
        "stream": streams[slot],
        "phase": ints([phase for phase, _ in SLOTS])[slot],
        "chunk": program.chunk,
        "microbatch": program.microbatch,
        "size_bytes": nothing,
        "group": nothing,
    }


def _messages(
    run: Pipelined, columns: Mapping[str, Ints], end: Ints, microbatches: int
) -> dict[str, Ints]:
    """The other end of messages, and numbers that both ends have in common."""
    profile, stages = run.waits.profile, run.stages
    replica = [each.replica or 0 for each in profile.ranks]
    table = np.full((stages, max(replica) + 1), UNKNOWN, np.int64)
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
    kept = profile.events.in_time(np.flatnonzero(run.slot == UNKNOWN))
    taken = profile.events.taken(kept)
    compute = np.flatnonzero(
        (run.slot == PipelineSlot.FORWARD) | (run.slot == PipelineSlot.BACKWARD)
    )
    stage = profile.column_of_ranks("stage")[kept]
    rank_step = same(profile.events.rank, profile.events.step)
    places = np.concatenate([compute, kept])
    before = begun(
        rank_step[places], profile.events.start_ps[places], np.arange(len(places)) < len(compute)
    )
    total = np.bincount(rank_step[compute], minlength=int(rank_step.max()) + 1)[rank_step[kept]]
    many = np.array([lengths[each] for each in range(run.stages)])[stage]
    place = (before[len(compute) :] * many // np.maximum(total, 1)) * _PLACES_PER_COMPUTE - 1
    none = ints([])
    columns = {name: getattr(taken, name) for name in _COLUMNS}
    if chunks != run.chunks:
        columns["chunk"] = unknown(len(kept))
    return _Part(
        columns=columns | {"place": place},
        own=waits.own_ps[kept],
        delay=waits.delay_ps[kept],
        before=none,
        after=none,
    )


def _joined_events(parts: Sequence[_Part]) -> Events:
    """All parts in one table; times are not known yet."""
    columns = {n: np.concatenate([part.columns[n] for part in parts]) for n in _COLUMNS}
    nothing = np.zeros(len(columns["rank"]), np.int64)
    return Events.of(len(nothing), **columns, start_ps=nothing, end_ps=nothing)
