"""All tasks of a run as one table: who runs what, what waits for what, how long each takes.

An actor runs the tasks of its stage's program. A task list that nothing outside its rank's class
can delay is one task whose inner times are known (contracted); any other is laid out task by task.
Tasks of several actors that meet, in a collective or in a message, are one node.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepsim.base.arrays import (
    Bools,
    Floats,
    Ints,
    Lists,
    Small,
    bounds,
    ints,
    narrowed,
    row_numbers,
    rows_of,
    spans,
)
from stepsim.base.axes import Group, Part
from stepsim.base.errors import SimulationError
from stepsim.base.structs import Noun, Numbers, Values, replace
from stepsim.base.units import MAX_INT64
from stepsim.core.actions import Task, TaskList
from stepsim.core.ends import TOO_LONG, ends, ordered_waits
from stepsim.core.write import Look, Program, SegmentKind, TaskGraph
from stepsim.network.fold import Actors
from stepsim.network.prices import Prices, Use
from stepsim.parallel.schedules import ActionKind
from stepsim.run.spans import NodeWaits, TaskKind
from stepsim.workload.plan import Plan

if TYPE_CHECKING:
    from stepsim.network.contention import Contention
    from stepsim.network.flights import Transfer

GROUPS = tuple(Group)
"""Kinds of groups by the numbers that columns have for them."""
MESSAGES = GROUPS.index(Group.PP)
CONTRACTED = -1
"""The part of a task list that is one task: it has several."""
_STUCK_SHOWN = 5


class ListTimes(Noun, eq=False):
    """A task list run without interruption: start and end of its tasks from its start, in ps."""

    start: Ints
    end: Ints
    duration_ps: int


class TaskRow(NamedTuple):
    """What tasks that do the same have in common: the look of their segment, their place in it.

    The place is -1 where the segment is one task. `use` is the communication that it is, if any.
    """

    look: Look
    inner: int
    use: Use | None

    def task(self, program: Program) -> Task | None:
        """The task of a task list that it is; None for a message and a whole segment."""
        inside = self.look.task_list >= 0 and self.inner >= 0
        return program.lists[self.look.task_list].tasks[self.inner] if inside else None


class Tasks(Noun, eq=False, dict=True):
    """The tasks of an actor: task i is of `segment[i]` and starts after all of `after[i]`.

    Tasks that do the same have one of the `rows`, `row[i]`, and take `row_ps[row[i]]`; rows stand
    in the order in which they appear. `first[s]` is the first task of segment s. `times[l]` are the
    times inside task list l, in ps, where that is one task. `groups[r]` is the place in `GROUPS` of
    the group that must meet before a task of row r starts, -1 if it is the rank's own.
    """

    program: Program
    segment: Small
    row: NDArray[np.integer]
    rows: tuple[TaskRow, ...]
    groups: NDArray[np.int8]
    after: Lists
    first: Small
    row_ps: Ints
    times: Mapping[int, ListTimes]

    def __len__(self) -> int:
        return len(self.segment)

    @property
    def duration_ps(self) -> Ints:
        """How long each task takes."""
        found: Ints = self.row_ps.take(self.row)
        return found

    @property
    def parts(self) -> Ints:
        """The part of a step that tasks of each row are."""
        tasks = (row.task(self.program) for row in self.rows)
        others = (Part.EXPOSED_PP if row.use else CONTRACTED for row in self.rows)
        return ints([t.part if t else other for t, other in zip(tasks, others, strict=True)])

    @cached_property
    def inner(self) -> Small:
        """The place of each task in the task list of its segment, -1 where that is one task."""
        return np.array([row.inner for row in self.rows], np.int32).take(self.row)

    @cached_property
    def group(self) -> NDArray[np.int8]:
        """The place in `GROUPS` of the group that must meet, -1 for a task of the rank's own."""
        return self.groups.take(self.row)

    def alike(self) -> Iterator[tuple[TaskRow, Ints]]:
        """Tasks of each row, ascending; what appears first comes first."""
        counts = np.bincount(self.row, minlength=len(self.rows))
        tasks = np.split(np.argsort(self.row, kind="stable"), np.cumsum(counts)[:-1])
        return zip(self.rows, tasks, strict=True)


