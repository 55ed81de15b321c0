"""Attention of DeepSeek-V4: a short window, and beyond it keys that stand for several tokens.

Everything about the block: parameters, operators, what it keeps, and how it is split. Shapes are
those of `DeepseekV4Attention` of transformers. All heads read one key, which is the value as well,
as wide as a head. Besides the window a token reads keys that a softmax over `ratio` tokens pools:
all of them, or those that an indexer chooses, which has pooled keys of its own; then keys overlap,
and two of them are made of a token. Results go back through a low rank in groups of heads.
"""

from collections.abc import Iterator

from stepsim.base.arrays import Floats
from stepsim.workload.model.architecture import Mixer
from stepsim.workload.model.choices import RecomputeModule
from stepsim.workload.model.context import gathered_keys
from stepsim.workload.model.indexer import Indexer
from stepsim.workload.model.operators import (
    by_head,
    fused_attention,
    keys_before,
    memory,
    norm,
    products,
)
from stepsim.workload.model.parts import Block, Held, Mixing, Operator, Operators
from stepsim.workload.plan import PlanTable


class CompressedAttention(Mixer):
    """Attention to `window` tokens and to keys pooled over `ratio` tokens; none for ratio 0.

    With an `indexer` the best of the pooled keys are read. Results go through `output_groups` low
    ranks of `output_rank`.
    """

    head_dim: int
    query_rank: int
    output_groups: int
    output_rank: int
    window: int
    ratio: int = 0
    indexer: Indexer | None = None

    split = {"heads": "heads", "output groups": "output_groups"}
    assumption = (
        "take the time of serving's kernels, which compute 64 heads where a rank has fewer, "
        "its backward 2.5 times the operations, to gather keys along cp, and its indexer to "
        "be trained beside the model"
    )

    @property
    def queries(self) -> int:
        """Width of all heads."""
        return self.heads * self.head_dim

    @property
    def series(self) -> int:
        """Keys that are made of a token before they are pooled: 2 where they overlap."""
        return 0 if not self.ratio else 2 if self.indexer else 1

    @property
    def gathered(self) -> int:
        """Width of all low ranks of the result."""
        return self.output_groups * self.output_rank

    def parameters(self, hidden: int) -> int:
        """Projections and norms, sinks, and what pools keys: a key, a gate and biases of each."""
        d, rank = self.head_dim, self.query_rank
        attention = rank * (hidden + self.queries + 1) + d * (hidden + 1) + self.heads
        result = self.queries * self.output_rank + self.gathered * hidden
        pooled = self.series * d * (2 * hidden + self.ratio) + d * (self.series > 0)
        own, chosen = self.indexer, 0
        if own is not None:
            chosen = self.series * own.dim * (2 * hidden + self.ratio) + own.dim
            chosen += rank * own.width + hidden * own.heads
        return attention + result + pooled + chosen

    def read(self, columns: PlanTable) -> Floats:
        """Keys that a token reads on average: of the window, and pooled ones."""
        near = keys_before(columns.attended, self.window)
        if self.indexer is not None:
            return near + self.indexer.read(columns)
        return near + (columns.attended / self.ratio / 2 if self.ratio else 0.0)

    def mixing(self, hidden: int, columns: PlanTable) -> Mixing:
        """Projections, pooling, indexer, attention, and the result through its low ranks.

        Keys and pooled keys are gathered along cp, the indexer's target is summed over tp: assumed
        to be as Megatron-Core's sparse attention does it, with `cp_comm_type` allgather.
        """
        t, s = columns.tokens, columns.shard_tokens
        queries, rank = self.queries / columns.tp, self.query_rank
        ranks = s * (rank + self.head_dim)
        normed, moved = t * queries, 4.0 * t * (queries + self.head_dim)
        groups, in_group = self.output_groups / columns.tp, self.queries // self.output_groups
        own = self.indexer
        width: float = self.head_dim
        if self.ratio:
            width += (self.head_dim + (own.dim if own else 0)) / self.ratio
        before = (
            *products(columns, ("queries down", s, hidden, rank)),
            *products(
                columns, ("queries up", t, rank, queries), module=RecomputeModule.UP_PROJECTION
            ),
            *products(columns, ("keys", s, hidden, self.head_dim)),
            norm("norms of ranks", ranks),
            norm("norms of queries", normed),
            memory("rotary embedding and layout", moved, moved),
            *self._pooling(hidden, columns),
        )
        after = (
            memory("rotation back", 4.0 * normed, 4.0 * normed),
            by_head("result down", columns, groups, in_group, self.output_rank),
            *products(columns, ("result up", t, self.gathered / columns.tp, hidden)),
        )
        summed = (own.summed(columns),) if own else ()
        gather, scatter = gathered_keys(width, columns)
        return (
            Block("mixer in", before, (gather,)),
            Block("mixer", self._mix(columns), summed, (scatter,)),
            Block("mixer out", after),
        )

    def _pooling(self, hidden: float, columns: PlanTable) -> Iterator[Operator]:
        """Products for pooled keys and their gates, and the pooling: read twice backward."""
        if not self.series:
            return
        width = 2.0 * self.series * self.head_dim
        yield from products(columns, ("pooled keys", columns.shard_tokens, hidden, width))
        own = self.indexer
        if own is not None:
            keys = 2.0 * self.series * own.dim
            yield from own.projections(self.query_rank, hidden, keys, columns)
            width = width + keys
        size = 2.0 * columns.shard_tokens * width
        yield memory("pooling of keys", size * (1 + 1 / (2 * self.ratio)), 3.0 * size)

    def _mix(self, columns: PlanTable) -> Operators:
        """The indexer's choice, attention to the window and to pooled keys, and its target.

        Attention: 4 t k a d forward for k keys, 2.5 times that backward.
        """
        share, own = 2.0 * columns.tokens * self.queries / columns.tp, self.indexer
        keys, heads = self.read(columns), self.heads / columns.tp
        core = fused_attention(2.0 * share * keys, self.head_dim, heads, keys, columns, heads)
        return (core,) if own is None else own.around(core, share * own.read(columns), columns)

    def held(self, columns: PlanTable, element: Floats) -> Held:
        """Queries before and after their norm, keys, the result and what is rotated back.

        The ranks' norms keep what they take and make, the pooling its keys and gates, the last
        product its input, and the indexer what it needs. Products make queries, down to their rank,
        keys and pooled keys. Queries before and after their norm are dropped where they are
        projected again.
        """
        t, s, d = columns.tokens, columns.shard_tokens, self.head_dim
        queries, own = t * self.queries / columns.tp, self.indexer
        out = element * t * self.gathered / columns.tp
        ranks = (2.0 + element) * s * self.query_rank + 4.0 * s * d
        pooled = 4.0 * s * self.series * d
        if own is not None:
            pooled = pooled + 4.0 * s * self.series * own.dim + own.kept(columns)
        return Held(
            kept=2.0 * (4 * queries + t * d) + out + ranks + pooled,
            outputs=[queries, s * self.query_rank, s * d * (1 + 2 * self.series)],
            result=queries,
            dropped=columns.drops(RecomputeModule.UP_PROJECTION) * 4.0 * queries,
        )
