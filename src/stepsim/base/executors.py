"""Where the work is done: here, in other processes, or on a Dask cluster. One interface for all.

A pool is a standard `concurrent.futures.Executor` and what stepsim must know beside it. Every task
takes the packed job, which all tasks of a question share.
"""

import os
import pickle
import signal
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    wait,
)
from contextlib import contextmanager
from enum import StrEnum
from functools import lru_cache
from itertools import chain, islice
from threading import Thread, active_count
from typing import TYPE_CHECKING, Any, TypeVar
from warnings import catch_warnings, simplefilter

from stepsim import __version__
from stepsim.base.errors import SweepError, member, within
from stepsim.base.structs import Noun

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

    from distributed import Client

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# Tasks of a worker, which keep it busy: one at work, one for when it ends, one to choose from.
_AHEAD = 3
_POLL_S = 2.0
_LOSSES = 3
_CONNECT_S = 5
_MAX_JOBS = 1024
_ONE_THREAD = tuple(f"{name}_NUM_THREADS" for name in ("OMP", "OPENBLAS", "MKL"))


class ExecutorKind(StrEnum):
    """Where scenarios are computed."""

    LOCAL = "local"
    DASK = "dask"


class Pool(Noun):
    """Workers that take tasks, or without an executor this process.

    `losses` are the errors of a task whose worker is gone. `check` raises SweepError when no result
    can come any more.
    """

    workers: int = 1
    executor: Executor | None = None
    losses: tuple[type[BaseException], ...] = ()
    check: Callable[[], None] = lambda: None

    def results(
        self,
        task: Callable[[_Item], _Result],
        items: Iterable[_Item],
        name: Callable[[_Item], str],
    ) -> Iterator[_Result]:
        """Results of a task for some items, as they come.

        What a lost worker had is given to another. Raises SweepError, with the `name` of an item,
        when workers are lost again and again without a result.
        """
        if self.executor is None:
            yield from map(task, items)
            return
        pending, left, losses = dict[Future[_Result], _Item](), iter(items), 0
        try:
            while True:
                for item in islice(left, _AHEAD * self.workers - len(pending)):
                    pending[self.executor.submit(task, item)] = item
                if not pending:
                    return
                done, _ = wait(pending, timeout=_POLL_S, return_when=FIRST_COMPLETED)
                self.check()
                lost = []
                for future in [each for each in pending if each in done]:
                    item = pending.pop(future)
                    if future.cancelled() or isinstance(future.exception(), self.losses):
                        lost.append((future, item))
                    else:
                        losses = 0
                        yield future.result()
                left = chain([item for _, item in lost], left)
                losses += bool(lost)
                if losses == _LOSSES:
                    raise SweepError(_dying(*lost[0], name))
        finally:
            for future in pending:
                future.cancel()


def _dying(future: Future[Any], item: _Item, name: Callable[[_Item], str]) -> str:
    error = None if future.cancelled() else future.exception()
    why = str(error).strip() or type(error).__name__ if error else "its task was cancelled"
    return (
        f"workers were lost {_LOSSES} times without a result ({why.splitlines()[0]}); {name(item)}"
    )


class Processes(Executor):
    """So many processes of this machine, opened again when one was lost: all it had is lost then.

    They are forks where this process runs no other thread and the system is Linux, which start at
    once, else new interpreters. They end with this process, however that dies, and no Ctrl-C
    reaches them.
    """

    def __init__(self, workers: int) -> None:
        from multiprocessing import active_children

        self._workers, self._others = workers, {*active_children()}
        self._pool = self._opened()

    def _opened(self) -> "ProcessPoolExecutor":
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        way = "fork" if sys.platform == "linux" and active_count() == 1 else "spawn"
        return ProcessPoolExecutor(self._workers, get_context(way), _begin_worker)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Give a task to the next process that is free."""
        with catch_warnings():
            simplefilter("ignore", DeprecationWarning)  # of threads of BLAS, which ends them itself
            try:
                return self._pool.submit(fn, *args, **kwargs)
            except BrokenExecutor:
                self._pool = self._opened()
                return self._pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all processes, whatever they do; their tasks are lost."""
        from multiprocessing import active_children

        for each in {*active_children()} - self._others:
            each.kill()
        self._pool.shutdown(wait, cancel_futures=True)


