"""A step said plainly, rank by rank and task by task: the oracle of the task graph.

Nothing of `graph`, `engine` and `tables` is used: rows, stages, the schedule's order, the runtime's
point-to-point steps and the prices of communications are taken as given, and what waits for what is
written anew. It is slow, and shares nothing between microbatches, stages or ranks.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np

from stepsim.base.axes import CollectiveKind, Group, ParallelAxis, Stream
from stepsim.base.structs import replace
from stepsim.files.asked import StepInputs, WorkSource
from stepsim.network.collectives import parse_algorithms
from stepsim.network.placement import place
from stepsim.network.prices import Prices, Use
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.parallel.p2p import P2PProgram, StepKind, default_mode
from stepsim.parallel.p2p.plain import far_ranks
from stepsim.parallel.schedules import Action, ActionKind, Schedule
from stepsim.parallel.stages import StageWork, split_stages
from stepsim.step.job import choose_schedule, job_of
from stepsim.workload.plan import Plan
from stepsim.workload.rows import CommOp, Row, StepItem, Work

After = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Task:
    """Compute, host time, or a communication `op`; it starts after all tasks in `after`."""

    stream: Stream
    own_ps: int = 0
    op: CommOp | None = None
    after: After = ()

    @property
    def computes(self) -> bool:
        """Whether a slow rank takes longer for it."""
        return self.stream is Stream.COMPUTE and self.op is None


@dataclass(kw_only=True)
class TaskList:
    """Tasks in order: each also follows the last one of its stream.

    Host time before compute, of the stream of compute, is `HOST_TIME`: no slow rank lengthens it.
    """

    alone: frozenset[Group]
    tasks: list[Task] = field(default_factory=list)
    host_time: set[int] = field(default_factory=set)
    launches: After = ()

    def add(self, stream: Stream, after: After, own_ps: int = 0, op: CommOp | None = None) -> After:
        """Add a task; returns what follows it."""
        queued = [i for i, task in enumerate(self.tasks) if task.stream is stream][-1:]
        self.tasks.append(Task(stream=stream, own_ps=own_ps, op=op, after=(*after, *queued)))
        return (len(self.tasks) - 1,)

    def compute(self, work: Work, after: After) -> After:
        """Add what the device waits for the host, and compute, if there is any."""
        after = self.host(work.wait_ps, after)
        return self.add(Stream.COMPUTE, after, work.compute_ps) if work.compute_ps else after

    def host(self, own_ps: int, after: After) -> After:
        """Add time that the device gives the host, if there is any."""
        if not own_ps:
            return after
        self.host_time.add(len(self.tasks))
        return self.add(Stream.COMPUTE, after, own_ps)

    def exchange(self, ops: Iterable[CommOp], after: After, stream: Stream | None = None) -> After:
        """Add collectives one after the other, those of one rank left out."""
        for op in ops:
            if op.group not in self.alone:
                after = self.add(op.axis.stream if stream is None else stream, after, op=op)
        return after

    def launch(self, own_ps: int, after: After) -> None:
        """The host launches kernels from `after` on; what it launches next waits for that."""
        if own_ps:
            self.launches = self.add(Stream.HOST, after, own_ps)

    def launched(self, after: After) -> After:
        """`after`, and what the host has launched so far."""
        after, self.launches = (*after, *self.launches), ()
        return after

    def forward(self, rows: Sequence[Row], after: After) -> After:
        """Every row computes, then waits for its collective, perhaps some rows later."""
        late: dict[int, After] = {}
        for i, row in enumerate(rows):
            after = self.launched(after) if row.forward.host_ps else after
            begun, after = after, self.compute(row.forward, after)
            self.launch(row.forward.host_ps, begun)
            done = self.exchange(row.forward.comms, after)
            if row.forward_lag:
                last = min(i + row.forward_lag, len(rows) - 1)
                late[last] = late.get(last, ()) + done
            else:
                after = done
            after += late.get(i, ())
        return self.launched(after)


def fused(forward: TaskList, backward: TaskList) -> TaskList:
    """A forward and a backward that take turns."""
    halves, merged = (forward, backward), TaskList(alone=forward.alone)
    exchanges = [
        [task.op is not None and task.op.axis is ParallelAxis.EP for task in half.tasks]
        for half in halves
    ]
    by_exchange = all(any(each) for each in exchanges)
    turns = []
    for number, (half, each) in enumerate(zip(halves, exchanges, strict=True)):
        if by_exchange:  # the share of the exchanges before each task, the backward first
            shares = [passed / sum(each) for passed in accumulate(each, initial=0)]
        else:  # the share of compute done when each task ends, the forward first
            passed = list(accumulate(task.own_ps for task in half.tasks))
            shares = [each_ps / (passed[-1] or 1) for each_ps in passed]
        other = number == (0 if by_exchange else 1)
        turns += [(shares[i], other, number, i) for i in range(len(half.tasks))]
    place: dict[tuple[int, int], After] = {}
    for _, _, half_number, i in sorted(turns):
        task = halves[half_number].tasks[i]
        after = tuple(j for before in task.after for j in place[half_number, before])
        if i in halves[half_number].host_time:
            merged.host_time.add(len(merged.tasks))
        place[half_number, i] = merged.add(task.stream, after, task.own_ps, task.op)
    return merged


@dataclass(frozen=True)
class Segment:
    """What a rank does at once: a list of tasks, or one end of a message."""

    after: After
    tasks: TaskList | None = None
    end: int = -1


class RankWriter:
    """Writes the segments of a pipeline rank, by following its point-to-point program.

    `front` is what the next action waits for, `last` the last segment of each queue.
    """

    def __init__(
        self,
        rank: int,
        work: StageWork,
        schedule: Schedule,
        options: StepOptions,
        alone: frozenset[Group],
        free: bool,
    ) -> None:
        self.rank, self.work, self.schedule = rank, work, schedule
        self.options, self.alone, self.free = options, alone, free
        self.segments: list[Segment] = []
        self.front: list[int] = []
        self.last: dict[object, int] = {}
        self.units: list[int] = []
        self.posted: dict[int, int] = {}
        self.first: dict[int, int] = {}
        self.final: dict[int, tuple[int, Action]] = {}
        for number, entry in enumerate(schedule.orders[rank]):
            for action in entry.parts():
                if action.kind is ActionKind.FORWARD:
                    self.first.setdefault(action.chunk, number)
                elif action.kind is not ActionKind.INPUT_GRAD:
                    self.final[action.chunk] = number, action
        gradients, _ = work.without_gradients()
        self.gradients = gradients if options.dp_overlap else ()
        self.passed, self.taken = 0, [0] * len(self.gradients)

    def write(self, program: P2PProgram) -> list[Segment]:
        """All segments; the per-step rows follow what came last."""
        entries, was_alone = self.schedule.orders[self.rank], False
        peers = far_ranks(self.schedule, program.what).tolist()
        steps = zip(program.kind, program.what.tolist(), program.alone, peers, strict=True)
        for kind, what, is_alone, peer in steps:
            alone = bool(is_alone) and not self.free
            if kind == StepKind.COMPUTE:
                self.entry(entries[what].parts(), what)
            elif kind == StepKind.POST:
                queue = None if self.free else (what & 1, self.ahead(what, peer))
                free_receipt = self.free and what & 1
                self.posted[what] = self.add(() if free_receipt else self.front, queue, end=what)
            elif what & 1 or not self.free:
                if alone and not was_alone:
                    self.front = []
                self.front.append(self.posted[what])
            was_alone = alone
        items: Sequence[StepItem] = self.work.per_step
        if self.options.dp_overlap:
            _, items = self.work.without_gradients()
        if items:
            self.add(self.front, Stream.DP, self.per_step(items))
        return self.segments

    def add(
        self, after: Iterable[int], queue: object, tasks: TaskList | None = None, end: int = -1
    ) -> int:
        """Add a segment, behind the last one of its queue."""
        behind = [self.last[queue]] if queue is not None and queue in self.last else []
        self.segments.append(Segment((*after, *behind), tasks, end))
        if queue is not None:
            self.last[queue] = len(self.segments) - 1
        return len(self.segments) - 1

    def ahead(self, end: int, peer: int) -> bool:
        """Whether a message goes to the next rank; between two ranks activations do."""
        placement = self.schedule.placement
        if placement.ranks == 2:
            return end >> 1 < placement.stages * self.schedule.microbatches
        source, target = (peer, self.rank) if end & 1 else (self.rank, peer)
        return (target - source) % placement.ranks == 1

    def rows(self, action: Action) -> tuple[Row, ...]:
        """What an action runs."""
        blocks = self.work.chunks[action.chunk]
        return blocks[action.microbatch % len(blocks)]

    def run(self, tasks: TaskList) -> None:
        """Tasks that all that follows waits for."""
        uses_dp = any(task.stream is Stream.DP for task in tasks.tasks)
        self.front = [self.add(self.front, Stream.DP if uses_dp else None, tasks)]

    def beside(self, ops: Iterable[CommOp], stream: Stream, after: Iterable[int]) -> list[int]:
        """Collectives on a stream of their own."""
        tasks = TaskList(alone=self.alone)
        tasks.exchange(ops, (), stream)
        return [self.add(after, stream, tasks)] if tasks.tasks else []

    def entry(self, parts: Sequence[Action], number: int) -> None:
        """An action, or a forward and a backward that take turns."""
        finals = [part for part in parts if self.final.get(part.chunk) == (number, part)]
        rows = self.rows(parts[0])
        whole = len(parts) == 1 and parts[0].kind in (ActionKind.FORWARD, ActionKind.BACKWARD)
        begins = parts[0].kind is ActionKind.FORWARD and self.first[parts[0].chunk] == number
        shards = [row.shards for row in rows if row.shards]
        again = any(not each.once or each.reduce for each in shards)
        if whole and shards and (again or begins or (finals and self.reduces(rows))):
            self.by_units(parts[0], number, bool(finals))
            return
        for part in parts:
            if part.kind is ActionKind.FORWARD and self.first[part.chunk] == number:
                for row in self.rows(part):
                    if row.shards:
                        self.front += self.beside(row.shards.gather, Stream.FSDP, ())
        if len(parts) == 1 and finals and self.reduces(rows):
            shared = with_shares_of_launches(rows)
            for i in reversed(range(len(rows))):
                self.run(self.tasks(parts[0], shared, range(i, i + 1)))
                self.reductions(shared[i])
            return
        lists = [self.tasks(part, self.rows(part)) for part in parts]
        self.run(lists[0] if len(lists) == 1 else fused(*lists))
        for part in finals:
            for row in reversed(self.rows(part)):
                self.reductions(row)

    def reduces(self, rows: Sequence[Row]) -> bool:
        """Whether gradients are reduced while a last backward goes on."""
        return bool(self.gradients) or any(row.weight_grad.comms for row in rows)

    def by_units(self, action: Action, number: int, is_final: bool) -> None:
        """Parameters are gathered one unit ahead, gradients are reduced unit by unit."""
        rows, forward = self.rows(action), action.kind is ActionKind.FORWARD
        starts = [i for i, row in enumerate(rows) if row.shards]
        units = [range(a, b) for a, b in pairwise([0, *starts[1:], len(rows)])]
        for unit in units if forward else reversed(units):
            shards = next(each for i in unit if (each := rows[i].shards))
            before = self.units[-2:-1]
            if shards.once:
                if forward and self.first[action.chunk] == number:
                    self.front += self.beside(shards.gather, Stream.FSDP, ())
            elif forward or shards.again:
                self.front += self.beside(shards.gather, Stream.FSDP, before)
            self.run(self.tasks(action, rows, unit))
            self.units += self.front
            if not forward:
                self.beside(shards.reduce, Stream.DP, self.front)
                for i in reversed(unit) if is_final else ():
                    self.reductions(rows[i])

    def reductions(self, row: Row) -> None:
        """What may be reduced now that a row has its gradients."""
        self.beside(row.weight_grad.comms, Stream.DP, self.front)
        if not self.gradients:
            return
        every = [row for _, action in self.final.values() for row in self.rows(action)]
        for weigh in (held_parameters, weight_compute, lambda _: 1):
            whole = sum(map(weigh, every))
            if whole:
                break
        self.passed += weigh(row)
        ready = [op.size_bytes * self.passed // whole for op in self.gradients]
        if sum(ready) - sum(self.taken) < self.options.dp_bucket_bytes and self.passed < whole:
            return
        shares = zip(self.gradients, self.taken, ready, strict=True)
        bucket = [replace(op, size_bytes=b - a) for op, a, b in shares if b > a]
        self.taken = ready
        self.beside(bucket, Stream.DP, self.front)

    def tasks(self, action: Action, rows: Sequence[Row], part: range | None = None) -> TaskList:
        """The tasks of an action, or of some of its rows."""
        tasks, part = TaskList(alone=self.alone), range(len(rows)) if part is None else part
        forward = action.kind is ActionKind.FORWARD
        begins = part.start == 0 if forward else part.stop == len(rows)
        after: After = ()
        if begins and action.kind is not ActionKind.WEIGHT_GRAD:
            after = tasks.host(self.options.host_overhead_ps, after)
        if not forward:
            self.backward(tasks, action.kind, rows, part, after)
            return tasks
        if begins and action.stage == 0:
            after = tasks.host(self.options.get_batch_ps, after)
        after = tasks.forward(rows[part.start : part.stop], after)
        if part.stop == len(rows) and action.stage == self.schedule.placement.stages - 1:
            tasks.host(self.options.loss_time_ps, after)
        return tasks

    def backward(
        self, tasks: TaskList, kind: ActionKind, rows: Sequence[Row], part: range, after: After
    ) -> None:
        """Rows in reverse: input gradient, its collective, the weight gradient beside it."""
        inputs, weights = kind is not ActionKind.WEIGHT_GRAD, kind is not ActionKind.INPUT_GRAD
        late: dict[int, After] = {}
        for i in reversed(part):
            row = rows[i]
            host_ps = row.input_grad.host_ps * inputs + row.weight_grad.host_ps * weights
            after = tasks.launched(after) if host_ps else after
            begun = computed = exchanged = after
            ahead = inputs and weights and row.weights_first
            if inputs:
                if row.recompute:
                    kept = [j for j in range(i + 1) if rows[j].checkpoint]
                    after = tasks.forward(rows[kept[-1] if kept else 0 : i], after)
                computed = tasks.compute(row.input_grad, after)
                if ahead:
                    computed = tasks.compute(row.weight_grad, computed)
                exchanged = tasks.exchange(row.input_grad.comms, computed)
            own: After = ()
            if weights and not ahead:
                serial = row.weights_last
                serial = serial and bool(row.weight_grad.compute_ps or not row.backward_lag)
                own = tasks.compute(row.weight_grad, exchanged if serial else computed)
            tasks.launch(host_ps, begun)
            if row.backward_lag and exchanged != computed:
                last = max(i - row.backward_lag, part.start)
                late[last] = late.get(last, ()) + exchanged
                exchanged = computed
            after = (*exchanged, *own, *late.pop(i, ()))

    def per_step(self, items: Sequence[StepItem]) -> TaskList:
        """What follows the pipeline, one item after the other."""
        tasks = TaskList(alone=self.alone)
        after: After = ()
        for item in items:
            begun = after
            after = tasks.compute(item.work, after)
            tasks.launch(item.work.host_ps, begun)
            after = tasks.exchange(item.work.comms, tasks.launched(after))
        return tasks


def held_parameters(row: Row) -> int:
    return row.parameters + row.expert_parameters


def weight_compute(row: Row) -> int:
    return row.weight_grad.compute_ps


def with_shares_of_launches(rows: Sequence[Row]) -> list[Row]:
    """Rows of a backward that runs one by one: launches of several rows are shared by compute."""
    heads = [i for i, row in enumerate(rows) if row.input_grad.host_ps or row.weight_grad.host_ps]
    found = list(rows)
    for head in heads:  # its launches are for itself and those before it, down to the next head
        first = max((i + 1 for i in heads if i < head), default=0)
        unit = range(first, head + 1)
        took = [rows[i].input_grad.compute_ps + rows[i].weight_grad.compute_ps for i in unit]
        if not sum(took):
            continue
        ends = list(accumulate(took, initial=0))
        for i, (a, b) in zip(unit, pairwise(ends), strict=True):
            given = {
                name: replace(
                    getattr(rows[i], name),
                    host_ps=host * b // sum(took) - host * a // sum(took),
                )
                for name in ("input_grad", "weight_grad")
                for host in [getattr(rows[head], name).host_ps]
            }
            found[i] = replace(rows[i], **given)
    return found


@dataclass(frozen=True, kw_only=True)
class PlainStep:
    """The programs of all pipeline ranks, and what they take."""

    plan: Plan
    schedule: Schedule
    programs: list[list[Segment]]
    message: CommOp
    prices: Prices
    slow: Sequence[float]

    def step_time_ps(self) -> int:
        """When the last task of all ranks ends."""
        took: list[int] = []
        after: list[list[int]] = []
        met: dict[object, int] = {}
        number = {op: i for i, op in enumerate(self.prices.comms)}

        def node(own_ps: int, waits: Iterable[int], key: object = None) -> int:
            """A task; ranks that meet have one in common, which waits for all that they do."""
            there = len(took) if key is None else met.setdefault(key, len(took))
            if there == len(took):
                took.append(own_ps)
                after.append([])
            after[there] += waits
            return there

        for rank in range(self.plan.npus):
            stage, closing = self.plan.stage_of(rank), list[list[int]]()
            for number_in_program, segment in enumerate(self.programs[stage]):
                front = [i for before in segment.after for i in closing[before]]
                if segment.tasks is None:
                    use, sender = self._message(rank, stage, segment.end, number[self.message])
                    one = node(self._ps(use, rank), front, (sender, segment.end >> 1))
                    closing.append([one])
                    continue
                own: list[int] = []
                for inner, task in enumerate(segment.tasks.tasks):
                    waits = [own[i] for i in task.after] or front
                    if task.op is None:
                        is_slow = task.computes and inner not in segment.tasks.host_time
                        factor = self.slow[rank] if is_slow else 1
                        own.append(node(round(task.own_ps * factor), waits))
                    else:
                        use = Use(number[task.op], stage)
                        group = int(self.plan.groups(task.op.group)[self._of(task.op, rank)][0])
                        key = task.op.group, group, number_in_program, inner
                        own.append(node(self._ps(use, rank), waits, key))
                waited = {i for task in segment.tasks.tasks for i in task.after}
                closing.append([each for i, each in enumerate(own) if i not in waited] or front)
        return max(ends(took, after), default=0)

    def _ps(self, use: Use, rank: int) -> int:
        return self.prices.duration_ps(use, rank)

    def _of(self, op: CommOp, rank: int) -> int:
        """The number of the group of a rank."""
        groups = self.plan.groups(op.group)
        return int(np.flatnonzero((groups == rank).any(axis=1))[0])

    def _message(self, rank: int, stage: int, end: int, number: int) -> tuple[Use, int]:
        """A message as its rank uses it, and the rank that sends it."""
        peer = int(far_ranks(self.schedule, np.array(end)))
        receives = end & 1
        sender = rank + (peer - stage) * self.plan.stage_ranks if receives else rank
        return Use(number, stage, peer, not receives), sender


def ends(took: Sequence[int], after: Sequence[Sequence[int]]) -> list[int]:
    """When every task ends: it starts when all that it waits for has ended."""
    found, waiting = [-1] * len(took), [len({*each}) for each in after]
    then: list[list[int]] = [[] for _ in took]
    for task, before in enumerate(after):
        for each in {*before}:
            then[each].append(task)
    ready = [task for task, count in enumerate(waiting) if not count]
    for task in ready:
        found[task] = max((found[each] for each in after[task]), default=0) + took[task]
        for each in then[task]:
            waiting[each] -= 1
            if not waiting[each]:
                ready.append(each)
    assert len(ready) == len(took), "some tasks wait for each other"
    return found


def plain_step(source: WorkSource, topology: Topology, options: StepOptions) -> PlainStep:
    """The step of a job, written plainly; links are not shared in time."""
    job = job_of(StepInputs(source, topology, options))
    options, work, plan = job.options, job.workload, job.plan
    network = place(topology, plan, options.placement)
    schedule = choose_schedule(job, network)
    stages = split_stages(work, plan, schedule.placement, options.stage_rows)
    mode = options.p2p or default_mode(schedule)
    free = mode.free
    programs = [
        RankWriter(rank, each, schedule, options, plan.alone, free).write(steps)
        for rank, (each, steps) in enumerate(
            zip(stages.works, mode.programs(schedule, options), strict=True)
        )
    ]
    message = CommOp(
        kind=CollectiveKind.SEND_RECV,
        group=Group.PP,
        axis=ParallelAxis.PP,
        size_bytes=stages.pp_comm_bytes,
    )
    prices = Prices(
        plan=plan,
        topology=network,
        comms=tuple(dict.fromkeys((message, *_operations(programs)))),
        algorithms=parse_algorithms(options.algorithm),
        table=options.comm_table,
        sharing=options.contention,
    )
    slow = options.slow.factors(plan.npus).tolist() if options.slow else [1.0] * plan.npus
    return PlainStep(
        plan=plan, schedule=schedule, programs=programs, message=message, prices=prices, slow=slow
    )


def _operations(programs: Iterable[Iterable[Segment]]) -> Iterator[CommOp]:
    for program in programs:
        for segment in program:
            for task in segment.tasks.tasks if segment.tasks else ():
                if task.op is not None:
                    yield task.op
