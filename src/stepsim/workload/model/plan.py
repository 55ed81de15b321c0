"""How a model is trained: degrees, batch, precision, sharding, recomputation and placement.

Names are those of `stepsim.parallel.ranks.ParallelPlan` and `stepsim.options.StepOptions` wherever
these say the same; what only a model's description can use is added.
"""

from msgspec import field

from stepsim.base.arguments import check_fields
from stepsim.base.errors import PlanError
from stepsim.base.structs import Noun
from stepsim.workload.model.architecture import (
    Architecture,
    DenseMlp,
    ExpertMlp,
    GroupedAttention,
    LatentAttention,
    Mixer,
)
from stepsim.workload.model.choices import (
    AttentionKernel,
    ContextParallelKind,
    ExpertDispatch,
    GraphScope,
    PipelineOrder,
    Precision,
    Recompute,
    RecomputeModule,
)
from stepsim.workload.model.layout import LayerLayout, StageSlice, layout_by_cost

__all__ = [
    "AttentionKernel",
    "ContextParallelKind",
    "ExpertDispatch",
    "GraphScope",
    "ModelPlan",
    "PipelineOrder",
    "Precision",
    "Recompute",
    "RecomputeModule",
    "check_plan",
    "heads_divide",
    "layout_of_costs",
]


class ModelPlan(Noun):
    """How a model is split over `tp * cp * dp * pp` ranks, and what a step is.

    `chunks` are the virtual stages of a rank (Megatron's vpp), `order` is their schedule.
    `expert_tp` splits experts (None: like tp); an expert's ranks are `ep * expert_tp` of the `tp *
    cp * dp` of a stage. `zero` is ZeRO's stage, 3 gathers parameters layer by layer (FSDP);
    `shard_ranks` is how many ranks share one copy (None: dp x cp; fewer is HSDP), `reshard` whether
    they are dropped after the forward.
    `recompute_layers` of a stage recompute with `Recompute.FULL` (None: all); of every layer the
    `recompute_modules` are recomputed besides; activations of `offload_layers` of a stage wait
    in the host's memory, which changes no times. `tp_comm_overlap`
    is pipelining of tp collectives with their products, `dp_overlap` as in StepOptions.
    With `cuda_graph` a graph holds the parts of layers in `graph_scopes`, without any the whole
    step (None: as jobs of the framework). Samples of `packed` tokens that fill a sequence attend
    within themselves. With `adapters` low-rank adapters alone are trained: frozen weights have no
    gradients.
    Exchanges between experts run beside the compute of another microbatch with `expert_overlap`,
    beside shared experts with `shared_overlap`, and those of input gradients beside the weight
    gradients of the experts with `delay_wgrad`, else after them. Where `ep` is 1 nothing is
    exchanged: these three and `dispatch` change nothing.
    """

    tp: int = 1
    cp: int = 1
    dp: int = 1
    pp: int = 1
    ep: int = 1
    expert_tp: int | None = None
    chunks: int = 1
    order: PipelineOrder = PipelineOrder.ALTERNATING
    microbatch_size: int = 1
    global_batch: int = 1
    sequence: int = 2048
    precision: Precision = Precision.BF16
    sequence_parallel: bool = True
    context: ContextParallelKind = ContextParallelKind.RING
    zero: int = 1
    shard_ranks: int | None = None
    reshard: bool = True
    recompute: Recompute = Recompute.NONE
    recompute_layers: int | None = None
    recompute_modules: tuple[RecomputeModule, ...] = ()
    offload_layers: int = 0
    layout: LayerLayout = field(default_factory=LayerLayout)
    attention: AttentionKernel = AttentionKernel.FLASH
    dispatch: ExpertDispatch = ExpertDispatch.ALL_TO_ALL
    expert_overlap: bool = False
    shared_overlap: bool = False
    delay_wgrad: bool = False
    tp_comm_overlap: bool = False
    dp_overlap: bool = False
    cuda_graph: bool = False
    graph_scopes: tuple[GraphScope, ...] | None = None
    packed: int | None = None
    adapters: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        self._check_numbers()
        samples = self.dp * self.microbatch_size
        if self.global_batch % samples:
            raise PlanError(
                f"global_batch is {self.global_batch}: expected a multiple of dp x microbatch_size,"
                f" {samples}"
            )
        if self.stage_ranks % (self.ep * self.expert_degree):
            raise PlanError(
                f"ep x expert_tp is {self.ep * self.expert_degree}: expected a divisor of "
                f"tp x cp x dp, {self.stage_ranks}"
            )
        if not self.order.fits(self.pp, self.chunks):
            raise PlanError(
                f"schedule is {self.order}: expected pp of at least 2 and {self.order.chunks} "
                f"virtual stages, not pp {self.pp} and {self.chunks}"
            )
        if self.shards > self.dp * self.cp or (self.dp * self.cp) % self.shards:
            raise PlanError(
                f"shard_ranks is {self.shard_ranks}: expected a divisor of dp x cp, "
                f"{self.dp * self.cp}"
            )
        if self.sequence % self.cp:
            raise PlanError(f"sequence is {self.sequence}: expected a multiple of cp, {self.cp}")

    def _check_numbers(self) -> None:
        counts = ("tp", "cp", "dp", "pp", "ep", "chunks", "microbatch_size", "global_batch")
        optional = ("expert_tp", "shard_ranks", "recompute_layers", "packed")
        for name in (*counts, "sequence", *optional):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise PlanError(f"{name} is {value}: expected at least 1")
        if self.offload_layers < 0:
            raise PlanError(f"offload_layers is {self.offload_layers}: expected at least 0")
        if not 0 <= self.zero <= 3:
            raise PlanError(f"zero is {self.zero}: expected 0, 1, 2 or 3")

    @property
    def npus(self) -> int:
        """NPUs of the job."""
        return self.stage_ranks * self.pp

    @property
    def stage_ranks(self) -> int:
        """Ranks of one pipeline stage."""
        return self.tp * self.cp * self.dp

    @property
    def microbatches(self) -> int:
        """Microbatches each pipeline runs per step."""
        return self.global_batch // (self.dp * self.microbatch_size)

    @property
    def expert_degree(self) -> int:
        """Ranks that split one expert."""
        if self.expert_tp is not None:
            return self.expert_tp
        return self.tp if self.ep == 1 or self.stage_ranks % (self.ep * self.tp) == 0 else 1

    @property
    def runs_pairs(self) -> bool:
        """Whether a forward and a backward run as one, each beside the other's exchanges.

        Megatron-LM does that in its interleaved schedule, and without a pipeline, where parameters
        are not gathered layer by layer.
        """
        ordered = self.order is PipelineOrder.ALTERNATING and (self.pp == 1 or self.chunks > 1)
        return self.expert_overlap and self.ep > 1 and ordered and self.zero < 2

    @property
    def paired_share(self) -> float:
        """Share of the forwards that run in pairs, on the rank in the middle of the pipeline.

        That rank warms up with p - 1 forwards and p for each chunk after its first, and one more
        (`get_pp_rank_microbatches` of Megatron-LM); without a pipeline it is one.
        """
        every = self.microbatches * self.chunks
        lead = 1 if self.pp == 1 else self.pp * self.chunks
        return max(every - lead, 0) / every if self.runs_pairs else 0.0

    @property
    def shards(self) -> int:
        """Ranks that share one copy of what is sharded."""
        return self.dp * self.cp if self.shard_ranks is None else self.shard_ranks

    @property
    def attended(self) -> int:
        """Tokens of the sequences within which attention runs."""
        return min(self.packed or self.sequence, self.sequence)

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.global_batch * self.sequence

    def stage_slices(self, architecture: Architecture) -> tuple[StageSlice, ...]:
        """What each virtual stage runs, in the model's order; raises PlanError."""
        return self.layout.resolve(
            architecture.depth, len(architecture.prediction_layers), self.pp * self.chunks
        )