class Flat(Noun, eq=False, dict=True):
    """The tasks of all actors of a graph; `node_of[a]` has the node of every task of actor a.

    Nodes stand in an order in which each follows those that it waits for. `transfers[a]` are the
    communications of actor a whose links others share in time.
    """

    graph: TaskGraph
    actors: Actors
    programs: tuple[Tasks, ...]
    node_of: tuple[Small, ...]
    waits: NodeWaits
    transfers: "tuple[Mapping[Use, Transfer], ...]"

    def __len__(self) -> int:
        return len(self.waits)

    def by_node(self, rows: Iterable[Ints]) -> Ints:
        """A number of every node, that of its first task, from those of the rows of each actor."""
        found = np.empty(len(self), np.int64)
        every = zip(self.node_of, self.programs, rows, strict=True)
        for nodes, tasks, own in reversed(list(every)):
            found[nodes] = own.take(tasks.row)
        return found

    @property
    def duration_ps(self) -> Ints:
        """How long each node takes."""
        return self.by_node(tasks.row_ps for tasks in self.programs)

    @property
    def slowed(self) -> "dict[int, Transfer]":
        """Transfers on shared links, by node."""
        found: dict[int, Transfer] = {}
        for nodes, tasks, transfers in zip(
            self.node_of, self.programs, self.transfers, strict=True
        ):
            for row, where in tasks.alike() if transfers else ():
                if row.use and row.use in transfers:
                    found |= dict.fromkeys(nodes[where].tolist(), transfers[row.use])
        return found

    def members(self, actor: int, task: int) -> list[tuple[int, int]]:
        """A task, and then those of other actors that it meets, by actor and number."""
        own = self.programs[actor]
        row, segment = own.row.item(task), own.segment.item(task)
        group, program = own.groups.item(row), own.program
        if group < 0:
            return [(actor, task)]
        if group == MESSAGES:
            look, sent = program.looks[program.look.item(segment)], program.peer.item(segment)
            peer = far_actor(actor, look.peer_stage, self.actors, self.graph.plan)
            return [(actor, task), (peer, self.programs[peer].first.item(sent))]
        meets = self.actors.groups[GROUPS[group]]
        others = np.flatnonzero(meets == meets[actor]).tolist()
        inner = task - own.first.item(segment)
        met = [(a, self.programs[a].first.item(segment) + inner) for a in others if a != actor]
        return [(actor, task), *met]

    def spent_ps(self, kind: ActionKind) -> list[int]:
        """How long single actions of a kind take in all, on the slowest rank of each stage."""
        found = [0] * len(self.graph.programs)
        for tasks in self.programs:
            stage, entry = tasks.program.stage, tasks.program.entry[tasks.segment]
            is_kind = self.graph.schedule.columns[stage].runs(kind)[:, 0]
            spent = int(tasks.duration_ps[(entry >= 0) & is_kind[entry]].sum())
            found[stage] = max(found[stage], spent)
        return found


def flatten(
    graph: TaskGraph,
    actors: Actors,
    prices: Prices,
    slow: Floats | None = None,
    contention: "Contention | None" = None,
    *,
    contract: bool = True,
) -> Flat:
    """The table of all tasks of all actors; other arguments are those of `lay_out`.

    Raises SimulationError naming tasks that wait for each other in a circle.
    """
    programs, transfers = lay_out(graph, actors, prices, slow, contention, contract=contract)
    nodes, count = _joined(programs, actors, graph.plan)
    pairs = partial(_pairs, nodes, [tasks.after for tasks in programs])
    place, waits = ordered_waits(pairs, count)
    node_of = tuple(place.take(numbers) for numbers in nodes)
    flat = Flat(
        graph=graph,
        actors=actors,
        programs=tuple(programs),
        transfers=tuple(transfers),
        node_of=node_of,
        waits=waits,
    )
    if waits.runnable < len(waits):
        raise SimulationError(_stuck(flat))
    return flat


def far_actor(actor: int, stage: int, actors: Actors, plan: Plan) -> int:
    """The actor at the other end of an actor's messages with a stage."""
    shift = (stage - int(actors.stages[actor])) * plan.stage_ranks
    return actors.of(int(actors.ranks[actor]) + shift)


def _joined(programs: Sequence[Tasks], actors: Actors, plan: Plan) -> tuple[list[Small], int]:
    """The node of every task of every actor, and how many nodes there are.

    They are numbered as the first task of each appears. A receipt is the node of the send.
    """
    firsts = bounds(np.array([len(tasks) for tasks in programs]))
    first = np.arange(firsts[-1], dtype=np.int32)
    for received, sent in met_messages(range(len(programs)), programs, firsts, actors, plan):
        first[received] = sent
    _join_groups(first, programs, actors, firsts)
    is_first = first == np.arange(len(first), dtype=np.int32)
    node = (np.cumsum(is_first, dtype=np.int32) - 1).take(first)
    return [node[a:b] for a, b in pairwise(firsts.tolist())], int(is_first.sum())


