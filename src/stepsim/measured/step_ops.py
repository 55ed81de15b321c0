"""Operations after the pipeline: gradient all-reduces, the optimizer, and what else a trace has."""

from collections.abc import Iterator, Sequence

import numpy as np

from stepsim.base.structs import Noun, replace
from stepsim.measured.profile.events import Profile
from stepsim.measured.run import Degrees, OpKind, gradient_groups
from stepsim.measured.run_profile import after_pipeline

ALIKE = 0.01
"""Relative difference in bytes up to which two operations count as one."""


class StepOp(Noun):
    """An operation after the pipeline, on the ranks of a stage; times in ps.

    A collective counts from the arrival of the last member of its group: `times_ps` has an entry
    per group, per rank where the operation has no group; `wait_ps` is the median over ranks of
    what they wait for that member. `group` are the ranks of the first group.
    """

    stage: int
    kind: OpKind
    label: str
    size_bytes: int
    times_ps: tuple[int, ...]
    wait_ps: int
    group: tuple[int, ...]

    @property
    def duration_ps(self) -> int:
        """Median over groups."""
        return _median_ps(self.times_ps)


class _Operation(Noun):
    """One operation wherever a run does it: alike in kind, group's ranks and nodes, and bytes.

    `op` is that of the first stage, with the times of all groups: groups that do the same are
    repetitions of one measurement, so its time is their median. `size_bytes` are those of a stage's
    gradients where the operation is the optimizer.
    """

    op: StepOp
    size_bytes: int
    nodes: int

    def holds(self, other: "_Operation") -> bool:
        """Whether another one is the same operation."""
        mine, its = self.op, other.op
        same = (mine.label, len(mine.group), self.nodes) == (its.label, len(its.group), other.nodes)
        return same and abs(self.size_bytes - other.size_bytes) <= ALIKE * self.size_bytes


def _median_ps(times_ps: Sequence[int]) -> int:
    """Median of times in ps."""
    return round(float(np.median(times_ps)))


def operations(ops: Sequence[StepOp], node_size: int) -> list[_Operation]:
    """The operations of a run of `node_size` ranks per node, each with all stages that do it."""
    found: list[_Operation] = []
    for op in ops:
        size = gradient_bytes(ops, op.stage) if op.kind is OpKind.OPTIMIZER else op.size_bytes
        nodes = len({rank // node_size for rank in op.group})
        new = _Operation(op=op, size_bytes=size, nodes=nodes)
        same = next((place for place, known in enumerate(found) if known.holds(new)), None)
        if same is None:
            found.append(new)
        else:
            first = found[same].op
            every = replace(first, times_ps=(*first.times_ps, *op.times_ps))
            found[same] = replace(found[same], op=every)
    return found


def gradient_bytes(ops: Sequence[StepOp], stage: int) -> int:
    """Bytes that a stage's operations reduce: those the optimizer updates."""
    return sum(op.size_bytes for op in ops if op.stage == stage)


def step_ops(run: Profile, degrees: Degrees, stage: int, ranks: Sequence[int]) -> Iterator[StepOp]:
    """Operations after the pipeline: the n-th of every rank of a stage is the same one.

    `ranks` are places in the run's ranks.
    """
    events = run.events
    after = after_pipeline(events)
    places = {index: np.flatnonzero(after & (events.rank == index)).tolist() for index in ranks}
    for number, first in enumerate(places[ranks[0]]):
        durations = {
            run.ranks[index].rank: int(events.duration_ps[of_rank[number]])
            for index, of_rank in places.items()
            if number < len(of_rank)
        }
        kind = OpKind(int(events.name[first]))
        groups = gradient_groups(degrees, kind, stage)
        groups = groups or [(run.ranks[index].rank,) for index in ranks]
        last = [min((durations[r] for r in g if r in durations), default=0) for g in groups]
        times = tuple(time for time in last if time) or (0,)
        yield StepOp(
            stage=stage,
            kind=kind,
            label=run.labels[first],
            size_bytes=max(int(events.size_bytes[first]), 0),
            times_ps=times,
            wait_ps=max(_median_ps([*durations.values()]) - _median_ps(times), 0),
            group=_recorded_group(run, first) or groups[0],
        )


def _recorded_group(run: Profile, place: int) -> tuple[int, ...]:
    """The ranks of a collective known by its label; none where the profile does not list them."""
    group = int(run.events.group[place])
    if run.events.name[place] != OpKind.COLLECTIVE or group < 0:
        return ()
    return run.groups[group].ranks
