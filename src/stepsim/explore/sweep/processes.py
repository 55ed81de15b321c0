"""Worker processes on this machine: a thread here for each, which talks to it through two pipes.

A worker ends when its input does, so none outlives the process that started it, however that died.
It is in a session of its own, where no Ctrl-C reaches it, and prints nothing: what becomes of a
task, an error too, is its answer.

Where this process has no other thread and the system is Linux, a worker is a fork of it, which has
imported what it needs: two workers of `stepsim plan gpt3-175b --gpus 512` spare 0.7 s of processor
time by it. Elsewhere, and in place of one that was lost, it is a new interpreter.
"""

import gc
import os
import signal
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from queue import SimpleQueue
from threading import Condition, Event, Thread, active_count
from typing import Any, BinaryIO, NamedTuple, NoReturn
from warnings import catch_warnings, simplefilter

from msgspec import Struct

from stepsim.explore.sweep.study import pack, unpack

_LENGTH = struct.Struct("<Q")
_CODE = (
    "import sys; sys.path[:] = sys.argv[1:]; from stepsim.explore.sweep.processes import serve; "
    "serve()"
)
_LEFT = 3
"""Rank of a task that is left to a free worker that did others like it."""


class Call(NamedTuple):
    """Arguments of a task, and properties: tasks that share one may share what a worker keeps."""

    like: tuple[Hashable, ...]
    args: tuple[Any, ...]


class _Task(NamedTuple):
    """A packed task, who waits for its result, and what it has in common with others."""

    future: Future[Any]
    request: bytes
    like: tuple[Hashable, ...]


class LostWorkerError(Exception):
    """A worker ended in the middle of a task."""


class _RemoteError(Exception):
    """The traceback of an error in a worker, shown as its cause."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class _Waiting:
    """Tasks that wait for workers, and which worker did the last task with a property.

    A worker takes the first task that is like one of its own, else the first that is like nobody's,
    else the first that is like those of workers that are busy. Example: worker 0 is busy with a
    task like a, and worker 1 did one like b. Of waiting tasks like a, c, b and b worker 1 takes
    both like b first, then c, and then a unless worker 0 has come to take it.
    """

    def __init__(self) -> None:
        self._tasks: list[_Task] = []
        self._owner: dict[Hashable, int] = {}
        self._busy: set[int] = set()
        self._closed = False
        self._changed = Condition()

    def put(self, tasks: Sequence[_Task]) -> None:
        """Let tasks wait."""
        with self._changed:
            self._tasks += tasks
            self._changed.notify_all()

    def close(self) -> None:
        """Give out nothing more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take(self, worker: int) -> _Task | None:
        """The next task of a worker that is free, when there is one; None where it is to end."""
        with self._changed:
            self._busy.discard(worker)
            while not self._closed:
                if task := self._next(worker):
                    self._owner.update(dict.fromkeys(task.like, worker))
                    self._busy.add(worker)
                    self._changed.notify_all()
                    return task
                self._changed.wait()
        return None

    def _next(self, worker: int) -> _Task | None:
        """Take the task out of the list that a worker is to do; None where it is to wait."""
        ranks = [self._rank(task, worker) for task in self._tasks]
        first = min(ranks, default=_LEFT)
        return None if first == _LEFT else self._tasks.pop(ranks.index(first))

    def _rank(self, task: _Task, worker: int) -> int:
        """How soon a worker takes a task, of 0, 1 and 2, or that it leaves it to another."""
        owners = {self._owner[key] for key in task.like if key in self._owner}
        if worker in owners:
            return 0
        return 1 if not owners else 2 if owners <= self._busy else _LEFT


class Processes(Executor):
    """So many workers, forked at once or started with their first task; anew when lost."""

    def __init__(self, workers: int, environment: dict[str, str]) -> None:
        self._tasks = _Waiting()
        self._environment = os.environ | environment
        self._workers: list[_Worker] = []
        forks = [_fork(self._environment) for _ in range(workers)] if _can_fork() else []
        for number in range(workers):
            process = forks.pop() if forks else None
            self._workers.append(_Worker(number, self._tasks, self._environment, process))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Give a task to the next worker that is free."""
        task = _Task(Future(), pack((fn, args, kwargs)), ())
        self._tasks.put([task])
        return task.future

    def submit_all(self, fn: Callable[..., Any], calls: Sequence[Call]) -> list[Future[Any]]:
        """Give out calls at once, each to a worker that did one like it, if that worker is free.

        Such a worker has kept what both calls need. Where it is busy, another takes the call.
        """
        tasks = [_Task(Future(), pack((fn, call.args, {})), call.like) for call in calls]
        self._tasks.put(tasks)
        return [task.future for task in tasks]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all workers, whatever they do; their tasks are lost."""
        for worker in self._workers:
            worker.stop()
        self._tasks.close()
        for worker in self._workers if wait else ():
            worker.join()


