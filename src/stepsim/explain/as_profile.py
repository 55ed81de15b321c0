"""A simulated step as a profile: what every rank did, what it waited for, and when.

So a simulated step goes where a recorded one does: to tools that read traces, and into the replay.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Floats, Ints, ints, rows_of, spans
from stepsim.base.errors import PlanError
from stepsim.base.structs import replace
from stepsim.base.units import MAX_INT64
from stepsim.core.flat import GROUPS, MESSAGES, Tasks, tasks_of
from stepsim.core.timeline import Timeline
from stepsim.core.write import TaskGraph
from stepsim.measured.profile.events import (
    Events,
    HostOperator,
    ProcessGroup,
    Profile,
    RankPlace,
    counted,
    same,
    unknown,
)
from stepsim.measured.profile.kernel_classes import SIMULATED
from stepsim.measured.profile.pipeline import pipeline_waits
from stepsim.parallel.schedules.base import Order
from stepsim.run.spans import PHASES_OF_KINDS, UNKNOWN, Spans, TaskKind, TaskPhase
from stepsim.workload.overlap import Kernels

MOST_TASKS = 20_000_000
# Columns of spans that are those of a profile's operations.
_OF_SPANS = (
    *("kind", "stream", "phase", "chunk", "microbatch", "name", "size_bytes"),
    *("start_ps", "end_ps"),
)


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
    apart = {stage: tasks_of(graph.programs[stage], graph) for stage in sorted(used)}
    total = sum(count * len(apart[stage]) for stage, count in used.items())
    if total > MOST_TASKS:
        raise PlanError(
            f"{source}: {total:,} tasks on {len(chosen):,} ranks: expected {MOST_TASKS:,} at "
            "most: choose fewer microbatches or NPUs"
        )
    telling = _Telling(graph=graph)
    programs = dict[int, tuple[dict[str, Ints], Ints]]()
    tables, pairs, before = list[Spans](), list[Ints](), 0
    for rank, table in zip(chosen, timeline.spans(chosen), strict=True):
        stage = rank // width
        if stage not in programs:
            programs[stage] = telling.program(apart[stage], table)
        told, behind = programs[stage]
        tables.append(replace(table, **told))
        pairs.append(behind + before)
        before += len(table)
    spans, names = Spans.joined(*tables), tuple(telling.names)
    follows = tuple(np.concatenate(pairs, axis=1))
    profile = _profile(graph, chosen, spans, source=source, names=names, follows=follows)
    waits, events = pipeline_waits(profile), profile.events
    arrives = np.where(events.meeting == UNKNOWN, events.start_ps, waits.ready_ps)
    profile = waits.retimed(arrives, events.end_ps)
    if not (kernels and telling.kernels):
        return profile
    return _in_kernels(profile, spans.form, [*telling.kernels])


def _profile(graph: TaskGraph, ranks: Sequence[int], spans: Spans, **told: Any) -> Profile:
    """The spans of some ranks, as `_Telling` tells them, as a profile of which more is `told`."""
    width, places = graph.plan.stage_ranks, np.append(ranks, MAX_INT64)
    near = np.searchsorted(places, spans.peer)
    groups, group, meeting = _meetings(graph, spans)
    return Profile(
        **told,
        format="stepsim",
        ranks=tuple(
            RankPlace(rank=rank, stage=rank // width, replica=rank % width) for rank in ranks
        ),
        steps=(0,),
        groups=groups,
        events=Events.of(
            len(spans),
            **{name: getattr(spans, name) for name in _OF_SPANS},
            rank=np.searchsorted(places, spans.rank),
            peer=np.where(places[near] == spans.peer, near, UNKNOWN),
            step=np.zeros(len(spans), np.int64),
            order=counted(spans.rank),
            group=group,
            meeting=meeting,
        ),
        world=graph.plan.npus,
    )


def _in_kernels(profile: Profile, made_of: Ints, kernels: Sequence[Kernels]) -> Profile:
    """The profile with the kernels of its compute in place of its compute.

    `made_of` are places in `kernels`. The times of kernels are rounded so that they add up to those
    of what they make.
    """
    events, run = profile.events, [kernel for made in kernels for kernel in made]
    sizes = ints([len(made) for made in kernels])
    split = (made_of != UNKNOWN) & (events.duration_ps > 0)
    counts = np.ones(len(events), np.int64)
    counts[split] = sizes[made_of[split]]
    owner = np.repeat(np.arange(len(events)), counts)
    parts = np.flatnonzero(split[owner])
    number = spans((np.cumsum(sizes) - sizes)[made_of[split]], counts[split])
    begins, ends = np.concatenate([*map(_shares, kernels)], axis=1)
    called = [f"{SIMULATED}{kernel.name}" for kernel in run]
    launched_by = [HostOperator(name=kernel.operator, sides=kernel.sides) for kernel in run]
    names = tuple(dict.fromkeys((*profile.names, *called)))
    operators = tuple(dict.fromkeys(launched_by))
    found = events.taken(owner)
    lasts = found.duration_ps[parts]
    found.end_ps[parts] = found.start_ps[parts] + np.rint(lasts * ends[number]).astype(np.int64)
    found.start_ps[parts] += np.rint(lasts * begins[number]).astype(np.int64)
    found.name[parts] = ints([names.index(each) for each in called])[number]
    found.operator[parts] = ints([operators.index(each) for each in launched_by])[number]
    return replace(profile, names=names, events=found, operators=operators, follows=None)


def _shares(kernels: Kernels) -> Floats:
    """Where kernels begin and where they end in what they make, from 0 to 1: two rows."""
    ends = np.cumsum([0.0, *(kernel.weight for kernel in kernels)])
    return np.asarray((ends[:-1], ends[1:])) / float(ends[-1])


def _meetings(graph: TaskGraph, spans: Spans) -> tuple[tuple[ProcessGroup, ...], Ints, Ints]:
    """The process groups of collectives, and the group and the meeting of all tasks."""
    of_comm = np.array([*(GROUPS.index(op.group) for op in graph.comms), UNKNOWN])
    kind, group = of_comm[spans.group], unknown(len(spans))
    place = np.where(spans.kind == TaskKind.RECV, spans.peer, spans.rank)
    found: list[ProcessGroup] = []
    for number in sorted({*kind.tolist()} - {UNKNOWN, MESSAGES}):
        members = graph.plan.groups(GROUPS[number])
        chosen = kind == number
        place[chosen] = graph.plan.group_of(GROUPS[number], spans.rank[chosen])
        group[chosen] = place[chosen] + len(found)
        found += [
            ProcessGroup(name=f"{GROUPS[number]}{i}", ranks=tuple(each))
            for i, each in enumerate(members.tolist())
        ]
    return tuple(found), group, np.where(kind == UNKNOWN, UNKNOWN, same(kind, place, spans.meeting))


class _Telling(Struct, kw_only=True):
    """Tells the tasks of stages; `names` and `kernels` are theirs, with the place of each."""

    graph: TaskGraph
    kernels: dict[Kernels, int] = {}
    names: dict[str, int] = {}

    def program(self, laid: Tasks, spans: Spans) -> tuple[dict[str, Ints], Ints]:
        """Columns of what every rank of a stage runs, and pairs of tasks that follow.

        The tasks are the `spans` of one of its ranks, whose phase, virtual stage, microbatch and
        name become those of the action; `meeting` is that among those of a group, by the segment
        and its task, the sender's for a message; and `form` what compute is made of, a place in the
        kernels of all stages.
        """
        program, segment = laid.program, laid.segment
        made_of = [
            self.kernels.setdefault(task.kernels, len(self.kernels))
            if (task := row.task(program)) and task.kernels
            else UNKNOWN
            for row in laid.rows
        ]
        sender = np.where(spans.kind == TaskKind.RECV, program.peer[segment], segment)
        meets = sender.astype(np.int64) << 32 | np.maximum(laid.inner, 0)
        follows = np.stack((laid.after.values, laid.after.owners)).astype(np.int64)
        return {
            **_of_actions(program.entries, spans),
            "name": self._named(spans),
            "meeting": meets,
            "form": ints(made_of).take(laid.row),
        }, follows

    def _named(self, spans: Spans) -> Ints:
        """The place in `names` of every task: of communication it is what it is, else the label."""
        numbers = []
        for kind, name, group in rows_of(spans.kind, spans.name, spans.group):
            text = spans.names[name]
            if kind == TaskKind.COLLECTIVE:
                text = f"{self.graph.comms[group].group} {self.graph.comms[group].kind}"
            elif group != UNKNOWN:
                text = f"pp {TaskKind(kind).name.lower()}"
            numbers.append(self.names.setdefault(text, len(self.names)))
        return ints(numbers)


def _of_actions(order: Order, spans: Spans) -> dict[str, Ints]:
    """Phase, virtual stage and microbatch of tasks: what a message carries has its own.

    Others have those of the last action of the entry that holds them; an update follows all.
    """
    last = np.arange(len(order)), np.count_nonzero(order.kind >= 0, axis=1) - 1
    told = {
        "phase": (PHASES_OF_KINDS[order.kind[last]], TaskPhase.UPDATE),
        "chunk": (order.stage[last], UNKNOWN),
        "microbatch": (order.microbatch[last], UNKNOWN),
    }
    return {
        name: np.where(spans.is_message, getattr(spans, name), np.append(*parts)[spans.entry])
        for name, parts in told.items()
    }
