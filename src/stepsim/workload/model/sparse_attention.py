"""Sparse attention of DeepSeek-V3.2 and GLM-5: an indexer finds the keys that a token reads.

Everything about the block: parameters, operators, what it keeps, and how it is split. Latent
attention runs in its absorbed form, where all heads read the same keys (DeepSeek-V3.2 report,
2512.02556, section 2): queries are brought to the latent width, the result back from it. The
indexer scores all keys before a token, and the best `top_k` are read. It learns from what attention
weighs, over the keys that were chosen; nothing of its gradient reaches the layer's input (`dsa.py`
of Megatron-Core, with `dsa_indexer_use_sparse_loss`). Its products are the same on all ranks of tp.
"""

from collections.abc import Mapping

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.errors import WorkloadError, bad_value
from stepsim.base.structs import replace
from stepsim.workload.model.architecture import LatentAttention, Mixer
from stepsim.workload.model.columns import PlanColumns
from stepsim.workload.model.context import Exchange, MixerExchanges
from stepsim.workload.model.operators import (
    Amounts,
    MixerOperators,
    Operator,
    OperatorKind,
    memory,
    products,
    scan,
)
from stepsim.workload.rows import CollectiveKind, Group

_SCORE_BYTES = 4.0  # of a score of the indexer, of an index, and of what attention weighs


