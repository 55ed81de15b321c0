"""Times found level by level are those of the events, and nobody asks for the wrong ones."""

from pathlib import Path

import numpy as np
import pytest
from jobs import totals_of

import stepsim
from stepsim.base.errors import PlanError
from stepsim.core import timeline
from stepsim.core.timeline import run_graph
from stepsim.files.asked import StepInputs
from stepsim.files.load import topology_of, workload_of
from stepsim.network.prices import Known
from stepsim.options import StepOptions
from stepsim.parallel.modes import Engine, Sharing
from stepsim.step import prepared
from stepsim.step.prepared import prepare

WORKLOADS = sorted((Path(__file__).parents[3] / "workloads").glob("*.txt"))


@pytest.mark.parametrize("path", WORKLOADS, ids=lambda path: path.stem)
def test_every_task_of_a_shipped_job_runs_when_the_events_say(path: Path) -> None:
    ready = prepare(StepInputs(workload_of(path), topology_of("hgx-h100")))
    events, levels = (run_graph(ready.graph, ready.prices, engine=each) for each in Engine)
    assert np.array_equal(events.start, levels.start)
    assert np.array_equal(events.end, levels.end)


def test_levels_are_refused_where_links_are_shared_in_time() -> None:
    with pytest.raises(PlanError, match="engine is levels with contention fair: expected simpy"):
        StepOptions(engine=Engine.LEVELS, contention=Sharing.FAIR)


def test_a_large_job_says_that_no_events_were_run(
    moe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = stepsim.simulate(moe, "hgx-h100")
    monkeypatch.setattr(timeline, "MOST_EVENTS", 10)
    monkeypatch.setattr(prepared, "MOST_EVENTS", 10)
    large = stepsim.simulate(moe, "hgx-h100")
    asked = stepsim.simulate(moe, "hgx-h100", engine="simpy")
    (said,) = set(large.report.notes) - set(whole.report.notes)
    assert said.startswith("more than 10 tasks: their times are found level by level")
    assert asked.report.notes == whole.report.notes
    assert [each.report.settings for each in (whole, large)] == [{}, {"engine": "levels"}]
    assert large.report.step_time_ps == whole.report.step_time_ps


def test_totals_are_those_of_the_report_whatever_prices_are_kept(moe: Path) -> None:
    workload, topology = workload_of(moe), topology_of("hgx-h100")
    known: Known = {}
    for microbatches in (4, 8):
        for sharing in Sharing:
            options = StepOptions(microbatches=microbatches, contention=sharing)
            found = totals_of(workload, topology, options, known=known)
            report = prepare(StepInputs(workload, topology, options)).simulated().report
            assert found.step_time_ps == report.step_time_ps
            assert found.pipeline_time_ps == report.pipeline_time_ps
            assert found.bubble_fraction == report.bubble_fraction
            assert found.breakdown_ps == report.breakdown_ps
