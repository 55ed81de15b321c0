"""A layer as blocks: operators that run one after the other, then what is exchanged.

Backward exchanges follow a block's input gradients and run beside its weight gradients. With
sequence parallelism norms end with an all-gather, in both passes, and products with a
reduce-scatter; without it products alone end with an all-reduce.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.records import dataclass
from stepsim.workload.model.architecture import (
    Architecture,
    Attention,
    ExpertMlp,
    GroupedAttention,
    Layer,
    LinearBlock,
)
from stepsim.workload.model.columns import PlanColumns
from stepsim.workload.model.operators import (
    Operator,
    attention_operators,
    embedding_operators,
    expert_operators,
    head_operators,
    memory,
    mlp_operators,
    norm,
    residual,
    router_operators,
)
from stepsim.workload.rows import CollectiveKind, Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One collective of a block; `size_bytes` as in CommOp, an array over plans, 0 where none.

    One that carries tokens to or from their experts names these in `experts`.
    """

    kind: CollectiveKind
    group: Group
    size_bytes: Floats
    experts: ExpertMlp | None = None

    def sent_bytes(self, columns: PlanColumns, domain: int) -> Floats:
        """What ranks send where `domain` of them share a node: see `sent_share`."""
        if self.experts is None:
            return self.size_bytes
        return self.size_bytes * sent_share(self.experts, columns, domain)


