"""A layer as blocks: operators that run one after the other, then what is exchanged.

Backward exchanges follow a block's input gradients and run beside its weight gradients. With
sequence parallelism norms end with an all-gather, in both passes, and products with a
reduce-scatter; without it products alone end with an all-reduce.

Several residual streams are hyper-connections: each part of a layer reads and writes them mixed.
Their shapes are those of `DeepseekV4HyperConnection` of transformers (manifold-constrained, Xie et
al. 2026). Before a part a product over all streams makes weights, and these make one input of the
streams; after it the output goes to all streams, which are mixed. Streams lie where tokens lie
outside of products (s a rank), and messages of a pipeline carry all of them. Parameters are
counted with the layer's; the collapse before the head has some too, its time is left out.

A tower for images runs its blocks on the first stage, before the embedding. Its layers are those of
a transformer whose tokens are patches: all of them see all of an image, of which a sample has one.
Ranks of tp share its heads, ranks of cp its patches. A frozen tower runs forward alone. Its layers
are alike, so that they are priced as one, as often as there are layers.
"""

from collections.abc import Iterator

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.axes import CollectiveKind, Group
from stepsim.base.structs import replace
from stepsim.workload.model.architecture import (
    Architecture,
    ExpertMlp,
    Layer,
    LinearBlock,
    Mixer,
    Tower,
)
from stepsim.workload.model.choices import GraphScope, RecomputeModule
from stepsim.workload.model.context import ContextParallel, shared_blocks
from stepsim.workload.model.dispatch import ExpertWay, map_bytes, permuted_bytes
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.held import layer_bytes
from stepsim.workload.model.operators import (
    CHOICE,
    attention_operators,
    expert_operators,
    linear,
    memory,
    mlp_operators,
    norm,
    products,
    residual,
    router_operators,
)
from stepsim.workload.model.parts import (
    FORWARD_ALONE,
    Block,
    Blocks,
    Exchange,
    Exchanges,
    Operator,
    OperatorKind,
    Operators,
)
from stepsim.workload.plan import PlanTable

_USUAL = ContextParallel()


def layer_blocks(
    layer: Layer,
    architecture: Architecture,
    columns: PlanTable,
    context: ContextParallel = _USUAL,
) -> Blocks:
    """The blocks of a layer in forward order; ranks share a sequence as `context` says."""
    attention = _attention_blocks(layer, architecture, columns, context)
    scope = layer.attention.scope if isinstance(layer.attention, Mixer) else GraphScope.ATTENTION
    return (
        *(replace(block, scope=scope) for block in attention),
        *_mlp_blocks(layer, architecture, columns),
        *([_input_block(layer, architecture, columns)] if layer.input_width else []),
    )


def embedding_block(architecture: Architecture, columns: PlanTable) -> Block:
    """The embedding, and inputs of layers, which are projected.

    Looking tokens up takes 6sh, and the same backward. The vocabulary is split, so that outputs are
    summed over tp.
    """
    s, hidden = columns.shard_tokens, architecture.hidden
    operators = [memory("embedding", 6.0 * s * hidden, 6.0 * s * hidden, "aten::embedding")]
    if architecture.input_width:
        size = s * architecture.input_width
        operators.append(memory("inputs of layers", 14.0 * size, 18.0 * size))
        shape = "projection of inputs", s, hidden, architecture.input_width
        operators += products(columns, shape)
    gathered, summed = _over_tp(architecture, columns)
    return Block("embedding", tuple(operators), forward=summed, backward=gathered)


def head_blocks(architecture: Architecture, columns: PlanTable, *, fused_loss: bool) -> Blocks:
    """Final norm, product with the vocabulary (bf16 in every precision), and the loss.

    The loss moves 14 bytes per logit forward and 8 backward where it is fused, else 22 and 12.
    """
    gathered, summed = _over_tp(architecture, columns)
    size = columns.shard_tokens * architecture.hidden
    final = norm("final norm", size, module=RecomputeModule.NORMS)
    t, share = columns.tokens, architecture.vocabulary / columns.tp
    forward, backward = (14.0, 8.0) if fused_loss else (22.0, 12.0)
    head = (
        linear("head", columns, t, architecture.hidden, share, OperatorKind.HEAD),
        memory("loss", forward * t * share, backward * t * share, "aten::cross_entropy_loss"),
    )
    return (
        Block("final norm", (final,), forward=gathered, backward=gathered),
        Block("head", head, backward=summed),
    )


