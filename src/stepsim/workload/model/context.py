"""Core attention of a sequence that ranks share: its kernels by hop, and what is sent beside them.

A ring of n ranks begins with its own keys and values and gets those of another rank with each of
n - 1 hops, in messages from one rank to the next. Hops between the first and the last are alike, so
that they are one block: n - 2 kernels beside n - 2 messages take as long as all of the kernels or
all of the messages. Where keys and values are gathered head by head, a hop is the kernel of one
head.

Frameworks differ in how they compute and exchange it.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated

import numpy as np
from msgspec import Meta

from stepsim.base.arrays import Floats
from stepsim.base.axes import CollectiveKind, Group
from stepsim.base.fields import Time
from stepsim.base.structs import Amount, TomlTable, replace
from stepsim.workload.model.architecture import (
    CoreAttention,
    Layer,
    heads_of_keys,
    keys_and_values,
)
from stepsim.workload.model.choices import ContextParallelKind
from stepsim.workload.model.operators import memory
from stepsim.workload.model.parts import (
    Block,
    Exchange,
    Exchanges,
    Operator,
    OperatorKind,
    Operators,
)
from stepsim.workload.plan import PlanTable

# Bytes moved per byte of an all-to-all of heads: read and written before it, and again after it.
_LAID_OUT = 4.0


# Parts of some work that the first hop does, those between and the last; by plan.
_Shares = tuple[Floats, Floats, Floats]


class ContextParallel(TomlTable):
    """`[context]`: context parallelism of a framework; by default that of Transformer Engine.

    `exchange` is the one of its jobs where nobody says it. In a `balanced` sequence a rank has a
    chunk of the head and one of the tail, so that all have as much of the causal mask; else it has
    one piece, and the last rank has nearly twice the mean. A ring runs a kernel a hop; with
    `gathers_by_hop` so does an all-gather, which else runs the whole kernel after it. With
    `gathers_by_head` both gather a head of keys and values beside the kernel of the head before,
    and wait for the gradients of each. `hides` says that messages run beside the kernel of the hop
    before; `kernels_at_once` are those of hops that fill the device together. With `repeats_heads`
    there are as many heads of keys and values as of queries when they are sent.

    A hop merges its output into the sum of those before: `merge_bytes` are moved per element of
    the output, `sum_bytes` per element of the gradients of queries, keys and values, of which
    those of keys and values are sent in `gradient_bytes`. With `returns_gradients` these go one
    hop further, to where they belong, beside no kernel. The host launches a hop in `hop_ps`, and
    in twice that in the backward.
    """

    exchange: ContextParallelKind = ContextParallelKind.RING
    balanced: bool = True
    gathers_by_hop: bool = False
    gathers_by_head: bool = False
    hides: bool = True
    kernels_at_once: Annotated[int, Meta(ge=1, le=8)] = 2
    repeats_heads: bool = False
    merge_bytes: Amount = 6.0
    sum_bytes: Amount = 6.0
    gradient_bytes: Annotated[int, Meta(ge=1, le=4)] = 2
    returns_gradients: bool = False
    hop_ps: Annotated[Time, Meta(description="launches of a hop's forward")] = 0


def runs_by_hop(columns: PlanTable, context: ContextParallel) -> Floats:
    """1 where core attention is a kernel for the keys of each rank, else 0."""
    ring = columns.context_ring > 0
    gathered = (columns.context_all_to_all == 0) & context.gathers_by_hop
    shared = (columns.cp > 1) & (not context.gathers_by_head)
    return np.where((ring | gathered) & shared, 1.0, 0.0)


def hop_count(attention: CoreAttention, columns: PlanTable, context: ContextParallel) -> Floats:
    """Kernels of core attention, one after the other: of the ranks, or of heads of keys."""
    by_hop = runs_by_hop(columns, context) > 0
    heads = heads_of_keys(attention, columns)
    by_head = context.gathers_by_head & (columns.cp > 1) & (columns.context_all_to_all == 0)
    return np.where(by_hop, columns.cp, np.where(by_head, heads, 1.0))


def mask_share(columns: PlanTable, context: ContextParallel, window: int | None = None) -> Floats:
    """What the busiest rank has of the causal mask, over the mean of all ranks.

    1 where it is balanced. Else the last of n ranks reads all keys before its tokens, of a sequence
    of s tokens s - s / 2n on average where the mean is s / 2: (2n - 1) / n, or less in a window.
    """
    if context.balanced:
        return columns.nothing + 1.0
    most = np.inf if window is None else window
    mean = np.minimum(columns.sequence / 2, most)
    last = np.minimum(columns.sequence * (1 - 0.5 / columns.cp), most)
    return np.where(columns.context_all_to_all > 0, 1.0, last / mean)


def kernel_shares(
    attention: CoreAttention, columns: PlanTable, context: ContextParallel
) -> _Shares:
    """Parts of the kernels: alike where the mask is balanced, else the first hop has half a block.

    On the first hop every rank computes the diagonal, on every other some rank computes a block of
    (s / n)^2 where the balanced ranks compute half of it, and the others wait for its messages.
    Kernels of heads are alike.
    """
    n = hop_count(attention, columns, context)
    alike = context.balanced | (runs_by_hop(columns, context) == 0)
    first = np.where(alike, 1 / n, 1 / (2 * n - 1))
    last = np.where(n > 1, np.where(alike, 1 / n, 2 / (2 * n - 1)), 0.0)
    return first, np.maximum(1 - first - last, 0.0), last


def merge_shares(columns: PlanTable, context: ContextParallel) -> _Shares:
    """Parts of the n - 1 merges of outputs: none on the first hop, one on each of the others."""
    hops, merges = runs_by_hop(columns, context), np.maximum(columns.cp - 1, 1.0)
    return np.zeros_like(hops), hops * (merges - 1) / merges, hops / merges


def merge_operator(
    attention: CoreAttention, columns: PlanTable, context: ContextParallel
) -> Operator:
    """All merges of outputs of a layer, and in its backward all sums of gradients.

    Each of n - 1 hops moves `merge_bytes` per element of the output, a d_v of each token, and in
    the backward `sum_bytes` per element of the gradients of queries, keys and values.
    """
    heads = attention.heads / columns.tp
    count = runs_by_hop(columns, context) * (columns.cp - 1) * columns.tokens
    out, queries = heads * attention.values, heads * attention.head_dim
    pair = out + queries if context.repeats_heads else keys_and_values(attention, columns)
    sums = queries + pair
    forward, backward = context.merge_bytes * count * out, context.sum_bytes * count * sums
    return memory("merges of hops", forward, backward, core=True)


def launch_ps(layer: Layer, columns: PlanTable, context: ContextParallel) -> Floats:
    """Host time, in ps, of the hops after the first in both passes of a layer."""
    if not isinstance(layer.attention, CoreAttention):
        return columns.nothing
    return 3.0 * context.hop_ps * (hop_count(layer.attention, columns, context) - 1)


def turned_against_heads(
    into: Floats, back: Floats, columns: PlanTable
) -> tuple[Operator, Exchange, Exchange]:
    """All-to-alls of ranks that share a sequence: `into` elements of a token there, `back` back.

    Each has all tokens of some heads in between, so that no state passes between ranks. Ahead of
    them what is read and written to lay elements out for them; backward as forward.
    """
    size = 2.0 * columns.tokens * (columns.cp > 1)
    moved = _LAID_OUT * size * (into + back)
    there = Exchange(CollectiveKind.ALL_TO_ALL, Group.CP, size * into)
    home = Exchange(CollectiveKind.ALL_TO_ALL, Group.CP, size * back)
    return memory("layouts of heads", moved, moved), there, home


def gathered_keys(width: Floats | float, columns: PlanTable) -> tuple[Exchange, Exchange]:
    """Keys of a sequence that ranks share, `width` numbers a token, gathered by each of them.

    In the backward their gradients are scattered. Megatron-Core has no other way for sparse
    attention (`cp_comm_type` allgather).
    """
    size = 2.0 * columns.tokens * columns.cp * (columns.cp > 1) * width
    return (
        Exchange(CollectiveKind.ALL_GATHER, Group.CP, size),
        Exchange(CollectiveKind.REDUCE_SCATTER, Group.CP, size),
    )


def shared_blocks(
    attention: CoreAttention,
    before: Operators,
    core: Operators,
    after: Operators,
    columns: PlanTable,
    context: ContextParallel,
    *,
    summed: Exchanges,
) -> Iterator[Block]:
    """Attention of ranks that share a sequence: projections, hops of core attention, and the rest.

    `summed` are the exchanges of tp that follow what comes after core attention, and the input
    gradients of what comes before it. The block without operators begins the backward of a ring.
    """
    layouts, sent = _sent(attention, columns, context)
    yield Block("qkv", (*before, layouts), forward=sent["qkv"][0], backward=summed)
    kernels = (_kernel(each, attention, columns, context) for each in core)
    whole = [(each, kernel_shares(attention, columns, context)) for each in kernels]
    whole.append((merge_operator(attention, columns, context), merge_shares(columns, context)))
    hops = hop_count(attention, columns, context) > 1
    # core attention with its merges as the first hop, those between, and the last
    for part, name in enumerate(("first hop", "hops between", "last hop")):
        parts = list[Operator]()
        for each, shares in whole:
            # the backward goes through the hops from the first on as well: the last is its first
            back = np.where(hops, shares[2 - part], shares[part])
            parts.append(each.times(np.stack([shares[part], back, back])))
        yield Block(name, tuple(parts), *sent[name])
    yield Block("ring", (), *sent["ring"])
    yield Block("attention", after, forward=summed)


def _kernel(
    operator: Operator,
    attention: CoreAttention,
    columns: PlanTable,
    context: ContextParallel,
) -> Operator:
    """Core attention of the busiest rank, at the rate of the sequences of its kernels.

    The kernel of a hop sees a rank's tokens; a whole one sees the sequence with a part of the
    heads, or of the queries; that of a head has its queries alone.
    """
    if operator.kind is not OperatorKind.ATTENTION:
        return operator
    assert operator.rows is not None
    hops = runs_by_hop(columns, context) > 0
    share = mask_share(columns, context, attention.window)
    return replace(
        operator.times(share),
        length=np.where(hops, columns.sequence / columns.cp, columns.sequence),
        rows=np.where(
            hops,
            operator.rows * context.kernels_at_once,
            operator.rows / columns.cp / hop_count(attention, columns, context),
        ),
    )


def _sent(
    attention: CoreAttention, columns: PlanTable, context: ContextParallel
) -> tuple[Operator, Mapping[str, tuple[Exchanges, Exchanges]]]:
    """What lays heads out, and what a layer sends under each of the plans, forward and backward.

    It is sent after blocks by their names. Keys and values are gathered before the first kernel or
    beside it, the `rest` beside the hops between. Of their gradients some are sent after a hop,
    some after those between, the last after all kernels. Turns change queries, keys and values
    from tokens to heads, and outputs back. Messages are passed round a ring where there is one,
    and gradients where kernels run by hop.
    """
    n, t, hops = columns.cp, columns.tokens, runs_by_hop(columns, context)
    turn, ring = columns.context_all_to_all, columns.context_ring * hops
    sends, count = np.maximum(n - 1, 1.0), hop_count(attention, columns, context)
    by_head = (count > 1) & (hops == 0)
    one = np.where(by_head, 1 / count, 1.0)
    heads, own = attention.heads / columns.tp, keys_and_values(attention, columns)
    out, queries = heads * attention.values, heads * attention.head_dim
    pair = out + queries if context.repeats_heads else own
    # keys and values of all ranks, as an all-gather counts them
    whole = 2.0 * t * n * pair * (n > 1) * (1 - turn)
    passed, summed_on = (np.where((each > 0) & (n > 2), 1.0, 0.0) for each in (ring, hops))
    gather = partial(_in_part, CollectiveKind.ALL_GATHER, whole, passed, n)
    scatter = partial(_in_part, CollectiveKind.REDUCE_SCATTER, whole, summed_on, n)
    hides, hides_hops = np.where(by_head, 1.0, ring) * context.hides, hops * context.hides
    rest = np.where(by_head, np.maximum(1 - 2 * one, 0.0), ring * (sends - 1) / sends)
    sums = np.where(by_head, one, context.gradient_bytes / 2 * hops / sends)
    all_sums = np.where(by_head, 1 - 2 * one, sums * (sends - 1))
    layouts, there, home = turned_against_heads((queries + own) * turn, out * turn, columns)
    first = gather(np.where(ring > 0, 1 / sends, one), hides_hops)
    gathered = (*first, *gather(np.where(by_head, one, 0.0), hides))
    others = gather(rest, hides)
    last = scatter(np.where(hops > 0, context.returns_gradients * sums, one), 0.0)
    return layouts, {
        "qkv": ((*gathered, there), ()),
        "first hop": ((*others, home), (*last, there)),
        "hops between": ((), scatter(sums, hides_hops)),
        "last hop": ((), (*others, *scatter(all_sums, hides_hops))),
        "ring": ((), (*gathered, home)),
    }


def _in_part(
    kind: CollectiveKind,
    whole: Floats,
    passed: Floats,
    ranks: Floats,
    part: Floats,
    beside: Floats | float,
) -> Exchanges:
    """A part of what all ranks have: by a collective, or `passed` on in messages."""
    size = whole * part
    message = size * (ranks - 1) / ranks * passed
    return (
        Exchange(kind, Group.CP, size * (1 - passed), beside=beside),
        Exchange(CollectiveKind.SEND_RECV, Group.CP, message, beside=beside),
    )
