"""What a worker does: results of a span of scenarios."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import chain

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.errors import StepsimError, SweepError
from stepsim.base.structs import Noun, replace
from stepsim.base.units import Value
from stepsim.explore.executors import unpack
from stepsim.explore.sweep.axes import ScenarioSpan
from stepsim.explore.sweep.evaluate import Outcomes, ScenarioGroup, outcomes_of
from stepsim.explore.sweep.study import Study
from stepsim.network.prices import Known
from stepsim.network.topology.nested import with_uplinks
from stepsim.step.prepared import prepare

_GROUPS_KEPT = 4
_GROUPS_TRIED = 32


class SweepJob(Noun):
    """A study, and what makes groups of its scenarios; `known` are prices of all that ran."""

    study: Study
    make: Callable[..., ScenarioGroup] = ScenarioGroup
    known: Known = {}

    def group(self, number: int) -> ScenarioGroup:
        """A group of scenarios that share a task graph."""
        settings = self.study.grid.settings(number)
        return self.make(study=self.study, settings=settings, known=self.known)


def check_options(study: Study) -> None:
    """Refuse options that keep every scenario from running, before any of them is tried.

    They do where the first scenarios of groups, and the job without axes, fail for the same reason.
    Raises SweepError.
    """
    groups = study.grid.size // study.grid.group_size
    tried = map(study.grid.settings, range(0, groups, -(-groups // _GROUPS_TRIED)))
    why = _refusal(study, next(tried))
    if why and all(_refusal(study, settings) == why for settings in chain(tried, [{}])):
        raise SweepError(f"no scenario can run: {why}")


def _refusal(study: Study, settings: Mapping[str, Value]) -> str:
    """Why a job cannot be prepared; empty if it can."""
    try:
        prepare(study.workload, study.network(settings), study.step_options(settings))
    except StepsimError as error:
        return str(error)
    return ""


def evaluate_span(packed: bytes, span: ScenarioSpan) -> tuple[ScenarioSpan, Outcomes]:
    """A span, and results of its scenarios, which all belong to one group.

    A user's mistake is the reason of its scenarios; an error of our own is raised.
    """
    job: SweepJob = unpack(packed)
    study = job.study
    group = _group(packed, span.start // study.grid.group_size)
    columns = with_uplinks(group.network, study.grid.columns(span))
    count = span.stop - span.start if columns else 1
    bandwidth: Floats = np.full(count, np.inf)
    try:
        bandwidth[:] = group.total_bandwidth(columns)
        outcomes = group.evaluate(columns)
    except StepsimError as error:
        outcomes = outcomes_of([str(error)] * count, breakdown=study.breakdown)
    return span, replace(outcomes, total_bandwidth=bandwidth)


@lru_cache(maxsize=_GROUPS_KEPT)
def _group(packed: bytes, number: int) -> ScenarioGroup:
    job: SweepJob = unpack(packed)
    return job.group(number)


def forget_jobs() -> None:
    """Keep nothing of a sweep that ran in this process: its job and groups."""
    unpack.cache_clear()
    _group.cache_clear()