def met_messages(
    chosen: Sequence[int],
    programs: Sequence[Tasks],
    firsts: NDArray[np.integer],
    actors: Actors,
    plan: Plan,
) -> Iterator[tuple[Any, Any]]:
    """Receipts and their sends, of messages between actors that are `chosen`.

    These run the `programs`, and all of their tasks stand in one column: those of `chosen[i]` from
    `firsts[i]` on.
    """
    place_of = {actor: place for place, actor in enumerate(chosen)}
    for (actor, place), mine in zip(place_of.items(), programs, strict=True):
        program = mine.program
        receives = program.kind == SegmentKind.RECV
        for stage in program.senders:
            far = place_of.get(far_actor(actor, stage, actors, plan))
            if far is not None:
                segments = np.flatnonzero(receives & (program.peer_stage == stage))
                sent = programs[far].first[program.peer[segments]]
                yield firsts[place] + mine.first[segments], firsts[far] + sent


def _join_groups(first: Small, programs: Sequence[Tasks], actors: Actors, firsts: Small) -> None:
    """Members of a collective are one node, that of the first of them."""
    tasks, keys = [], []
    for actor, mine in enumerate(programs):
        for group in sorted({*mine.groups.tolist()} - {-1, MESSAGES}):
            where = int(actors.groups[GROUPS[group]][actor])
            if actors.sizes[GROUPS[group]][where] > 1:
                here = np.flatnonzero(mine.group == group)
                same = np.full(len(here), where * len(GROUPS) + group)
                tasks.append(here + firsts[actor])
                keys.append(np.stack((same, mine.segment[here], mine.inner[here]), axis=1))
    if tasks:
        members = np.concatenate(tasks)
        one, key = row_numbers(np.concatenate(keys))
        first[members] = members[one][key]


def _pairs(nodes: Sequence[Small], after: Sequence[Lists]) -> Ints:
    """Pairs `before << 32 | after` of nodes, for every wait of every task."""
    pairs = np.empty(sum(len(waits.values) for waits in after), np.int64)
    begin = 0
    for numbers, waits in zip(nodes, after, strict=True):
        part = pairs[begin : begin + len(waits.values)]
        part[:] = numbers.take(waits.values)
        part <<= 32
        part |= numbers.repeat(waits.counts)
        begin += len(part)
    return pairs


def _stuck(flat: Flat) -> str:
    """What cannot start, and what each waits for: tasks that are ready, of others that are not."""
    waiting = defaultdict[int, list[tuple[int, int, bool]]](list)
    for actor, (nodes, tasks) in enumerate(zip(flat.node_of, flat.programs, strict=True)):
        blocked = nodes >= flat.waits.runnable
        for task in np.flatnonzero(blocked).tolist():
            ready = not blocked[tasks.after[task]].any()
            waiting[nodes.item(task)].append((actor, task, ready))
    said = []
    for members in waiting.values():
        there = [_described(flat, actor, task) for actor, task, ready in members if ready]
        away = [_described(flat, actor, task) for actor, task, ready in members if not ready]
        if there and away:
            said.append(f"{', '.join(there)}: waits for {', '.join(away)}")
    left = sum(map(len, waiting.values()))
    return f"{left} tasks wait for each other in a circle: {'; '.join(said[:_STUCK_SHOWN])}"


def _described(flat: Flat, actor: int, task: int) -> str:
    """A task in words."""
    program, number = flat.programs[actor].program, flat.programs[actor].segment.item(task)
    look, entry = program.looks[program.look.item(number)], program.entry.item(number)
    place = f" ({program.entries[entry].token})" if entry >= 0 else ""
    if look.peer_stage >= 0:
        way = "to" if look.kind is SegmentKind.SEND else "from"
        place = f" {way} stage {look.peer_stage}"
    return f"rank {flat.actors.ranks[actor]} {look.kind.name.lower()} {number}{place}"


