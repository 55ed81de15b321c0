"""Worker processes on this machine: a thread here for each, which talks to it through two pipes.

A worker ends when its input does, so none outlives the process that started it, however that died.
It is in a session of its own, where no Ctrl-C reaches it, and prints nothing: what becomes of a
task, an error too, is its answer.
"""

import os
import struct
import subprocess
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, BinaryIO

from stepsim.explore.sweep.study import pack, unpack

_LENGTH = struct.Struct("<Q")
_CODE = (
    "import sys; sys.path[:] = sys.argv[1:]; from stepsim.explore.sweep.processes import serve; "
    "serve()"
)
_Task = tuple[Future[Any], bytes]


class LostWorkerError(Exception):
    """A worker ended in the middle of a task."""


class _RemoteError(Exception):
    """The traceback of an error in a worker, shown as its cause."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Processes(Executor):
    """So many workers, each started with its first task, and anew when it was lost."""

    def __init__(self, workers: int, environment: dict[str, str]) -> None:
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._environment = os.environ | environment
        self._workers: list[_Worker] = []
        for _ in range(workers):
            self._workers.append(_Worker(self._tasks, self._environment))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Give a task to the next worker that is free."""
        future: Future[Any] = Future()
        self._tasks.put((future, pack((fn, args, kwargs))))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all workers, whatever they do; their tasks are lost."""
        for worker in self._workers:
            worker.stop()
            self._tasks.put(None)
        for worker in self._workers if wait else ():
            worker.join()


class _Worker(Thread):
    """A thread that does tasks one after the other by asking its process."""

    def __init__(self, tasks: "SimpleQueue[_Task | None]", environment: dict[str, str]) -> None:
        super().__init__(daemon=True)
        self._tasks = tasks
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = Event()
        self.start()

    def run(self) -> None:
        """Answer tasks until there is None."""
        while task := self._tasks.get():
            future, request = task
            if future.set_running_or_notify_cancel():
                self._fulfil(future, request)
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


def serve() -> None:
    """Be a worker: do what comes in, answer, and end with the input."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    requests: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_listen, args=(requests,), daemon=True).start()
    while True:
        _send(answers, _answer(requests.get()))


def _listen(requests: "SimpleQueue[bytes]") -> None:
    """Pass on what comes in; the end of it is the end of the process, even within a task."""
    try:
        while True:
            requests.put(_receive(sys.stdin.buffer))
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
