"""What a worker does: results of a span of scenarios."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from stepsim.base.arrays import Bools, Floats, Ints
from stepsim.base.errors import StepsimError, SweepError
from stepsim.base.structs import Noun
from stepsim.base.units import Value
from stepsim.explore.sweep.batched import Batched
from stepsim.explore.sweep.evaluate import (
    Evaluator,
    Outcomes,
    PreparedGroup,
    ScenarioGroup,
    Simulation,
    failed,
)
from stepsim.explore.sweep.grid import AxisColumn, ScenarioSpan
from stepsim.explore.sweep.study import Study, unpack
from stepsim.network.placement import place
from stepsim.network.topology.dimension import LINK_FIELDS
from stepsim.network.topology.nested import followed, with_uplinks
from stepsim.parallel.schedules import forget_schedules
from stepsim.step.inputs import choose_plan, make_work
from stepsim.step.prepared import prepare

_GROUPS_KEPT = 4
_GROUPS_TRIED = 32
_BANDWIDTH = next(field for field in LINK_FIELDS if field.name == "bandwidth")


class SweepJob(Noun):
    """A study and the ways to get its results, the preferred one first."""

    study: Study
    evaluators: tuple[Evaluator, ...] = (Batched(), Simulation())

    def evaluator(self, group: int) -> Evaluator:
        """The first evaluator that takes a group."""
        settings = self.study.grid.settings(group)
        return next(each for each in self.evaluators if each.accepts(self.study, settings))


class SpanResult(Noun):
    """Outcomes of a span; `total_bandwidth` is that of all links, in bytes/s, inf if one is free.

    It is inf as well where the job has no size, and then every outcome is an error.
    """

    span: ScenarioSpan
    outcomes: Outcomes
    total_bandwidth: Floats

    @property
    def scenarios(self) -> Ints:
        """Numbers of the scenarios."""
        return np.arange(self.span.start, self.span.stop, dtype=np.int64)

    @property
    def ran(self) -> Bools:
        """Which of them have numbers, and no error."""
        found = np.ones(len(self.total_bandwidth), bool)
        found[list(self.outcomes.errors)] = False
        return found


def check_options(study: Study) -> None:
    """Refuse options that keep every scenario from running, before any of them is tried.

    They do where the job without axes, and the first scenarios of groups, fail for the same reason.
    Raises SweepError.
    """
    why = _refusal(study, {})
    groups = study.grid.size // study.grid.group_size
    tried = range(0, groups, -(-groups // _GROUPS_TRIED))
    if why and all(_refusal(study, study.grid.settings(group)) == why for group in tried):
        raise SweepError(f"no scenario can run: {why}")


def _refusal(study: Study, settings: Mapping[str, Value]) -> str:
    """Why a job cannot be prepared; empty if it can."""
    try:
        prepare(study.workload, study.network(settings), study.step_options(settings))
    except StepsimError as error:
        return str(error)
    return ""


def evaluate_span(packed: bytes, span: ScenarioSpan) -> SpanResult:
    """Results of the scenarios of a span, which all belong to one group.

    A user's mistake is the reason of its scenarios; an error of our own is raised.
    """
    study = _job(packed).study
    group = span.start // study.grid.group_size
    network = study.network(study.grid.settings(group))
    columns = with_uplinks(network, study.grid.columns(span))
    count = span.stop - span.start if columns else 1
    ready = _prepare(packed, group)
    if isinstance(ready.group, str):
        outcomes = failed(count, ready.group, breakdown=study.breakdown)
    else:
        outcomes = _outcomes(ready.group, columns, count, breakdown=study.breakdown)
    return SpanResult(
        span=span, outcomes=outcomes, total_bandwidth=_bandwidth(ready, columns, count)
    )


@lru_cache(maxsize=1)
def _job(packed: bytes) -> SweepJob:
    """A packed job; it is unpacked once per worker, not once per task."""
    job: SweepJob = unpack(packed)
    return job


def _outcomes(
    group: PreparedGroup, columns: Mapping[str, AxisColumn], count: int, *, breakdown: bool
) -> Outcomes:
    try:
        return group.evaluate(columns)
    except StepsimError as error:
        return failed(count, str(error), breakdown=breakdown)


class _Ready(Noun):
    """A prepared group or why it cannot be, and the links of each class."""

    group: PreparedGroup | str
    links: tuple["_Links", ...]


class _Links(NamedTuple):
    """The links of a class: how many, bytes/s of each, and axes that change it, the first first."""

    links: int
    bandwidth: float
    axes: tuple[str, str]


@lru_cache(maxsize=_GROUPS_KEPT)
def _prepare(packed: bytes, group: int) -> _Ready:
    job = _job(packed)
    settings = job.study.grid.settings(group)
    links: tuple[_Links, ...] = ()
    try:
        scenarios = ScenarioGroup(study=job.study, settings=settings)
        links = _links(scenarios)
        prepared = job.evaluator(group).prepare(scenarios)
    except StepsimError as error:
        return _Ready(group=str(error), links=links)
    return _Ready(group=prepared, links=links)


def forget_jobs() -> None:
    """Keep nothing of a sweep that ran in this process: its job, groups and schedules."""
    _job.cache_clear()
    _prepare.cache_clear()
    forget_schedules()


def _links(group: ScenarioGroup) -> tuple[_Links, ...]:
    """Number and bandwidth of the links of each class in a job of the group's size."""
    made = make_work(group.study.workload, group.network, group.options())
    plan, _ = choose_plan(made.workload, group.network, made.sized)
    topology = place(group.network, plan, made.options.placement)
    counts: Sequence[int] = topology.link_counts()
    leaders = followed(topology, _BANDWIDTH)
    return tuple(
        _Links(count, link.bandwidth, (f"{link.name}.bandwidth", f"{leader}.bandwidth"))
        for link, count, leader in zip(topology.link_classes, counts, leaders, strict=True)
    )


def _bandwidth(ready: _Ready, columns: Mapping[str, AxisColumn], count: int) -> Floats:
    """Bytes/s of all links of each scenario."""
    if not ready.links:
        return np.full(count, np.inf)
    total = np.zeros(count)
    for each in ready.links:
        axis = next((axis for axis in each.axes if axis in columns), None)
        if each.links:
            total += each.links * (each.bandwidth if axis is None else columns[axis])
    return total
