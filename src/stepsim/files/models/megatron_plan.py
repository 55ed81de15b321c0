"""A plan as Megatron-LM's arguments: Megatron-LM accepts them, `model_of_arguments` reads them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path

from stepsim.base.errors import WorkloadError
from stepsim.base.structs import Names, shipped
from stepsim.files.models.megatron import model_of_arguments
from stepsim.files.models.megatron_rules import (
    BESIDE_WEIGHTS,
    FSDP_STAGES,
    PAIRED_EXCHANGES,
    PAIRED_WEIGHTS,
    broken_rules,
    line_arguments,
)
from stepsim.workload.model.architecture import (
    Architecture,
    DenseMlp,
    ExpertMlp,
    GroupedAttention,
    LatentAttention,
    NormKind,
    QkNorm,
)
from stepsim.workload.model.choices import (
    AttentionKernel,
    Recompute,
)
from stepsim.workload.model.held import stage_slices
from stepsim.workload.model.layout import StageSlice, layout_text
from stepsim.workload.plan import Plan

_STRATEGIES = {stage: name for name, stage in FSDP_STAGES.items()}


def _said(table: str) -> Mapping[str, Names]:
    """Arguments by what they say, as `megatron_plan.toml` has them."""
    return shipped(__file__, "megatron_plan.toml", dict[str, dict[str, Names]])[table]


def megatron_plan(plan: Plan, slices: tuple[StageSlice, ...]) -> Names:
    """Arguments of a plan whose virtual stages run `slices`, one text each with its value."""
    return tuple(_arguments(plan, slices))


def broken_by(plan: Plan, architecture: Architecture) -> Names:
    """Rules of Megatron-LM that a model's plan breaks, one sentence each."""
    slices = stage_slices(architecture, plan)
    line = " ".join((*megatron_plan(plan, slices), *_of_model(plan, architecture)))
    return tuple(broken_rules(line_arguments(line)))


def megatron_lacks(plan: Plan) -> Iterator[str]:
    """What a plan asks for that Megatron-LM has not, one sentence each."""
    if plan.order.chunks:
        yield f"no schedule {plan.order}"
    if plan.recompute is Recompute.OPERATORS:
        yield "no recomputation of operators"
    if plan.zero == 3 and not plan.reshard:
        yield "no parameters that stay after the forward (reshard) with Megatron FSDP"
    if plan.shard_ranks is not None and plan.shard_ranks != plan.dp * plan.cp:
        yield "shard_ranks is not printed"
    if plan.ep > 1 and plan.dispatch not in _said("dispatch"):
        yield f"no dispatch {plan.dispatch}: expected {', '.join(_said('dispatch'))}"


def sizes_of(architecture: Architecture) -> dict[str, str]:
    """Arguments of a model, by name, without which its plan cannot be read.

    They are its layers, and its experts where it has any: Megatron-LM passes over what is said of
    experts where there are none.
    """
    kinds = architecture.layer_kinds()
    sparse = [kind.mlp.experts for kind in kinds if isinstance(kind.mlp, ExpertMlp)]
    experts = {"num-experts": str(sparse[0])} if sparse else {}
    return {"num-layers": str(architecture.depth), **experts}


def _of_model(plan: Plan, architecture: Architecture) -> Iterator[str]:
    """Arguments of the model and the job that rules speak of."""
    yield f"--world-size {plan.npus}"
    yield from (f"--{name} {value}" for name, value in sizes_of(architecture).items())
    if architecture.prediction_layers:
        yield f"--mtp-num-layers {len(architecture.prediction_layers)}"
    kinds = architecture.layer_kinds()
    grouped = [kind.attention for kind in kinds if isinstance(kind.attention, GroupedAttention)]
    if grouped:
        yield f"--num-attention-heads {grouped[0].heads}"
    if grouped and grouped[0].kv_heads != grouped[0].heads:
        yield f"--group-query-attention --num-query-groups {grouped[0].kv_heads}"


