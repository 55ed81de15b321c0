"""Workers of a search: who is asked for a result, and what becomes of it where one is lost."""

from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from typing import Any

import pytest

from stepsim.base.errors import SweepError
from stepsim.base.executors import Pool, pack
from stepsim.explore.plan.asked import parse_fixed
from stepsim.explore.plan.search import PlanJob, PlanRuns
from stepsim.files.asked import read_inputs
from stepsim.step.plans import make_space
from stepsim.workload.plan import Plan


class Losing(Executor):
    """Loses the worker of the first tasks, and does the others at once."""

    def __init__(self, lost: int) -> None:
        self.left = lost
        self.asked: list[str] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.asked.append(getattr(fn, "func", fn).__name__)
        self.left -= 1
        if self.left >= 0:
            future.set_exception(BrokenExecutor("gone"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


@pytest.fixture(scope="module")
def searched() -> tuple[PlanJob, Plan]:
    inputs = read_inputs("llama-3.1-8b", "hgx-h100", {"global_batch": 16, "sequence": 4096})
    fixed = parse_fixed(["tp=2", "pp=2", "cp=1", "vpp=1", "mbs=1", "recompute=none"])
    space = make_space(inputs, (8,), fixed=fixed)
    return PlanJob(space=space), next(space.plans())


def runs(job: PlanJob, executor: Executor) -> PlanRuns:
    pool = Pool(workers=1, executor=executor, losses=(BrokenExecutor,))
    return PlanRuns(packed=pack(job), pool=pool, store=None)


def test_another_worker_is_asked_where_one_is_lost(searched: tuple[PlanJob, Plan]) -> None:
    job, plan = searched
    losing = Losing(2)
    assert runs(job, losing).result(plan) == job.run(plan)
    assert losing.asked == ["_run_packed"] * 3


def test_a_search_ends_where_workers_keep_dying(searched: tuple[PlanJob, Plan]) -> None:
    job, plan = searched
    with pytest.raises(SweepError, match=r"were lost 3 times .*; tp 2"):
        runs(job, Losing(3)).result(plan)


def test_a_plan_is_run_once(searched: tuple[PlanJob, Plan]) -> None:
    job, plan = searched
    executor = Losing(0)
    opened = runs(job, executor)
    assert opened.result(plan) == job.run(plan)
    opened.result(plan)
    assert executor.asked == ["_run_packed"]
