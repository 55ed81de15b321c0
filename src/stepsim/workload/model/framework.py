"""What a training framework adds to the operators: slower kernels, host time, exposed transfers."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, field
from msgspec.structs import asdict

from stepsim.base.errors import PlanError
from stepsim.base.fields import Size, Time
from stepsim.base.structs import (
    Amount,
    AtLeastOne,
    Names,
    Positive,
    TomlTable,
    UnitShare,
    Values,
    replace,
)
from stepsim.workload.model.architecture import Architecture
from stepsim.workload.model.choices import ExpertDispatch, GraphScopes, Precision, RecomputeModules
from stepsim.workload.model.context import ContextParallel
from stepsim.workload.model.device import AttentionRate, Device
from stepsim.workload.model.evidence import ErrorBand
from stepsim.workload.plan import Plan

Gradient = Annotated[int, Meta(ge=2, le=4)]
Logit = Annotated[int, Meta(ge=2, le=1000)]
OptimizerBytes = Annotated[float, Meta(ge=2, le=16)]
GateBytes = Annotated[float, Meta(ge=0.5, le=2)]
ResultBytes = Annotated[float, Meta(ge=0.5, le=4)]
ZeroStage = Annotated[int, Meta(ge=0, le=3)]


class JobDefaults(TomlTable):
    """`[[defaults]]`: how jobs of a framework run where nobody says it; the last one counts.

    Options have their names; None: not known.
    They hold for models with experts if `experts` is true, for others if it is false, for both if
    it is None; on `devices` and in `precisions`, if there are any, alone; in releases from `since`
    on, and before `until`, which is the first without, as in 26.06. `source` says who runs jobs so.
    What CUDA graphs hold of layers are `graph_scopes` (none: whole steps). Experts' activations and
    casts are part of their products if `fuses_grouped`. With `overlaps_experts` jobs of several
    virtual stages run the exchanges between experts beside the compute of another microbatch
    (Megatron-LM's `overlap_moe_expert_parallel_comm`).
    """

    source: str
    experts: bool | None = None
    devices: Names = ()
    precisions: tuple[Precision, ...] = ()
    since: str | None = None
    until: str | None = None
    zero: ZeroStage | None = None
    dp_overlap: bool | None = None
    tp_comm_overlap: bool | None = None
    cuda_graph: bool | None = None
    reshard: bool | None = None
    dispatch: ExpertDispatch | None = None
    shared_overlap: bool | None = None
    delay_wgrad: bool | None = None
    expert_overlap: bool | None = field(default=None, name="overlaps_experts")
    graph_scopes: GraphScopes | None = None
    fuses_grouped: bool | None = None


JOB_DEFAULTS = (
    *("zero", "dp_overlap", "tp_comm_overlap", "cuda_graph", "reshard", "dispatch"),
    *("shared_overlap", "delay_wgrad", "expert_overlap"),
)
"""Options that a framework's jobs have a value of."""


class RecipeStates(TomlTable):
    """`states` of a recipe: fields of the framework that are others for all plans of the model."""

    gradient_bytes: Gradient | None = None
    optimizer_bytes: OptimizerBytes | None = None
    gate_bytes: GateBytes | None = None
    result_bytes: ResultBytes | None = None
    casts_weights: bool | None = None
    drops_cast_norms: bool | None = None
    graph_scopes: GraphScopes | None = None
    pads_experts: bool | None = None
    free_sms: Annotated[int, Meta(ge=0, le=64)] | None = None

    @property
    def changed(self) -> Values:
        """The fields that are others."""
        return {name: value for name, value in asdict(self).items() if value is not None}


class Recipe(TomlTable):
    """`[[recipe]]`: what public recipes of a model, or the report of its training, set.

    It holds for plans of a model on a device in one number format (None: any of them), `sharded`
    for those whose parameters are (FSDP), with `tp`, `pp` and `chunks` (virtual stages of a rank)
    for plans of these degrees alone. A `layout` is written as --layout takes it. The first of a
    framework's that holds is meant. What is None is as in the framework's other jobs. `states` are
    fields of the framework that are others for all plans of the model: bytes of what ranks hold,
    and what CUDA graphs do. `source` says where it is from.
    """

    model: str
    device: str | None = None
    precision: Precision | None = None
    sharded: bool = False
    tp: AtLeastOne | None = None
    pp: AtLeastOne | None = None
    chunks: AtLeastOne | None = None
    recompute_modules: RecomputeModules = ()
    offload_layers: Annotated[int, Meta(ge=0, le=100_000)] = 0
    layout: str | None = None
    zero: ZeroStage | None = None
    dispatch: ExpertDispatch | None = None
    states: RecipeStates | None = None
    source: str = ""

    def __post_init__(self) -> None:
        if self.states and {self.tp, self.pp, self.chunks} != {None}:
            raise PlanError(
                f"recipe of {self.model}: states hold for all plans of a model: expected no tp, pp "
                "or chunks"
            )

    def suits(self, *, tp: int, pp: int, chunks: int, zero: int) -> bool:
        """Whether it holds for such degrees, and for how parameters lie under ZeRO's stage."""
        asked = (self.tp, tp), (self.pp, pp), (self.chunks, chunks)
        same = all(wanted in (None, has) for wanted, has in asked)
        return same and self.sharded == (zero >= _SHARDED)


# What sources leave out of a model's name: `llama3-70b` and `Llama-3-70B` are the same.
_SPELLED = str.maketrans("", "", "-.")
# Releases after all that are named.
_NEWEST, _NEVER = "~", "~~"
# ZeRO's stage from which on parameters are held in parts.
_SHARDED = 3
_ADAM_BYTES = 12.0  # fp32 master weight and two moments


class Framework(TomlTable):
    """A training framework; times in ps, factors without unit.

    `also` are other names of it. `memory_factor` multiplies memory-bound kernels. A layer's forward
    and backward take the host at least `host_layer_ps`, with experts `host_expert_layer_ps`, with
    CUDA graphs `graph_share` of it; each rank of tp adds `host_tp_ps` to a layer where a pipeline
    leaves its node; a step takes it `host_step_ps` besides. `exposed_tp` is the share of pipelined
    tp collectives that stays visible, `fsdp_slowdown` what compute loses while parameters are
    gathered beside it, `skew` what a step loses to the slowest replica per doubling of the nodes.

    `overlaps_input_gradient` says that the collective of an input gradient runs beside the weight
    gradient, `overlaps_p2p` that interleaved schedules hide their messages, `fuses_gradient_sums`
    that products add weight gradients up themselves, `balances_stages` that layers are shared out
    by cost. Per-operator recomputation repeats `operator_recompute` of a forward; `keeps_casts`
    says that inputs of products are kept in 8 or 4 bits, `casts_weights` that weights in 8 bits
    are not kept in 16 as well, `keeps_outputs` that a stage keeps what it sent until its gradient
    comes, `collects_logits` that the last stage of a pipeline keeps what it made of every
    microbatch until the step ends, `fuses_gates` that a gated activation is one kernel that keeps
    its inputs alone, `copies_heads` that keys and values with as many heads as queries are laid out
    again for attention, beside the queries' buffer that holds all three, `weighs_inside` that an
    expert's share of a token multiplies what its activation makes, so that what the expert makes is
    kept by nobody, `fuses_experts` that clamps and biases of experts are part of their kernels,
    `groups_experts` that the products of all experts are one kernel instead of one each. Products
    leave `free_sms` to communication, and take as much longer.
    Where products run in 8 or 4 bits, `gate_bytes` are those of an element of what the gated
    activation of an expert takes, `result_bytes` those of attention's result (None: it is kept in
    16 bits, and converted for its product), and with `drops_cast_norms` norms that are recomputed
    keep nothing, not what was converted either.

    Bytes are per gradient (`cast_gradient_bytes` where products run in 8 or 4 bits), per gradient
    of sharded parameters, per parameter of the optimizer beside bf16 weights, per logit
    (`split_logit_bytes` where tp splits the vocabulary; of one of `loss_chunks`), per gradient in
    16 bits that waits to be added to the sum, per element of the largest gradient while its norm is
    taken, and of the bucket in which gradients are reduced; `workspace_bytes` are those of a rank's
    libraries.
    `fragmentation` multiplies activations and buffers, and `reports_total` says that memory is
    reported with what others hold. `context` is its context parallelism, `attention` the kernel
    family on each device, by name; `recipes` are public ones; `errors` are those of published runs,
    `defaults` say how its jobs run: of those that hold the last one
    counts. Of its `release` (None: the newest) are what CUDA graphs hold (`graph_scopes`, none:
    whole steps), and whether it `fuses_grouped` products with what is between them. Where it
    `pads_experts` each of these has as many tokens as it may have at most, which the host knows.
    """

    name: Annotated[str, Meta(description="of the framework, in reports")]
    memory_factor: Annotated[Positive, Meta(description="of memory-bound kernels")]
    also: Names = ()
    host_layer_ps: Time
    host_expert_layer_ps: Time
    host_step_ps: Time = 0
    host_tp_ps: Time = 0
    graph_share: UnitShare = 0.1
    exposed_tp: UnitShare = 0.4
    fsdp_slowdown: Amount = 0.08
    overlaps_input_gradient: bool = True
    overlaps_p2p: bool = True
    fuses_gradient_sums: bool = True
    balances_stages: bool = False
    operator_recompute: UnitShare = 0.3
    keeps_casts: bool = True
    casts_weights: bool = False
    keeps_outputs: bool = False
    collects_logits: bool = False
    fuses_gates: bool = True
    copies_heads: bool = False
    weighs_inside: bool = False
    fuses_experts: bool = True
    groups_experts: Annotated[bool, Meta(description="in one kernel, else one by one")] = False
    free_sms: Annotated[int, Meta(ge=0, le=64, description="that products leave free")] = 0
    drops_cast_norms: bool = False
    gate_bytes: GateBytes = 2.0
    result_bytes: ResultBytes | None = None
    skew: Amount = 0.0
    gradient_bytes: Gradient = 4
    cast_gradient_bytes: Gradient | None = None
    sharded_gradient_bytes: Gradient = 2
    optimizer_bytes: OptimizerBytes = _ADAM_BYTES
    logit_bytes: Logit = 7
    split_logit_bytes: Logit | None = None
    loss_chunks: Annotated[int, Meta(ge=1, le=1024)] = 1
    unsummed_bytes: Annotated[int, Meta(ge=0, le=4)] = 0
    workspace_bytes: Size = field(default=0, name="workspace")
    norm_bytes: Annotated[int, Meta(ge=0, le=8)] = 0
    bucket_bytes: Size = field(default=0, name="bucket")
    fragmentation: Annotated[float, Meta(ge=1, le=1e9)] = 1.0
    reports_total: bool = False
    fused_loss: bool = True
    context: ContextParallel = ContextParallel()
    attention: Mapping[str, str] = {}
    release: str | None = None
    graph_scopes: GraphScopes = ()
    fuses_grouped: bool = False
    pads_experts: bool = False
    recipes: tuple[Recipe, ...] = field(default=(), name="recipe")
    errors: tuple[ErrorBand, ...] = field(default=(), name="error")
    defaults: tuple[JobDefaults, ...] = ()
    sources: Mapping[str, str] = {}

    def of_model(self, model: str, device: str, precision: Precision) -> "Framework":
        """The framework with the recipes of a model alone, and the states that one of them says."""
        recipes = self.recipes_of(model, device, precision)
        states = next((each.states.changed for each in recipes if each.states), {})
        return replace(self, recipes=tuple(recipes), **states)

    def of_job(
        self, device: str, precision: Precision, *, sparse: bool, release: str | None = None
    ) -> "Framework":
        """The framework in a release, as its jobs on a device run where nobody says it.

        It has the defaults that hold for them alone. Master weights are whole where products run in
        8 or 4 bits.
        """
        release = release or self.release
        held = tuple(
            each
            for each in self.defaults
            if (each.since or "") <= (release or _NEWEST) < (each.until or _NEVER)
            and each.experts in (None, sparse)
            and (not each.devices or device in each.devices)
            and (not each.precisions or precision in each.precisions)
        )
        job = replace(self, release=release, defaults=held)
        own = job._said("graph_scopes", "fuses_grouped")
        if precision.casts:
            own["gradient_bytes"] = self.cast_gradient_bytes or self.gradient_bytes
            own["optimizer_bytes"] = max(self.optimizer_bytes, _ADAM_BYTES)
        return replace(job, **own)

    @property
    def job_options(self) -> Values:
        """Options that jobs have where nobody says them, by name: of a framework `of_job`."""
        return self._said(*JOB_DEFAULTS)

    def _said(self, *names: str) -> Values:
        """What the defaults say of some names."""
        said = ((name, getattr(each, name)) for each in self.defaults for name in names)
        return {name: value for name, value in said if value is not None}

    def recipes_of(self, model: str, device: str, precision: Precision) -> list[Recipe]:
        """The public recipes of a model, as sources spell it, on a device in a number format."""
        plain = model.lower().translate(_SPELLED)
        return [
            each
            for each in self.recipes
            if each.model.lower().translate(_SPELLED) == plain
            and each.device in (None, device)
            and each.precision in (None, precision)
        ]

    def attention_on(self, device: Device) -> AttentionRate:
        """Its attention kernels on a device: those of its family, else the first that are known."""
        family = self.attention.get(device.name, self.attention.get("default", "flash2"))
        return device.attention.get(family) or next(iter(device.attention.values()))


def error_band(
    framework: Framework, device: Device, plan: Plan, architecture: Architecture
) -> ErrorBand | None:
    """Errors of published runs of such models with this framework on this device; None without any.

    A device whose generation was compared has a range all the same, and no errors (0 runs). The
    range is wider for a plan beyond the largest job, the longest sequence or the largest cp; beyond
    traced jobs that of published runs counts, for the traces say nothing there.
    """
    kind = architecture.is_sparse, architecture.mixes
    alike = [
        each
        for each in framework.errors
        if (each.sparse, each.mixes) == kind and not (each.traced and _beyond(each, plan))
    ]
    here = [each for each in alike if each.device == device.name]
    if not here:
        generation = [each for each in alike if device.generation == each.generation != ""]
        here = [replace(each, device=device.name, runs=0) for each in generation[:1]]
    if not here or not here[0].others:
        return next(iter(here), None)
    power = _WIDER ** _beyond(here[0], plan)
    return replace(here[0], low=here[0].low ** power, high=here[0].high ** power)


# A guess: how much wider a range is beyond the runs in one respect, as a power of its factors.
_WIDER = 1.5


def _beyond(band: ErrorBand, plan: Plan) -> int:
    """In how many respects a plan exceeds the runs of a band."""
    return (
        (plan.npus > band.most_npus)
        + (plan.sequence > band.most_sequence)
        + (plan.cp > band.most_cp)
    )