def _attention_blocks(
    layer: Layer,
    architecture: Architecture,
    columns: PlanTable,
    context: ContextParallel,
) -> Iterator[Block]:
    attention = layer.attention
    if attention is None:
        return
    gathered, summed = _over_tp(architecture, columns)
    before, after = _around("attention", layer, architecture, columns)
    yield Block("attention norm", before, forward=gathered, backward=gathered)
    if isinstance(attention, Mixer):
        first, mix, last = attention.mixing(architecture.hidden, columns)
        yield replace(first, backward=summed)
        yield mix
        yield replace(last, operators=(*last.operators, after), forward=summed)
        return
    into, core, out = attention_operators(attention, architecture.hidden, columns)
    out = (*out, after)
    if (columns.cp > 1).any() and not isinstance(attention, LinearBlock):
        yield from shared_blocks(attention, into, core, out, columns, context, summed=summed)
        return
    yield Block("qkv", into, backward=summed)
    yield Block("attention", (*core, *out), forward=summed)


def _around(
    name: str, layer: Layer, architecture: Architecture, columns: PlanTable
) -> tuple[Operators, Operator]:
    """What runs before a part of a layer, its norm at the end, and how its output is added."""
    size = columns.shard_tokens * architecture.hidden
    normed = norm(f"{name} norm", size, module=RecomputeModule.NORMS)
    if layer.streams > 1:
        before = (*collapse_streams(layer, architecture.hidden, columns), normed)
        return before, expand_streams(f"{name} streams", layer, architecture.hidden, columns)
    return (normed,), residual(f"{name} residual", architecture, columns)


def collapse_streams(layer: Layer, hidden: int, columns: PlanTable) -> Operators:
    """Weights by a product in bf16, and one input of n streams.

    Forward the streams are read and the input written: n + 1 widths in 2 bytes. Backward streams
    and the input's gradient are read, and the streams' gradients read and written: 3n + 1.
    """
    n, s = layer.streams, columns.shard_tokens
    return (
        linear("stream weights", columns, s, n * hidden, (2 + n) * n, OperatorKind.HEAD),
        memory(
            "streams to one",
            2.0 * s * (n + 1) * hidden,
            2.0 * s * (3 * n + 1) * hidden,
            module=RecomputeModule.HYPER_CONNECTIONS,
        ),
    )


def expand_streams(name: str, layer: Layer, hidden: int, columns: PlanTable) -> Operator:
    """A part's output added to all n streams, which are mixed: 2n + 1 widths in 2 bytes.

    Backward reads the streams, their gradients and the output, and writes the gradients of both:
    3n + 2.
    """
    n, size = layer.streams, 2.0 * columns.shard_tokens * hidden
    return memory(name, size * (2 * n + 1), size * (3 * n + 2))


def _mlp_blocks(layer: Layer, architecture: Architecture, columns: PlanTable) -> Iterator[Block]:
    mlp = layer.mlp
    if mlp is None:
        return
    before, after = _around("mlp", layer, architecture, columns)
    if isinstance(mlp, ExpertMlp):
        yield from _expert_blocks(mlp, before, after, architecture, columns)
        return
    gathered, summed = _over_tp(architecture, columns)
    scope = GraphScope.MLP
    yield Block("mlp norm", before, forward=gathered, backward=gathered, scope=scope)
    yield Block(
        "mlp",
        (*mlp_operators(mlp, architecture.hidden, columns), after),
        forward=summed,
        backward=summed,
        scope=scope,
        module=RecomputeModule.MLP,
    )