def _begin_worker() -> None:
    """Runs in a process before its first task."""
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    from multiprocessing import parent_process

    if parent := parent_process():
        parent.join()
    os._exit(0)


def check_executor(executor: str, jobs: int | None, scheduler: str | None) -> None:
    """Raise SweepError for options that contradict each other."""
    is_dask = member(ExecutorKind, executor, "executor", SweepError) is ExecutorKind.DASK
    within("jobs", jobs, 1, _MAX_JOBS, SweepError)
    if not is_dask and scheduler is not None:
        raise SweepError(f"scheduler is {scheduler!r}: expected none without --executor dask")
    if is_dask and scheduler is None:
        raise SweepError("--executor dask needs --scheduler, e.g. tcp://127.0.0.1:8786")
    if is_dask and jobs is not None:
        raise SweepError("jobs is set by the workers of the Dask cluster: leave it out")


def cpus() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


@contextmanager
def local_pool(jobs: int) -> Iterator[Pool]:
    """Workers on this machine, ended with the block: this process if it is one, else new ones."""
    if jobs == 1:
        yield Pool()
        return
    with Processes(jobs) as executor:
        yield Pool(workers=jobs, executor=executor, losses=(BrokenExecutor,))


@contextmanager
def dask_pool(scheduler: str) -> Iterator[Pool]:
    """The workers behind a Dask scheduler such as `tcp://127.0.0.1:8786`.

    Raises SweepError when it cannot be reached, has no workers, or a worker has another stepsim.
    """
    client = _connect(scheduler)
    try:
        from distributed.scheduler import KilledWorker

        def check() -> None:
            if client.status not in ("running", "connecting"):
                raise SweepError(f"lost the Dask scheduler at {scheduler}")

        yield Pool(
            workers=_check_workers(client, scheduler),
            executor=client.get_executor(pure=False),
            losses=(KilledWorker, CancelledError),
            check=check,
        )
    finally:
        client.close(timeout=1)


def _connect(scheduler: str) -> "Client":
    try:
        from distributed import Client
    except ImportError:
        raise SweepError(
            "--executor dask needs Dask: install it with pip install 'stepsim[dask]'"
        ) from None
    try:
        return Client(scheduler, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SweepError(f"cannot reach a Dask scheduler at {scheduler}: {why}") from None


def _check_workers(client: "Client", scheduler: str) -> int:
    """Threads of all workers, which must run this stepsim."""
    try:
        client.wait_for_workers(1, timeout=_CONNECT_S)
    except TimeoutError:
        raise SweepError(f"the Dask scheduler at {scheduler} has no workers") from None
    try:
        versions: dict[str, str] = client.run(_version)
    except Exception as error:
        raise SweepError(f"a worker of {scheduler} cannot run stepsim: {error}") from None
    for worker, version in versions.items():
        if version != __version__:
            raise SweepError(f"worker {worker} has stepsim {version}: expected {__version__}")
    return sum(client.nthreads().values())


def _version() -> str:
    """Runs on a worker."""
    os.environ.update({name: "1" for name in _ONE_THREAD if name not in os.environ})
    return __version__


def pack(document: object) -> bytes:
    """A document as a few kilobytes, small enough to go with every task."""
    return zlib.compress(pickle.dumps(document, protocol=5), level=1)


@lru_cache(maxsize=1)
def unpack(data: bytes) -> Any:
    """The document that was packed; it is unpacked once per worker, not once per task.

    A sweep of 64 jobs of llama-3-8b takes 2.4 s so, and 2.7 where each of them is unpacked.
    """
    return pickle.loads(zlib.decompress(data))
