"""Python's cyclic garbage collector, paused where millions of objects are made and kept."""

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager

_MANY = 100_000
"""New objects after which it is worth to look for garbage."""


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


@contextmanager
def seldom() -> Iterator[None]:
    """Let the collector run seldom while a command runs, and not at all as its process ends.

    Modules and classes are kept: it would walk through them a hundred times as they are made.
    """
    before = gc.get_threshold()
    gc.set_threshold(_MANY, *before[1:])
    atexit.register(gc.freeze)
    try:
        yield
    finally:
        gc.set_threshold(*before)