def _arguments(plan: Plan, slices: tuple[StageSlice, ...]) -> Iterator[str]:
    yield f"--tensor-model-parallel-size {plan.tp}"
    yield f"--pipeline-model-parallel-size {plan.pp}"
    if plan.cp > 1:
        yield f"--context-parallel-size {plan.cp}"
        yield from _said("context").get(plan.context, ())
    yield from _experts(plan)
    yield from _stages(plan, slices)
    yield f"--micro-batch-size {plan.microbatch_size}"
    yield f"--global-batch-size {plan.global_batch}"
    yield f"--seq-length {plan.sequence}"
    if plan.sequence_parallel and plan.tp > 1:
        yield "--sequence-parallel"
    if plan.tp_comm_overlap and plan.tp > 1:
        yield "--tp-comm-overlap"
    yield from _sharding(plan)
    yield from _compute(plan)


def _experts(plan: Plan) -> Iterator[str]:
    if plan.ep > 1:
        yield f"--expert-model-parallel-size {plan.ep}"
    if plan.ep > 1 or plan.expert_degree != plan.tp:
        yield f"--expert-tensor-parallel-size {plan.expert_degree}"
    if plan.ep > 1:
        yield from _said("dispatch").get(plan.dispatch, ())
    if plan.runs_pairs:
        yield f"--{PAIRED_EXCHANGES}"
    if plan.ep > 1 and plan.shared_overlap:
        yield "--moe-shared-expert-overlap"
    if plan.ep > 1 and plan.delay_wgrad:
        yield f"--{PAIRED_WEIGHTS if plan.runs_pairs else BESIDE_WEIGHTS}"


def _stages(plan: Plan, slices: tuple[StageSlice, ...]) -> Iterator[str]:
    """Virtual stages, and who runs the ends where that is not an equal share of the layers.

    The bars of a layout say how many virtual stages there are: Megatron-LM refuses to hear it
    twice.
    """
    ends = counted_ends(slices)
    if ends is None:
        yield f"--pipeline-model-parallel-layout '{layout_text(slices)}'"
        return
    if ends[0]:
        yield "--account-for-embedding-in-pipeline-split"
    if ends[1]:
        yield "--account-for-loss-in-pipeline-split"
    if plan.chunks > 1:
        yield f"--num-virtual-stages-per-pipeline-rank {plan.chunks}"


def counted_ends(slices: Sequence[StageSlice]) -> tuple[bool, bool] | None:
    """Whether embedding and loss count as a layer where virtual stages are equal; else None."""
    for first, last in product((False, True), repeat=2):
        shares = [stage.layers for stage in slices]
        shares[0] += first
        shares[-1] += last
        if len(set(shares)) == 1:
            return first, last
    return None


def _sharding(plan: Plan) -> Iterator[str]:
    """ZeRO's stage, from stage 2 on by Megatron FSDP, and what of it runs beside compute."""
    if plan.zero:
        yield "--use-distributed-optimizer"
    if plan.zero > 1:
        yield "--use-megatron-fsdp"
        yield f"--data-parallel-sharding-strategy {_STRATEGIES[plan.zero]}"
        yield "--no-gradient-accumulation-fusion"
        yield "--ckpt-format fsdp_dtensor"
    if plan.dp_overlap:
        yield "--overlap-grad-reduce"
    if plan.dp_overlap and plan.zero:
        yield "--overlap-param-gather"


def _compute(plan: Plan) -> Iterator[str]:
    match plan.recompute:
        case Recompute.FULL:
            layers = plan.recompute_layers
            yield "--recompute-granularity full"
            yield f"--recompute-method {'uniform' if layers is None else 'block'}"
            yield f"--recompute-num-layers {1 if layers is None else layers}"
        case Recompute.SELECTIVE:
            yield "--recompute-granularity selective"
        case Recompute.NONE if plan.recompute_modules:
            yield "--recompute-granularity selective"
            yield f"--recompute-modules {' '.join(plan.recompute_modules)}"
    if plan.offload_layers:
        yield f"--cpu-offloading-num-layers {plan.offload_layers}"
    if plan.attention is AttentionKernel.UNFUSED:
        yield "--attention-backend unfused"
    if plan.cuda_graph:
        yield "--cuda-graph-impl local"
    yield from _said("precision")[plan.precision]