def _input_block(layer: Layer, architecture: Architecture, columns: PlanTable) -> Block:
    """The layer's own input, gated by its output, brought to the hidden width, normed and added.

    Ranks of tp compute it whole, on the tokens that they hold outside of products.
    """
    s, h, width = columns.shard_tokens, architecture.hidden, layer.input_width
    size = s * width
    return Block(
        "layer input",
        (
            *products(columns, ("gate of the input", s, h, width)),
            memory("gated input", 6.0 * size, 10.0 * size),
            *products(columns, ("input out", s, width, h)),
            norm("input norm", s * h, module=RecomputeModule.NORMS),
            residual("input residual", architecture, columns),
        ),
    )


def _expert_blocks(
    mlp: ExpertMlp,
    before: Operators,
    after: Operator,
    architecture: Architecture,
    columns: PlanTable,
) -> Iterator[Block]:
    """Tokens go to their experts and come back: 2skh bytes each way, in both passes.

    The way to the experts may take fewer bytes an element in the forward.
    Experts split over `expert_tp` ranks gather their tokens and scatter their sums besides.
    Shared experts run after the others, or beside the ways to these and back: first their product
    in with its activation, then their product out (`shared_experts.py` of Megatron-Core).
    """
    module = RecomputeModule.EXPERTS
    width = mlp.token_width(architecture.hidden)
    sent = 2.0 * columns.shard_tokens * mlp.top_k * width
    moved = np.where(columns.ep > 1, sent, 0.0)
    beside = columns.shared_overlap * (mlp.shared is not None)

    def way(name: str) -> Exchange:
        size = moved * columns.dispatch_bytes / 2 if name == "to" else moved
        kind, own = CollectiveKind.ALL_TO_ALL, ExpertWay(routing=mlp, name=name)
        return Exchange(kind, Group.EP, size, way=own, beside=beside)

    listed = map_bytes(mlp, columns)
    mapped = Exchange(CollectiveKind.ALL_GATHER, Group.EP, listed, beside=beside)
    split = np.where(columns.expert_tp > 1, sent * columns.expert_tp, 0.0)
    gather = Exchange(CollectiveKind.ALL_GATHER, Group.ETP, split)
    scatter = Exchange(CollectiveKind.REDUCE_SCATTER, Group.ETP, split)
    first, last = _shared_blocks(mlp, architecture, columns)
    yield Block(
        "router",
        (*before, *router_operators(mlp, architecture.hidden, columns)),
        forward=(mapped, way("to"), gather),
        scope=GraphScope.ROUTER,
        module=module,
    )
    yield from first
    yield Block(
        "experts",
        tuple(expert_operators(mlp, architecture.hidden, columns)),
        forward=(scatter, way("back")),
        backward=(scatter, way("gradients_back")),
        beside_weights=columns.delay_wgrad,
        module=module,
        after_counts=True,
        routed=True,
    )
    yield from last
    laid_out = permuted_bytes(mlp, columns, width)
    combine = [memory("return of tokens", laid_out, laid_out, CHOICE)]
    if mlp.latent is not None:
        t, h = columns.shard_tokens, architecture.hidden
        combine += products(columns, ("latent out", t, width, h))
    yield Block(
        "combination",
        (*combine, after),
        backward=(way("gradients_to"), gather),
        beside_weights=columns.delay_wgrad,
        module=module,
        after_counts=True,
    )


def _shared_blocks(
    mlp: ExpertMlp, architecture: Architecture, columns: PlanTable
) -> tuple[Blocks, Blocks]:
    """Shared experts before the routed ones and after them; all after, if none overlaps them."""
    if mlp.shared is None:
        return (), ()
    operators = tuple(mlp_operators(mlp.shared, architecture.hidden, columns))
    gathered, summed = _over_tp(architecture, columns)
    around = (*gathered, *summed)
    if not columns.shared_overlap.any():
        whole = Block(
            "shared experts",
            operators,
            forward=around,
            backward=around,
            scope=GraphScope.ROUTER,
            module=RecomputeModule.EXPERTS,
        )
        return (), (whole,)
    half = next(i for i, each in enumerate(operators) if each.name == "mlp out")
    into = Block("shared experts in", operators[:half], backward=around)
    out = Block("shared experts out", operators[half:], forward=around)
    return (into,), (out,)