def layout_of_costs(architecture: Architecture, stages: int) -> LayerLayout:
    """The layout of a framework that shares blocks out by cost: a matrix costs its weights.

    The embedding looks up and costs nothing (nanotron's `get_block_compute_costs`).
    """
    costs = [
        layer.parameters(architecture.hidden, architecture.norm) for layer in architecture.layers
    ]
    head, ahead = architecture.vocabulary * architecture.hidden, architecture.prediction_layers
    return layout_by_cost(costs, head, stages, len(ahead))


def heads_divide(architecture: Architecture, tp: int) -> bool:
    """Whether every layer's attention heads can be split over so many ranks."""
    attentions = [layer.attention for layer in architecture.layer_kinds()]
    counts = [
        attention.heads
        for attention in attentions
        if isinstance(attention, GroupedAttention | LatentAttention)
    ]
    for attention in attentions:
        if isinstance(attention, Mixer):
            counts += attention.shared_out().values()
    return all(count % tp == 0 for count in counts)


def check_plan(architecture: Architecture, plan: ModelPlan) -> None:
    """Raise PlanError where the plan does not divide the model."""
    kinds = {id(layer): layer for layer in architecture.layers}
    for layer in dict.fromkeys(kinds.values()):
        attention, mlp = layer.attention, layer.mlp
        if isinstance(attention, GroupedAttention | LatentAttention):
            _need_divisor("heads", attention.heads, "tp", plan.tp)
            if plan.context is ContextParallelKind.ALL_TO_ALL:
                _need_divisor("heads / tp", attention.heads // plan.tp, "cp", plan.cp)
        if isinstance(attention, Mixer):
            if plan.attention is AttentionKernel.UNFUSED:
                raise PlanError(
                    "attention is unfused: this model's mixers are fused: expected flash"
                )
            for what, count in attention.shared_out().items():
                _need_divisor(what, count, "tp", plan.tp)
            _need_divisor("heads of mixers / tp", attention.turned_heads // plan.tp, "cp", plan.cp)
        if isinstance(mlp, DenseMlp):
            _need_divisor("ffn", mlp.width, "tp", plan.tp)
        if isinstance(mlp, ExpertMlp):
            _need_divisor("experts", mlp.experts, "ep", plan.ep)
            _need_divisor("expert ffn", mlp.width, "expert_tp", plan.expert_degree)
    if plan.ep > 1 and not architecture.is_sparse:
        raise PlanError(f"ep is {plan.ep}: {architecture.name} has no experts: expected 1")
    ahead = len(architecture.prediction_layers)
    plan.layout.check(architecture.depth, ahead, plan.pp * plan.chunks)


def _need_divisor(what: str, value: int, name: str, degree: int) -> None:
    if value % degree:
        raise PlanError(f"{what} is {value}: expected a multiple of {name}, {degree}")
