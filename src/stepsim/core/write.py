"""What every rank runs, in which order, and what each part waits for.

Ranks of one stage run the same program, so a program is written once per stage: segments, each a
task list or one end of a message. Collectives join the ranks of a stage; messages join a segment of
one stage's program with a segment of another's.

A stage is written by following its point-to-point program step by step. What an entry of the
schedule's order computes is written once for all entries that look alike; then columns put these
rows where the entries are. A rank has a front: what the next segment in order waits for. A row may
read the front, join it, or take its place; and it may queue behind the last row of a stream. So
what a row waits for is a piece of the column of all that ever joined the front, and one more.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from functools import cached_property, partial
from itertools import chain, compress, pairwise
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from stepsim.base.arrays import (
    Bools,
    Ints,
    Lists,
    Small,
    bounds,
    distinct,
    ints,
    narrowed,
    places_by,
    row_numbers,
    rows_of,
    spans,
)
from stepsim.base.axes import CollectiveKind, Group, ParallelAxis, Stream
from stepsim.base.errors import ScheduleError
from stepsim.base.structs import Names, Noun
from stepsim.core.actions import (
    CommNumbers,
    TaskList,
    TaskLists,
    gradient_buckets,
    host_times,
    spread_launches,
)
from stepsim.network.prices import Use
from stepsim.options import StepOptions
from stepsim.parallel.p2p import (
    Message,
    P2PMode,
    P2PProgram,
    StepKind,
    default_mode,
)
from stepsim.parallel.p2p.plain import far_ranks
from stepsim.parallel.schedules import Action, ActionKind, Schedule
from stepsim.parallel.schedules.base import Order
from stepsim.parallel.stages import Stages, StageWork
from stepsim.workload.plan import Plan
from stepsim.workload.rows import CommOp, CommOps, Row, Rows, Shards

NONE = -1


class SegmentKind(IntEnum):
    """What a segment is: work of the pipeline, after it, beside it, or one end of a message."""

    ACTION = 0
    PER_STEP = 1
    REDUCTION = 2
    SEND = 3
    RECV = 4


class Look(NamedTuple):
    """What segments that do the same have in common, and how often a rank runs such a one."""

    kind: SegmentKind
    task_list: int
    peer_stage: int
    runs: int


class Program(Noun, eq=False, dict=True):
    """What each rank of a stage runs: columns of its segments.

    `entries` is the schedule's order, `message` the number of the communication of all messages,
    `lists` are all task lists of the graph. Segment i starts after the earlier segments `after[i]`;
    it is of the entry `entry[i]` of the order, -1 outside the pipeline. It is the end `end[i]` of a
    message, -1 if it is none, and `peer[i]` is the segment at the other end, in the program of
    another stage. It has the look `looks[look[i]]`, which says its kind, its task list (-1 for a
    message) and the stage of the peer; looks stand in the order in which they appear.
    """

    stage: int
    entries: Order
    message: int
    lists: Sequence[TaskList]
    stream: NDArray[np.int8]
    entry: Small
    end: Small
    peer: Small
    after: Lists
    looks: tuple[Look, ...]
    look: NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.look)

    @property
    def kind(self) -> Small:
        """The kind of every segment."""
        return np.array([each.kind for each in self.looks], np.int32).take(self.look)

    @property
    def peer_stage(self) -> Small:
        """The stage at the other end of every message, -1 for other segments."""
        return np.array([each.peer_stage for each in self.looks], np.int32).take(self.look)

    def message_use(self, look: Look) -> Use:
        """The communication of a message as this stage uses it."""
        return Use(self.message, self.stage, look.peer_stage, look.kind is SegmentKind.SEND)

    @cached_property
    def counts(self) -> Counter[Use]:
        """How often a rank takes part in each communication."""
        counts: Counter[Use] = Counter()
        for look in self.looks:
            if look.task_list < 0:
                counts[self.message_use(look)] += look.runs
                continue
            for comm, times in self.lists[look.task_list].comms.items():
                counts[Use(comm, self.stage)] += look.runs * times
        return counts

    @cached_property
    def uses(self) -> tuple[Use, ...]:
        """The communications that it takes part in, ascending."""
        return tuple(sorted(self.counts))

    @property
    def senders(self) -> list[int]:
        """Stages that send to this one."""
        return [each.peer_stage for each in self.looks if each.kind is SegmentKind.RECV]


class TaskGraph(Noun):
    """Programs per stage, the task lists they use, and the communications of the task lists.

    Ranks of a stage are alike: they run `programs[stage]`. What sets them apart is only where
    their groups lie on the topology. `notes` say which communications were left out.
    """

    plan: Plan
    schedule: Schedule
    options: StepOptions
    p2p: P2PMode
    programs: tuple[Program, ...]
    task_lists: tuple[TaskList, ...]
    comms: CommOps
    notes: Names

    @property
    def uses(self) -> dict[Use, int]:
        """The communications of all stages, stage by stage, and how often a rank takes part."""
        counted = (program.counts.items() for program in self.programs)
        return {use: count for counts in counted for use, count in counts}

    def streams(self) -> Iterator[tuple[int, Stream]]:
        """Communications and streams on which they run."""
        for task_list in self.task_lists:
            for task in task_list.tasks:
                yield task.comm, task.stream
        for program in self.programs:
            for stream in distinct(program.stream[program.end >= 0].astype(np.int64)).tolist():
                yield program.message, Stream(stream)


def write_graph(stages: Stages, schedule: Schedule, plan: Plan, options: StepOptions) -> TaskGraph:
    """The programs of all stages; raises ScheduleError where an end of a message has no other."""
    p2p = options.p2p or default_mode(schedule)
    lists = TaskLists(
        comms=CommNumbers(alone=plan.alone),
        host=host_times(options),
        last_stage=schedule.placement.stages - 1,
    )
    message = lists.comms.number(
        CommOp(
            kind=CollectiveKind.SEND_RECV,
            group=Group.PP,
            axis=ParallelAxis.PP,
            size_bytes=stages.pp_comm_bytes,
        )
    )
    every = p2p.programs(schedule, options)
    place = np.full(4 * schedule.placement.stages * schedule.microbatches, NONE, np.int32)
    writer = partial(
        _StageWriter, schedule=schedule, lists=lists, options=options, free=p2p.free, written={}
    )
    programs = [
        writer(stage=stage, work=work).program(steps, place, NONE if message is None else message)
        for stage, (work, steps) in enumerate(zip(stages.works, every, strict=True))
    ]
    _meet(programs, schedule, place)
    groups = ", ".join(sorted(lists.comms.dropped))
    left_out = f"collectives on {groups} groups transfer nothing: these groups have one rank"
    return TaskGraph(
        plan=plan,
        schedule=schedule,
        options=options,
        p2p=p2p,
        programs=tuple(programs),
        task_lists=tuple(lists.lists),
        comms=tuple(lists.comms.ops),
        notes=(left_out,) if groups else (),
    )


def _meet(programs: Sequence[Program], schedule: Schedule, place: Small) -> None:
    """Name the segment at the other end of every message; `place` has that of every end."""
    for stage, program in enumerate(programs):
        messages = np.flatnonzero(program.end >= 0)
        other = place.take(program.end.take(messages) ^ 1)
        alone = messages[other < 0]
        if len(alone):
            raise ScheduleError(_unmatched(schedule, stage, int(program.end[alone[0]])))
        program.peer[messages] = other


def _unmatched(schedule: Schedule, stage: int, end: int) -> str:
    """Why a schedule does not run: an end of a message without the other."""
    message = Message.of(schedule, end // 2)
    here, there = ("recv", "send") if end % 2 else ("send", "recv")
    far = int(far_ranks(schedule, np.array(end)))
    return (
        f"schedule {schedule.name}: rank {stage} {here}s microbatch "
        f"{message.microbatch} ({message.kind}, stage {message.source} to "
        f"{message.target}) but rank {far} has no {there} for it"
    )


class _Joins(IntEnum):
    """What becomes of the front when a row is posted."""

    NOT = 0
    BESIDE = 1
    ALONE = 2


class _PostedRow(NamedTuple):
    """A segment of a `kind` on a `stream`, or, where that is -1, a wait.

    It runs a `task_list`; `end` is the end of a message that it is or waits for, -1 for others.
    `reads` says whether it waits for the front. It waits for the last row before it in its `queue`,
    a stream. It `joins` the front, or what it waits for does. A `paced` one waits for the `unit`
    before the one under way.
    """

    kind: int = NONE
    stream: int = NONE
    task_list: int = NONE
    end: int = NONE
    peer_stage: int = NONE
    reads: int = False
    queue: int = NONE
    joins: int = _Joins.NOT
    unit: int = False
    paced: int = False


# Columns of rows by the fields of `_PostedRow`, and `entry`: the place in the order, or -1.
_PostedRows = dict[str, Small]

# Streams of sends to the rank before and to the next, and of receipts of such.
_QUEUES = np.array(
    [Stream.PP_BACKWARD, Stream.PP_FORWARD, Stream.PP_BACKWARD_RECV, Stream.PP_FORWARD_RECV],
    np.int32,
)


# Columns of rows of stages, and where those of each look start, by what makes stages alike.
_Written = dict[tuple[object, ...], tuple[Small, Ints]]


class _StageWriter(Struct, kw_only=True):
    """The program of a stage being written; messages are `free` where nobody waits to send them.

    `written` is what earlier stages of the graph wrote: a stage with the same rows in the same
    order takes theirs. So a search of 60 plans of GPT-3 takes 6.0 s, not 6.5. `buckets` are what to
    reduce after each row of the last backward of every chunk; None without overlap.
    """

    stage: int
    work: StageWork
    schedule: Schedule
    lists: TaskLists
    options: StepOptions
    free: bool
    written: _Written
    rows: list[_PostedRow] = []
    buckets: Iterator[tuple[CommOp, ...]] | None = None

    def _edges(self, order: Order) -> Bools:
        """Which parts are the first forward of a chunk, or its last weight gradients."""
        found = np.zeros(order.kind.shape, bool)
        ends = ((ActionKind.FORWARD,), 1), ((ActionKind.BACKWARD, ActionKind.WEIGHT_GRAD), -1)
        for kinds, way in ends:
            place, part = (each[::way] for each in order.runs(*kinds).nonzero())
            _, outermost = np.unique(order.chunk[place, part], return_index=True)
            found[place[outermost], part[outermost]] = True
        return found

    def program(self, steps: P2PProgram, posted: Small, message: int) -> Program:
        """The program that follows these steps; `posted` learns the segment of its ends."""
        rows = self._placed(steps)
        segments = np.flatnonzero(rows["kind"] >= 0)
        number = np.full(len(rows["kind"]), NONE, np.int32)
        number[segments] = np.arange(len(segments), dtype=np.int32)
        end = rows["end"].take(segments)
        posted[end.compress(end >= 0)] = np.flatnonzero(end >= 0)
        names = ("kind", "task_list", "peer_stage")
        looks, look = _looks_of(*(rows[name].take(segments) for name in names))
        return Program(
            stage=self.stage,
            entries=self.schedule.columns[self.stage],
            message=message,
            lists=self.lists.lists,
            stream=rows["stream"].take(segments).astype(np.int8),
            entry=rows["entry"].take(segments),
            end=end,
            peer=np.full_like(end, NONE),
            after=_waits_of(rows, segments, number, posted),
            looks=looks,
            look=look,
        )

    def _placed(self, steps: P2PProgram) -> _PostedRows:
        """Rows of the steps, those of an entry where it is computed, and one that follows all.

        For example the steps F0, send, F1 of a schedule whose forwards are two rows each are the
        rows 0, 1 of the table, then the send's, then 0, 1 again, then the last one.
        """
        written, starts, look = self._entries()
        table = np.concatenate((written, self._of_steps(steps)), axis=1)
        last = written.shape[1] - 1
        first = np.append(np.arange(last + 1, table.shape[1]), last)
        counts, place = np.ones(len(first), np.int64), np.full(len(first), NONE, np.int32)
        runs = np.flatnonzero(steps.kind == StepKind.COMPUTE)
        place[runs] = entry = steps.what.take(runs)
        first[runs], counts[runs] = starts.take(look[entry]), np.diff(starts).take(look[entry])
        columns = table.take(spans(first, counts), axis=1)
        rows = dict(zip(_PostedRow._fields, columns, strict=True))
        acts = rows["kind"] == SegmentKind.ACTION
        return rows | {"entry": np.where(acts, place.repeat(counts), np.int32(NONE))}

    def _entries(self) -> tuple[Small, Ints, Ints]:
        """What entries compute, once for all that look alike: rows, their starts, and looks.

        A chunk's last gradients look like no others. Task lists are made in the order of the
        entries, and last what follows the pipeline: it is the last row.
        """
        order = self.schedule.columns[self.stage]
        edges = self._edges(order)
        codes = _codes(order, self.work, edges, self.lists.last_stage)
        first, look = row_numbers(codes)
        turns = np.argsort(first)
        places = first[turns]
        blocks = tuple(id(block) for chunk in self.work.chunks for block in chunk)
        key = blocks, id(self.work.per_step), codes[places].tobytes()
        if key not in self.written:
            starts, entries = [0], [order[place].parts() for place in places.tolist()]
            outer = [[*compress(*each)] for each in zip(entries, edges[places], strict=True)]
            self.buckets = self._buckets(chain.from_iterable(outer))
            for parts, own in zip(entries, outer, strict=True):
                self._entry(parts, own)
                starts.append(len(self.rows))
            columns = np.array([*self.rows, self._per_step()], np.int32).T
            self.written[key] = columns, np.array(starts)
        return *self.written[key], np.argsort(turns).take(look)

    def _of_steps(self, steps: P2PProgram) -> NDArray[np.int32]:
        """A row for every step, of which those of entries say nothing.

        Where messages are free, they leave when they are posted, overtaking others, and are
        received when they come; sends are never waited for.
        """
        ends, alone = steps.what, steps.alone
        is_post, waits = (steps.kind == kind for kind in (StepKind.POST, StepKind.WAIT))
        receives = ends & 1 == 1
        rows = np.array(_PostedRow(), np.int32).repeat(len(ends)).reshape(-1, len(ends))
        columns = dict(zip(_PostedRow._fields, rows, strict=True))
        posts = np.flatnonzero(is_post)
        peer, queue = self._messages(ends.take(posts))
        columns["end"][:] = ends
        columns["peer_stage"][posts] = peer
        columns["kind"][posts] = SegmentKind.SEND + receives[posts]
        columns["reads"][:] = is_post & ~(receives & self.free)
        columns["stream"][posts] = Stream.EAGER if self.free else queue
        if self.free:
            waits, alone = waits & receives, np.zeros_like(alone)
        else:
            columns["queue"][posts] = queue
        begins = alone & np.append(True, ~alone[:-1])
        columns["joins"][:] = np.where(waits, _Joins.BESIDE + begins, _Joins.NOT)
        return rows

    def _messages(self, ends: Small) -> tuple[Ints, Small]:
        """The stage at the other side of ends, and the stream they queue on.

        To the next rank or to the one before; with two ranks activations go forward.
        """
        placement, receives = self.schedule.placement, ends & 1
        peer = far_ranks(self.schedule, ends)
        hop = (self.stage - peer) * (2 * receives - 1)
        ahead = (hop == 1) | (hop == 1 - placement.ranks)
        if placement.ranks == 2:
            ahead = ends >> 1 < placement.stages * self.schedule.microbatches
        return peer, _QUEUES.take(2 * receives + ahead)

    def _per_step(self) -> _PostedRow:
        """What follows the pipeline, behind the reductions of the gradients; a wait for nothing."""
        items = self.work.per_step
        if self.options.dp_overlap:
            _, items = self.work.without_gradients()
        if not items:
            return _PostedRow()
        return _PostedRow(
            kind=SegmentKind.PER_STEP,
            stream=Stream.COMPUTE,
            task_list=self.lists.per_step(items),
            reads=True,
            queue=Stream.DP,
        )

    def _buckets(self, edges: Iterable[Action]) -> Iterator[tuple[CommOp, ...]] | None:
        """Buckets for the gradients of the final actions among those at the edges of chunks."""
        gradients, _ = self.work.without_gradients()
        if not self.options.dp_overlap or not gradients:
            return None
        final = (action for action in edges if action.kind is not ActionKind.FORWARD)
        rows = [row for action in final for row in reversed(self._rows_of(action))]
        return gradient_buckets(gradients, rows, self.options.dp_bucket_bytes)

    def _rows_of(self, action: Action) -> Rows:
        blocks = self.work.chunks[action.chunk]
        return blocks[action.microbatch % len(blocks)]

    def _entry(self, parts: Sequence[Action], edges: Sequence[Action]) -> None:
        """An action or a fused pair; a final one releases its rows' gradient reductions.

        `edges` are those that are the first of their chunk, or final.
        """
        first = [action for action in edges if action.kind is ActionKind.FORWARD]
        reducing = [
            action
            for action in edges
            if action not in first
            if self.buckets or any(row.weight_grad.comms for row in self._rows_of(action))
        ]
        if any(row.shards for action in parts for row in self._rows_of(action)):
            if len(parts) == 1 and parts[0].kind in (ActionKind.FORWARD, ActionKind.BACKWARD):
                self._sharded(parts[0], is_first=bool(first), reduces=bool(reducing))
                return
            self._gather_before(parts, first)
        if len(parts) == 1 and reducing:
            self._row_by_row(parts[0])
            return
        numbers = [self.lists.action(action, self._rows_of(action)) for action in parts]
        self._in_order(numbers[0] if len(parts) == 1 else self.lists.fused(*numbers))
        for row in (row for action in reducing for row in reversed(self._rows_of(action))):
            self._reductions(row)

    def _row_by_row(self, action: Action) -> None:
        """A backward in as many segments as rows, each followed by its reductions.

        Each row has its share of the host's launches.
        """
        rows = spread_launches(self._rows_of(action))
        for i in reversed(range(len(rows))):
            self._in_order(self.lists.action(action, rows, range(i, i + 1)))
            self._reductions(rows[i])

    def _reductions(self, row: Row) -> None:
        """Start what a row's gradients allow on their stream; the step ends when it has ended."""
        if row.weight_grad.comms:
            self._beside(row.name, row.weight_grad.comms, Stream.DP, reads=True)
        if self.buckets and (ready := next(self.buckets)):
            self._beside("gradient bucket", ready, Stream.DP, reads=True)

    def _beside(self, label: str, ops: Sequence[CommOp], stream: Stream, **more: int) -> None:
        """Start collectives on their stream, beside the actions."""
        number = self.lists.beside(label, ops, stream) if ops else None
        if number is not None:
            row = _PostedRow(SegmentKind.REDUCTION, stream, number, queue=stream, **more)
            self.rows.append(row)

    def _gather_before(self, parts: Sequence[Action], first: Sequence[Action]) -> None:
        """Gather what fused and split actions need once a step, before the `first` of a chunk.

        Raises ScheduleError where it is needed again and again: that is not modelled.
        """
        for action in parts:
            held = [row.shards for row in self._rows_of(action) if row.shards]
            if not all(shards.once and not shards.reduce for shards in held):
                raise ScheduleError(
                    f"schedule {self.schedule.name}: parameters gathered layer by layer (zero 2 "
                    "and 3) with fused or split backwards are not modelled"
                )
            if action in first:
                for shards in held:
                    self._gather(shards)

    def _gather(self, shards: Shards, *, paced: bool = False) -> None:
        """Gather parameters; what comes next waits for it."""
        self._beside("gather", shards.gather, Stream.FSDP, joins=_Joins.BESIDE, paced=paced)

    def _sharded(self, action: Action, *, is_first: bool, reduces: bool) -> None:
        """An action unit by unit: parameters are gathered before, gradients reduced after.

        What a unit needs is gathered while the one before it computes, and not sooner, since two
        units' parameters are in memory at a time (torch's FSDP); what is gathered once a step
        waits for nothing. Where nothing else is gathered or reduced the action stays whole: unless
        it is the first of its chunk, or `reduces` gradients as a final one.
        """
        rows, forward = self._rows_of(action), action.kind is ActionKind.FORWARD
        held = [row.shards for row in rows if row.shards]
        again = not all(shards.once and not shards.reduce for shards in held)
        if not (again or is_first or reduces):
            self._in_order(self.lists.action(action, rows))
            return
        starts = [i for i, row in enumerate(rows) if row.shards]
        units = [range(a, b) for a, b in pairwise([0, *starts[1:], len(rows)])]
        for unit in units if forward else reversed(units):
            shards = next(row.shards for row in rows[unit.start : unit.stop] if row.shards)
            if shards.once:
                if is_first:
                    self._gather(shards)
            elif forward or shards.again:
                self._gather(shards, paced=True)
            self._in_order(self.lists.action(action, rows, unit), unit=True)
            if not forward:
                self._beside("reduce shards", shards.reduce, Stream.DP, reads=True)
                for i in reversed(unit) if reduces else ():
                    self._reductions(rows[i])

    def _in_order(self, task_list: int, *, unit: bool = False) -> None:
        """A segment of the compute stream, which all that follows waits for.

        It queues with the reductions of gradients where it has collectives on their stream.
        """
        queue = Stream.DP if Stream.DP in self.lists.lists[task_list].streams else NONE
        row = _PostedRow(
            SegmentKind.ACTION,
            Stream.COMPUTE,
            task_list,
            reads=True,
            queue=queue,
            joins=_Joins.ALONE,
            unit=unit,
        )
        self.rows.append(row)


