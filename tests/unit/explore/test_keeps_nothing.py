"""A search of plans and a sweep keep nothing of their job once they have answered."""

import gc
from collections import Counter
from collections.abc import Callable

import pytest

import stepsim
from stepsim.core.actions import TaskList
from stepsim.core.write import Program, TaskGraph
from stepsim.explore.plan.search import PlanJob
from stepsim.explore.sweep import Study
from stepsim.network.prices import Prices
from stepsim.parallel.schedules import Schedule
from stepsim.workload.plan import Plan
from stepsim.workload.rows import Workload

KINDS = (
    *(PlanJob, Study, TaskList, TaskGraph, Program),
    *(Prices, Schedule, Plan, Workload),
)


def alive() -> Counter[str]:
    """How many objects of a step there are in this process, by the name of their class."""
    gc.collect()
    return Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, KINDS))


def search() -> object:
    return stepsim.plan("gpt2", "hgx-h100", gpus=8, global_batch=32, sequence=1024, runs=4)


def sweep() -> object:
    axes = {"pp": [1, 2, 4], "schedule": ["1f1b", "gpipe"], "tp": [1, 2]}
    return stepsim.sweep("gpt2", axes=axes, npus=8, global_batch=32, sequence=1024)


@pytest.mark.parametrize("ask", [search, sweep])
def test_nothing_of_a_job_outlives_its_answer(ask: Callable[[], object]) -> None:
    before = alive()
    answer = ask()
    assert answer is not None
    del answer
    assert alive() - before == Counter()
