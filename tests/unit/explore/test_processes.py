"""Worker processes: every task gets its result or its error, and none is waited for in vain."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from stepsim.explore.sweep import processes
from stepsim.explore.sweep.processes import LostWorkerError, Processes

SOON = 60


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
