"""Lightning attention: linear attention with a fixed decay (Qin et al. 2024, 2401.04658).

Everything about the block: parameters, operators, what it keeps, and how it is split. Shapes are
those of `MiniMaxLightningAttention` of transformers, and of the linear layers of Ring 2: one
product makes queries, keys and values, another a gate; within a block of tokens scores are products
as in attention, across blocks a state passes on; the result is normed, gated and multiplied back.
"""

from stepsim.base.arrays import Floats
from stepsim.base.structs import AtLeastOne, replace
from stepsim.workload.model.device import ScanShape
from stepsim.workload.model.operators import ACTIVATION, NORM, memory
from stepsim.workload.model.parts import (
    Held,
    Operator,
    OperatorKind,
    Operators,
    operator_of,
)
from stepsim.workload.model.state_mixer import StateMixer
from stepsim.workload.plan import PlanTable

_FORWARD_KERNELS, _BACKWARD_KERNELS = 3, 4  # within blocks, states, across blocks


class LightningAttention(StateMixer):
    """Linear attention of `heads`, `head_dim` wide, over blocks of `block` tokens.

    With `normed_heads` queries and keys are normed, one weight for all heads; `bias` is that of
    queries, keys and values.
    """

    head_dim: AtLeastOne
    block: AtLeastOne = 256
    normed_heads: bool = False
    bias: bool = False

    widths = 4  # queries, keys, values and the gate
    split = {"linear heads": "heads"}
    assumption = "reach the rate of products in bf16, or of memory"

    def parameters(self, hidden: int) -> int:
        """Products for queries, keys, values, gate and the way back, and the norm of the result."""
        norms = self.inner + 2 * self.head_dim * self.normed_heads
        return 5 * hidden * self.inner + norms + 3 * self.inner * self.bias

    def _mix(self, columns: PlanTable) -> Operators:
        """Activation of what the product made, the scan, and the gated norm of the result."""
        size = self.result(columns)
        return (
            memory("activation of queries, keys and values", 12.0 * size, 18.0 * size, ACTIVATION),
            self._scan(columns),
            memory("gated norm", 10.0 * size, 16.0 * size, NORM),
        )

    def _scan(self, columns: PlanTable) -> Operator:
        """Blocks of c tokens, of H heads d wide.

        Forward, a head and token: 4cd for scores and their products within a block (the kernel
        masks, it skips nothing), 4dd for what the state takes up and answers. Backward 2.5 times
        the first as attention has it, and three products for each of the states' two. Bytes: each
        of queries, keys, values and results in 2, once forward and twice backward with their
        gradients; states (dd/c a token) in 4, written and read.
        """
        share = columns.tokens * self.heads / columns.tp
        c, d = self.block, self.head_dim
        inside, states = 4.0 * c * d, 4.0 * d * d
        return operator_of(
            "lightning attention",
            OperatorKind.SCAN,
            flops=(share * (inside + states), share * (2.5 * inside + 3.0 * states)),
            moved=(
                share * (8.0 * d + 8.0 * d * d / c),
                share * (20.0 * d + 16.0 * d * d / c),
            ),
            launches=(_FORWARD_KERNELS, _BACKWARD_KERNELS),
            scanned=ScanShape(
                heads=columns.microbatch_size * self.heads / columns.tp / columns.cp,
                chunk=c,
            ),
        )

    def held(self, columns: PlanTable, element: Floats) -> Held:
        """What the product made, queries, keys and values activated, result, last input."""
        kept = (2.0 * (4 + 3 + 1) + element) * self.result(columns)
        return replace(super().held(columns, element), kept=kept)