def _over_tp(architecture: Architecture, columns: PlanTable) -> tuple[Exchanges, Exchanges]:
    """What gathers inputs of products over tp, and what sums their outputs, of 2th bytes each.

    With sequence parallelism they are an all-gather and a reduce-scatter; without it nothing is
    gathered, and an all-reduce sums.
    """
    size = 2.0 * columns.tokens * architecture.hidden * (columns.tp > 1)
    parallel, alone = size * columns.sequence_parallel, size * (1 - columns.sequence_parallel)
    return (
        (Exchange(CollectiveKind.ALL_GATHER, Group.TP, parallel),),
        (
            Exchange(CollectiveKind.REDUCE_SCATTER, Group.TP, parallel),
            Exchange(CollectiveKind.ALL_REDUCE, Group.TP, alone),
        ),
    )


def tower_blocks(tower: Tower, columns: PlanTable) -> Blocks:
    """The blocks of a tower that sees in forward order."""
    own, inner = _patches(tower, columns), _as_model(tower)
    first = tuple(products(own, ("patches", own.shard_tokens, tower.patch, tower.hidden)))
    rows = own.shard_tokens / tower.merged  # of tokens of the decoder, of whole ranks
    shapes = [
        (f"projector {number}", rows, inner, outer)
        for number, (inner, outer, _) in enumerate(tower.products)
    ]
    layers = (_times(block, tower.depth) for block in layer_blocks(tower.layer, inner, own))
    blocks = (
        Block("patches", first),
        *layers,
        Block("projector", tuple(products(own, *shapes))),
    )
    return tuple(map(_forward_alone, blocks)) if tower.frozen else blocks


def tower_bytes(tower: Tower, columns: PlanTable, framework: Framework) -> Floats:
    """Bytes that a trained tower keeps of a microbatch until its backward."""
    own = _patches(tower, columns)
    layers = tower.depth * layer_bytes(tower.layer, _as_model(tower), own, framework)[0]
    ends = own.shard_tokens * (2.0 * tower.patch + 4.0 * tower.merged * tower.hidden)
    return np.asarray(layers + ends)


def _as_model(tower: Tower) -> Architecture:
    """The tower's layers as a model of their own."""
    return Architecture(
        name="tower", hidden=tower.hidden, layers=(tower.layer,), vocabulary=1, norm=tower.norm
    )


def _patches(tower: Tower, columns: PlanTable) -> PlanTable:
    """The plans with patches for tokens.

    Of causal attention a token reads half of the sequence: in one twice as long it reads all.
    """
    of_sample = tower.tokens * tower.merged
    sequence = columns.nothing + 2.0 * of_sample
    tokens = columns.microbatch_size * of_sample / columns.cp
    shard = np.where(columns.sequence_parallel > 0, tokens / columns.tp, tokens)
    return columns.other(
        tokens=tokens,
        shard_tokens=shard,
        sequence=sequence,
        attended=sequence,
        cp=columns.nothing + 1.0,
    )


def _times(block: Block, count: int) -> Block:
    """A block so many times over, as one."""
    operators = []
    for each in block.operators:
        sides = each.sides and (*each.sides[:2], each.sides[2] * count)
        operators.append(replace(each.times(count), sides=sides))
    forward, backward = (
        tuple(replace(each, size_bytes=each.size_bytes * count) for each in sent)
        for sent in (block.forward, block.backward)
    )
    name = f"tower {block.name}"
    return Block(name, tuple(operators), forward=forward, backward=backward)


def _forward_alone(block: Block) -> Block:
    """A block without its backward."""
    alone = (replace(each.times(FORWARD_ALONE), sides=None) for each in block.operators)
    return Block(block.name, tuple(alone), forward=block.forward)
