"""Gated delta net: linear attention whose state forgets and corrects (Yang et al., 2412.06464).

Everything about the block: parameters, operators, what it keeps, and how it is split. Shapes are
those of `Qwen3NextGatedDeltaNet` of transformers and `gated_delta_net.py` of Megatron-Core: one
product makes queries, keys, values, a gate of the result, and two numbers of each head; a short
convolution runs over queries, keys and values; both are normed and copied to as many heads as there
are values; the rule goes through chunks of the sequence; its result is normed, gated and multiplied
back. Kernels of the rule are those of flash-linear-attention (`chunk_gated_delta_rule`).
"""

from stepsim.base.arrays import Floats
from stepsim.base.structs import AtLeastOne, replace
from stepsim.workload.model.choices import RecomputeModule
from stepsim.workload.model.device import ScanShape
from stepsim.workload.model.operators import (
    NORM,
    convolution,
    memory,
)
from stepsim.workload.model.parts import Held, Operator, OperatorKind, Operators, operator_of
from stepsim.workload.model.state_mixer import StateMixer
from stepsim.workload.plan import PlanTable

_CHUNK = 64.0  # tokens: `chunk_gated_delta_rule` has no other
_FORWARD_KERNELS, _BACKWARD_KERNELS = 6, 8


TRITON_CHANNEL_OPERATIONS = 54.0
"""Operations of a channel that explain its kernel in Triton on B200."""


def delta_rule(
    name: str, columns: PlanTable, heads: int, keys: int, values: int, *, gates: float = 0.0
) -> Operator:
    """The rule over chunks of c tokens, of `heads` with keys d and values v wide.

    Forward, a head and token: 2cd for keys with keys, 2cd and 2cv to solve for the corrected keys
    and values, 6dv for what the state says, takes up and answers, 2cd and 2cv within the chunk.
    Backward twice that, with corrections and states made again: 2cd + 2cv + 4dv. Bytes: each kernel
    reads and writes in 2 what it takes and makes: keys 7 times forward and 21 backward, values 6
    and 15, states (dv/c a token) 2 and 4; products of keys with keys (c a token) in 4 written and
    read, and solved in 2. `gates` of a head that say how much is forgotten are read by three
    kernels in 4, and thrice that backward.
    """
    share = columns.tokens * heads / columns.tp
    c, d, v = _CHUNK, keys, values
    forward = 6.0 * c * d + 4.0 * c * v + 6.0 * d * v
    backward = 2.0 * forward + 2.0 * c * (d + v) + 4.0 * d * v
    states = d * v / c
    return operator_of(
        name,
        OperatorKind.SCAN,
        flops=(share * forward, share * backward),
        moved=(
            share * (14.0 * d + 12.0 * v + 4.0 * states + 12.0 * c + 12.0 * gates),
            share * (42.0 * d + 30.0 * v + 8.0 * states + 4.0 * c + 36.0 * gates),
        ),
        launches=(_FORWARD_KERNELS, _BACKWARD_KERNELS),
        scanned=ScanShape(
            heads=columns.microbatch_size * heads / columns.tp / columns.cp,
            chunk=c,
        ),
    )


class GatedDeltaNet(StateMixer):
    """A gated delta net of `heads` values `value_dim` wide, and fewer or as many keys.

    `convolution` is the length of the short convolution.
    """

    key_heads: AtLeastOne
    key_dim: AtLeastOne
    value_dim: AtLeastOne
    convolution: AtLeastOne = 4

    divisors = {"key_heads": "heads"}
    split = {
        "linear value heads": "heads",
        "linear key heads": "key_heads",
    }
    assumption = (
        "run forward as the same kernels in serving, to reach their rate in its operations "
        "backward, and to pass its state twice there"
    )

    @property
    def keys(self) -> int:
        """Width of all keys, and of all queries."""
        return self.key_heads * self.key_dim

    @property
    def inner(self) -> int:
        """Width of all values, of the gate and of the result."""
        return self.heads * self.value_dim

    @property
    def first(self) -> int:
        """Width of what the first product makes: q, k, v, gate, and two numbers of each head."""
        return 2 * self.keys + 2 * self.inner + 2 * self.heads

    def parameters(self, hidden: int) -> int:
        """Both products, the convolution, the norm of a head, and A and a bias of each head."""
        channels = 2 * self.keys + self.inner
        both = hidden * (self.first + self.inner)
        return both + channels * self.convolution + 2 * self.heads + self.value_dim

    @property
    def turned_heads(self) -> int:
        """Heads of keys: those of values are as many or more."""
        return self.key_heads

    def _mix(self, columns: PlanTable) -> Operators:
        """Layouts, short convolution, norms of queries and keys, rule and gated norm of a rank.

        Layouts: queries, keys and values for the convolution and apart again, the gate, and copies
        of queries and keys for the heads of values; read and written once, backward as forward.
        """
        t, tp = columns.tokens, columns.tp
        channels = t * (2 * self.keys + self.inner) / tp
        pairs, result = t * 2 * self.keys / tp, t * self.inner / tp
        copies = t * 2 * self.heads * self.key_dim / tp
        repeated = 2.0 * (pairs + copies) * (self.heads > self.key_heads)
        layouts = 8.0 * channels + 4.0 * result + repeated
        return (
            memory("layouts of queries, keys and values", layouts, layouts),
            convolution(channels, backward=6.0, each=TRITON_CHANNEL_OPERATIONS),
            memory("norms of queries and keys", 4.0 * pairs, 6.0 * pairs, NORM),
            delta_rule("gated delta rule", columns, self.heads, self.key_dim, self.value_dim),
            memory(
                "gated norm", 10.0 * result, 16.0 * result, NORM, module=RecomputeModule.DELTA_NORM
            ),
        )

    def held(self, columns: PlanTable, element: Floats) -> Held:
        """What convolution, norms, rule, gate and the last product take; the states are not.

        In 2 bytes: the convolution's input, normed queries and keys, their copies for the heads of
        values, values, the result and its gate. A head also keeps its chunk's solved products in 2
        bytes and two numbers in 4.
        """
        channels, pairs = 2 * self.keys + self.inner, 2 * self.keys
        copies = 2 * self.heads * self.key_dim * (self.heads > self.key_heads)
        numbers = self.heads * (2.0 * _CHUNK + 2 * 4.0)
        inner = 2.0 * (channels + pairs + copies + 3 * self.inner) + numbers
        kept = columns.tokens / columns.tp * (inner + element * self.inner)
        return replace(super().held(columns, element), kept=kept)
