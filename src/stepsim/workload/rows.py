"""What one pipeline stage computes and communicates: the document every reader produces.

A `Workload` holds the rows of one stage, microbatch by microbatch, as the file has them. Which
stage runs which row is decided later (`stepsim.parallel.stages`), when the plan is known.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from stepsim.base.errors import WorkloadError


class Policy(StrEnum):
    """Parallelism policy in a workload file's header: which group each phase communicates in."""

    DATA = "DATA"
    MODEL = "MODEL"
    HYBRID_DATA_MODEL = "HYBRID_DATA_MODEL"
    HYBRID_MODEL_DATA = "HYBRID_MODEL_DATA"
    HYBRID_TRANSFORMER = "HYBRID_TRANSFORMER"
    HYBRID_TRANSFORMER_FWD_IN_BCKWD = "HYBRID_TRANSFORMER_FWD_IN_BCKWD"
    HYBRID_DLRM = "HYBRID_DLRM"
    HYBRID_DLRM_ENHANCED = "HYBRID_DLRM_ENHANCED"
    HYBRID_CUSTOMIZED = "HYBRID_CUSTOMIZED"
    MICRO = "MICRO"
    DISTRIBUTED_INFERENCE = "DISTRIBUTED_INFERENCE"


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

    `STAGE` is every rank of its pipeline stage; `INNER` and `OUTER` are the ranks along the
    innermost topology dimension and across it.
    """

    TP = "tp"
    DP = "dp"
    EP = "ep"
    DP_EP = "dp_ep"
    PP = "pp"
    STAGE = "stage"
    INNER = "inner"
    OUTER = "outer"


class Axis(StrEnum):
    """Parallel axis a communication serves: its stream and its column in the breakdown."""

    TP = "tp"
    EP = "ep"
    DP = "dp"
    PP = "pp"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommOp:
    """One collective: `size_bytes` is the full (gathered) tensor.

    For all-to-all it is what each rank sends in total, its own share included; for send_recv it is
    the message. Broadcast and scatter start at the first rank of the group, reduce and gather end
    there. `loads` are what each member of an uneven all-to-all receives, over the mean.
    """

    kind: CollectiveKind
    group: Group
    axis: Axis
    size_bytes: int
    loads: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one row does in one phase: compute, then its collectives in order."""

    compute_ps: int = 0
    comms: tuple[CommOp, ...] = ()

    def __post_init__(self) -> None:
        if self.compute_ps < 0:
            raise WorkloadError(f"compute time is {self.compute_ps} ps: it cannot be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One layer line of a workload file.

    `line` is its line number in the file. `checkpoint` marks a row whose input is kept;
    `recompute` marks a row before whose backward the forward runs again from the last checkpoint.
    `forward_lag` is how many further rows may run before the forward collective is waited for.
    """

    name: str
    line: int
    forward: Work
    input_grad: Work
    weight_grad: Work
    checkpoint: bool = False
    recompute: bool = False
    forward_lag: int = 0

    def works(self) -> tuple[tuple[Phase, Work], ...]:
        """Each phase with its work, in the file's order."""
        return (
            (Phase.FORWARD, self.forward),
            (Phase.INPUT_GRAD, self.input_grad),
            (Phase.WEIGHT_GRAD, self.weight_grad),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Microbatch:
    """The rows of one stage for one microbatch: embedding rows, layers, head rows."""

    embedding: tuple[Row, ...]
    layers: tuple[tuple[Row, ...], ...]
    head: tuple[Row, ...]

    def rows(self) -> Iterator[Row]:
        """All rows in forward order."""
        yield from self.embedding
        for layer in self.layers:
            yield from layer
        yield from self.head


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Degrees written in the file. A missing key is None where 1 would not mean the same."""

    tp: int = 1
    ep: int = 1
    pp: int = 1
    vpp: int = 1
    ga: int | None = None
    npus: int | None = None
    pp_comm_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One pipeline stage of a training step, per microbatch, and the rows run once per step.

    `microbatches` are the distinct blocks of the file in order. `loss` rows (cross entropy) and
    `per_step` rows follow the file's order. `declared_rows` is the file's own count of its rows,
    which may be wrong. `warnings` says what was assumed while reading.
    """

    source: str
    policy: Policy
    header: Header
    microbatches: tuple[Microbatch, ...]
    loss: tuple[Row, ...] = ()
    per_step: tuple[Row, ...] = ()
    declared_rows: int | None = None
    warnings: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if not self.microbatches or not any(block.layers for block in self.microbatches):
            raise WorkloadError(f"{self.source}: no row belongs to a layer: nothing to simulate")

    @property
    def layers(self) -> int:
        """Layers of the stage: of its longest microbatch block."""
        return max(len(block.layers) for block in self.microbatches)

    def rows(self) -> Iterator[Row]:
        """Every row of the file."""
        for block in self.microbatches:
            yield from block.rows()
        yield from self.loss
        yield from self.per_step
