"""Worker processes: every task gets its result or its error, and none is waited for in vain."""

import os
import sys
from concurrent.futures import BrokenExecutor, Future
from time import sleep

import pytest

from stepsim.base.errors import SweepError
from stepsim.base.executors import Pool, Processes

SOON = 60
MADE_BY: list[int] = []
"""The process that made workers: a fork knows it, a new interpreter does not."""


def test_results_and_errors_are_those_of_the_task() -> None:
    with Processes(1) as workers:
        assert workers.submit(divmod, 17, 5).result(SOON) == (3, 2)
        with pytest.raises(ZeroDivisionError) as error:
            workers.submit(divmod, 1, 0).result(SOON)
    assert "Traceback" in str(error.value.__cause__)


def test_a_lost_worker_is_said_and_the_next_task_has_another() -> None:
    with Processes(2) as workers:
        with pytest.raises(BrokenExecutor):
            workers.submit(os._exit, 3).result(SOON)
        assert workers.submit(len, "abc").result(SOON) == 3


@pytest.mark.parametrize(
    ("why", "said"), [(BrokenExecutor(), "BrokenExecutor"), (BrokenExecutor("gone\nso"), "gone")]
)
def test_a_loss_says_why(why: BrokenExecutor, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lost: Future[int] = Future()
    lost.set_exception(why)
    pool = Pool(workers=1, executor=Processes(1), losses=(BrokenExecutor,))
    monkeypatch.setattr(pool.executor, "submit", lambda *_: lost)
    with pytest.raises(SweepError, match=rf"lost 3 times without a result \({said}\); task a"):
        list(pool.results(len, ["a"], "task {}".format))


def test_workers_end_with_the_pool_whatever_they_do() -> None:
    with Processes(1) as workers:
        worker = workers.submit(os.getpid).result(SOON)
        workers.submit(sleep, 3600)
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forks on Linux alone")
@pytest.mark.parametrize("threads", [False, True])
def test_a_worker_is_a_fork_unless_another_thread_might_hold_a_lock(
    threads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepsim.base.executors.active_count", lambda: 1 + threads)
    monkeypatch.setitem(globals(), "MADE_BY", [os.getpid()])
    with Processes(2) as workers:
        parent, forked = workers.submit(_pids).result(SOON)
    assert parent == os.getpid()
    assert forked is not threads


def _pids() -> tuple[int, bool]:
    """The parent of a worker, and whether it is a fork."""
    return os.getppid(), bool(MADE_BY)
