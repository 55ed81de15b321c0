"""Where the work is done: here, in other processes, or on a Dask cluster. One interface for all.

A pool is a standard `concurrent.futures.Executor` and what stepsim must know beside it.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from stepsim import __version__
from stepsim.base.errors import SweepError
from stepsim.explore.sweep.processes import Call, LostWorkerError, Processes

if TYPE_CHECKING:
    from distributed import Client

_CONNECT_S = 5
_MAX_JOBS = 1024
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}


class ExecutorKind(StrEnum):
    """Where scenarios are computed."""

    LOCAL = "local"
    DASK = "dask"


class Pool(Struct, frozen=True, kw_only=True):
    """Workers that take tasks; `losses` are the errors of a task whose worker is gone.

    `check` raises SweepError when no result can come any more.
    """

    workers: int
    executor: Executor
    losses: tuple[type[BaseException], ...] = ()
    check: Callable[[], None] = lambda: None

    def submit_all(self, fn: Callable[..., Any], calls: Sequence[Call]) -> list[Future[Any]]:
        """Give out calls of a function; processes know who did others like them."""
        if isinstance(self.executor, Processes):
            return self.executor.submit_all(fn, calls)
        return [self.executor.submit(fn, *call.args) for call in calls]


class _Here(Executor):
    """Runs a task when it is submitted, in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def check_executor(kind: ExecutorKind, jobs: int | None, scheduler: str | None) -> None:
    """Raise SweepError for options that contradict each other."""
    if jobs is not None and not 1 <= jobs <= _MAX_JOBS:
        raise SweepError(f"jobs is {jobs}: expected 1 to {_MAX_JOBS}")
    if kind is ExecutorKind.LOCAL and scheduler is not None:
        raise SweepError(f"scheduler is {scheduler!r}: expected none without --executor dask")
    if kind is ExecutorKind.DASK and scheduler is None:
        raise SweepError("--executor dask needs --scheduler, e.g. tcp://127.0.0.1:8786")
    if kind is ExecutorKind.DASK and jobs is not None:
        raise SweepError("jobs is set by the workers of the Dask cluster: leave it out")


def cpus() -> int:
    """Processors this process may use."""
    from joblib import cpu_count

    return int(cpu_count())


@contextmanager
def local_pool(jobs: int) -> Iterator[Pool]:
    """Workers on this machine, ended with the block: this process if it is one, else new ones."""
    if jobs == 1:
        yield Pool(workers=1, executor=_Here())
        return
    with Processes(jobs, _ONE_THREAD) as executor:
        yield Pool(workers=jobs, executor=executor, losses=(LostWorkerError,))


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
