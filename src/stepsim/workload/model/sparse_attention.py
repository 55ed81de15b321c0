"""Sparse attention of DeepSeek-V3.2 and GLM-5: an indexer finds the keys that a token reads.

Everything about the block: parameters, operators, what it keeps, and how it is split. Latent
attention runs in its absorbed form, where all heads read the same keys (DeepSeek-V3.2 report,
2512.02556, section 2): queries are brought to the latent width, the result back from it. The
indexer scores all keys before a token, and the best are read (`indexer.py`).
"""

from stepsim.base.arrays import Floats
from stepsim.workload.model.architecture import LatentAttention, Mixer
from stepsim.workload.model.choices import RecomputeModule
from stepsim.workload.model.context import gathered_keys
from stepsim.workload.model.indexer import Indexer
from stepsim.workload.model.operators import by_head, fused_attention, memory, norm, products
from stepsim.workload.model.parts import Block, Held, Mixing, Operators
from stepsim.workload.plan import PlanTable


class SparseLatentAttention(Mixer):
    """Latent attention to the keys that an indexer chooses; its keys are one for all heads.

    One that does not choose reads the keys that an earlier layer chose (GLM-5.2).
    """

    latent: LatentAttention
    indexer: Indexer
    chooses: bool = True

    assumption = (
        "take the time of serving's kernels, which compute 64 or 128 heads where a rank has "
        "fewer, its backward 2.5 times the operations, and its indexer to be trained beside "
        "the model"
    )

    @property
    def key_width(self) -> int:
        """Width of the key that all heads read: the latent one and its rotary part."""
        return self.latent.kv_rank + self.latent.rope_dim

    def parameters(self, hidden: int) -> int:
        """Latent attention, the indexer's three products, and the norm of its keys with a bias."""
        rank = self.latent.query_rank or hidden
        own = self.indexer
        indexer = rank * own.width + hidden * (own.dim + own.heads)
        return self.latent.parameters(hidden) + (indexer + 2 * own.dim) * self.chooses

    def mixing(self, hidden: int, columns: PlanTable) -> Mixing:
        """Projections, indexer, attention to the chosen keys, and the way back.

        Whatever the plan says, keys of attention and of the indexer are gathered along cp, and the
        target is summed over tp.
        """
        latent, t, s = self.latent, columns.tokens, columns.shard_tokens
        heads, rank = self.heads / columns.tp, latent.query_rank
        queries = heads * latent.head_dim
        shapes: list[tuple[str, Floats, float, Floats | float]] = [("queries", t, hidden, queries)]
        if rank is not None:
            shapes = [("queries down", s, hidden, rank), ("queries up", t, rank, queries)]
        ranks = s * ((rank or 0) + latent.kv_rank)
        moved = 4.0 * t * (heads * self.key_width + self.key_width)
        index = self.indexer.projections(rank or hidden, hidden, self.indexer.dim, columns)
        before = (
            *products(columns, *shapes, ("keys down", s, hidden, self.key_width)),
            norm("norms of ranks", ranks),
            by_head("queries to latent", columns, heads, latent.nope_dim, latent.kv_rank),
            memory("rotary embedding and layout", moved, moved),
            *(index if self.chooses else ()),
        )
        after = (
            by_head("values from latent", columns, heads, latent.kv_rank, latent.value_dim),
            *products(columns, ("attention out", t, heads * latent.value_dim, hidden)),
        )
        gathered = self.key_width + self.indexer.dim * self.chooses
        gather, scatter = gathered_keys(gathered, columns)
        summed = (self.indexer.summed(columns),) if self.chooses else ()
        return (
            Block("mixer in", before, (gather,)),
            Block("mixer", self._mix(columns), summed, (scatter,)),
            Block("mixer out", after),
        )

    def _mix(self, columns: PlanTable) -> Operators:
        """Scores of keys, the choice, attention, and what the indexer learns from.

        Attention: 2 t k a (key + latent) forward, 2.5 times that backward.
        """
        heads, keys = self.heads / columns.tp, self.indexer.read(columns)
        pairs = 2.0 * columns.tokens * keys * heads
        flops = pairs * (self.key_width + self.latent.kv_rank)
        attention = fused_attention(flops, self.key_width, heads, keys, columns, heads)
        if not self.chooses:
            return (attention,)
        return self.indexer.around(attention, pairs * self.key_width, columns)

    def held(self, columns: PlanTable, element: Floats) -> Held:
        """Queries as projected and as attention takes them, keys, the result on both widths.

        The norms of both ranks keep what they take and make. Products make queries, down to both
        ranks, and the indexer's. Queries as projected and as attention takes them are dropped where
        projections up to heads are made again (`mla_up_proj` of Megatron-Core).
        """
        latent, own, t, s = self.latent, self.indexer, columns.tokens, columns.shard_tokens
        heads, rank = t * self.heads / columns.tp, latent.query_rank or 0
        both = 2.0 * heads * (latent.head_dim + self.key_width)
        result = heads * latent.kv_rank
        of_all = t * (self.key_width + own.dim * self.chooses)
        out = element * heads * latent.value_dim
        chosen = own.kept(columns) if self.chooses else 0.0
        norms = (2.0 + element) * s * (rank + latent.kv_rank)
        return Held(
            kept=both + 2.0 * (result + of_all) + out + norms + chosen,
            outputs=[
                heads * latent.head_dim,
                s * (rank + self.key_width),
                t * (own.width + own.dim + own.heads) * self.chooses,
            ],
            result=result,
            dropped=columns.drops(RecomputeModule.UP_PROJECTION) * both,
        )
