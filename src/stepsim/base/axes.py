"""What parallel work is along: phases, collectives, groups, streams, parts of a step, and axes.

`ParallelAxis` is the one table of axes: streams, breakdowns, documents, tables and colours follow
it. A new axis is a line of it, its stream and its part; a degree in `stepsim.workload.plan.Plan`,
and its process groups beside them. `fsdp` is the axis of parameters that are sharded and gathered
layer by layer; its degree counts the shards.
"""

from collections.abc import Mapping
from enum import IntEnum, StrEnum

from stepsim.base.units import NameWithFields


class Phase(StrEnum):
    """Part of a layer's work."""

    FORWARD = "forward"
    INPUT_GRAD = "input_grad"
    WEIGHT_GRAD = "weight_grad"


class CollectiveKind(StrEnum):
    """Communication pattern over the ranks of a group."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    GATHER = "gather"
    SCATTER = "scatter"
    SEND_RECV = "send_recv"


class Group(StrEnum):
    """Process group of a rank.

    `DP_CP` holds the same parameters, `DP_EP` the same experts, `ETP` the parts of one expert.
    `FSDP` are the shards of a parameter, `DP_FSDP` the ranks that hold the same shard. `STAGE` is
    every rank of its pipeline stage; `INNER` and `OUTER` are the ranks along the innermost topology
    dimension and across it.
    """

    TP = "tp"
    CP = "cp"
    DP = "dp"
    DP_CP = "dp_cp"
    EP = "ep"
    DP_EP = "dp_ep"
    ETP = "etp"
    FSDP = "fsdp"
    DP_FSDP = "dp_fsdp"
    PP = "pp"
    STAGE = "stage"
    INNER = "inner"
    OUTER = "outer"


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
    `SLOWED` is what compute takes longer because communication runs beside it. `label` is what
    tables and figures call a part, `key` what documents do.
    """

    label: str
    kind: PartKind

    def __new__(cls, label: str, kind: PartKind) -> "Part":
        """A part with the next number, its label and what it is."""
        part = int.__new__(cls, len(cls.__members__))
        part._value_ = len(cls.__members__)
        part.label = label
        part.kind = kind
        return part

    COMPUTE = "compute", PartKind.WORK
    EXPOSED_TP = "exposed tp", PartKind.EXPOSED
    EXPOSED_CP = "exposed cp", PartKind.EXPOSED
    EXPOSED_EP = "exposed ep", PartKind.EXPOSED
    EXPOSED_FSDP = "exposed fsdp", PartKind.EXPOSED
    EXPOSED_DP = "exposed dp", PartKind.EXPOSED
    EXPOSED_PP = "exposed pp", PartKind.EXPOSED
    SKEW = "skew", PartKind.SKEW
    HEAD = "idle, start-up", PartKind.IDLE
    INNER = "idle, steady", PartKind.IDLE
    TAIL = "idle, drain", PartKind.IDLE
    HOST = "host", PartKind.WORK
    EXPOSED_HOST = "exposed host", PartKind.LAUNCH
    SLOWED = "slowed by comm", PartKind.WORK

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


class ParallelAxis(NameWithFields):
    """Parallel axis a communication serves: its stream, and what it is when it is waited for.

    The NPUs of a job are the product of the degrees that `split` them; the others take groups of
    ranks that those tell apart.
    """

    stream: Stream
    exposed: Part
    splits: bool

    TP = "tp", Stream.TP, Part.EXPOSED_TP, True
    CP = "cp", Stream.CP, Part.EXPOSED_CP, True
    EP = "ep", Stream.EP, Part.EXPOSED_EP, False
    FSDP = "fsdp", Stream.FSDP, Part.EXPOSED_FSDP, False
    DP = "dp", Stream.DP, Part.EXPOSED_DP, True
    PP = "pp", Stream.PP_FORWARD, Part.EXPOSED_PP, True


class RankOrder(StrEnum):
    """Which axis runs fastest through the NPUs of the network, which next, which slowest."""

    TP_DP_PP = "tp-dp-pp"
    TP_PP_DP = "tp-pp-dp"
    DP_TP_PP = "dp-tp-pp"
    DP_PP_TP = "dp-pp-tp"
    PP_TP_DP = "pp-tp-dp"
    PP_DP_TP = "pp-dp-tp"


class EpLayout(StrEnum):
    """Where expert groups lie in a stage.

    `DP`: consecutive cp and dp indices with one tp index, Megatron's order where experts are split
    over tp as other layers are. `FOLDED`: consecutive ranks, tp included, Megatron's parallel
    folding (`--expert-tensor-parallel-size 1`).
    """

    DP = "dp"
    FOLDED = "folded"


def degrees_of(**sizes: int) -> Mapping[str, int]:
    """The degree of every axis but dp, of which a workload may have any; 1 where nobody says it."""
    return {str(axis): 1 for axis in ParallelAxis if axis is not ParallelAxis.DP} | sizes