class _Worker(Thread):
    """A thread that does tasks one after the other by asking its process."""

    def __init__(
        self,
        number: int,
        tasks: _Waiting,
        environment: dict[str, str],
        process: "_Fork | None",
    ) -> None:
        super().__init__(daemon=True)
        self._number = number
        self._tasks = tasks
        self._environment = environment
        self._process: subprocess.Popen[bytes] | _Fork | None = process
        self._stopped = Event()
        self.start()

    def run(self) -> None:
        """Answer tasks until there is None."""
        while task := self._tasks.take(self._number):
            if task.future.set_running_or_notify_cancel():
                self._fulfil(task.future, task.request)
        self._end()

    def _fulfil(self, future: Future[Any], request: bytes) -> None:
        """Give a future its result or its error, whatever goes wrong: somebody waits for it."""
        try:
            result, error = self._ask(request)
        except EOFError as lost:
            self._end()
            future.set_exception(LostWorkerError(str(lost)))
        except Exception as failed:  # the system starts no process, or an answer cannot be read
            future.set_exception(failed)
        else:
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

    def stop(self) -> None:
        """End its process now and start no other."""
        self._stopped.set()
        if self._process:
            self._process.kill()

    def _ask(self, request: bytes) -> tuple[Any, BaseException | None]:
        if self._stopped.is_set():
            raise EOFError("the pool is closed")
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _CODE, *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=self._environment,
                start_new_session=True,
            )
        process = self._process
        assert process.stdin
        assert process.stdout
        if self._stopped.is_set():
            process.kill()
        try:
            _send(process.stdin, request)
            result, error, told = unpack(_receive(process.stdout))
        except (OSError, EOFError):
            process.kill()
            raise EOFError(f"a worker ended with code {process.wait()}") from None
        if error is not None:
            error.__cause__ = _RemoteError(told)
        return result, error

    def _end(self) -> None:
        process, self._process = self._process, None
        if process:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe:
                    _close(pipe)


class _Fork(Struct, frozen=True):
    """A fork of this process that serves, used as a `Popen` is."""

    pid: int
    stdin: BinaryIO
    stdout: BinaryIO

    def kill(self) -> None:
        """End it now; it may have ended before."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Its exit code when it has ended; 0 where it was waited for before."""
        with suppress(ChildProcessError):
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return 0


def _can_fork() -> bool:
    """Whether a fork is safe: another thread could hold a lock, which nobody would open in it."""
    return sys.platform == "linux" and active_count() == 1


def _fork(environment: dict[str, str]) -> _Fork:
    """A worker that is a fork of this process."""
    requests, to_worker = os.pipe()
    from_worker, answers = os.pipe()
    with catch_warnings():
        simplefilter("ignore", DeprecationWarning)  # of threads of BLAS, which ends them at a fork
        pid = os.fork()
    if not pid:
        _serve_forked(requests, answers, environment)
    os.close(requests)
    os.close(answers)
    return _Fork(pid, os.fdopen(to_worker, "wb"), os.fdopen(from_worker, "rb"))


def _serve_forked(requests: int, answers: int, environment: dict[str, str]) -> NoReturn:
    """Serve in a fork: nothing stays open but its pipes, nothing of its parent is finished."""
    try:
        gc.freeze()
        os.setsid()
        os.environ.update(environment)
        for theirs, own in ((requests, 0), (answers, 1), (os.open(os.devnull, os.O_WRONLY), 2)):
            os.dup2(theirs, own)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        sys.stdout = sys.stderr = os.fdopen(2, "w", encoding="utf-8")
        serve()
    finally:
        os._exit(1)


def serve() -> None:
    """Be a worker: do what comes in, answer, and end with the input."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    requests: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_listen, args=(os.fdopen(0, "rb"), requests), daemon=True).start()
    while True:
        _send(answers, _answer(requests.get()))


def _listen(pipe: BinaryIO, requests: "SimpleQueue[bytes]") -> None:
    """Pass on what comes in; the end of it is the end of the process, even within a task."""
    try:
        while True:
            requests.put(_receive(pipe))
    finally:
        os._exit(0)


def _answer(request: bytes) -> bytes:
    """Result, error and its traceback of a task; an error that cannot be sent is told."""
    try:
        fn, args, kwargs = unpack(request)
        return pack((fn(*args, **kwargs), None, ""), level=0)
    except Exception as error:
        told = traceback.format_exc()
        try:
            return pack((None, error, told))
        except Exception:
            return pack((None, RuntimeError(str(error)), told))


def _send(pipe: BinaryIO | Any, message: bytes) -> None:
    pipe.write(_LENGTH.pack(len(message)) + message)
    pipe.flush()


def _receive(pipe: BinaryIO | Any) -> bytes:
    """The next message; raises EOFError where there is none, or half of one."""
    head = pipe.read(_LENGTH.size)
    message: bytes = pipe.read(_LENGTH.unpack(head)[0]) if len(head) == _LENGTH.size else b""
    if not message:
        raise EOFError("the pipe was closed")
    return message


def _close(pipe: Any) -> None:
    with suppress(OSError):  # what was still to be written is lost with the worker
        pipe.close()
