"""Operators of a layer: floating-point operations and bytes.

Sizes are a rank's, per microbatch, arrays over plans. t tokens in products, s outside of them
(fewer with sequence parallelism), h hidden, a and kv heads of the rank, d head width, f MLP width
of the rank, V vocabulary. Counts follow Korthikanti et al. 2022 ("Reducing Activation
Recomputation") for what each tensor is, 2 bytes an element, read and written once by each kernel.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.structs import replace
from stepsim.workload.model.architecture import (
    Activation,
    Architecture,
    CoreAttention,
    DenseMlp,
    ExpertMlp,
    GroupedAttention,
    LatentAttention,
    LinearBlock,
    QkNorm,
    heads_of_keys,
)
from stepsim.workload.model.choices import RecomputeModule
from stepsim.workload.model.device import GroupedShape
from stepsim.workload.model.dispatch import permuted_bytes
from stepsim.workload.model.parts import Operator, OperatorKind, Operators, operator_of
from stepsim.workload.plan import PlanTable


def linear(
    name: str,
    columns: PlanTable,
    tokens: Floats,
    inner: Floats | float,
    outer: Floats | float,
    kind: OperatorKind = OperatorKind.MATRIX,
    matrices: Floats | float = 1.0,
    **said: Any,
) -> Operator:
    """A product of `tokens` rows, `inner` to `outer` wide, with what else is `said` of it.

    2tkn each for output, input gradient and weight gradient; operands once, results in 2 bytes,
    the weight gradient read and written in fp32. Rows are shared out over the weights of so many
    `matrices`.
    """
    k, n = np.asarray(inner, float), np.asarray(outer, float)
    flops, weights = 2.0 * tokens * k * n, matrices * k * n
    element = columns.element_bytes if kind is not OperatorKind.HEAD else 2.0
    one = np.ones_like(flops)
    return operator_of(
        name,
        kind,
        flops=[flops] * 3,
        moved=(
            element * (tokens * k + weights) + 2 * tokens * n,
            element * (tokens * n + weights) + 2 * tokens * k,
            element * tokens * (k + n) + 8 * weights,
        ),
        launches=(1, 1, 1),
        **{"sides": (tokens, k * one, n * one), **said},
    )


NORM = "aten::native_layer_norm"
ACTIVATION = "aten::silu"
SOFTMAX = "aten::_softmax"
CAST = "aten::_to_copy"
CHOICE = "aten::topk"
"""What PyTorch calls operators that only move bytes; others of them add."""


def memory(
    name: str,
    forward: Floats,
    backward: Floats,
    pytorch: str = "",
    *,
    kernels: tuple[float, float] = (1.0, 1.0),
    **said: Any,
) -> Operator:
    """A kernel that only moves bytes, forward and backward, of an operator of PyTorch.

    So many `kernels` do it in both passes; what else is `said` are fields of the operator.
    """
    zero = np.zeros_like(forward)
    return operator_of(
        name,
        OperatorKind.MEMORY,
        flops=(zero, zero),
        moved=(forward, backward),
        launches=[
            np.where(moved > 0, count, 0.0)
            for moved, count in zip((forward, backward), kernels, strict=True)
        ],
        pytorch=pytorch,
        **said,
    )


def convolution(channels: Floats, backward: float, each: float) -> Operator:
    """A short convolution and its activation over channels of all tokens.

    Each takes 4 bytes forward and `backward` bytes backward, and `each` operations of vectors:
    products of its taps, a sigmoid and conversions; the backward more of them as it moves more.
    """
    moved, operations = 4.0 * channels, each * channels
    item = memory("short convolution", moved, backward * channels, "aten::conv1d")
    return replace(
        item, flops=np.stack([operations, operations * backward / 4.0, 0.0 * operations])
    )


def fused_attention(
    flops: Floats,
    head_dim: int,
    heads: Floats,
    keys: Floats | None,
    columns: PlanTable,
    sharing: Floats | None = None,
) -> Operator:
    """Fused core attention to some `keys`, with so many `heads` on a rank; nothing where unfused.

    `keys` None are all before a token. `sharing` heads have a key in common, as far as it is known.
    The backward takes 2.5 times as many operations.
    """
    fused, zero = columns.flash, np.zeros_like(flops)
    return operator_of(
        "core attention",
        OperatorKind.ATTENTION,
        flops=(flops * fused, 2.5 * flops * fused),
        moved=(zero, zero),
        launches=(fused, fused),
        core=True,
        head_dim=head_dim,
        rows=columns.microbatch_size * heads * columns.sequence / columns.attended,
        module=RecomputeModule.CORE_ATTENTION,
        keys=keys,
        sharing=sharing,
    )


def by_head(name: str, columns: PlanTable, heads: Floats, inner: int, outer: int) -> Operator:
    """A product of each head of a rank with a weight of its own, in bf16 in every precision."""
    rows, kind = columns.tokens * heads, OperatorKind.HEAD
    sides = columns.tokens, heads * inner, np.full_like(rows, outer)
    return linear(name, columns, rows, inner, outer, kind, heads, sides=sides)


def norm(name: str, size: Floats, **said: Any) -> Operator:
    """A norm of so many elements: 4 bytes of each forward, 16 backward."""
    return memory(name, 4.0 * size, 16.0 * size, NORM, **said)


def residual(name: str, architecture: Architecture, columns: PlanTable) -> Operator:
    """Bias, dropout and residual: 7sh forward (6sh without dropout), 12sh backward."""
    size = columns.shard_tokens * architecture.hidden
    return memory(name, (7.0 if architecture.dropout else 6.0) * size, 12.0 * size)


def _activation(
    name: str, kind: Activation, tokens: Floats, width: Floats, **said: Any
) -> Operator:
    """An activation: 6tf forward and 10tf backward where it is gated, else 4tf and 8tf."""
    size = tokens * width
    forward, backward = (6.0, 10.0) if kind.gated else (4.0, 8.0)
    return memory(name, forward * size, backward * size, ACTIVATION, **said)


def products(
    columns: PlanTable,
    *shapes: tuple[str, Floats, Floats | float, Floats | float],
    **said: Any,
) -> Iterator[Operator]:
    """Products of (name, tokens, inner, outer), each with its casts.

    These convert a product's input and its output's gradient to 8 or 4 bits. Each element is read
    in 2 bytes, and written straight and transposed: 4 bytes at 8 bits.
    """
    each = columns.casts * (2.0 + 2.0 * columns.element_bytes)
    for name, tokens, inner, outer in shapes:
        yield linear(name, columns, tokens, inner, outer, **said)
        if columns.casts.any():
            moved = each * tokens * inner, each * tokens * outer
            yield memory(f"casts of {name}", *moved, CAST, called=False, **said)


def attention_operators(
    attention: CoreAttention | LinearBlock, hidden: int, columns: PlanTable
) -> tuple[Operators, Operators, Operators]:
    """Projections, norms and rotary embedding of a rank, core attention, and gate and way back.

    A product in place of attention has nothing but what follows.
    """
    t, after = columns.tokens, list[Operator]()
    if isinstance(attention, LinearBlock):
        return (), (), tuple(mlp_operators(attention, hidden, columns))
    heads = attention.heads / columns.tp
    result = t * heads * attention.values
    if isinstance(attention, GroupedAttention):
        before = _grouped_projections(attention, hidden, heads, columns)
    else:
        before = _latent_projections(attention, hidden, heads, columns)
        if attention.head_gates:
            after += products(columns, ("gates of heads", t, hidden, heads))
    if attention.gated:
        after.append(memory("gate of the result", 6.0 * result, 10.0 * result))
    elif attention.head_gates:
        after.append(memory("gate of the result", 4.0 * result, 8.0 * result))
    after += products(columns, ("attention out", t, heads * attention.values, hidden))
    return tuple(before), tuple(_core(attention, heads, columns)), tuple(after)


def _grouped_projections(
    attention: GroupedAttention, h: float, heads: Floats, columns: PlanTable
) -> Iterator[Operator]:
    t = columns.tokens
    kv = heads_of_keys(attention, columns)
    queries = heads * attention.head_dim * (1 + attention.gated)
    keys = kv * attention.head_dim * (not attention.borrows)
    values = kv * attention.values * (attention.own[1] > 0)
    gates = heads * attention.head_gates
    if attention.query_rank is None:
        yield from products(columns, ("qkv", t, h, queries + keys + values + gates))
    else:
        rank, size = attention.query_rank, columns.shard_tokens * attention.query_rank
        yield from products(columns, ("queries down", columns.shard_tokens, h, rank))
        yield norm("norm of the rank", size)
        yield from products(columns, ("queries up", t, rank, queries), ("kv", t, h, keys + values))
    normed = heads * attention.head_dim + keys
    if attention.qk_norm is not QkNorm.NONE:
        yield norm("norms of queries and keys", t * normed)
    moved = 4.0 * t * (queries + keys)
    yield memory("rotary embedding and layout", moved, moved)


def _latent_projections(
    attention: LatentAttention, h: float, heads: Floats, columns: PlanTable
) -> Iterator[Operator]:
    """Down to the two ranks (not split by tp), and up to the heads of the rank."""
    t, s = columns.tokens, columns.shard_tokens
    queries, module = heads * attention.head_dim, RecomputeModule.UP_PROJECTION
    down = attention.kv_rank + attention.rope_dim
    if attention.query_rank is None:
        yield from products(columns, ("queries", t, h, queries))
    else:
        yield from products(columns, ("queries down", s, h, attention.query_rank))
        up = "queries up", t, attention.query_rank, queries
        yield from products(columns, up, module=module)
    widths = heads * (attention.nope_dim + attention.value_dim)
    yield from products(columns, ("keys down", s, h, down))
    yield from products(columns, ("keys up", t, attention.kv_rank, widths), module=module)
    ranks = s * ((attention.query_rank or 0) + attention.kv_rank)
    yield norm("norms of ranks", ranks)
    moved = 4.0 * t * (queries + queries)
    yield memory("rotary embedding and layout", moved, moved)


def keys_before(sequence: Floats, most: float) -> Floats:
    """Keys that a token reads on average of a sequence: all before it, but no more than `most`.

    Of s tokens the first k read half of k: k - k^2 / 2s, or s / 2 where s is at most k.
    """
    return np.where(sequence > most, most - most * most / (2 * sequence), sequence / 2)


def _core(attention: CoreAttention, heads: Floats, columns: PlanTable) -> Iterator[Operator]:
    """Core attention: one kernel, or two products with softmax and dropout between.

    Causal attention does half of 2 t seq a (d + dv); a window of w has w - w^2 / 2 seq keys a token
    on average. The fused backward is 2.5 forwards. Unfused products do all of it, and twice that
    backward.
    """
    t, seq, window = columns.tokens, columns.attended, attention.window
    widths = heads * (attention.head_dim + attention.values)
    keys = seq / 2 if window is None else keys_before(seq, window)
    flops, known = 2.0 * t * keys * widths, None if window is None else keys
    yield fused_attention(flops, attention.head_dim, heads, known, columns)
    if columns.flash.all():
        return
    used, every = 1.0 - columns.flash, t * columns.sequence
    flops, scores = 2.0 * every * widths * used, every * heads * used
    element = 2.0 * (2.0 * scores + t * widths * used)
    yield operator_of(
        "scores and context",
        OperatorKind.SCORES,
        flops=(flops, 2.0 * flops),
        moved=(element, 2.0 * element),
        launches=(2.0 * used, 4.0 * used),
        core=True,
        head_dim=attention.head_dim,
    )
    yield memory("softmax", 4.0 * scores, 6.0 * scores, SOFTMAX, core=True)
    yield memory("attention dropout", 5.0 * scores, 5.0 * scores, SOFTMAX, core=True)


def mlp_operators(
    mlp: DenseMlp | LinearBlock, hidden: int, columns: PlanTable
) -> Iterator[Operator]:
    """Products and activation of a dense MLP."""
    t = columns.tokens
    if isinstance(mlp, LinearBlock):
        yield from products(columns, ("linear", t, hidden, hidden / columns.tp))
        return
    width = mlp.width / columns.tp
    inputs = mlp.activation.inputs
    yield from products(columns, ("mlp in", t, hidden, inputs * width))
    yield _activation("activation", mlp.activation, t, width)
    yield from products(columns, ("mlp out", t, width, hidden))


# Small kernels of a router in a forward and in a backward, of Megatron-Core with fused routing.
#
# The forward has scores with their choice, scores for the auxiliary loss and the loss (3), counts
# of tokens by expert and by rank, and the splits of the exchange (6), maps of rows and of chunks
# (4); the backward has those of both scores and of the loss, and the sum of the two gradients (4).
_CHOICE_KERNELS = (13.0, 4.0)


def router_operators(mlp: ExpertMlp, hidden: int, columns: PlanTable) -> Iterator[Operator]:
    """Router, choice of experts with its loss, the way to a latent width, tokens laid out.

    Each pass of the choice moves 12 bytes for every token and expert: scores in fp32 are read and
    written once, and a mask with the weights of those chosen is written.
    """
    t = columns.shard_tokens
    yield linear("router", columns, t, hidden, mlp.experts, OperatorKind.HEAD)
    width = mlp.token_width(hidden)
    if mlp.latent is not None:
        yield from products(columns, ("latent in", t, hidden, width))
    chosen = 12.0 * t * mlp.experts
    yield memory("choice of experts", chosen, chosen, CHOICE, kernels=_CHOICE_KERNELS)
    forward = permuted_bytes(mlp, columns, width, columns.dispatch_bytes)
    yield memory("layout of tokens", forward, permuted_bytes(mlp, columns, width), CHOICE)


def expert_operators(mlp: ExpertMlp, hidden: int, columns: PlanTable) -> Iterator[Operator]:
    """Grouped products of a rank's experts: t k / E tokens each, and what is between and after.

    That is an activation, clamps of both its inputs, and biases of outputs, each kernel in 2 bytes.
    Clamps read and write both inputs (8), and a copy joins them (8). Backward each reads gradient
    and input and writes one (12), and a copy joins them (8). A bias is weighted by a token's share
    (2), added (6), and experts are joined (4); backward the gradient is taken apart (4), and
    multiplied and summed for bias and share (6 each). See `weighted_bias_quick_geglu_impl` and
    `TEGroupedMLP._apply_bias` of Megatron-Core.
    """
    h = mlp.token_width(hidden)
    local = mlp.experts / columns.ep
    tokens = columns.shard_tokens * mlp.top_k * columns.expert_tp
    width = mlp.width / columns.expert_tp
    inputs = mlp.activation.inputs
    yield grouped("experts in", columns, tokens, local, h, inputs * width)
    said = {"module": RecomputeModule.ACTIVATION, "inside": True}
    yield _activation("activation of experts", mlp.activation, tokens, width, **said)
    yield grouped("experts out", columns, tokens, local, width, h)
    if mlp.clamped:
        size = tokens * width
        yield memory("clamps of experts", 16.0 * size, 20.0 * size, apart=True)
    if mlp.bias:
        size = tokens * h
        yield memory("biases of experts", 12.0 * size, 16.0 * size, apart=True)
    if columns.casts.any():
        each = columns.casts * (2.0 + 2.0 * columns.element_bytes)
        taken = each * tokens * h
        yield memory("casts of experts", taken, taken, CAST, called=False)
        made = each * tokens * width, each * tokens * inputs * width
        yield memory("casts between", *made, CAST, inside=True, called=False)


def grouped(
    name: str,
    columns: PlanTable,
    tokens: Floats,
    local: Floats,
    inner: Floats | float,
    outer: Floats | float,
) -> Operator:
    """A product of each local expert, `inner` to `outer` wide.

    An expert has t k / E rows; each result of a weight's gradient is a sum over them.
    """
    rows = tokens / local
    k, n = (side * np.ones_like(rows) for side in (inner, outer))
    shape = GroupedShape(
        count=local,
        rows=np.stack([rows, rows, k]),
        columns=np.stack([n, k, n]),
        depth=np.stack([k, n, rows]),
    )
    kind, sides = OperatorKind.GROUPED, (rows, k, n)
    return linear(name, columns, tokens, k, n, kind, local, sides=sides, groups=shape)
