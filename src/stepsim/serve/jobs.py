"""Work in a thread that another thread can stop: a question whose asker has gone.

A long question is one computation with few places to look whether it is still wanted. So the
interpreter is asked to raise an exception in its thread (`PyThreadState_SetAsyncExc`), which it
does before the next instruction; what is held is let go as after any exception.
"""

import ctypes
from collections.abc import Callable
from threading import Lock, get_ident
from typing import TypeVar

from msgspec import Struct, field

_Result = TypeVar("_Result")


class ObsoleteError(BaseException):
    """Nobody waits for this answer: a newer question of its tab has come, or the tab has gone.

    It is no Exception, so that nothing takes it for a mistake and goes on.
    """


class Job(Struct, kw_only=True):
    """A piece of work, and the thread that does it while it does."""

    is_stopped: bool = False
    _thread: int | None = None
    _lock: Lock = field(default_factory=Lock)

    def run(self, work: Callable[[], _Result]) -> _Result:
        """Do the work in this thread; raises ObsoleteError where it was stopped."""
        try:
            with self._lock:
                if self.is_stopped:
                    raise ObsoleteError
                self._thread = get_ident()
            return work()
        finally:
            with self._lock:
                if self._thread is not None:
                    _raise_in(self._thread, None)  # what comes too late meets nobody else
                self._thread = None

    def stop(self) -> None:
        """End the work now, or before it begins."""
        with self._lock:
            if not self.is_stopped and self._thread is not None:
                _raise_in(self._thread, ObsoleteError)
            self.is_stopped = True


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Raise an error in a thread before its next instruction; None takes back one on its way."""
    raised = ctypes.py_object(error) if error else ctypes.c_void_p()
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)
