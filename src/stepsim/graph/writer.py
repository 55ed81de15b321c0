"""Programs being written: compute in the schedule's order, and the messages between."""

from collections.abc import Sequence
from dataclasses import field
from functools import cached_property
from itertools import pairwise

import numpy as np

from stepsim.base.arrays import Bools, Ints, numbers_of
from stepsim.base.errors import ScheduleError
from stepsim.base.records import dataclass
from stepsim.graph.actions import per_step_tasks
from stepsim.graph.linking import NONE, Joins, Rows
from stepsim.graph.programs import SegmentKind
from stepsim.graph.task_lists import Buckets, TaskLists, gradient_buckets
from stepsim.parallel.p2p import P2PProgram, StepKind
from stepsim.parallel.p2p.columns import far_ranks
from stepsim.parallel.schedules import Action, ActionKind, Schedule
from stepsim.parallel.schedules.order import ACTION_KINDS, Order
from stepsim.parallel.stages import StageWork
from stepsim.workload.axes import Stream
from stepsim.workload.rows import CommOp, Row, Shards

_NOTHING = {"reads": False, "joins": Joins.NOT}


@dataclass(kw_only=True)
class ProgramWriter:
    """A program being written: rows of segments, and of waits for ends of messages.

    Where messages are `free`, they leave when they are posted, overtaking others, and are received
    when they come; sends are never waited for. Most entries are one segment, the same for all
    microbatches of a block: these are columns. Others are written one by one, as `rows` that stand
    for step number `place`.
    """

    stage: int
    work: StageWork
    schedule: Schedule
    task_lists: TaskLists
    free: bool
    rows: list[dict[str, int]] = field(default_factory=list)
    _known: dict[tuple[ActionKind, int, int], int] = field(default_factory=dict)
    _on_dp: dict[int, bool] = field(default_factory=dict)
    _computed: list[int] = field(default_factory=list)
    _begun: dict[int, int] = field(default_factory=dict)

    def write(self, steps: P2PProgram) -> Rows:
        """The entries and messages of a point-to-point program, then what follows the pipeline."""
        computed = np.flatnonzero(steps.kind == StepKind.COMPUTE)
        task_list = np.full(len(steps.kind), NONE)
        task_list[computed] = self._task_lists(computed)[steps.what[computed]]
        self._per_step(len(steps.kind))
        plain = np.flatnonzero((steps.kind != StepKind.COMPUTE) | (task_list >= 0))
        return self._merged(self._columns(steps, task_list), plain)

    def _task_lists(self, computed: Ints) -> Ints:
        """The task list of every entry; -1 of those that are written one by one.

        They are made in the order of the entries. `computed[i]` is the step that runs entry i.
        """
        order = self.schedule.columns[self.stage]
        apart = self._apart(order)
        plain = np.flatnonzero(~apart)
        first, look = numbers_of(self._codes(order)[plain])
        numbers = np.zeros(len(first), dtype=np.int64)
        turn = dict(zip(plain[first].tolist(), range(len(first)), strict=True))
        for place in sorted({*turn, *np.flatnonzero(apart).tolist()}):
            if place in turn:
                numbers[turn[place]] = self._of_entry(order[place].parts())
            else:
                self._entry(order[place].parts(), place, int(computed[place]))
        found = np.full(len(order), NONE)
        found[plain] = numbers[look]
        return found

    def _codes(self, order: Order) -> Ints:
        """A number for every entry: equal where kinds, chunks and rows of its parts are."""
        blocks = np.array([len(chunk) for chunk in self.work.chunks])
        most, chunks = int(blocks.max()), len(blocks)
        alike = np.zeros((chunks, most), dtype=np.int64)
        for number, chunk in enumerate(self.work.chunks):
            known: dict[tuple[int, ...], int] = {}
            for block, rows in enumerate(chunk):
                alike[number, block] = known.setdefault(tuple(map(id, rows)), block)
        block = alike[order.chunk, order.microbatch % blocks[order.chunk]]
        code = (order.kind.astype(np.int64) * chunks + order.chunk) * most + block
        code = np.where(order.kind < 0, NONE, code) + 1
        several: Ints = code[:, 0]
        for part in range(1, code.shape[1]):
            several = several * (len(ACTION_KINDS) * chunks * most + 1) + code[:, part]
        return several

    def _apart(self, order: Order) -> Bools:
        """Entries that are more than one segment: some shard parameters, some reduce gradients."""
        rows = {id(row): row for chunk in self.work.chunks for rows in chunk for row in rows}
        apart = np.full(len(order), any(row.shards for row in rows.values()))
        for place, action in self._final.values():
            apart[place] |= self._reduces(action)
        return apart

    def _columns(self, steps: P2PProgram, task_list: Ints) -> Rows:
        """A row for every step."""
        is_post, ends = steps.kind == StepKind.POST, np.where(steps.kind, steps.what, NONE)
        is_run, receives = steps.kind == StepKind.COMPUTE, ends % 2 == 1
        peer, stream = self._messages(np.where(is_post, ends, 0), receives)
        place = np.arange(len(ends))
        posted = np.full(int(ends.max(initial=0)) + 1, NONE)
        posted[ends[is_post]] = place[is_post]
        queue = NONE if self.free else np.where(is_post, stream, NONE)
        first, listed = numbers_of(task_list + 1)
        lists = task_list[first].tolist()
        on_dp = np.array([each >= 0 and self._uses_dp(each) for each in lists])[listed]
        queue = np.where(on_dp, Stream.DP, queue)
        waits = ~(is_post | is_run) & (receives | (not self.free))
        alone = steps.alone & (not self.free)
        begins = is_run | (alone & np.append(True, ~steps.alone[:-1]))
        kind = np.where(receives, SegmentKind.RECV, SegmentKind.SEND)
        kind = np.where(is_post, kind, np.where(is_run, SegmentKind.ACTION, NONE))
        return Rows.of(
            kind=kind,
            stream=np.where(is_post, Stream.EAGER if self.free else stream, Stream.COMPUTE),
            task_list=task_list,
            entry=np.where(is_run, steps.what, NONE),
            end=np.where(is_post, ends, NONE),
            peer_stage=np.where(is_post, peer, NONE),
            reads=is_run | (is_post & ~(receives & self.free)),
            waits=np.full(len(ends), NONE),
            behind=queue,
            sets=queue,
            joins=np.where(is_run | waits, np.where(begins, Joins.ALONE, Joins.BESIDE), Joins.NOT),
            joined=np.where(is_run, place, np.where(waits, posted[ends], NONE)),
        )

    def _messages(self, ends: Ints, receives: Bools) -> tuple[Ints, Ints]:
        """The stage at the other side of ends, and the stream they queue on.

        To the next rank or to the one before; with two ranks activations go forward.
        """
        ranks = self.schedule.placement.ranks
        peer = far_ranks(self.schedule, ends)
        ahead = np.where(receives, self.stage - peer, peer - self.stage) % ranks == 1
        if ranks == 2:
            ahead = ends // 2 < self.schedule.placement.stages * self.schedule.microbatches
        sends = np.where(ahead, Stream.PP_FORWARD, Stream.PP_BACKWARD)
        comes = np.where(ahead, Stream.PP_FORWARD_RECV, Stream.PP_BACKWARD_RECV)
        return peer, np.where(receives, comes, sends)

    def _merged(self, steps: Rows, kept: Ints) -> Rows:
        """The rows of these steps, and those written one by one at their places."""
        if not self.rows:
            return steps
        place = np.array([row["place"] for row in self.rows])
        order = np.argsort(np.concatenate((kept, place)), kind="stable")
        final = np.empty_like(order)
        final[order] = np.arange(len(order))
        moved = np.full(len(steps.kind), NONE)
        moved[kept] = final[: len(kept)]

        def column(name: str) -> Ints:
            mine = np.array([row.get(name, NONE) for row in self.rows])
            theirs = getattr(steps, name)[kept]
            if name in ("waits", "joined"):
                mine = np.where(mine >= 0, final[len(kept) + mine], NONE)
                theirs = np.where(theirs >= 0, moved[theirs], NONE)
            return np.concatenate((theirs, mine))[order]

        return Rows.of(**{name: column(name) for name in Rows.__slots__})

    def _per_step(self, place: int) -> None:
        """Write the rows that follow the pipeline; they need the reduced gradients."""
        items = self.work.per_step
        if self.task_lists.options.dp_overlap:
            _, items = self.work.without_gradients()
        if items:
            task_list = self.task_lists.add(per_step_tasks(items, self.task_lists.comms))
            self._in_order(SegmentKind.PER_STEP, task_list, place)
            self.rows[-1]["behind"] = Stream.DP

    @cached_property
    def _final(self) -> dict[int, tuple[int, Action]]:
        """Per chunk, the place and the action that computes its last weight gradients."""
        order, found = self.schedule.columns[self.stage], {}
        ends = order.runs(ActionKind.BACKWARD, ActionKind.WEIGHT_GRAD)
        for chunk in range(len(self.work.chunks)):
            last = np.argwhere(ends & (order.chunk == chunk))[-1:].tolist()
            for place, part in last:
                found[chunk] = place, order[place].parts()[part]
        return found

    @cached_property
    def _buckets(self) -> Buckets | None:
        """What to reduce while the last backward of every chunk goes on; None without overlap."""
        options = self.task_lists.options
        gradients, _ = self.work.without_gradients()
        if not options.dp_overlap or not gradients:
            return None
        rows = [row for _, action in self._final.values() for row in self._rows(action)]
        return gradient_buckets(gradients, rows, options.dp_bucket_bytes)

    def _entry(self, parts: Sequence[Action], entry: int, place: int) -> None:
        """An action or a fused pair; a final one releases its rows' gradient reductions."""
        if any(self._shard_units(action) for action in parts):
            if len(parts) == 1 and parts[0].kind in (ActionKind.FORWARD, ActionKind.BACKWARD):
                self._sharded(parts[0], entry, place)
                return
            self._gather_before(parts, place)
        finals = [action for action in parts if self._final.get(action.chunk) == (entry, action)]
        reducing = [action for action in finals if self._reduces(action)]
        if len(parts) == 1 and reducing:
            self._row_by_row(parts[0], entry, place)
            return
        self._in_order(SegmentKind.ACTION, self._of_entry(parts), place, entry)
        for row in (row for action in reducing for row in reversed(self._rows(action))):
            self._reductions(row, place)

    def _of_entry(self, parts: Sequence[Action]) -> int:
        """Number of the task list of an entry that is one segment."""
        numbers = [self._task_list(action) for action in parts]
        return numbers[0] if len(parts) == 1 else self.task_lists.fused(*numbers)

    def _reduces(self, action: Action) -> bool:
        return self._buckets is not None or any(r.weight_grad.comms for r in self._rows(action))

    def _task_list(self, action: Action) -> int:
        """Number of an action's task list: the same for all microbatches of a block."""
        block = action.microbatch % len(self.work.chunks[action.chunk])
        key = action.kind, action.chunk, block
        if key not in self._known:
            self._known[key] = self.task_lists.action(action, self._rows(action))
        return self._known[key]

    def _rows(self, action: Action) -> tuple[Row, ...]:
        blocks = self.work.chunks[action.chunk]
        return blocks[action.microbatch % len(blocks)]

    def _row_by_row(self, action: Action, entry: int, place: int) -> None:
        """A backward in as many segments as rows, each followed by its reductions."""
        rows = self._rows(action)
        for i in reversed(range(len(rows))):
            task_list = self.task_lists.action(action, rows, range(i, i + 1))
            self._in_order(SegmentKind.ACTION, task_list, place, entry)
            self._reductions(rows[i], place)

    def _reductions(self, row: Row, place: int) -> None:
        """Start what a row's gradients allow on their stream; the step ends when it has ended."""
        self._beside(row.name, row.weight_grad.comms, Stream.DP, place, reads=True)
        if self._buckets:
            ready = self._buckets.add(row)
            self._beside("gradient bucket", ready, Stream.DP, place, reads=True)

    def _beside(
        self, label: str, ops: Sequence[CommOp], stream: Stream, place: int, **more: int
    ) -> None:
        """Start collectives on their stream, beside the actions."""
        number = self.task_lists.beside(label, ops, stream)
        if number is not None:
            self._add(
                place, SegmentKind.REDUCTION, stream, number, behind=stream, sets=stream, **more
            )

    def _shard_units(self, action: Action) -> tuple[range, ...]:
        """Rows of an action unit by unit, those before the first with it; empty without shards."""
        rows = self._rows(action)
        starts = [i for i, row in enumerate(rows) if row.shards]
        if not starts:
            return ()
        bounds = [0, *starts[1:], len(rows)]
        return tuple(range(a, b) for a, b in pairwise(bounds))

    def _gather_before(self, parts: Sequence[Action], place: int) -> None:
        """Gather what fused and split actions need once a step, before they begin.

        Raises ScheduleError where it is needed again and again: that is not modelled.
        """
        for action in parts:
            held = [row.shards for row in self._rows(action) if row.shards]
            if not all(shards.once for shards in held):
                raise ScheduleError(
                    f"schedule {self.schedule.name}: parameters gathered layer by layer (zero 2 "
                    "and 3) with fused or split backwards are not modelled"
                )
            if action.kind is ActionKind.FORWARD and self._is_first(action):
                for shards in held:
                    self._gather(shards, place)

    def _gather(self, shards: Shards, place: int, waits: int = NONE) -> None:
        """Gather parameters; what comes next waits for it."""
        self._beside("gather", shards.gather, Stream.FSDP, place, joins=Joins.BESIDE, waits=waits)

    def _sharded(self, action: Action, entry: int, place: int) -> None:
        """An action unit by unit: parameters are gathered before, gradients reduced after.

        What a unit needs is gathered while the one before it computes, and not sooner, since two
        units' parameters are in memory at a time (torch's FSDP); what is gathered once a step
        waits for nothing.
        """
        rows, units = self._rows(action), self._shard_units(action)
        forward = action.kind is ActionKind.FORWARD
        for unit in units if forward else reversed(units):
            shards = next(row.shards for row in rows[unit.start : unit.stop] if row.shards)
            if shards.once:
                if forward and self._is_first(action):
                    self._gather(shards, place)
            elif forward or shards.again:
                self._gather(shards, place, self._computed[-2] if len(self._computed) > 1 else NONE)
            task_list = self.task_lists.action(action, rows, unit)
            self._computed.append(self._in_order(SegmentKind.ACTION, task_list, place, entry))
            if not forward:
                self._beside("reduce shards", shards.reduce, Stream.DP, place, reads=True)
                if self._final[action.chunk] == (entry, action):
                    for i in reversed(unit):
                        self._reductions(rows[i], place)

    def _is_first(self, action: Action) -> bool:
        """Whether no forward of this chunk came before."""
        return self._begun.setdefault(action.chunk, action.microbatch) == action.microbatch

    def _in_order(self, kind: SegmentKind, task_list: int, place: int, entry: int = NONE) -> int:
        """A segment of the compute stream, which all that follows waits for."""
        queue = Stream.DP if self._uses_dp(task_list) else NONE
        return self._add(
            place,
            kind,
            Stream.COMPUTE,
            task_list,
            entry=entry,
            reads=True,
            behind=queue,
            sets=queue,
            joins=Joins.ALONE,
        )

    def _uses_dp(self, task_list: int) -> bool:
        """Whether a task list has collectives on the stream of the gradient reductions."""
        if task_list not in self._on_dp:
            tasks = self.task_lists.lists[task_list].tasks
            self._on_dp[task_list] = any(task.stream is Stream.DP for task in tasks)
        return self._on_dp[task_list]

    def _add(
        self, place: int, kind: SegmentKind, stream: Stream, task_list: int, **more: int
    ) -> int:
        """Write a row, and say which it is."""
        number = len(self.rows)
        row = {"kind": kind, "stream": stream, "task_list": task_list, "place": place}
        self.rows.append({**_NOTHING, **row, **more, "joined": number if "joins" in more else NONE})
        return number