def model_arguments(architecture: Architecture) -> Names:
    """Arguments of a model, one text each with its value; none where they say another model.

    They are read back, so that parts which no argument says need no list.
    """
    kinds = architecture.layer_kinds()
    mlps = list(dict.fromkeys(kind.mlp for kind in kinds))
    lines = [f"--num-layers {architecture.depth}", f"--hidden-size {architecture.hidden}"]
    lines += [*_of_attention(kinds[0].attention), *_of_ends(architecture)]
    for mlp in mlps:
        if isinstance(mlp, DenseMlp | ExpertMlp):
            dense = (f"--ffn-hidden-size {mlp.width}",)
            lines += _of_experts(mlp) if isinstance(mlp, ExpertMlp) else dense
            lines += _said("activation").get(mlp.activation, ())
    pattern = [int(layer.is_sparse) for layer in architecture.layers]
    if len(mlps) > 1:
        lines.append(f"--moe-layer-freq [{','.join(map(str, pattern))}]")
    said = line_arguments(" ".join([*lines, "--bf16"]))
    with suppress(WorkloadError):
        if model_of_arguments(Path("arguments"), said).architecture.layers == architecture.layers:
            return tuple(dict.fromkeys(lines))
    return ()


def _of_attention(attention: object) -> Iterator[str]:
    if isinstance(attention, LatentAttention):
        yield f"--num-attention-heads {attention.heads} --multi-latent-attention"
        if attention.query_rank:
            yield f"--q-lora-rank {attention.query_rank}"
        yield f"--kv-lora-rank {attention.kv_rank} --qk-head-dim {attention.nope_dim}"
        yield f"--qk-pos-emb-head-dim {attention.rope_dim} --v-head-dim {attention.value_dim}"
        if not attention.bias:
            yield "--disable-bias-linear"
    elif isinstance(attention, GroupedAttention):
        yield f"--num-attention-heads {attention.heads} --kv-channels {attention.head_dim}"
        if attention.kv_heads != attention.heads:
            yield f"--group-query-attention --num-query-groups {attention.kv_heads}"
        if not attention.output_bias:
            yield "--disable-bias-linear"
        if attention.bias and not attention.output_bias:
            yield "--add-qkv-bias"
        if attention.qk_norm is not QkNorm.NONE:
            yield "--qk-layernorm"
        if attention.window:
            yield f"--window-size ({attention.window},0)"


def _of_experts(experts: ExpertMlp) -> Iterator[str]:
    yield f"--num-experts {experts.experts} --moe-router-topk {experts.top_k}"
    yield f"--moe-ffn-hidden-size {experts.width} --moe-grouped-gemm"
    if experts.shared_width:
        yield f"--moe-shared-expert-intermediate-size {experts.shared_width}"
    if experts.groups > 1:
        yield f"--moe-router-num-groups {experts.groups}"
        yield f"--moe-router-group-topk {experts.token_groups}"


def _of_ends(architecture: Architecture) -> Iterator[str]:
    yield f"--vocab-size {architecture.vocabulary} --make-vocab-size-divisible-by 1"
    if architecture.positions:
        yield f"--max-position-embeddings {architecture.positions}"
    else:
        yield "--position-embedding-type rope"
    if architecture.norm is NormKind.RMS:
        yield "--normalization RMSNorm"
    if not architecture.tied:
        yield "--untie-embeddings-and-output-weights"
    if not architecture.dropout:
        yield "--hidden-dropout 0 --attention-dropout 0"
    if architecture.prediction_layers:
        yield f"--mtp-num-layers {len(architecture.prediction_layers)}"
