"""The work of stages being written: the task list of every entry of the schedule's order.

Where gradients are reduced row by row, each row of a backward has its share of the host's launches.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from stepsim.base.arrays import Bools, Ints, Small, bounds, distinct, narrowed, numbers_of, spans
from stepsim.base.errors import ScheduleError
from stepsim.base.structs import replace
from stepsim.graph.programs import COLUMNS, NONE, Joins, Rows, SegmentKind
from stepsim.graph.task_lists import Buckets, TaskLists, gradient_buckets
from stepsim.parallel.schedules import Action, ActionKind, Schedule
from stepsim.parallel.schedules.order import ACTION_KINDS, Order
from stepsim.parallel.stages import StageWork
from stepsim.workload.rows import CommOp, Row, Shards, Stream

_NOTHING = {"reads": False, "joins": Joins.NOT}
_Entry = tuple[int, tuple[Action, ...], bool]
"""The place of an entry, its parts, and whether it is more than one segment."""


class Written(Struct, frozen=True, kw_only=True, eq=False):
    """What a stage computes: an entry of look i the task list `numbers[i]`, the `tail` another.

    It is -1 where nothing follows the pipeline, and for entries of several segments: columns of
    these are `rows`, each at the `place` of its entry. `look` has the look of every entry, and
    `on_dp` are the entries that use the reductions' stream.
    """

    stage: int
    numbers: tuple[int, ...]
    look: NDArray[np.integer]
    tail: int
    on_dp: Bools
    rows: dict[str, Ints]

    @property
    def has_tail(self) -> bool:
        """Whether something follows the pipeline."""
        return self.tail >= 0

    @property
    def is_plain(self) -> bool:
        """Whether its segments are those of any work in this order."""
        return not (len(self.rows["place"]) or self.on_dp.any())

    @property
    def used(self) -> list[int]:
        """The task lists that it runs, ascending."""
        own = distinct(self.rows["task_list"]).tolist()
        return sorted({*self.numbers, self.tail, *own} - {NONE})

    def plain_lists(self, entry: Small) -> Small:
        """The task list of segments that are one for each entry; the tail is the last of them."""
        lists = np.array(self.numbers, dtype=np.int32).take(self.look)
        found: Small = np.append(lists, np.int32(NONE)).take(entry)
        if self.has_tail:
            found[-1] = self.tail
        return found


def merged(every: Sequence[Written], steps: Rows) -> Rows:
    """Rows of the steps of stages, with those of entries that are several segments.

    All have their task lists. For example the entries 0, 1, 2 of which entry 1 has two rows become
    the rows of entry 0, the two, and those of entry 2.
    """
    bounded = zip(every, pairwise(steps.stages.tolist()), strict=True)
    own = np.concatenate([each.plain_lists(steps.entry[a:b]) for each, (a, b) in bounded])
    steps = replace(steps, task_list=own)
    counts = np.array([len(each.rows["place"]) for each in every])
    computed = np.flatnonzero(steps.kind == SegmentKind.ACTION)
    first = computed.searchsorted(steps.stages[:-1]).repeat(counts)
    place = computed.take(np.concatenate([each.rows["place"] for each in every]) + first)
    kept = np.flatnonzero((steps.entry < 0) | (own >= 0))
    order = np.argsort(np.concatenate((kept, place)), kind="stable")
    final = np.empty_like(order)
    final[order] = np.arange(len(order))
    columns: dict[str, Ints] = {}
    for name in COLUMNS:
        written = np.concatenate([each.rows[name] for each in every])
        if name == "waits":
            behind = len(kept) + bounds(counts)[:-1].repeat(counts)
            written = np.where(written >= 0, final.take(behind + written, mode="clip"), NONE)
        columns[name] = np.concatenate((getattr(steps, name).take(kept), written)).take(order)
    stages = kept.searchsorted(steps.stages) + bounds(counts)
    return Rows.of(stages, **columns)


class _Looked(NamedTuple):
    """What a stage's entries are, look by look in the order in which these appear.

    Look i is the task list `numbers[i]`, or the rows of `columns` from `starts[i]` on, `counts[i]`
    of them. `on_dp` are the looks that use the reductions' stream, `tail` the task list of what
    follows the pipeline.
    """

    numbers: tuple[int, ...]
    starts: Ints
    counts: Ints
    on_dp: Bools
    columns: dict[str, Ints]
    tail: int


AlikeStages = dict[tuple[object, ...], _Looked]
"""What stages were written as, by their rows, by what follows, and by their entries' looks."""


