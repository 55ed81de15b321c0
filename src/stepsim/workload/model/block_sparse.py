"""Attention to blocks of keys that an indexer chooses, as MiniMax-M3 has it.

Everything about the block: parameters, operators, what it keeps, and how it is split. Queries, keys
and values are those of grouped attention. An indexer of a few heads scores all keys before a token;
the best blocks are read (`MiniMaxM3VLIndexer` of transformers). Nothing learns from the choice: the
indexer has no gradient here.
"""

from collections.abc import Iterator

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.workload.model.architecture import GroupedAttention, Mixer, keys_and_values
from stepsim.workload.model.context import gathered_keys
from stepsim.workload.model.indexer import SCORE_BYTES, Indexer
from stepsim.workload.model.operators import (
    attention_operators,
    fused_attention,
    memory,
    products,
)
from stepsim.workload.model.parts import (
    FORWARD_ALONE,
    Block,
    Held,
    Mixing,
    Operator,
    OperatorKind,
    operator_of,
)
from stepsim.workload.plan import PlanTable


class BlockSparseAttention(Mixer):
    """Grouped attention to the blocks of `block` keys that an indexer chooses.

    `indexer.top_k` counts keys, of whole blocks.
    """

    attention: GroupedAttention
    indexer: Indexer
    block: int = 128

    assumption = (
        "reach the rate of dense attention over the keys that it reads, and its indexer that "
        "of products in bf16, without a gradient"
    )

    def parameters(self, hidden: int) -> int:
        """Attention, the indexer's two products, and the norms of its queries and keys."""
        own = self.indexer
        return self.attention.parameters(hidden) + hidden * (own.width + own.dim) + 2 * own.dim

    def mixing(self, hidden: int, columns: PlanTable) -> Mixing:
        """Projections of attention and indexer, choice, attention to what was chosen, way back.

        Keys, values and the indexer's keys are gathered along cp, gradients of the first two go
        back: assumed to be as Megatron-Core's sparse attention does it.
        """
        own, _, after = attention_operators(self.attention, hidden, columns)
        width = self.indexer.width + self.indexer.dim
        made = "index queries and keys", columns.tokens, hidden, width
        pair = keys_and_values(self.attention, columns)
        gather, _ = gathered_keys(pair + self.indexer.dim, columns)
        _, scatter = gathered_keys(pair, columns)
        # the indexer's queries and keys, forward alone
        indexed = (item.times(FORWARD_ALONE) for item in products(columns, made))
        return (
            Block("mixer in", (*own, *indexed), (gather,)),
            Block("mixer", tuple(self._mix(columns)), backward=(scatter,)),
            Block("mixer out", after),
        )

    def _mix(self, columns: PlanTable) -> Iterator[Operator]:
        """Scores of all keys and the choice of blocks, then attention.

        Scores take 2 t s/2 H d; each block's best score is written in 4 bytes and read by the
        choice. Attention: 2 t k a (d + dv) for k keys, 2.5 times that backward.
        """
        t, part = columns.tokens, self.attention
        scores = t * columns.attended / 2
        blocks = SCORE_BYTES * scores * self.indexer.heads / self.block
        none = np.zeros_like(t)
        yield operator_of(
            "index scores",
            OperatorKind.MIXED,
            (2.0 * scores * self.indexer.width, none),
            (blocks, none),
            (1, 0),
            core=True,
        )
        yield memory("choice of blocks", blocks, none, core=True)
        heads, keys = self.heads / columns.tp, self.indexer.read(columns)
        shared = np.full_like(heads, self.heads / part.kv_heads)
        flops = 2.0 * t * keys * heads * (part.head_dim + part.values)
        yield fused_attention(flops, part.head_dim, heads, keys, columns, shared)

    def held(self, columns: PlanTable, element: Floats) -> Held:
        """Queries, keys, values, the result as it is read, and numbers of the chosen blocks."""
        part, t = self.attention, columns.tokens
        heads, pair = t * self.heads / columns.tp, t * keys_and_values(part, columns)
        queries, result = heads * part.head_dim, heads * part.values
        chosen = self.indexer.heads * self.indexer.top_k / self.block
        kept = 2.0 * (queries + pair) + (2.0 + element) * result + SCORE_BYTES * t * chosen
        return Held(kept=kept, outputs=[queries, pair], result=result)