def sent_share(mlp: ExpertMlp, columns: PlanColumns, domain: int) -> Floats:
    """Share of the tokens' copies that leave a rank, less than 1 where a token is sent once a node.

    Of n nodes (ranks, if there is one node) that a token's k experts lie on at random, n (1 - (1 -
    1/n)^k) differ. Experts of `token_groups` of `groups` lie on as many nodes at most, or on their
    part of the nodes where there are more nodes than groups. For example 8 experts on 8 nodes are
    on 5.25 of them: 0.66 of the copies leave.
    """
    nodes = np.ceil(columns.ep * columns.expert_tp / domain)
    reached = np.where(nodes > 1, nodes, columns.ep)
    if mlp.groups > 1:
        limited = np.minimum(reached, mlp.token_groups * np.maximum(reached / mlp.groups, 1.0))
        reached = np.where(nodes > 1, limited, reached)
    once = reached * (1 - (1 - 1 / reached) ** mlp.top_k) / mlp.top_k
    return np.where((columns.sends_once > 0) & (columns.ep > 1), once, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Operators in order, and the exchanges that follow them in each pass."""

    name: str
    operators: tuple[Operator, ...]
    forward: tuple[Exchange, ...] = ()
    backward: tuple[Exchange, ...] = ()


def layer_blocks(
    layer: Layer, architecture: Architecture, columns: PlanColumns
) -> tuple[Block, ...]:
    """The blocks of a layer in forward order."""
    return (
        *_attention_blocks(layer, architecture, columns),
        *_mlp_blocks(layer, architecture, columns),
    )


def embedding_block(architecture: Architecture, columns: PlanColumns) -> Block:
    """The embedding; its vocabulary is split, so that its outputs are summed over tp."""
    return Block(
        name="embedding",
        operators=tuple(embedding_operators(architecture, columns)),
        forward=_summed(architecture, columns),
        backward=(_gathered(architecture, columns),),
    )


def head_blocks(
    architecture: Architecture, columns: PlanColumns, *, fused_loss: bool
) -> tuple[Block, ...]:
    """Final norm, head and loss."""
    final, *rest = head_operators(architecture, columns, fused_loss=fused_loss)
    gathered = (_gathered(architecture, columns),)
    if not architecture.final_norm:
        return (
            Block(name="head", operators=(final, *rest), backward=_summed(architecture, columns)),
        )
    return (
        Block(name="final norm", operators=(final,), forward=gathered, backward=gathered),
        Block(name="head", operators=tuple(rest), backward=_summed(architecture, columns)),
    )


def _attention_blocks(
    layer: Layer, architecture: Architecture, columns: PlanColumns
) -> Iterator[Block]:
    attention = layer.attention
    if attention is None:
        return
    gathered = (_gathered(architecture, columns),)
    summed = _summed(architecture, columns)
    before = norm("attention norm", architecture, columns)
    after = residual("attention residual", architecture, columns)
    yield Block(name="attention norm", operators=(before,), forward=gathered, backward=gathered)
    operators = tuple(attention_operators(attention, architecture, columns))
    core = next((i for i, each in enumerate(operators) if each.core), 0)
    shared, back = _context(attention, columns)
    yield Block(name="qkv", operators=operators[:core], forward=shared, backward=summed)
    rest = (*operators[core:], after)
    yield Block(name="attention", operators=rest, forward=summed, backward=back)


def _context(
    attention: Attention, columns: PlanColumns
) -> tuple[tuple[Exchange, ...], tuple[Exchange, ...]]:
    """What ranks of a sequence exchange before core attention, and in its backward.

    Keys and values of the whole sequence, by ring or all-gather, again in the backward, where their
    gradients are summed as well; or heads against tokens, forth and back, by all-to-all.
    """
    if isinstance(attention, LinearBlock):
        return (), ()
    heads, t = attention.heads / columns.tp, columns.tokens
    if isinstance(attention, GroupedAttention):
        kv = np.maximum(attention.kv_heads / columns.tp, 1.0)
        values = attention.values
    else:
        kv, values = heads, attention.value_dim
    together = columns.context_all_to_all
    whole = 2.0 * t * columns.cp * kv * (attention.head_dim + values) * (columns.cp > 1)
    turned = 2.0 * t * (heads + kv) * (attention.head_dim + values) * (columns.cp > 1)
    gather = _along_cp(CollectiveKind.ALL_GATHER, whole * (1 - together))
    scatter = _along_cp(CollectiveKind.REDUCE_SCATTER, whole * (1 - together))
    turn = _along_cp(CollectiveKind.ALL_TO_ALL, turned * together)
    return (gather, turn), (gather, scatter, turn)


def _along_cp(kind: CollectiveKind, size: Floats) -> Exchange:
    return Exchange(kind=kind, group=Group.CP, size_bytes=size)


def _mlp_blocks(layer: Layer, architecture: Architecture, columns: PlanColumns) -> Iterator[Block]:
    mlp = layer.mlp
    if mlp is None:
        return
    before = norm("mlp norm", architecture, columns)
    after = residual("mlp residual", architecture, columns)
    if isinstance(mlp, ExpertMlp):
        yield from _expert_blocks(mlp, before, after, architecture, columns)
        return
    gathered, summed = (_gathered(architecture, columns),), _summed(architecture, columns)
    yield Block(name="mlp norm", operators=(before,), forward=gathered, backward=gathered)
    operators = (*mlp_operators(mlp, architecture, columns), after)
    yield Block(name="mlp", operators=operators, forward=summed, backward=summed)


def _expert_blocks(
    mlp: ExpertMlp,
    before: Operator,
    after: Operator,
    architecture: Architecture,
    columns: PlanColumns,
) -> Iterator[Block]:
    """Tokens go to their experts and come back: 2skh bytes each way, in both passes.

    The way to the experts may take fewer bytes an element in the forward.
    Experts split over `expert_tp` ranks gather their tokens and scatter their sums besides.
    """
    sent = 2.0 * columns.shard_tokens * mlp.top_k * architecture.hidden
    moved = np.where(columns.ep > 1, sent, 0.0)
    dispatch = Exchange(
        kind=CollectiveKind.ALL_TO_ALL, group=Group.EP, size_bytes=moved, experts=mlp
    )
    first = replace(dispatch, size_bytes=moved * columns.dispatch_bytes / 2)
    split = np.where(columns.expert_tp > 1, sent * columns.expert_tp, 0.0)
    gather = Exchange(kind=CollectiveKind.ALL_GATHER, group=Group.ETP, size_bytes=split)
    scatter = Exchange(kind=CollectiveKind.REDUCE_SCATTER, group=Group.ETP, size_bytes=split)
    yield Block(
        name="router",
        operators=(before, *router_operators(mlp, architecture, columns)),
        forward=(first, gather),
        backward=(),
    )
    yield Block(
        name="experts",
        operators=tuple(expert_operators(mlp, architecture, columns)),
        forward=(scatter, dispatch),
        backward=(scatter, dispatch),
    )
    shared = mlp.shared
    if shared is not None:
        gathered, summed = (_gathered(architecture, columns),), _summed(architecture, columns)
        yield Block(
            name="shared experts",
            operators=tuple(mlp_operators(shared, architecture, columns)),
            forward=(*gathered, *summed),
            backward=(*gathered, *summed),
        )
    moved = 3.0 * sent
    combine = memory("weighted sum of experts", moved, moved)
    yield Block(name="combination", operators=(combine, after), backward=(dispatch, gather))


def _gathered(architecture: Architecture, columns: PlanColumns) -> Exchange:
    """The all-gather of 2th bytes with sequence parallelism."""
    return Exchange(
        kind=CollectiveKind.ALL_GATHER,
        group=Group.TP,
        size_bytes=2.0 * columns.tokens * architecture.hidden * columns.sequence_parallel,
    )


def _summed(architecture: Architecture, columns: PlanColumns) -> tuple[Exchange, ...]:
    """The reduce-scatter of 2th bytes with sequence parallelism, the all-reduce without."""
    size = 2.0 * columns.tokens * architecture.hidden * (columns.tp > 1)
    parallel = columns.sequence_parallel
    return (
        Exchange(kind=CollectiveKind.REDUCE_SCATTER, group=Group.TP, size_bytes=size * parallel),
        Exchange(kind=CollectiveKind.ALL_REDUCE, group=Group.TP, size_bytes=size * (1 - parallel)),
    )
