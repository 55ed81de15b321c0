"""Parallel axes, and what there is one of for each: a stream, a part of the step.

The one table of axes: streams, breakdowns, documents, tables and colours follow it. A new axis is
a line of `ParallelAxis`, its stream and its part; a degree in `stepsim.workload.rows.MadeFor` and
in `stepsim.parallel.ranks.ParallelPlan`, and its process groups beside them. `fsdp` is the axis of
parameters that are sharded and gathered layer by layer; its degree counts the shards.
"""

from enum import IntEnum, StrEnum


class Stream(IntEnum):
    """Queues of an NPU: each runs one task at a time, in order.

    Collectives lie on the stream of their axis, sends on `PP_FORWARD` (to the next stage) and
    `PP_BACKWARD`, their receipt on the peer's `_RECV` streams. `EAGER` is no queue: messages in
    flight that nobody waits to send. `HOST` is the processor that launches kernels.
    """

    COMPUTE = 0
    TP = 1
    CP = 2
    EP = 3
    FSDP = 4
    DP = 5
    PP_FORWARD = 6
    PP_BACKWARD = 7
    PP_FORWARD_RECV = 8
    PP_BACKWARD_RECV = 9
    EAGER = 10
    HOST = 11


class PartKind(StrEnum):
    """What a part of the step is.

    What the rank does itself, a transfer that is in flight while compute waits for it, kernels that
    the host has not launched yet, or idle time for want of others: of a collective's slowest
    member, of a neighbour in the pipeline.
    """

    WORK = "work"
    EXPOSED = "exposed"
    LAUNCH = "launch"
    SKEW = "skew"
    IDLE = "idle"


class Part(IntEnum):
    """Parts of a rank's step, in ps; their sum is the step time.

    `HEAD`, `INNER` and `TAIL` are idle with nothing in flight: before the first task, between, and
    after the last one until the step ends. Exposed time is idle while an awaited transfer is in
    flight, or while the host launches (`EXPOSED_HOST`); `HOST` is time that the device gives it.
    `label` is what tables and figures call a part, `key` what documents do.
    """

    label: str
    kind: PartKind

    def __new__(cls, number: int, label: str, kind: PartKind) -> "Part":
        """A part with its number, its label and what it is."""
        part = int.__new__(cls, number)
        part._value_ = number
        part.label = label
        part.kind = kind
        return part

    COMPUTE = 0, "compute", PartKind.WORK
    EXPOSED_TP = 1, "exposed tp", PartKind.EXPOSED
    EXPOSED_CP = 2, "exposed cp", PartKind.EXPOSED
    EXPOSED_EP = 3, "exposed ep", PartKind.EXPOSED
    EXPOSED_FSDP = 4, "exposed fsdp", PartKind.EXPOSED
    EXPOSED_DP = 5, "exposed dp", PartKind.EXPOSED
    EXPOSED_PP = 6, "exposed pp", PartKind.EXPOSED
    SKEW = 7, "skew", PartKind.SKEW
    HEAD = 8, "idle, head", PartKind.IDLE
    INNER = 9, "idle, inner", PartKind.IDLE
    TAIL = 10, "idle, tail", PartKind.IDLE
    HOST = 11, "host", PartKind.WORK
    EXPOSED_HOST = 12, "exposed host", PartKind.LAUNCH

    @property
    def key(self) -> str:
        """Its name in documents, e.g. `exposed_tp`."""
        return self.name.lower()


def parts_of(*kinds: PartKind) -> tuple[Part, ...]:
    """The parts of some kinds, kind by kind in the order given."""
    return tuple(part for kind in kinds for part in Part if part.kind is kind)


def part_label(key: str) -> str:
    """What tables call a part by its name in documents; one of a later stepsim keeps its name."""
    return next((part.label for part in Part if part.key == key), key.replace("_", " "))


class ParallelAxis(StrEnum):
    """Parallel axis a communication serves: its stream, and what it is when it is waited for.

    The NPUs of a job are the product of the degrees that `split` them; the others take groups of
    ranks that those tell apart.
    """

    stream: Stream
    exposed: Part
    splits: bool

    def __new__(cls, name: str, stream: Stream, exposed: Part, splits: bool) -> "ParallelAxis":
        """An axis with its stream, its exposed part, and whether its degree splits the NPUs."""
        axis = str.__new__(cls, name)
        axis._value_ = name
        axis.stream = stream
        axis.exposed = exposed
        axis.splits = splits
        return axis

    TP = "tp", Stream.TP, Part.EXPOSED_TP, True
    CP = "cp", Stream.CP, Part.EXPOSED_CP, True
    EP = "ep", Stream.EP, Part.EXPOSED_EP, False
    FSDP = "fsdp", Stream.FSDP, Part.EXPOSED_FSDP, False
    DP = "dp", Stream.DP, Part.EXPOSED_DP, True
    PP = "pp", Stream.PP_FORWARD, Part.EXPOSED_PP, True