def lay_out(
    graph: TaskGraph,
    actors: Actors,
    prices: Prices,
    slow: Floats | None = None,
    contention: "Contention | None" = None,
    *,
    contract: bool = True,
) -> "tuple[list[Tasks], list[dict[Use, Transfer]]]":
    """The tasks of every actor; those that run the same in groups that lie alike share them.

    `slow` are factors on the ranks' compute times. A task list is one task when every group of its
    collectives holds this actor alone and, with `contention`, nothing else crosses their links;
    none is without `contract`. With the tasks come the transfers on shared links.
    """
    known: dict[tuple[object, ...], Tasks] = {}
    layouts: dict[tuple[object, ...], Tasks] = {}
    timed: dict[tuple[float, ...], ListTimes] = {}
    programs, transfers = [], []
    for actor, (stage, rank) in enumerate(rows_of(actors.stages, actors.ranks)):
        program = graph.programs[stage]
        costs = {
            use: contention.cost(use, prices.patterns(use).row(rank))
            if contention
            else prices.duration_ps(use, rank)
            for use in program.uses
        }
        shared = {u: each for u, each in costs.items() if not isinstance(each, int)}
        paid = {u: each if isinstance(each, int) else each.duration_ps for u, each in costs.items()}
        alone = {kind for kind, of in actors.groups.items() if actors.sizes[kind][of[actor]] == 1}
        own = frozenset(
            use.comm
            for use in program.uses
            if graph.comms[use.comm].group in alone and use not in shared
        )
        form = stage, own if contract else None
        if form not in layouts:
            layouts[form] = tasks_of(program, graph, form[1])
        factor = 1.0 if slow is None else float(slow[rank])
        looks = [prices.patterns(use).look(rank) for use in program.uses]
        key = form, factor, tuple(paid.values()), tuple(shared), *looks
        if key not in known:
            known[key] = _priced(layouts[form], factor, paid, timed)
        programs.append(known[key])
        transfers.append(shared)
    return programs, transfers


def tasks_of(
    program: Program, graph: TaskGraph, own: frozenset[int] | None = None, *, whole: bool = False
) -> Tasks:
    """The tasks of a program, each by itself, or its `whole` segments, whatever they take.

    With the communications that are a rank's `own`, with nobody else, a task list of such is one
    task, but for reductions: each of them may be waited for beside transfers of other kinds.
    """
    rows: list[TaskRow] = []
    inside: list[Numbers] = []
    closing, sizes = [], []
    for look in program.looks:
        is_message = look.task_list < 0
        one = is_message or whole
        if own is not None and not one and look.kind is not SegmentKind.REDUCTION:
            one = program.lists[look.task_list].comms.keys() <= own
        tasks = () if one else program.lists[look.task_list].tasks
        after = [task.after for task in tasks] or [()]
        waited_for = {i for each in after for i in each}
        closing.append([i for i in range(len(after)) if i not in waited_for])
        sizes.append(len(after))
        inside += after
        uses = [Use(task.comm, program.stage) if task.comm >= 0 else None for task in tasks]
        rows += [TaskRow(look, i, use) for i, use in enumerate(uses)]
        if one:
            rows.append(TaskRow(look, -1, program.message_use(look) if is_message else None))
    groups = [GROUPS.index(graph.comms[row.use.comm].group) if row.use else -1 for row in rows]
    columns = _laid_out(program, ints(sizes), inside, closing)
    return Tasks(
        program=program,
        rows=tuple(rows),
        groups=np.array(groups, np.int8),
        row_ps=np.zeros(len(rows), np.int64),
        times={},
        **columns,
    )


def inside(tasks: Tasks, apart: Tasks) -> tuple[Small, Bools, Ints, Ints]:
    """For the same tasks each by itself: the task of which each is, and whether that is a list.

    Then when they start and end after a list starts. For example the tasks of a list that take 2
    and 3 ps, one after the other, start at 0, 2 and end at 2, 5.
    """
    is_list = np.array([row.inner < 0 and row.use is None for row in tasks.rows])
    place = tasks.first.take(apart.segment)
    is_inside = is_list.take(tasks.row.take(place))
    after, until = np.zeros((2, len(apart.rows)), np.int64)
    for number, row in enumerate(apart.rows):
        if row.inner >= 0 and row.look.task_list in tasks.times:
            times = tasks.times[row.look.task_list]
            after[number], until[number] = times.start[row.inner], times.end[row.inner]
    place = np.where(is_inside, place, place + apart.inner.clip(0))
    after, until = (np.where(is_inside, each.take(apart.row), 0) for each in (after, until))
    return place, is_inside, after, until


