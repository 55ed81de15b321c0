"""The event engine, folded and with every rank. The numbers of tasks are asserted."""

from typing import Any

import pytest
from gpt import gpt
from sizes import sized

from stepsim.core.timeline import run_graph

CASES = sized([(True, 1488), (False, 2_454_016)], [(True, 1488)])


@pytest.mark.parametrize(("fold", "tasks"), CASES)
def test_engine(benchmark: Any, fold: bool, tasks: int) -> None:
    job = gpt()
    rounds = 5 if fold else 1
    timeline = benchmark.pedantic(
        run_graph, (job.graph, job.prices), {"fold_ranks": fold}, rounds=rounds
    )
    assert sum(map(len, timeline.flat.programs)) == tasks
    step_time_ps = timeline.step_time_ps
    assert step_time_ps == 14_448_339_714_007


def test_contention(benchmark: Any) -> None:
    job = gpt(contention="fair")
    timeline = benchmark.pedantic(run_graph, (job.graph, job.prices), rounds=5)
    assert sum(map(len, timeline.flat.programs)) == 1816