def _codes(order: Order, work: StageWork, edges: Bools, last_stage: int) -> Ints:
    """A row for every entry, equal where kinds and rows of all parts are the same.

    So must be whether they are at the `edges` of a chunk, of which no final one is like another,
    and whether the first stage or the last one runs them.
    """
    counts = np.array([len(blocks) for blocks in work.chunks])
    alike = np.zeros((len(counts), int(counts.max())), np.int64)
    known: dict[int, int] = {}
    for chunk, blocks in enumerate(work.chunks):
        alike[chunk, : len(blocks)] = [known.setdefault(id(b), len(known)) for b in blocks]
    block = alike[order.chunk, order.microbatch % counts[order.chunk]]
    final = np.where(edges & ~order.runs(ActionKind.FORWARD), order.chunk, NONE)
    at_ends = order.stage == 0, order.stage == last_stage
    return np.concatenate((order.kind, block, edges, final, *at_ends), axis=1)


def _looks_of(
    kind: Small, task_list: Small, peer_stage: Small
) -> tuple[tuple[Look, ...], NDArray[np.integer]]:
    """The looks of segments as they appear, and the look of each."""
    first, number = row_numbers(ints((kind, task_list, peer_stage)).T)
    counts, order = np.bincount(number), np.argsort(first)
    columns = (kind[first], task_list[first], peer_stage[first], counts)
    looks = rows_of(*(column[order] for column in columns))
    every = tuple(Look(SegmentKind(kind), *each) for kind, *each in looks)
    return every, narrowed(np.argsort(order), len(every)).take(number)


