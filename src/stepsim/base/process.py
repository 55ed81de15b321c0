"""The process that runs a command: what it keeps beyond a call, and when it looks for garbage.

A result is kept only where a command of users takes half the time by it, in processor seconds of
paired runs: with it, then without it.
"""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar, cast

_Function = TypeVar("_Function", bound=Callable[..., Any])

_READ = "validate of 955 published steps: 4.9 s, 12.6 s without any of the three readers"
NEEDED_BY: Mapping[str, str] = MappingProxyType(
    {
        "files.accelerators.names_of_files": "validate of 955 published steps: 4.2 s, 35.0 s",
        "base.structs.shipped": "plan of mixtral-8x7b, --overlap-cost on: 1.5 s, 3.9 s",
        "files.accelerators._read_device": _READ,
        "files.accelerators._read_framework": _READ,
        "files.load.read_topology": _READ,
        "base.fields._fields": "plan of llama-3.1-8b: 0.6 s, 4.0 s, without both",
        "base.fields._hints": "as _fields",  # of classes, which do not change
    }
)
"""Functions whose results are kept, by module and name."""


def remembered(function: _Function) -> _Function:
    """Keep what a function gives for its arguments; raises KeyError unless `NEEDED_BY` lists it."""
    NEEDED_BY[f"{function.__module__.removeprefix('stepsim.')}.{function.__qualname__}"]
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
