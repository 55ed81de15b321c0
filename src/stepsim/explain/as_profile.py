"""A simulated step as a profile: what every rank did, what it waited for, and when.

So a simulated step goes where a recorded one does: to tools that read traces, and into the replay.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Ints, ints
from stepsim.base.errors import PlanError
from stepsim.base.structs import Names, replace
from stepsim.core.flat import GROUPS, MESSAGES, Tasks, tasks_apart
from stepsim.core.task_table import PHASES_OF_ACTIONS, columns_of
from stepsim.core.timeline import Timeline
from stepsim.core.write import Program, SegmentKind, TaskGraph
from stepsim.measured.profile.events import (
    Events,
    HostOperator,
    ProcessGroup,
    Profile,
    RankPlace,
    same,
    unknown,
)
from stepsim.measured.profile.kernel_classes import SIMULATED
from stepsim.measured.profile.waits import Waits
from stepsim.network.prices import lowered
from stepsim.run.spans import UNKNOWN, TaskKind, TaskPhase
from stepsim.workload.rows import Kernel, Kernels

MOST_TASKS = 20_000_000


class _StageTasks(Struct, kw_only=True):
    """What every rank of a stage runs: columns of events with a value per task.

    `group` is a place in `GROUPS`, `meets` numbers the meeting among those of the group, by the
    segment and its task, the sender's for a message. `kernels` is what compute is made of, a place
    in those of all stages. `stages_to_sender` and `stages_to_peer` are of
    messages. `before` and `after` are pairs of tasks.
    """

    columns: dict[str, Ints]
    group: Ints
    meets: Ints
    kernels: Ints
    stages_to_sender: Ints
    stages_to_peer: Ints
    before: Ints
    after: Ints


def profile_of_step(
    timeline: Timeline,
    *,
    source: str,
    ranks: Sequence[int] | None = None,
    kernels: bool = False,
) -> Profile:
    """Every task of every rank and what it waits for; `source` names the step.

    As in a recorded profile, a communication begins when its rank arrives. With `ranks` it is those
    of these alone, ascending; with `kernels` compute is the kernels that it is made of, and nothing
    says what waits for what. Raises PlanError for a step of more than `MOST_TASKS` tasks.
    """
    graph = timeline.graph
    width, chosen = graph.plan.stage_ranks, range(graph.plan.npus) if ranks is None else ranks
    used = Counter(rank // width for rank in chosen)
    apart = {stage: tasks_apart(graph.programs[stage], graph) for stage in sorted(used)}
    total = sum(count * len(apart[stage]) for stage, count in used.items())
    if total > MOST_TASKS:
        raise PlanError(
            f"{source}: {total:,} tasks on {len(chosen):,} ranks: expected {MOST_TASKS:,} at "
            "most: choose fewer microbatches or NPUs"
        )
    telling = _Telling(graph=graph)
    stages = {stage: telling.stage(tasks) for stage, tasks in apart.items()}
    every = [(rank, stages[rank // width]) for rank in chosen]
    profile = _profile(timeline, every, tuple(telling.names), source)
    if not kernels:
        return profile
    made_of = np.concatenate([tasks.kernels for _, tasks in every])
    return _in_kernels(profile, made_of, [*telling.kernels]) if telling.kernels else profile


def _profile(
    timeline: Timeline, ranks: list[tuple[int, _StageTasks]], names: Names, source: str
) -> Profile:
    """The tasks of ranks as a profile."""
    graph, width = timeline.graph, timeline.graph.plan.stage_ranks
    lengths = [len(tasks.group) for _, tasks in ranks]
    parts = [_of_rank(timeline, rank, tasks) for rank, tasks in ranks]
    columns = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    groups, met = _meetings(graph, ranks, columns["rank"])
    numbers = np.array([rank for rank, _ in ranks])
    for name in ("rank", "peer"):
        near = np.minimum(np.searchsorted(numbers, columns[name]), len(numbers) - 1)
        columns[name] = np.where(numbers[near] == columns[name], near, UNKNOWN)
    total, skipped = sum(lengths), np.cumsum([0, *lengths[:-1]]).tolist()
    profile = Profile(
        source=source,
        format="stepsim",
        ranks=tuple(
            RankPlace(rank=rank, stage=rank // width, replica=rank % width) for rank, _ in ranks
        ),
        steps=(0,),
        names=names,
        groups=groups,
        events=Events.of(total, **columns, **met),
        world=graph.plan.npus,
    )
    before, after = (
        np.concatenate(
            [getattr(tasks, name) + n for (_, tasks), n in zip(ranks, skipped, strict=True)]
        )
        for name in ("before", "after")
    )
    waits = Waits(profile=replace(profile, follows=(before, after)), before=before, after=after)
    events = profile.events
    arrives = np.where(events.meeting == UNKNOWN, events.start_ps, waits.ready_ps)
    return waits.retimed(arrives, events.end_ps)


def _in_kernels(profile: Profile, made_of: Ints, kernels: Sequence[Kernels]) -> Profile:
    """The profile with the kernels of its compute in place of its compute.

    `made_of` are places in `kernels`. The times of kernels are rounded so that they add up to those
    of what they make.
    """
    events, run = profile.events, [kernel for made in kernels for kernel in made.run]
    sizes = ints([len(made.run) for made in kernels])
    split = (made_of != UNKNOWN) & (events.duration_ps > 0)
    counts = np.ones(len(events), np.int64)
    counts[split] = sizes[made_of[split]]
    owner = np.repeat(np.arange(len(events)), counts)
    inner = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    parts = np.flatnonzero(split[owner])
    number = (np.cumsum(sizes) - sizes)[made_of[owner[parts]]] + inner[parts]
    shares = [_shares(made) for made in kernels]
    begins, ends = (
        np.array([share for every in shares for share in every[side]]) for side in (0, 1)
    )
    taken = events.taken(owner)
    start, end = taken.start_ps.copy(), taken.end_ps.copy()
    lasts = taken.duration_ps[parts]
    end[parts] = start[parts] + np.rint(lasts * ends[number]).astype(np.int64)
    start[parts] += np.rint(lasts * begins[number]).astype(np.int64)
    names = dict.fromkeys((*profile.names, *(f"{SIMULATED}{kernel.name}" for kernel in run)))
    called = dict.fromkeys(map(_operator, run))
    of_name, of_operator = ({key: i for i, key in enumerate(keys)} for keys in (names, called))
    columns = {name: getattr(taken, name) for name in ("name", "operator")}
    columns["name"][parts] = np.array([of_name[f"{SIMULATED}{k.name}"] for k in run])[number]
    operators = [of_operator[_operator(kernel)] for kernel in run]
    columns["operator"][parts] = ints(operators)[number]
    made = replace(taken, start_ps=start, end_ps=end, **columns)
    return replace(profile, names=tuple(names), events=made, operators=tuple(called), follows=None)


def _shares(kernels: Kernels) -> tuple[list[float], list[float]]:
    """Where kernels begin and end in what they make, from 0 to 1."""
    ends = np.cumsum([0.0, *(kernel.weight for kernel in kernels.run)])
    shares = (ends / ends[-1]).tolist()
    return shares[:-1], shares[1:]


def _operator(kernel: Kernel) -> HostOperator:
    return HostOperator(name=kernel.operator, sides=kernel.sides)


def _of_rank(timeline: Timeline, rank: int, tasks: _StageTasks) -> dict[str, Ints]:
    """The columns of a rank: those of its stage, with its own times."""
    times, count = timeline.tasks(rank), len(tasks.group)
    width = timeline.graph.plan.stage_ranks
    peer = rank + tasks.stages_to_peer * width
    return tasks.columns | {
        "rank": np.full(count, rank, np.int64),
        "step": np.zeros(count, np.int64),
        "start_ps": times.start,
        "end_ps": times.end,
        "peer": np.where(tasks.group == MESSAGES, peer, UNKNOWN),
        "order": np.arange(count, dtype=np.int64),
    }


def _meetings(
    graph: TaskGraph, ranks: list[tuple[int, _StageTasks]], rank: Ints
) -> tuple[tuple[ProcessGroup, ...], dict[str, Ints]]:
    """The process groups of collectives, and the columns `group` and `meeting` of all tasks."""
    width = graph.plan.stage_ranks
    kind, meets, to_sender = (
        np.concatenate([getattr(tasks, name) for _, tasks in ranks])
        for name in ("group", "meets", "stages_to_sender")
    )
    place = rank + to_sender * width
    group = unknown(len(rank))
    found: list[ProcessGroup] = []
    for number in sorted({*kind.tolist()} - {UNKNOWN, MESSAGES}):
        low, high = graph.plan.span(GROUPS[number])
        members = graph.plan.groups(GROUPS[number])
        chosen = kind == number
        mine = rank[chosen]
        place[chosen] = np.searchsorted(members[:, 0], lowered(mine, (low, high)))
        group[chosen] = place[chosen] + len(found)
        found += [
            ProcessGroup(name=f"{GROUPS[number]}{i}", ranks=tuple(each))
            for i, each in enumerate(members.tolist())
        ]
    met = np.where(kind == UNKNOWN, UNKNOWN, same(kind, place, meets))
    return tuple(found), {"group": group, "meeting": met}


class _Telling(Struct, kw_only=True):
    """Tells the tasks of stages; `names` and `kernels` are theirs, with the place of each."""

    graph: TaskGraph
    labels: dict[str, int] = {}
    kernels: dict[Kernels, int] = {}
    names: dict[str, int] = {}

    def stage(self, laid: Tasks) -> _StageTasks:
        """The tasks of a stage's program."""
        program, segment = laid.program, laid.segment
        tasks = columns_of(program, laid.rows, laid.row, segment, self.graph, self.labels)
        made_of = [
            self.kernels.setdefault(task.kernels, len(self.kernels))
            if (task := row.task(program)) and task.kernels.run
            else UNKNOWN
            for row in laid.rows
        ]
        parts = np.array([self._part(program, number) for number in range(len(program))])
        phase, chunk, microbatch = parts[segment].T
        receives = tasks["kind"] == TaskKind.RECV
        peer = program.peer_stage[segment].astype(np.int64)
        to_peer = np.where(peer < 0, 0, peer - program.stage)
        sender = np.where(receives, program.peer[segment], segment).astype(np.int64)
        return _StageTasks(
            columns={
                "kind": tasks["kind"],
                "name": self._named(tasks),
                "stream": tasks["stream"],
                "size_bytes": np.where(tasks["group"] < 0, UNKNOWN, tasks["size_bytes"]),
                "phase": phase,
                "chunk": chunk,
                "microbatch": microbatch,
            },
            group=laid.group.astype(np.int64),
            kernels=ints(made_of).take(laid.row),
            meets=sender << 32 | np.maximum(laid.inner, 0),
            stages_to_sender=np.where(receives, to_peer, 0),
            stages_to_peer=to_peer,
            before=laid.after.values.astype(np.int64),
            after=laid.after.owners.astype(np.int64),
        )

    def _part(self, program: Program, number: int) -> tuple[int, int, int]:
        """Phase, virtual stage and microbatch of a segment; of a message, what its sender ran.

        The virtual stage is the rank's own at both ends of a message.
        """
        segment = program.segments[number]
        if segment.kind is SegmentKind.RECV:
            sender = self.graph.programs[segment.peer_stage]
            phase, stage, microbatch = self._part(sender, segment.peer)
            if stage == UNKNOWN:
                return phase, stage, microbatch
            return phase, stage + (1 if phase == TaskPhase.FORWARD else -1), microbatch
        entry = segment.entry
        if segment.kind is SegmentKind.SEND:
            entry = max((program.segments[i].entry for i in segment.after), default=UNKNOWN)
        if entry < 0:
            return TaskPhase.UPDATE, UNKNOWN, UNKNOWN
        action = program.entries[entry].parts()[-1]
        phase = PHASES_OF_ACTIONS[action.kind]
        if segment.kind is SegmentKind.SEND and phase is not TaskPhase.FORWARD:
            phase = TaskPhase.BACKWARD
        reduces = segment.kind is SegmentKind.REDUCTION
        return phase, action.stage, UNKNOWN if reduces else action.microbatch

    def _named(self, tasks: dict[str, Ints]) -> Ints:
        """The place in `names` of every task: of communication it is what it is, else the label."""
        numbers, labels = [], [*self.labels]
        columns = (tasks["kind"].tolist(), tasks["name"].tolist(), tasks["group"].tolist())
        for kind, name, group in zip(*columns, strict=True):
            text = labels[name]
            if kind == TaskKind.COLLECTIVE:
                text = f"{self.graph.comms[group].group} {self.graph.comms[group].kind}"
            elif group != UNKNOWN:
                text = f"pp {TaskKind(kind).name.lower()}"
            numbers.append(self.names.setdefault(text, len(self.names)))
        return ints(numbers)
