"""Operations after the pipeline: gradient all-reduces, the optimizer, and what else a trace has."""

from collections.abc import Iterator, Sequence

import numpy as np

from stepsim.base.structs import Noun, Numbers, replace
from stepsim.measured.profile.events import Profile
from stepsim.measured.run import OpKind, gradient_groups
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
    times_ps: Numbers
    wait_ps: int
    group: Numbers

    @property
    def duration_ps(self) -> int:
        """Median over groups."""
        return _median_ps(self.times_ps)

    def nodes(self, node_size: int) -> int:
        """Nodes of so many ranks that its group lies on."""
        return len({rank // node_size for rank in self.group})

    def is_same(self, other: "StepOp", node_size: int) -> bool:
        """Whether another stage does the same operation."""
        mine, its = ((op.label, len(op.group), op.nodes(node_size)) for op in (self, other))
        return mine == its and abs(self.size_bytes - other.size_bytes) <= ALIKE * self.size_bytes


def _median_ps(times_ps: Sequence[int]) -> int:
    """Median of times in ps."""
    return round(float(np.median(times_ps)))


def operations(ops: Sequence[StepOp], node_size: int) -> list[StepOp]:
    """The operations of a run of `node_size` ranks per node, each once, as the first stage does it.

    Those of other stages that are alike in label, group's ranks and nodes, and bytes add the times
    of their groups: they are repetitions of one measurement. Bytes of the optimizer are those of
    its stage's gradients.
    """
    found: list[StepOp] = []
    for op in ops:
        new = op
        if op.kind is OpKind.OPTIMIZER:
            new = replace(op, size_bytes=gradient_bytes(ops, op.stage))
        same = next((i for i, known in enumerate(found) if known.is_same(new, node_size)), None)
        if same is None:
            found.append(new)
        else:
            every = (*found[same].times_ps, *new.times_ps)
            found[same] = replace(found[same], times_ps=every)
    return found


def gradient_bytes(ops: Sequence[StepOp], stage: int) -> int:
    """Bytes that a stage's operations reduce: those the optimizer updates."""
    return sum(op.size_bytes for op in ops if op.stage == stage)


def step_ops(run: Profile, stage: int, ranks: Sequence[int]) -> Iterator[StepOp]:
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
        groups = gradient_groups(run.degrees, kind, stage)
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


def _recorded_group(run: Profile, place: int) -> Numbers:
    """The ranks of a collective known by its label; none where the profile does not list them."""
    group = int(run.events.group[place])
    if run.events.name[place] != OpKind.COLLECTIVE or group < 0:
        return ()
    return run.groups[group].ranks
