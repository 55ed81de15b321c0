"""What a trace holds, whatever the format it is written in."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from stepsim.base.arrays import Floats, Ints
from stepsim.base.structs import Names, Noun

Fact = str | int | float | Sequence[str]


class Curves(Noun):
    """Values that change in steps: `values[i, c]` of curve c from `time_ps[i]` to the next time.

    Before the first time and from the last one on all are 0.
    """

    names: Names
    time_ps: Ints
    values: Floats


class Category(StrEnum):
    """What a slice is; each has its colour."""

    FORWARD = "forward"
    BACKWARD = "backward"
    INPUT_GRAD = "input_grad"
    WEIGHT_GRAD = "weight_grad"
    FUSED = "fused"
    PER_STEP = "per_step"
    HOST = "host"
    COLLECTIVE = "collective"
    SEND = "send"
    RECV = "recv"
    STEP = "step"


class Label(Noun, eq=False):
    """What slices that are alike say: name, category and facts."""

    name: str
    category: Category
    facts: Mapping[str, Fact]


class Slice(NamedTuple):
    """Something that runs on a thread, in ps.

    `action` is the action of the schedule that it belongs to, `waited_for` what had to end before
    it could start. The two ends of a message have the same `message` number; it is 0 for what is
    no message, or one whose other end is not in the trace. `alone_ps` is how long compute takes
    that communication slowed, -1 for what it did not slow.
    """

    label: Label
    start_ps: int
    end_ps: int
    action: Label | None = None
    waited_for: str = ""
    message: int = 0
    alone_ps: int = -1


class Thread(Noun):
    """A stream: its slices by time, none of which overlap."""

    name: str
    slices: Iterable[Slice]


class Process(Noun):
    """A rank or a class of ranks, or the step as a whole; `counters` are curves by name."""

    name: str
    threads: Iterable[Thread]
    counters: Mapping[str, Curves]
