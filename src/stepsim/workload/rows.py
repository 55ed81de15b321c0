"""What one pipeline stage computes and communicates: the noun that every reader produces.

A `Workload` holds the rows of one stage, microbatch by microbatch, and the items that follow the
pipeline, each with its role. Which stage runs what is decided later (`stepsim.parallel.stages`),
when the plan is known. Names of rows are labels: nothing is read out of them.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING

from stepsim.base.axes import CollectiveKind, Group, ParallelAxis, Phase, degrees_of
from stepsim.base.errors import WorkloadError
from stepsim.base.structs import Names, Noun, replace
from stepsim.workload.model.evidence import Effort
from stepsim.workload.overlap import Kernel, Kernels

if TYPE_CHECKING:
    from stepsim.workload.model.layout import LayerLayout


class CommOp(Noun):
    """One collective: `size_bytes` is the full (gathered) tensor.

    For all-to-all it is what each rank sends in total, its own share included; for send_recv it is
    the message. Broadcast and scatter start at the first rank of the group, reduce and gather end
    there. With `of_share` the size is what one member has before an all-gather, until the plan is
    known; `process_ps` passes after it; it takes at least `least_ps`, whatever the network.
    """

    kind: CollectiveKind
    group: Group
    axis: ParallelAxis
    size_bytes: int
    of_share: bool = False
    process_ps: int = 0
    least_ps: int = 0


CommOps = tuple[CommOp, ...]


class Work(Noun):
    """What one row does in one phase: compute, then its collectives in order.

    `kernels` are what the compute is made of, in order. `host_ps` is how long the host takes to
    launch the kernels of this row and of those that follow it up to the next row with such a time:
    the host begins when the row does, and that next row waits for it. `wait_ps` is how long the
    device waits for the host before it computes, however long its kernels are. No factor on compute
    changes either.
    """

    compute_ps: int = 0
    comms: CommOps = ()
    host_ps: int = 0
    wait_ps: int = 0
    kernels: Kernels = ()

    def __post_init__(self) -> None:
        if self.compute_ps < 0:
            raise WorkloadError(f"compute time is {self.compute_ps} ps: expected at least 0")
        least = min(self.host_ps, self.wait_ps)
        if least < 0:
            raise WorkloadError(f"host time is {least} ps: expected at least 0")


class Role(StrEnum):
    """What a step item is for, in the order in which a distributed optimizer runs them.

    `NORM_GRADIENTS` are summed over the ranks that share a layer, `EMBEDDING_GRADIENTS` over the
    first and the last stage, which alone have them; `GRADIENTS` are reduced over data-parallel
    ranks. `SCALARS` are norms and flags that the `UPDATE` needs; `PARAMETERS` are gathered last.
    """

    OTHER = "other"
    NORM_GRADIENTS = "norm gradients"
    EMBEDDING_GRADIENTS = "embedding gradients"
    GRADIENTS = "gradients"
    SCALARS = "scalars"
    UPDATE = "update"
    PARAMETERS = "parameters"


class StepItem(Noun):
    """Work by its name: what a stage does once per step, after its pipeline, or a row in a phase.

    `name` and `phase` are what it is shown as. Where `per_layer`, its compute and its sizes are
    those of a stage's layers, and a stage with twice as many has twice as much of both.
    `embedding_share` and `head_share` of the sizes are for the parameters of embedding and head
    rows, which the other stages do not have. With a `stage` that one alone does it.
    """

    name: str
    phase: Phase
    work: Work
    role: Role = Role.OTHER
    per_layer: bool = False
    embedding_share: Fraction = Fraction(0)
    head_share: Fraction = Fraction(0)
    stage: int | None = None

    def times(self, *, compute: Fraction, sizes: Fraction) -> "StepItem":
        """The item with compute and sizes times factors, sizes rounded up."""
        whole, parts = sizes.as_integer_ratio()
        comms = (
            replace(op, size_bytes=-(-op.size_bytes * whole // parts)) for op in self.work.comms
        )
        compute_ps = self.work.compute_ps * compute.numerator // compute.denominator
        work = replace(self.work, compute_ps=compute_ps, comms=tuple(comms), host_ps=0)
        return replace(self, work=work)


def scaled_ps(compute_ps: int, factor: float) -> int:
    """A compute time scaled and rounded; what computes still does, so that no task vanishes."""
    return max(round(compute_ps * factor), min(compute_ps, 1))


OPTIMIZER_STEP = "aten::_fused_adamw_"
"""What PyTorch calls the update of parameters."""


class PerParameter(Noun):
    """Work that a stage does once per step for each parameter that its ranks hold.

    `compute_ps` and `size_bytes` are of one parameter; with `experts` those of routed experts
    count, else all others. `kind` None communicates nothing. The compute of all parameters is
    scaled by `scale`.
    """

    name: str
    phase: Phase
    role: Role
    experts: bool = False
    compute_ps: float = 0.0
    scale: float = 1.0
    kind: CollectiveKind | None = None
    group: Group = Group.DP_CP
    size_bytes: int = 0

    def item(self, parameters: int) -> StepItem:
        """The item of a stage whose ranks hold so many parameters each."""
        op = self.kind and CommOp(
            kind=self.kind,
            group=self.group,
            axis=ParallelAxis.DP,
            size_bytes=self.size_bytes * parameters,
        )
        compute = scaled_ps(round(self.compute_ps * parameters), self.scale)
        update = Kernel(name=self.name, operator=OPTIMIZER_STEP, weight=1.0)
        kernels = (update,) if self.role is Role.UPDATE else ()
        work = Work(compute_ps=compute, comms=(op,) if op else (), kernels=kernels)
        return StepItem(name=self.name, phase=self.phase, work=work, role=self.role)


class Shards(Noun):
    """Parameters of a row, and of those after it up to the next with such, held in parts.

    `gather` brings them together before the forward, and before the backward `again`; with `once`
    before the first forward of a step alone. `reduce` leaves each rank its part of their gradients
    after every backward.
    """

    gather: CommOps
    reduce: CommOps = ()
    again: bool = False
    once: bool = False


_PHASES = tuple(Phase)


class Row(Noun):
    """Compute and collectives of a part of a layer, phase by phase; its name is a label.

    `checkpoint` marks a row whose input is kept; `recompute` marks a row before whose backward the
    forward runs again from the last checkpoint. `forward_lag` is how many further rows may run
    before the forward collective is waited for, `backward_lag` the same of the input gradient's.
    A rank holds `parameters` of it, `expert_parameters` of routed experts besides. A `lookup`, of
    an embedding, has no input gradient. With `weights_first` the collectives of its input gradient
    wait for its weight gradient, with `weights_last` that waits for them. A `routed` row computes
    what experts do with their tokens. `unsized` are input-gradient collectives that the source
    names without bytes, as large as the forward's.
    """

    name: str
    forward: Work
    input_grad: Work
    weight_grad: Work
    checkpoint: bool = False
    recompute: bool = False
    forward_lag: int = 0
    backward_lag: int = 0
    parameters: int = 0
    expert_parameters: int = 0
    shards: Shards | None = None
    lookup: bool = False
    unsized: CommOps = ()
    weights_first: bool = False
    weights_last: bool = False
    routed: bool = False

    def works(self) -> tuple[tuple[Phase, Work], ...]:
        """Each phase with its work, in the order forward, input gradient, weight gradient."""
        works = (self.forward, self.input_grad, self.weight_grad)
        return tuple(zip(_PHASES, works, strict=True))

    def item(self, phase: Phase) -> StepItem:
        """The work of a phase, named as the row."""
        return StepItem(name=self.name, phase=phase, work=getattr(self, phase))

    def with_works(self, change: Callable[[Phase, Work], Work]) -> "Row":
        """The row with the work of every phase changed."""
        forward, input_grad, weight_grad = (change(phase, work) for phase, work in self.works())
        return replace(self, forward=forward, input_grad=input_grad, weight_grad=weight_grad)


Rows = tuple[Row, ...]


class Microbatch(Noun):
    """The rows of one stage for one microbatch, by what they are for.

    The first stage alone runs `embedding` rows, the last one alone `head` rows; `prediction` are
    layers that predict further tokens, which follow the others.
    """

    embedding: Rows
    layers: tuple[Rows, ...]
    head: Rows
    prediction: tuple[Rows, ...] = ()

    def rows(self) -> Iterator[Row]:
        """All rows in forward order."""
        yield from self.embedding
        for layer in (*self.layers, *self.prediction):
            yield from layer
        yield from self.head

    def with_rows(self, change: Callable[[Row], Row]) -> "Microbatch":
        """The microbatch with every row changed."""
        return Microbatch(
            embedding=tuple(map(change, self.embedding)),
            layers=tuple(tuple(map(change, layer)) for layer in self.layers),
            head=tuple(map(change, self.head)),
            prediction=tuple(tuple(map(change, layer)) for layer in self.prediction),
        )


class Doubt(Noun):
    """What a source says and can hardly mean: `text`, e.g. of two numbers that contradict.

    `mended` is the workload with what `instead` names in its place, None where nobody can know;
    `remedy` is the option that takes it.
    """

    text: str
    instead: str = ""
    mended: "Workload | None" = None
    remedy: str = ""


# no struct: doubts are left out of comparisons and hashes
@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One pipeline stage of a training step, per microbatch, and what runs once per step.

    `microbatches` are the distinct blocks in order; `loss` rows follow the head. Its numbers hold
    for the `degrees` of all axes but dp and for `expert_tp` ranks that share an expert (None: as
    many as tp), on so many `npus`; a pipeline runs `pipeline_microbatches` (None: as many as there
    are blocks). A layer has so many `experts`, `top_k` of them for each token, where a source says
    it. A rank sends
    `pp_comm_bytes` to the next stage per microbatch; `pp_comm_assumed` says where the number is
    from if the source has none. With a `layout` the layers are those of the whole model, and it
    says which virtual stage has which; `per_parameter` is done by every stage for its own rows.
    `reading` says how rows were taken where they can be taken in several ways. `described` is what
    the source says of itself, by name; `warnings` are what was assumed while reading it, `notes`
    what is as usual and may surprise, `doubts` what it can hardly mean.
    `effort` is what a step is worth, where a model says it. `reads_network`: its compute times
    or what its collectives wait for were found with the numbers of one network, and are others on
    another.
    """

    source: str
    microbatches: tuple[Microbatch, ...]
    degrees: Mapping[str, int] = field(default_factory=degrees_of)
    expert_tp: int | None = None
    npus: int | None = None
    pipeline_microbatches: int | None = None
    experts: int | None = None
    top_k: int = 1
    loss: Rows = ()
    per_step: tuple[StepItem, ...] = ()
    pp_comm_bytes: int = 0
    pp_comm_assumed: str = ""
    layout: "LayerLayout | None" = None
    per_parameter: tuple[PerParameter, ...] = ()
    reading: str = ""
    effort: Effort | None = None
    reads_network: bool = False
    described: tuple[tuple[str, str], ...] = ()
    warnings: Names = ()
    notes: Names = ()
    doubts: tuple[Doubt, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.microbatches or not any(block.layers for block in self.microbatches):
            raise WorkloadError(f"{self.source}: no row belongs to a layer: nothing to simulate")

    @property
    def said(self) -> Names:
        """All that a user should know of it, where nobody says what doubts are worth."""
        return (*(doubt.text for doubt in self.doubts), *self.warnings)

    @property
    def layers(self) -> int:
        """Layers of the stage: of its longest microbatch block."""
        return max(len(block.layers) for block in self.microbatches)

    def with_rows(self, change: Callable[[Row], Row]) -> "Workload":
        """The workload with the rows of its microbatches changed; what was one row stays one."""
        known: dict[int, Row] = {}

        def changed(row: Row) -> Row:
            if id(row) not in known:
                known[id(row)] = change(row)
            return known[id(row)]

        blocks = (block.with_rows(changed) for block in self.microbatches)
        return replace(self, microbatches=tuple(blocks))

    def with_works(self, change: Callable[[Phase, Work], Work]) -> "Workload":
        """The workload with the work of every row and item changed."""

        def changed(row: Row) -> Row:
            return row.with_works(change)

        items = (replace(item, work=change(item.phase, item.work)) for item in self.per_step)
        loss = tuple(map(changed, self.loss))
        return replace(self.with_rows(changed), loss=loss, per_step=tuple(items))

    def rows(self) -> Iterator[Row]:
        """Every row of the pipeline: of the microbatches, then of the loss."""
        for block in self.microbatches:
            yield from block.rows()
        yield from self.loss

    def comms(self) -> Iterator[CommOp]:
        """Every collective, of rows and of items; of a row in several places once."""
        for row in {id(row): row for row in self.rows()}.values():
            for _, work in row.works():
                yield from work.comms
        for item in self.per_step:
            yield from item.work.comms