def listed(tasks: Tasks, apart: Tasks) -> Iterator[tuple[int, Ints]]:
    """Numbers of the lists that are one task, each with what runs in it: a row for every run."""
    lists = np.array([row.look.task_list if row.inner < 0 else -1 for row in tasks.rows])
    for number in tasks.times:
        first = apart.first[tasks.segment[lists.take(tasks.row) == number]]
        yield number, first[:, None] + np.arange(len(tasks.program.lists[number].tasks))


def expanded(tasks: Tasks, apart: Tasks, start: Ints, end: Ints) -> tuple[Small, tuple[Ints, Ints]]:
    """Start and end of the same tasks each by itself, from those of tasks that may be contracted.

    With them comes the task of which each is. For example the tasks of a list that take 2 and 3 ps,
    one after the other, run from 7 to 9 and 9 to 12 where it is one task that starts at 7.
    """
    place, is_inside, after, until = inside(tasks, apart)
    begin = start.take(place)
    return place, (begin + after, np.where(is_inside, begin + until, end.take(place)))


def _laid_out(
    program: Program,
    sizes: Ints,
    inside: Sequence[Numbers],
    closing: Sequence[Sequence[int]],
) -> Values:
    """Columns of tasks, of segments whose look k is `sizes[k]` of them.

    `inside` is what each waits for within its segment, row by row, `closing` are those that nothing
    in it waits for. For example segments of the looks 0, 1 of sizes 1 and 2 are the rows 0, 1, 2.
    """
    look, number = program.look, np.arange(len(program), dtype=np.int32)
    if len(inside) == len(sizes):
        return {"segment": number, "row": look, "after": program.after, "first": number}
    row = narrowed(spans(bounds(sizes)[look], sizes[look]), len(inside))
    first = bounds(sizes[look])[:-1]
    segment = np.repeat(number, sizes[look])
    within, last = Lists.of(inside), Lists.of(closing)
    waited = program.after.values
    counts = last.counts[look[waited]]
    before = np.repeat(first[waited], counts)
    before += last.values[spans(last.starts[look[waited]], counts)]
    starts = bounds(counts)[program.after.starts]
    own = within.counts[row]
    begins = own == 0
    several = np.where(begins, np.diff(starts)[segment], own)
    values = np.where(begins, starts[:-1][segment], len(before) + within.starts[row])
    shift = np.repeat(np.where(begins, 0, first[segment]), several)
    found = np.concatenate((before, within.values))[spans(values, several)] + shift
    after = Lists(bounds(several), found.astype(np.int32))
    return {"segment": segment, "row": row, "after": after, "first": first}


def _priced(
    tasks: Tasks, factor: float, paid: Mapping[Use, int], timed: dict[tuple[float, ...], ListTimes]
) -> Tasks:
    """Tasks at such a factor on compute, whose communications take what is `paid`.

    Task lists are `timed` once for all programs that run them at the same prices.
    """
    prices = {use.comm: each for use, each in paid.items() if use.peer_stage < 0}
    times: dict[int, ListTimes] = {}
    row_ps = []
    for row in tasks.rows:
        task, number = row.task(tasks.program), row.look.task_list
        if row.use:
            row_ps.append(paid[row.use])
        elif task:
            row_ps.append(_own_ps(task, factor))
        else:
            task_list = tasks.program.lists[number]
            key = number, factor, *(prices[comm] for comm in task_list.comms)
            if key not in timed:
                timed[key] = list_times(
                    task_list,
                    [
                        prices[each.comm] if each.comm >= 0 else _own_ps(each, factor)
                        for each in task_list.tasks
                    ],
                )
            times[number] = timed[key]
            row_ps.append(times[number].duration_ps)
    if any(each > MAX_INT64 for each in row_ps):
        raise SimulationError(TOO_LONG)
    return replace(tasks, row_ps=ints(row_ps), times=times)


def list_times(task_list: TaskList, took_ps: Sequence[int]) -> ListTimes:
    """Earliest times of a task list's tasks, which take so long.

    Raises SimulationError when the times do not fit 64 bits.
    """
    try:
        duration_ps = ints(took_ps)
    except OverflowError:
        raise SimulationError(TOO_LONG) from None
    end = ends(task_list.waits, duration_ps)
    return ListTimes(start=end - duration_ps, end=end, duration_ps=int(end.max()))


def _own_ps(task: Task, factor: float) -> int:
    """How long a task takes that is no communication."""
    slows = task.kind is TaskKind.COMPUTE and factor != 1
    return round(task.duration_ps * factor) if slows else task.duration_ps