class ProgramWriter(Struct, kw_only=True, dict=True):
    """The work of a stage being written.

    Most entries are one segment, the same for all microbatches of a block. Those of several
    segments are written once for all that look alike, as `rows`. Stages of a graph that share the
    dictionary `alike` are written once where they run the same.
    """

    stage: int
    work: StageWork
    schedule: Schedule
    task_lists: TaskLists
    alike: AlikeStages = field(default_factory=dict)
    rows: list[dict[str, int]] = field(default_factory=list)
    _known: dict[tuple[ActionKind, int, int], int] = field(default_factory=dict)
    _first: dict[int, int] = field(default_factory=dict)
    _final: dict[int, tuple[int, Action]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Find the place of each chunk's first forward, and of its last weight gradients."""
        order = self.schedule.columns[self.stage]
        nowhere = np.full(len(self.work.chunks), NONE)
        place, part = order.runs(ActionKind.FORWARD).nonzero()
        first = nowhere.copy()
        first[order.chunk[place, part][::-1]] = place[::-1]  # the first is written last
        self._first = {chunk: at for chunk, at in enumerate(first.tolist()) if at != NONE}
        place, part = order.runs(ActionKind.BACKWARD, ActionKind.WEIGHT_GRAD).nonzero()
        last = nowhere.copy()
        last[order.chunk[place, part]] = np.arange(len(place))
        for chunk, at in enumerate(last.tolist()):
            if at != NONE:
                final = int(place[at])
                self._final[chunk] = final, order[final].parts()[int(part[at])]

    def write(self) -> Written:
        """What the entries of the stage compute, then what follows the pipeline.

        Task lists are made in the order of the entries.
        """
        order = self.schedule.columns[self.stage]
        apart = self._apart(order)
        alone = np.zeros_like(apart)
        alone[[*self._first.values(), *(place for place, _ in self._final.values())]] = True
        first, look = _looks(order, self._kinds.alike, np.flatnonzero(apart & alone))
        turns = np.argsort(first)
        entries = [
            (place, order[place].parts(), bool(apart[place])) for place in first[turns].tolist()
        ]
        key = self._key(entries)
        if key not in self.alike:
            self.alike[key] = self._looked(entries)
        looked, turn = self.alike[key], np.argsort(turns)
        return Written(
            stage=self.stage,
            numbers=tuple(looked.numbers[each] for each in turn.tolist()),
            look=look,
            tail=looked.tail,
            on_dp=looked.on_dp.take(turn).take(look),
            rows=_at_their_places(looked, turn.take(look)),
        )

    def _key(self, entries: "Sequence[_Entry]") -> tuple[object, ...]:
        """What stages have in common that are written alike, their entries at other places."""
        last = self.schedule.placement.stages - 1
        looks = tuple(
            (
                apart,
                *(
                    (
                        part.kind,
                        part.chunk,
                        part.microbatch % len(self.work.chunks[part.chunk]),
                        part.stage == 0,
                        part.stage == last,
                        self._first[part.chunk] == place,
                        self._final[part.chunk] == (place, part),
                    )
                    for part in parts
                ),
            )
            for place, parts, apart in entries
        )
        rows = tuple(tuple(map(id, blocks)) for blocks in self.work.chunks)
        return rows, id(self.work.per_step), looks

    def _looked(self, entries: "Sequence[_Entry]") -> _Looked:
        """Write an entry of every look."""
        numbers, starts, counts = [], [], []
        for place, parts, apart in entries:
            starts.append(len(self.rows))
            if apart:
                self._entry(parts, place)
            numbers.append(NONE if apart else self._of_entry(parts))
            counts.append(len(self.rows) - starts[-1])
        on_dp = [each >= 0 and self._uses_dp(each) for each in numbers]
        columns = {
            name: np.array([row.get(name, NONE) for row in self.rows], dtype=np.int64)
            for name in (*COLUMNS, "unit", "paced")
        }
        return _Looked(
            numbers=tuple(numbers),
            starts=np.array(starts, dtype=np.int64),
            counts=np.array(counts, dtype=np.int64),
            on_dp=np.array(on_dp, dtype=bool),
            columns=columns,
            tail=self._per_step(),
        )

    def _per_step(self) -> int:
        """The task list of what follows the pipeline, -1 for none; it needs reduced gradients."""
        items = self.work.per_step
        if self.task_lists.options.dp_overlap:
            _, items = self.work.without_gradients()
        return self.task_lists.per_step(items) if items else NONE

    def _apart(self, order: Order) -> Bools:
        """Entries that are more than one segment: some shard parameters, some reduce gradients.

        Of parameters that are gathered once a step, the first forward alone is.
        """
        apart = np.full(len(order), self._kinds.shards_again)
        if self._kinds.shards:
            apart[list(self._first.values())] = True
        if self.task_lists.options.dp_overlap or self._kinds.reduces:
            for place, action in self._final.values():
                apart[place] |= self._reduces(action)
        return apart

    @cached_property
    def _kinds(self) -> "_Kinds":
        return _kinds_of(self.work)

    @cached_property
    def _buckets(self) -> Buckets | None:
        """What to reduce while the last backward of every chunk goes on; None without overlap."""
        options = self.task_lists.options
        gradients, _ = self.work.without_gradients()
        if not options.dp_overlap or not gradients:
            return None
        rows = [row for _, action in self._final.values() for row in self._rows(action)]
        return gradient_buckets(gradients, rows, options.dp_bucket_bytes)

    def _entry(self, parts: Sequence[Action], place: int) -> None:
        """An action or a fused pair; a final one releases its rows' gradient reductions."""
        if any(self._shard_units(action) for action in parts):
            if len(parts) == 1 and parts[0].kind in (ActionKind.FORWARD, ActionKind.BACKWARD):
                self._sharded(parts[0], place)
                return
            self._gather_before(parts, place)
        finals = [action for action in parts if self._final.get(action.chunk) == (place, action)]
        reducing = [action for action in finals if self._reduces(action)]
        if len(parts) == 1 and reducing:
            self._row_by_row(parts[0], place)
            return
        self._in_order(SegmentKind.ACTION, self._of_entry(parts), place)
        for row in (row for action in reducing for row in reversed(self._rows(action))):
            self._reductions(row, place)

    def _of_entry(self, parts: Sequence[Action]) -> int:
        """Number of the task list of an entry that is one segment."""
        numbers = [self._task_list(action) for action in parts]
        return numbers[0] if len(parts) == 1 else self.task_lists.fused(*numbers)

    def _reduces(self, action: Action) -> bool:
        return self._buckets is not None or _reduces_gradients(self._rows(action))

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

    def _row_by_row(self, action: Action, place: int) -> None:
        """A backward in as many segments as rows, each followed by its reductions."""
        rows = spread_launches(self._rows(action))
        for i in reversed(range(len(rows))):
            task_list = self.task_lists.action(action, rows, range(i, i + 1))
            self._in_order(SegmentKind.ACTION, task_list, place)
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
        number = self.task_lists.beside(label, ops, stream) if ops else None
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
            if not all(shards.once and not shards.reduce for shards in held):
                raise ScheduleError(
                    f"schedule {self.schedule.name}: parameters gathered layer by layer (zero 2 "
                    "and 3) with fused or split backwards are not modelled"
                )
            if action.kind is ActionKind.FORWARD and self._first[action.chunk] == place:
                for shards in held:
                    self._gather(shards, place)

    def _gather(self, shards: Shards, place: int, *, paced: bool = False) -> None:
        """Gather parameters; what comes next waits for it."""
        self._beside("gather", shards.gather, Stream.FSDP, place, joins=Joins.BESIDE, paced=paced)

    def _sharded(self, action: Action, place: int) -> None:
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
                if forward and self._first[action.chunk] == place:
                    self._gather(shards, place)
            elif forward or shards.again:
                self._gather(shards, place, paced=True)
            task_list = self.task_lists.action(action, rows, unit)
            self._in_order(SegmentKind.ACTION, task_list, place, unit=True)
            if not forward:
                self._beside("reduce shards", shards.reduce, Stream.DP, place, reads=True)
                if self._final[action.chunk] == (place, action):
                    for i in reversed(unit):
                        self._reductions(rows[i], place)

    def _in_order(
        self, kind: SegmentKind, task_list: int, place: int, *, unit: bool = False
    ) -> None:
        """A segment of the compute stream, which all that follows waits for."""
        queue = Stream.DP if self._uses_dp(task_list) else NONE
        self._add(
            place,
            kind,
            Stream.COMPUTE,
            task_list,
            entry=place,
            reads=True,
            behind=queue,
            sets=queue,
            joins=Joins.ALONE,
            unit=unit,
        )

    def _uses_dp(self, task_list: int) -> bool:
        """Whether a task list has collectives on the stream of the gradient reductions."""
        return Stream.DP in self.task_lists.lists[task_list].streams

    def _add(
        self, place: int, kind: SegmentKind, stream: Stream, task_list: int, **more: int
    ) -> None:
        """Write a row of an entry that is several segments."""
        row = {"kind": kind, "stream": stream, "task_list": task_list, "place": place}
        self.rows.append({**_NOTHING, **row, **more})


def _at_their_places(looked: _Looked, look: NDArray[np.integer]) -> dict[str, Ints]:
    """Columns of rows, for every entry those of its look.

    What is gathered at the pace of compute waits for the `unit` before the one under way, which is
    only known here: for example the third unit's gather waits for the first unit.
    """
    counts = looked.counts.take(look)
    which = spans(looked.starts.take(look), counts)
    columns = {name: looked.columns[name].take(which) for name in COLUMNS}
    place = np.arange(len(look)).repeat(counts)
    units: Bools = looked.columns["unit"].take(which) > 0
    paced: Bools = looked.columns["paced"].take(which) > 0
    before: Ints = np.cumsum(units, dtype=np.int64) - units
    waiting = np.flatnonzero(paced & (before > 1))
    columns["waits"][waiting] = np.flatnonzero(units).take(before.take(waiting) - 2)
    columns["entry"] = np.where(columns["entry"] >= 0, place, NONE)
    return {**columns, "place": place}


class _Kinds(NamedTuple):
    """What the rows of a stage are: whether some shard parameters, or reduce gradients.

    Where they do `shards_again`, these are gathered or reduced for every microbatch. `alike[c][b]`
    is the first block of chunk c with the rows of block b.
    """

    shards: bool
    shards_again: bool
    reduces: bool
    alike: tuple[tuple[int, ...], ...]


def _kinds_of(work: StageWork) -> _Kinds:
    distinct = {id(rows): rows for chunk in work.chunks for rows in chunk}.values()
    alike = []
    for chunk in work.chunks:
        known: dict[int, int] = {}
        alike.append(tuple(known.setdefault(id(rows), i) for i, rows in enumerate(chunk)))
    shards = [row.shards for rows in distinct for row in rows if row.shards]
    return _Kinds(
        shards=bool(shards),
        shards_again=not all(each.once and not each.reduce for each in shards),
        reduces=any(map(_reduces_gradients, distinct)),
        alike=tuple(alike),
    )


def _reduces_gradients(rows: Sequence[Row]) -> bool:
    """Whether gradients are reduced row by row."""
    return any(row.weight_grad.comms for row in rows)


def _looks(
    order: Order, alike: tuple[tuple[int, ...], ...], apart: Ints
) -> tuple[Ints, NDArray[np.integer]]:
    """The first entry of each look of a stage's order, and the look of every entry.

    Entries look alike where kinds, chunks and rows of their parts are the same. `alike[c][b]` is
    the first block of chunk c with the rows of block b. Those `apart` are like no other.
    """
    blocks = np.array([len(chunk) for chunk in alike])
    most, chunks = int(blocks.max()), len(blocks)
    block = order.microbatch % blocks[order.chunk]
    if most > 1:
        table = np.array([[*chunk, *(0,) * (most - len(chunk))] for chunk in alike])
        block = table[order.chunk, block]
    code = (order.kind.astype(np.int64) * chunks + order.chunk) * most + block
    code = np.where(order.kind < 0, NONE, code) + 1
    several: Ints = code[:, 0]
    for part in range(1, code.shape[1]):
        several = several * (len(ACTION_KINDS) * chunks * most + 1) + code[:, part]
    several[apart] = several.max(initial=0) + 1 + np.arange(len(apart))
    first, look = numbers_of(several)
    return first, narrowed(look, len(first))


def spread_launches(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Rows whose backward launches are shared out over the rows that they are for, by compute.

    A backward meets a row with host times first, and then the rows before it in `rows` up to the
    next with such. Run as one list, those rows take the longer of their compute and their launches;
    run one by one they take as long again where each has the same share of both. For example rows
    of 3, 0 and 1 ps of compute, the last with 8 ps of launches, get 6, 0 and 2 ps.
    """
    found = list(rows)
    last = len(rows)
    for first in range(len(rows) - 1, -1, -1):
        if first and not _launches(rows[first - 1]):
            continue
        found[first:last] = _shared(rows[first:last])
        last = first
    return tuple(found)


def reduces_as_it_launches(rows: Iterable[Row]) -> bool:
    """Whether some rows reduce gradients row by row, and some backward has the host's launches."""
    every = tuple(rows)
    return _reduces_gradients(every) and any(map(_launches, every))


def _launches(row: Row) -> bool:
    return row.input_grad.host_ps > 0 or row.weight_grad.host_ps > 0


def _shared(unit: Sequence[Row]) -> list[Row]:
    """The launches of a unit's last row, over all its rows."""
    host = unit[-1].input_grad.host_ps, unit[-1].weight_grad.host_ps
    compute = [row.input_grad.compute_ps + row.weight_grad.compute_ps for row in unit]
    total, done, found = sum(compute), 0, []
    if not total or not any(host):
        return list(unit)
    for row, own in zip(unit, compute, strict=True):
        input_ps, weight_ps = (each * (done + own) // total - each * done // total for each in host)
        done += own
        found.append(
            replace(
                row,
                input_grad=replace(row.input_grad, host_ps=input_ps),
                weight_grad=replace(row.weight_grad, host_ps=weight_ps),
            )
        )
    return found
