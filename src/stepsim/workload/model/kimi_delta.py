"""Kimi delta attention: a delta rule that forgets by channel (Kimi Linear, 2510.26692).

Everything about the block: parameters, operators, what it keeps, and how it is split. Shapes are
those of `KimiLinearDeltaAttention` and `BailingHybridDeltaAttention` of transformers: products make
queries, keys and values, which go through a short convolution, a number of each head, and two
gates, of what is forgotten and of the result; each gate is one product, or two through a low rank.
The rule is that of the gated delta net with a number of every channel where that has one of a head.
"""

from stepsim.base.arrays import Floats
from stepsim.base.structs import AtLeastOne
from stepsim.workload.model.delta_net import delta_rule
from stepsim.workload.model.operators import NORM, memory, products
from stepsim.workload.model.parts import Held, Operators
from stepsim.workload.model.state_mixer import StateMixer
from stepsim.workload.plan import PlanTable

_SOLVED = 64.0  # numbers of a chunk's solved product that a token keeps


class KimiDeltaAttention(StateMixer):
    """Kimi delta attention of `heads`, `head_dim` wide, with gates of a low `gate_rank` (or full).

    `convolution` is the length of the short convolution.
    """

    head_dim: AtLeastOne
    convolution: AtLeastOne = 4
    gate_rank: int | None = None

    split = {"linear heads": "heads"}
    assumption = "reach the rate of products in bf16, or of memory"

    @property
    def first(self) -> int:
        """Width of what the mixing takes: q, k, v, a number of each head, and both gates."""
        return 5 * self.inner + self.heads

    def parameters(self, hidden: int) -> int:
        """Products, convolution, both gates, forgetting of channels and heads, and a norm."""
        rank, inner = self.gate_rank, self.inner
        gates = 2 * (hidden * inner if rank is None else rank * (hidden + inner))
        products_of_it = hidden * (4 * inner + self.heads) + gates
        convolution = 3 * self.inner * self.convolution
        return products_of_it + convolution + self.inner + self.heads + self.head_dim

    def _before(self, hidden: float, columns: PlanTable) -> Operators:
        """The product of queries, keys and values, and those of both gates."""
        t, width, rank = columns.tokens, self.inner / columns.tp, self.gate_rank
        made = "mixer in", t, hidden, 3.0 * width + self.heads / columns.tp
        if rank is None:
            return tuple(products(columns, made, ("gates", t, hidden, 2.0 * width)))
        down, up = ("gates down", t, hidden, 2.0 * rank), ("gates up", t, rank, 2 * width)
        return tuple(products(columns, made, down, up))

    def _mix(self, columns: PlanTable) -> Operators:
        """Convolution, norms of queries and keys, forgetting, rule and gated norm."""
        size, dim = self.result(columns), self.head_dim
        return (
            memory("short convolution", 12.0 * size, 18.0 * size, "aten::conv1d"),
            memory("norms of queries and keys", 8.0 * size, 12.0 * size, NORM),
            memory("forgetting of channels", 6.0 * size, 10.0 * size),
            delta_rule("kimi delta rule", columns, self.heads, dim, dim, gates=dim),
            memory("gated norm", 10.0 * size, 16.0 * size, NORM),
        )

    def held(self, columns: PlanTable, element: Floats) -> Held:
        """What convolution, norms, gates, rule and the last product take; the states are not.

        In 2 bytes: the convolution's input, normed queries and keys, values, both gates and the
        result; the forgetting of channels in 4; a head's solved products in 2 and a number in 4.
        Products make queries, keys, values and a number of each head, then both gates.
        """
        t, tp = columns.tokens, columns.tp
        size = self.result(columns)
        down = 2.0 * t * 2 * (self.gate_rank or 0)
        heads = t * self.heads / tp * (2.0 * _SOLVED + 4.0)
        return Held(
            kept=(2.0 * (3 + 3 + 2 + 1) + 4.0 + element) * size + down + heads,
            outputs=[t * (3.0 * self.inner + self.heads) / tp, 2.0 * t * self.inner / tp],
            result=size,
        )
