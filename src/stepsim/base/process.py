"""The process that runs a command: what it keeps beyond a call, and when it looks for garbage.

A result is kept only where a command of users takes half the time by it, which is said beside the
function: processor seconds of paired runs, with it and without it.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar, cast

_Function = TypeVar("_Function", bound=Callable[..., Any])


def remembered(function: _Function) -> _Function:
    """Keep what a function gives for its arguments."""
    return cast(_Function, cache(function))


@contextmanager
def paused() -> Iterator[None]:
    """Pause the collector: it would walk through all living objects again and again.

    It halves the time of a step of a million tasks. The objects made here form no cycles
    but among programs that are kept with their shapes, so reference counting frees the others.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
