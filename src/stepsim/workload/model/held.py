"""How a plan divides a model, and what a rank holds of it, in bytes.

A plan divides a model where degrees divide its parts; a framework that balances stages shares out
layers by their cost. A rank holds parameters by plan, and what a microbatch leaves: a layer keeps
what its forward made until its backward has run.
"""

from collections.abc import Mapping

import numpy as np

from stepsim.base.arrays import Floats, ints
from stepsim.base.errors import PlanError
from stepsim.base.structs import Numbers, replace
from stepsim.workload.model.architecture import (
    Architecture,
    Attention,
    CoreAttention,
    DenseMlp,
    ExpertMlp,
    GroupedAttention,
    Layer,
    LinearBlock,
    Mixer,
    Mlp,
    heads_of_keys,
    keys_and_values,
)
from stepsim.workload.model.choices import AttentionKernel, ContextParallelKind, RecomputeModule
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.layout import LayerLayout, Slices, layout_by_cost
from stepsim.workload.model.parts import Held
from stepsim.workload.plan import Plan, PlanTable


def stage_slices(architecture: Architecture, plan: Plan) -> Slices:
    """What each virtual stage runs, in the model's order; raises PlanError."""
    return plan.layout.resolve(architecture.depth, len(architecture.prediction_layers), plan.stages)


def layout_of_costs(architecture: Architecture, stages: int) -> LayerLayout:
    """The layout of a framework that shares blocks out by cost: a matrix costs its weights.

    The embedding looks up and costs nothing (nanotron's `get_block_compute_costs`).
    """
    costs = [
        layer.parameters(architecture.hidden, architecture.norm) for layer in architecture.layers
    ]
    head, ahead = architecture.vocabulary * architecture.hidden, architecture.prediction_layers
    return layout_by_cost(costs, head, stages, len(ahead))


def shared_counts(layer: Layer) -> Mapping[str, int]:
    """Counts of a layer's attention that tp must divide, by the name that an error gives them."""
    if isinstance(layer.attention, Mixer):
        return layer.attention.shared_out()
    if isinstance(layer.attention, CoreAttention):
        return {"heads": layer.attention.heads}
    return {}


