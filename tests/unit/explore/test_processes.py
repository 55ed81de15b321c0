"""Worker processes: every task gets its result or its error, and none is waited for in vain."""

import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from threading import Event, Thread
from typing import Any

import pytest

from stepsim.explore.sweep import processes
from stepsim.explore.sweep.processes import Call, LostWorkerError, Processes

SOON = 60
MADE_BY: list[int] = []
"""The process that made workers: a fork knows it, a new interpreter does not."""


@pytest.fixture(scope="module")
def workers() -> Iterator[Processes]:
    with Processes(1, {}) as found:
        yield found


def test_a_result_is_that_of_the_task(workers: Processes) -> None:
    assert workers.submit(divmod, 17, 5).result(SOON) == (3, 2)
    assert workers.submit(print).result(SOON) is None


def test_an_error_of_a_task_is_raised_with_its_traceback(workers: Processes) -> None:
    with pytest.raises(ZeroDivisionError) as error:
        workers.submit(divmod, 1, 0).result(SOON)
    assert "Traceback" in str(error.value.__cause__)
    assert workers.submit(len, "abc").result(SOON) == 3


def test_a_lost_worker_is_said_and_replaced(workers: Processes) -> None:
    with pytest.raises(LostWorkerError, match="ended with code 3"):
        workers.submit(os._exit, 3).result(SOON)
    assert workers.submit(len, "abc").result(SOON) == 3


def test_an_answer_that_cannot_be_read_is_an_error_and_no_endless_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(_: Any) -> Any:
        raise AttributeError("no answer")

    with Processes(1, {}) as workers:
        monkeypatch.setattr(processes, "unpack", broken)
        with pytest.raises(AttributeError, match="no answer"):
            workers.submit(len, "abc").result(SOON)
        monkeypatch.undo()
        assert workers.submit(len, "abc").result(SOON) == 3


def waiting(*likes: str) -> processes._Waiting:
    """Tasks that wait, each with one property."""
    tasks = processes._Waiting()
    tasks.put([processes._Task(Future(), like.encode(), (like,)) for like in likes])
    return tasks


def test_a_worker_takes_tasks_like_its_own_then_those_of_nobody_then_of_the_busy() -> None:
    tasks = waiting("a", "b", "a", "c", "b", "b")
    taken = [tasks.take(worker) for worker in (0, 1, 1, 1, 1, 1)]
    assert [task.request for task in taken if task] == [b"a", b"b", b"b", b"b", b"c", b"a"]


def test_a_task_is_left_to_a_free_worker_that_did_another_like_it() -> None:
    with Processes(2, {}) as workers:
        call = Call(like=("a",), args=())
        found = [workers.submit_all(os.getpid, [call])[0].result(SOON) for _ in range(6)]
    assert len(set(found)) == 1


def test_a_closed_list_gives_out_nothing() -> None:
    tasks = waiting("a")
    tasks.close()
    assert tasks.take(0) is None


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forks on Linux alone")
@pytest.mark.parametrize("threads", [False, True])
def test_a_worker_is_a_fork_unless_another_thread_might_hold_a_lock(
    threads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "active_count", lambda: 1)
    monkeypatch.setitem(globals(), "MADE_BY", [os.getpid()])
    done = Event()
    if threads:
        monkeypatch.undo()
        Thread(target=done.wait, daemon=True).start()
    with Processes(2, {}) as workers:
        found = [workers.submit(_pids).result(SOON) for _ in range(2)]
    done.set()
    assert all(parent == os.getpid() for parent, _ in found)
    assert all(forked is not threads for _, forked in found)


def _pids() -> tuple[int, bool]:
    """The parent of a worker, and whether it is a fork."""
    return os.getppid(), bool(MADE_BY)
