"""A plan as Megatron-LM's arguments: Megatron-LM accepts them, `model_of_arguments` reads them."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import product

from stepsim.base.errors import WorkloadError
from stepsim.base.structs import Names, shipped
from stepsim.files.models.megatron import MegatronArguments
from stepsim.files.models.megatron_rules import (
    BESIDE_WEIGHTS,
    PAIRED_EXCHANGES,
    PAIRED_WEIGHTS,
    broken_rules,
)
from stepsim.files.models.scripts import Arguments, arguments_of
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
    Recompute,
)
from stepsim.workload.model.held import stage_slices
from stepsim.workload.model.layout import Slices, layout_text
from stepsim.workload.plan import Plan


def said_of(table: str) -> Mapping[str, Arguments]:
    """Arguments, by name, by what they say, as `megatron_plan.toml` has them."""
    return shipped(__file__, "megatron_plan.toml", dict[str, dict[str, dict[str, str]]])[table]


def argument_texts(arguments: Arguments) -> Names:
    """Arguments as people type them, one text each with its value."""
    quoted = {name: f"'{value}'" if "|" in value else value for name, value in arguments.items()}
    return tuple(f"--{name} {value}".rstrip() for name, value in quoted.items())


def megatron_plan(plan: Plan, slices: Slices) -> dict[str, str]:
    """Arguments, by name, of a plan whose virtual stages run `slices`."""
    said = {**_of_ranks(plan, slices), **_of_work(plan)}
    given = {name: value for name, value in said.items() if value is not False}
    return {name: "" if value is True else str(value) for name, value in given.items()}


def broken_by(plan: Plan, architecture: Architecture) -> Names:
    """Rules of Megatron-LM that a model's plan breaks, one sentence each."""
    said = megatron_plan(plan, stage_slices(architecture, plan)) | sizes_of(architecture)
    said["world-size"] = str(plan.npus)
    if architecture.prediction_layers:
        said["mtp-num-layers"] = str(len(architecture.prediction_layers))
    kinds = (kind.attention for kind in architecture.layer_kinds())
    grouped = next((each for each in kinds if isinstance(each, GroupedAttention)), None)
    said |= arguments_of(" ".join(_of_attention(grouped)).split())
    return tuple(broken_rules(said))


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
    if plan.ep > 1 and plan.dispatch not in said_of("dispatch"):
        yield f"no dispatch {plan.dispatch}: expected {', '.join(said_of('dispatch'))}"


def sizes_of(architecture: Architecture) -> dict[str, str]:
    """Arguments of a model, by name, without which its plan cannot be read.

    They are its layers, and its experts where it has any: Megatron-LM passes over what is said of
    experts where there are none.
    """
    kinds = architecture.layer_kinds()
    sparse = [kind.mlp.experts for kind in kinds if isinstance(kind.mlp, ExpertMlp)]
    experts = {"num-experts": str(sparse[0])} if sparse else {}
    return {"num-layers": str(architecture.depth), **experts}


def _of_ranks(plan: Plan, slices: Slices) -> dict[str, object]:
    """What a plan says of degrees, of experts, of virtual stages and of the batch, else False.

    Who runs the ends is said where that is not an equal share of the layers. The bars of a layout
    say how many virtual stages there are: Megatron-LM refuses to hear it twice.
    """
    ends, shared_out = counted_ends(slices), plan.ep > 1
    first, last = ends or (False, False)
    looped = ends is not None and plan.chunks > 1
    delays = shared_out and plan.delay_wgrad
    own_degree = shared_out or plan.expert_degree != plan.tp
    return {
        "tensor-model-parallel-size": plan.tp,
        "pipeline-model-parallel-size": plan.pp,
        "context-parallel-size": plan.cp > 1 and plan.cp,
        **(said_of("context").get(plan.context, {}) if plan.cp > 1 else {}),
        "expert-model-parallel-size": shared_out and plan.ep,
        "expert-tensor-parallel-size": own_degree and plan.expert_degree,
        **(said_of("dispatch").get(plan.dispatch, {}) if shared_out else {}),
        PAIRED_EXCHANGES: plan.runs_pairs,
        "moe-shared-expert-overlap": shared_out and plan.shared_overlap,
        PAIRED_WEIGHTS: delays and plan.runs_pairs,
        BESIDE_WEIGHTS: delays and not plan.runs_pairs,
        "pipeline-model-parallel-layout": ends is None and layout_text(slices),
        "account-for-embedding-in-pipeline-split": first,
        "account-for-loss-in-pipeline-split": last,
        "num-virtual-stages-per-pipeline-rank": looped and plan.chunks,
        "micro-batch-size": plan.microbatch_size,
        "global-batch-size": plan.global_batch,
        "seq-length": plan.sequence,
        "sequence-parallel": plan.sequence_parallel and plan.tp > 1,
        "tp-comm-overlap": plan.tp_comm_overlap and plan.tp > 1,
    }


def _of_work(plan: Plan) -> dict[str, object]:
    """What a plan says of ZeRO, from stage 2 on by Megatron FSDP, of recomputation and kernels."""
    full, layers = plan.recompute is Recompute.FULL, plan.recompute_layers
    modules = plan.recompute is Recompute.NONE and len(plan.recompute_modules) > 0
    kind = "modules" if modules else "block" if full and layers is not None else plan.recompute
    return {
        **said_of("zero")[str(plan.zero)],
        "overlap-grad-reduce": plan.dp_overlap,
        "overlap-param-gather": plan.dp_overlap and plan.zero > 0,
        **said_of("recompute").get(kind, {}),
        "recompute-num-layers": full and (1 if layers is None else layers),
        "recompute-modules": modules and " ".join(plan.recompute_modules),
        "cpu-offloading-num-layers": plan.offload_layers > 0 and plan.offload_layers,
        **said_of("attention").get(plan.attention, {}),
        "cuda-graph-impl": plan.cuda_graph and "local",
        **said_of("precision")[plan.precision],
    }


def counted_ends(slices: Slices) -> tuple[bool, bool] | None:
    """Whether embedding and loss count as a layer where virtual stages are equal; else None."""
    for first, last in product((False, True), repeat=2):
        shares = [stage.layers for stage in slices]
        shares[0] += first
        shares[-1] += last
        if len(set(shares)) == 1:
            return first, last
    return None


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
            lines += argument_texts(said_of("activation").get(mlp.activation, {}))
    pattern = [int(layer.is_sparse) for layer in architecture.layers]
    if len(mlps) > 1:
        lines.append(f"--moe-layer-freq [{','.join(map(str, pattern))}]")
    said = arguments_of(" ".join(lines).split())
    with suppress(WorkloadError):
        read = MegatronArguments(place="", values=said).usual_layers()
        if read == architecture.layers:
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