def check_plan(architecture: Architecture, plan: Plan) -> None:
    """Raise PlanError where the plan does not divide the model."""
    plan.check_sequence()
    for layer in architecture.layer_counts():
        attention, mlp = layer.attention, layer.mlp
        if isinstance(attention, Mixer) and plan.attention is AttentionKernel.UNFUSED:
            raise PlanError("attention is unfused: this model's mixers are fused: expected flash")
        shared = shared_counts(layer)
        needs = [(what, count, "tp", plan.tp) for what, count in shared.items()]
        if isinstance(attention, Mixer):
            turned = attention.turned_heads // plan.tp
            needs.append(("heads of mixers / tp", turned, "cp", plan.cp))
        elif shared and plan.context is ContextParallelKind.ALL_TO_ALL:
            needs.append(("heads / tp", shared["heads"] // plan.tp, "cp", plan.cp))
        if isinstance(mlp, DenseMlp):
            needs.append(("ffn", mlp.width, "tp", plan.tp))
        if isinstance(mlp, ExpertMlp):
            needs.append(("experts", mlp.experts, "ep", plan.ep))
            needs.append(("expert ffn", mlp.width, "expert_tp", plan.expert_degree))
        for what, value, name, degree in needs:
            if value % degree:
                raise PlanError(f"{what} is {value}: expected a multiple of {name}, {degree}")
    if plan.ep > 1 and not architecture.is_sparse:
        raise PlanError(f"ep is {plan.ep}: {architecture.name} has no experts: expected 1")
    stage_slices(architecture, plan)


def layer_bytes(
    layer: Layer, architecture: Architecture, columns: PlanTable, framework: Framework
) -> tuple[Floats, Floats]:
    """Bytes that a layer keeps of a microbatch, and those of it while it is being recomputed.

    With full recomputation it keeps its input alone. Where some layers of a stage recompute, it is
    the mean of those that do and those that do not.

    That input is shared out over tp with sequence parallelism. Selective recomputation drops the
    scores of unfused attention; per operator it keeps that input, the result of attention, and of a
    layer's products every second from the first: torch's policy as torchtitan has it
    (`_get_custom_policy`). Recomputed modules drop what is `dropped`, and that is what they need
    while they are recomputed.

    Norms keep what they take and make; that is an input of a product: where that keeps it
    converted, nothing is won unless the framework drops that as well. Of several streams all are
    kept before each part, and each part's output.
    """
    # bytes of an element of what products keep of their inputs
    element = columns.element_bytes if framework.keeps_casts else columns.nothing + 2.0
    out = columns.shard_tokens * architecture.hidden
    attention = _of_attention(layer.attention, out, columns, element, framework)
    mlp = _of_mlp(layer.mlp, architecture, columns, element, framework)
    norms, masks = layer.norms * out, architecture.dropout
    own = columns.shard_tokens * layer.input_width * (4.0 + 2.0 * element)  # gate, input, product
    streams = 2.0 * out * (layer.streams + 1) * layer.parts * (layer.streams > 1)
    whole = norms * (2.0 + element + masks) + own + streams + attention.kept + mlp.kept
    won = (element == 2.0) | framework.drops_cast_norms
    dropped = columns.drops(RecomputeModule.NORMS) * norms * element * won
    dropped = dropped + attention.dropped + mlp.dropped
    taken = 2.0 * out * layer.streams
    outputs = [*attention.outputs, *mlp.outputs]
    products = taken + (2.0 * attention.result + 2.0 * sum(outputs[::2]))
    scores = attention.scores * (columns.recompute_selective == 0)
    kept = np.where(columns.recompute_operators > 0, products, whole + scores - dropped)
    again = columns.recomputed(architecture.depth)
    kept = again * taken + (1 - again) * kept
    whole = whole + attention.scores
    working = columns.recompute_full * whole
    working += columns.recompute_operators * np.maximum(whole - products, 0.0)
    working += columns.recompute_selective * attention.scores
    return kept, working + dropped * (columns.recompute_full == 0)


def _of_attention(
    attention: Attention | None,
    out: Floats,
    columns: PlanTable,
    element: Floats,
    framework: Framework,
) -> Held:
    """Queries, keys, values and the result, which its product keeps converted as well.

    That product makes `out` elements. Unfused attention keeps its softmax, its dropout's mask and
    output, 5 bytes a score. Keys and values that are borrowed of an earlier layer are kept there;
    where heads are copied they are kept twice: a buffer of all three lives on in the queries.
    """
    nothing = columns.nothing
    if attention is None or isinstance(attention, LinearBlock):
        return Held(kept=nothing, outputs=[out] if attention else [])
    if isinstance(attention, Mixer):
        held = attention.held(columns, element)
        return replace(held, outputs=[*held.outputs, out])
    t, s, heads = columns.tokens, columns.shard_tokens, attention.heads / columns.tp
    result, queries = heads * attention.values, heads * attention.head_dim
    # bytes of an element of the result, with what its product keeps of it
    both = 2.0 + element if framework.result_bytes is None else framework.result_bytes
    kept = np.where(element < 2.0, both, 2.0) * result
    kept = kept + heads * attention.head_gates * (2.0 + element * attention.values)
    pair, down, dropped = keys_and_values(attention, columns), attention.query_rank or 0, nothing
    made = [] if attention.query_rank is None else [s * attention.query_rank]
    if isinstance(attention, GroupedAttention):
        kept = kept + (2.0 + element) * result * attention.gated
        keys, widths = t * heads_of_keys(attention, columns), (attention.head_dim, attention.values)
        made += [t * queries]
        made += [keys * n for n, own in zip(widths, attention.own, strict=True) if own]
        copied = framework.copies_heads and attention.kv_heads == attention.heads
        pair = pair * (not attention.borrows) * (1 + copied)
    else:
        dropped = columns.drops(RecomputeModule.UP_PROJECTION) * 2.0 * t * (queries + pair)
        up = t * heads * (attention.nope_dim + attention.value_dim)
        made += [t * queries, s * (attention.kv_rank + attention.rope_dim), up]
        down += attention.kv_rank
    return Held(
        kept=t * (kept + 2.0 * (queries + pair)) + (2.0 + element) * s * down,
        outputs=[*made, out],
        result=t * result,
        scores=5.0 * t * columns.sequence * heads * (1 - columns.flash),
        dropped=dropped,
    )


def _of_mlp(
    mlp: Mlp | None,
    architecture: Architecture,
    columns: PlanTable,
    element: Floats,
    framework: Framework,
    gates: Floats | float = 2.0,
) -> Held:
    """Inputs and output of the activation; of experts also their inputs, converted.

    What experts make is kept as well where their weights multiply it, not what is before. Of their
    products those of the shared one alone are listed: theirs come in groups.
    """
    nothing, out = columns.nothing, columns.shard_tokens * architecture.hidden
    if mlp is None or isinstance(mlp, LinearBlock):
        return Held(kept=nothing, outputs=[out] if mlp else [])
    if isinstance(mlp, DenseMlp):
        inner = columns.tokens * mlp.width / columns.tp
        kept = _between(mlp, inner, element, framework, gates)
        outputs = [*[inner] * mlp.activation.inputs, out]
        dropped = columns.drops(RecomputeModule.MLP) * kept
        return Held(kept=kept, outputs=outputs, dropped=dropped)
    tokens = columns.shard_tokens * mlp.top_k * columns.expert_tp
    gates = np.where(element < 2.0, framework.gate_bytes, 2.0)
    inner, width = tokens * mlp.width / columns.expert_tp, mlp.token_width(architecture.hidden)
    kept = _between(mlp.expert, inner, element, framework, gates)
    kept = kept + (element + 2.0 * (not framework.weighs_inside)) * tokens * width
    if mlp.latent is not None:  # what the product back takes; the one there takes the norm's output
        kept = kept + element * columns.shard_tokens * width
    kept = kept + 4.0 * columns.shard_tokens * mlp.experts
    shared = _of_mlp(mlp.shared, architecture, columns, element, framework, gates)
    kept = kept + shared.kept
    dropped = np.where(
        columns.drops(RecomputeModule.EXPERTS) > 0,
        kept,
        columns.drops(RecomputeModule.ACTIVATION) * element * inner,
    )
    return Held(kept=kept, outputs=shared.outputs, dropped=dropped)


def _between(
    mlp: DenseMlp,
    inner: Floats,
    element: Floats,
    framework: Framework,
    gates: Floats | float,
) -> Floats:
    """Inputs and output of the activation, and apart from its gate what it makes before that.

    Either has `inner` elements; an input of a gated one takes `gates` bytes an element.
    """
    gated = mlp.activation.gated
    inputs = 2 * gates if gated else 2.0
    apart = 2.0 * (gated and not framework.fuses_gates)
    return inner * (inputs + apart + element)


def mlp_weights(
    layer: Layer, architecture: Architecture, columns: PlanTable
) -> tuple[Floats, Floats]:
    """Elements of the weights of a layer's MLP on a rank, of all its experts, and of the largest.

    The largest is an MLP's first, of both its inputs, or that of a mixer alone.
    """
    mlp, attention = layer.mlp, layer.attention
    if isinstance(mlp, DenseMlp | ExpertMlp):
        inputs, one, experts = mlp.activation.inputs, mlp.width / columns.tp, columns.nothing + 1.0
        width = architecture.hidden
        if isinstance(mlp, ExpertMlp):
            one, experts = mlp.width / columns.expert_tp, mlp.experts / columns.ep
            width = mlp.token_width(width)
        return experts * (inputs + 1) * one * width, inputs * one * width
    largest = nothing = columns.nothing
    if isinstance(attention, Mixer):
        made = attention.held(columns, columns.element_bytes).outputs[0]
        largest = made / columns.tokens * architecture.hidden
    return nothing, largest


Places = tuple[Numbers, ...]
"""Virtual stage of each rank's chunks."""


def plan_places(plan: Plan) -> Places:
    """Virtual stages where a plan's schedule has them: handed round, or down and back up."""
    pp = plan.pp
    if plan.order.folded:
        return tuple((rank, 2 * pp - 1 - rank) for rank in range(pp))
    return tuple(tuple(range(rank, pp * plan.chunks, pp)) for rank in range(pp))


def counts_by_chunk(architecture: Architecture, layout: LayerLayout, places: Places) -> Floats:
    """Layers of each kind, then embeddings and heads; shape (kinds + 2, pp, chunks).

    Prediction layers count as layers of their kind, and each as a head: it predicts one token more.
    """
    stages = 1 + max(map(max, places))
    slices = layout.resolve(architecture.depth, len(architecture.prediction_layers), stages)
    numbers = {kind: number for number, kind in enumerate(architecture.layer_kinds())}
    by_stage = np.zeros((len(numbers) + 2, stages))
    for name in ("layers", "prediction_layers"):
        kinds = ints([numbers[one] for one in getattr(architecture, name)])
        stage_of = np.repeat(np.arange(stages), [getattr(one, name) for one in slices])
        np.add.at(by_stage, (kinds, stage_of), 1)
    by_stage[-2] = [one.embedding for one in slices]
    by_stage[-1] = [one.head + one.prediction_layers for one in slices]
    return by_stage[:, np.array(places)]


def layer_parameters(
    layer: Layer, architecture: Architecture, columns: PlanTable
) -> tuple[Floats, Floats]:
    """Parameters of a layer on a rank before sharding: dense ones, and those of routed experts."""
    routed = layer.routed_parameters(architecture.hidden)
    dense = layer.parameters(architecture.hidden, architecture.norm) - routed
    return dense / columns.tp, routed / (columns.ep * columns.expert_tp)


def rank_parameters(
    architecture: Architecture, columns: PlanTable, counts: Floats
) -> tuple[Floats, Floats]:
    """Dense and routed parameters of each rank; shape (plans, pp).

    `counts` are the `counts_by_chunk` of the layout that all plans have. The rank of the head has a
    copy of a tied embedding where that is on another rank.
    """
    counts = counts.sum(axis=2)
    kinds = [layer_parameters(each, architecture, columns) for each in architecture.layer_kinds()]
    dense, routed = (np.stack(each, axis=1) for each in zip(*kinds, strict=True))
    tied = architecture.vocabulary * architecture.hidden * architecture.tied
    copied = np.where(counts[-2] > 0, 0, tied)
    ends = np.outer(1 / columns.tp, counts[-2] * architecture.first_parameters)
    ends += np.outer(1 / columns.tp, (counts[-1] > 0) * (architecture.head_parameters + copied))
    return dense @ counts[:-2] + ends, routed @ counts[:-2]