class SparseLatentAttention(Mixer, frozen=True, kw_only=True):
    """Latent attention to the `top_k` keys that an indexer of `index_heads` chooses.

    A head of the indexer is `index_dim` wide; its keys are one for all heads.
    """

    latent: LatentAttention
    index_heads: int
    index_dim: int
    top_k: int

    def __post_init__(self) -> None:
        for name in ("index_heads", "index_dim", "top_k"):
            if getattr(self, name) < 1:
                raise WorkloadError(
                    bad_value("indexer", name, getattr(self, name), "a whole number of at least 1")
                )

    @property
    def key_width(self) -> int:
        """Width of the key that all heads read: the latent one and its rotary part."""
        return self.latent.kv_rank + self.latent.rope_dim

    @property
    def index_width(self) -> int:
        """Width of the indexer's queries."""
        return self.index_heads * self.index_dim

    def parameters(self, hidden: int) -> int:
        """Latent attention, the indexer's three products, and the norm of its keys with a bias."""
        rank = self.latent.query_rank or hidden
        indexer = rank * self.index_width + hidden * (self.index_dim + self.index_heads)
        return self.latent.parameters(hidden) + indexer + 2 * self.index_dim

    def shared_out(self) -> Mapping[str, int]:
        """Heads of attention; those of the indexer are whole on every rank."""
        return {"heads": self.heads}

    @property
    def turned_heads(self) -> int:
        """None: ranks that share a sequence gather keys."""
        return 0

    def read(self, columns: PlanColumns) -> Floats:
        """Keys that a token reads, on average of the sequence.

        Token i reads i keys as long as that is fewer than k: k - k^2 / 2s of s, or s / 2.
        """
        k, s = float(self.top_k), columns.sequence
        return np.where(s > k, k - k * k / (2 * s), s / 2)

    def operators(self, hidden: int, columns: PlanColumns) -> MixerOperators:
        """Projections, indexer, attention to the chosen keys, and the way back."""
        latent, t, s, h = self.latent, columns.tokens, columns.shard_tokens, float(hidden)
        heads, rank = self.heads / columns.tp, latent.query_rank
        queries = heads * latent.head_dim
        shapes = [("queries", t, h, queries)]
        if rank is not None:
            shapes = [("queries down", s, h, rank), ("queries up", t, rank, queries)]
        ranks = s * ((rank or 0) + latent.kv_rank)
        moved = 4.0 * t * (heads * self.key_width + self.key_width)
        return MixerOperators(
            before=(
                *products(columns, *shapes, ("keys down", s, h, float(self.key_width))),
                memory("norms of ranks", 4.0 * ranks, 16.0 * ranks),
                _by_head("queries to latent", columns, heads, latent.nope_dim, latent.kv_rank),
                memory("rotary embedding and layout", moved, moved),
                *self._index_products(h, columns),
            ),
            mix=tuple(self._mix(columns)),
            after=(
                _by_head("values from latent", columns, heads, latent.kv_rank, latent.value_dim),
                *products(columns, ("attention out", t, heads * latent.value_dim, h)),
            ),
        )

    def _index_products(self, hidden: float, columns: PlanColumns) -> tuple[Operator, ...]:
        """Queries, keys and weights of the indexer: no gradient goes on to what they take."""
        t, rank = columns.tokens, float(self.latent.query_rank or hidden)
        found = products(
            columns,
            ("index queries", t, rank, float(self.index_width)),
            ("index keys", t, hidden, float(self.index_dim)),
            ("index weights", t, hidden, float(self.index_heads)),
        )
        zero = np.zeros_like(t)
        nothing = Amounts(flops=zero, bytes_moved=zero, launches=zero)
        return tuple(replace(each, input_grad=nothing) for each in found)

    def _mix(self, columns: PlanColumns) -> tuple[Operator, ...]:
        """Scores of all keys before a token, the choice, attention, and what the indexer learns.

        Scores: 2 t s/2 H d in the forward; backward thrice that of the chosen keys: scores again,
        gradients of queries and of keys. The choice writes and reads each score in 4 bytes.
        Attention: 2 t k a (key + latent) forward, 2.5 times that backward. The indexer's target is
        attention's scores once more, in the forward.
        """
        t, keys, heads = columns.tokens, self.read(columns), self.heads / columns.tp
        before, width = columns.sequence / 2, float(self.index_width)
        scores, zero, one = t * before, np.zeros_like(t), np.ones_like(t)
        attended = 2.0 * t * keys * heads * (self.key_width + self.latent.kv_rank)
        target = 2.0 * t * keys * heads * self.key_width
        chosen = _SCORE_BYTES * t * keys
        found = (
            scan(
                "index scores",
                flops=(2.0 * scores * width, 6.0 * t * keys * width),
                moved=(_SCORE_BYTES * scores, 2.0 * chosen),
                launches=(1, 1),
            ),
            memory("choice of keys", _SCORE_BYTES * scores + chosen, zero),
            Operator(
                name="core attention",
                kind=OperatorKind.ATTENTION,
                forward=Amounts(flops=attended, bytes_moved=zero, launches=one),
                input_grad=Amounts(flops=2.5 * attended, bytes_moved=zero, launches=one),
                weight_grad=Amounts(flops=zero, bytes_moved=zero, launches=zero),
                head_dim=self.key_width,
                rows=columns.microbatch_size * heads,
            ),
            scan("index target", (target, zero), (chosen, 2.0 * chosen), (1, 1)),
        )
        return tuple(replace(each, core=True) for each in found)

    def exchanges(self, columns: PlanColumns) -> MixerExchanges:
        """Keys of attention and of the indexer gathered along cp, and the target summed over tp.

        In the backward the gradients of these keys are scattered. Megatron-Core has no other way
        (`cp_comm_type` allgather), whatever the plan says.
        """
        along = 2.0 * columns.tokens * columns.cp * (columns.cp > 1)
        size = along * (self.key_width + self.index_dim)
        target = _SCORE_BYTES * columns.tokens * self.read(columns) * (columns.tp > 1)
        return MixerExchanges(
            before=(Exchange(kind=CollectiveKind.ALL_GATHER, group=Group.CP, size_bytes=size),),
            after=(Exchange(kind=CollectiveKind.ALL_REDUCE, group=Group.TP, size_bytes=target),),
            back_after=(
                Exchange(kind=CollectiveKind.REDUCE_SCATTER, group=Group.CP, size_bytes=size),
            ),
        )

    def outputs(self, columns: PlanColumns) -> list[Floats]:
        """Elements that projections make: queries, down to both ranks, and the indexer's."""
        t, s = columns.tokens, columns.shard_tokens
        queries = t * self.heads * self.latent.head_dim / columns.tp
        down = s * ((self.latent.query_rank or 0) + self.key_width)
        return [queries, down, t * (self.index_width + self.index_dim + self.index_heads)]

    def result(self, columns: PlanColumns) -> Floats:
        """Elements of attention's result, of the latent width."""
        return columns.tokens * self.heads * self.latent.kv_rank / columns.tp

    def kept(self, columns: PlanColumns, element: Floats) -> Floats:
        """Queries as projected and as attention takes them, keys, the result on both widths.

        The norms of both ranks keep what they take and make; the indexer its queries, keys and
        weights, and of each chosen key its number, its weight and attention's, in 4 bytes each.
        """
        latent, t = self.latent, columns.tokens
        heads = t * self.heads / columns.tp
        ranks = columns.shard_tokens * ((latent.query_rank or 0) + latent.kv_rank)
        indexer = self.index_width + self.index_dim + self.index_heads
        inner = heads * (latent.head_dim + self.key_width + latent.kv_rank)
        of_all = t * (self.key_width + indexer)
        out = element * heads * latent.value_dim
        chosen = 3 * _SCORE_BYTES * t * self.read(columns)
        return 2.0 * (inner + of_all) + out + (2.0 + element) * ranks + chosen

    def dropped(self, columns: PlanColumns) -> Floats:
        """Queries, as projected and as attention takes them (`mla_up_proj` of Megatron-Core)."""
        heads = columns.tokens * self.heads / columns.tp
        return 2.0 * heads * (self.latent.head_dim + self.key_width)

    @property
    def assumption(self) -> str:
        """What of its times is assumed.

        Forwards of whole blocks in serving take 0.93 to 1.1 of the time so assumed for 128 heads on
        H100, H200, B200 and GB200 (medians of 26 shapes each of DeepSeek-V3.2 and GLM-5 in bf16,
        ai-dynamo/aiconfigurator 095f58a51). They take as long for fewer heads than 64 on Hopper, or
        128 on Blackwell: twice the time assumed for 16 on Hopper, 2.7 times on Blackwell.
        """
        return (
            "no time of sparse attention in training is known: it is assumed to reach the rate of "
            "dense attention over the keys that it reads, its indexer the rate of products in bf16 "
            "and to be trained beside the model; forwards of serving take up to 2.7 times as long "
            "where a rank has few heads"
        )


def _by_head(name: str, columns: PlanColumns, heads: Floats, inner: int, outer: int) -> Operator:
    """A product of each head of a rank with a weight of its own, in bf16 in every precision."""
    rows, weights = columns.tokens * heads, heads * inner * outer
    flops, one = 2.0 * rows * inner * outer, np.ones_like(rows)
    there, back = 2.0 * rows * inner, 2.0 * rows * outer

    def amounts(moved: Floats) -> Amounts:
        return Amounts(flops=flops, bytes_moved=moved, launches=one)

    return Operator(
        name=name,
        kind=OperatorKind.HEAD,
        forward=amounts(there + back + 2.0 * weights),
        input_grad=amounts(there + back + 2.0 * weights),
        weight_grad=amounts(there + back + 8.0 * weights),
        sides=(columns.tokens, heads * inner, np.full_like(rows, float(outer))),
    )