def _waits_of(rows: _PostedRows, segments: Ints, number: Small, posted: Small) -> Lists:
    """What every segment waits for: the front first, its stream last.

    `number` is that of every row among the `segments`, `posted[e]` the segment that is end e of a
    message.
    """
    joins = rows["joins"] > 0
    front = number.compress(joins)
    front = np.where(front >= 0, front, posted.take(rows["end"].compress(joins)))
    past = np.cumsum(joins, dtype=np.int32) - joins
    since = np.zeros(len(past) + 1, np.int32)
    since[1:] = past * (rows["joins"] == _Joins.ALONE)
    first = np.maximum.accumulate(since).take(segments)
    sizes = (past.take(segments) - first) * rows["reads"].take(segments)
    paced, units = _paced(rows)
    named = number.take(paced)
    behind, before = _queued(rows["queue"].take(segments))
    is_new = ~_among(before, front, first.take(behind), sizes.take(behind))
    behind, before = behind.compress(is_new), before.compress(is_new)
    sizes[behind] += 1
    sizes[named] += 1
    starts = bounds(sizes)
    values = front.take(spans(first, sizes), mode="clip")  # all but one of a list that has more
    values[starts.take(named)] = number.take(units)
    values[starts[1:].take(behind) - 1] = before
    return Lists(starts, values)


def _paced(rows: _PostedRows) -> tuple[Ints, Ints]:
    """Rows that wait for a unit, and that: for example the third unit's gather for the first."""
    before: Ints = np.cumsum(rows["unit"]) - rows["unit"]
    waiting = np.flatnonzero((rows["paced"] > 0) & (before > 1))
    return waiting, np.flatnonzero(rows["unit"]).take(before.take(waiting) - 2)


def _queued(queue: Small) -> tuple[Ints, Ints]:
    """Segments that have something before them in their queue, and the last segment before each."""
    every = places_by(queue.astype(np.int8), len(Stream))
    behind, before = zip(*((each[1:], each[:-1]) for each in every), strict=True)
    return np.concatenate(behind), np.concatenate(before)


def _among(numbers: Ints, front: Small, first: Small, counts: Small) -> Bools:
    """Whether each number is in its piece of the front: so many from the first on."""
    found = np.zeros(len(numbers), bool)
    same = front.take(spans(first, counts)) == numbers.repeat(counts)
    found[np.arange(len(numbers)).repeat(counts).compress(same)] = True
    return found
