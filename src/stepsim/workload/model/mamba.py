"""Mamba-2: a layer that keeps a state instead of keys and values (Dao and Gu 2024, 2405.21060).

Everything about the block: parameters, operators, what it keeps, and how it is split. Shapes are
those of `MambaMixer` of Megatron-Core and `NemotronHMamba2Mixer` of transformers: one product makes
the gate z, the input x, B and C of each group, and a time step of each head; a short convolution
runs over x, B and C; the scan goes through chunks of the sequence; its result is gated, normed and
multiplied back. Kernels and what they move are those of mamba_ssm (`ssd_combined`): chunk states,
their passing on, products of C and B, the chunks' outputs.
"""

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.structs import AtLeastOne
from stepsim.workload.model.choices import GraphScope
from stepsim.workload.model.device import ScanShape
from stepsim.workload.model.operators import NORM, convolution, memory
from stepsim.workload.model.parts import Operator, OperatorKind, Operators, operator_of
from stepsim.workload.model.state_mixer import StateMixer
from stepsim.workload.plan import PlanTable

_FORWARD_KERNELS, _BACKWARD_KERNELS = 5, 12  # of `_mamba_chunk_scan_combined_fwd` and `_bwd`


CHANNEL_OPERATIONS = 46.0
"""Operations of a channel that explain its kernel in CUDA (`causal_conv1d`) on B200."""


class Mamba2(StateMixer):
    """A Mamba-2 mixer: `heads` of `head_dim`, each with `state` numbers per element.

    Heads of one of `groups` share B and C. `convolution` is the length of the short convolution,
    `chunk` the tokens of a chunk of the scan. The gated result is `normed` or not. The scan keeps
    no states: the backward makes them again (`ssd_combined.py`).
    """

    head_dim: AtLeastOne
    groups: AtLeastOne
    state: AtLeastOne
    convolution: AtLeastOne = 4
    chunk: AtLeastOne = 128
    convolution_bias: bool = True
    bias: bool = False
    normed: bool = True

    scope = GraphScope.MAMBA
    divisors = {"groups": "heads"}
    split = {"mamba heads": "heads", "mamba groups": "groups"}
    assumption = (
        "reach the rate of chunked delta rules in its products, and to pass its state once "
        "forward and twice backward"
    )

    @property
    def joint(self) -> int:
        """Width of B and C together."""
        return 2 * self.groups * self.state

    @property
    def first(self) -> int:
        """Width of what the first product makes: z, x, B, C and a time step of each head."""
        return 2 * self.inner + self.joint + self.heads

    def parameters(self, hidden: int) -> int:
        """Both products, the convolution, the norm, and A, D and a bias of each head."""
        channels = self.inner + self.joint
        convolution = channels * (self.convolution + self.convolution_bias)
        biases = self.bias * (self.first + hidden)
        products_of_it = hidden * (self.first + self.inner)
        norm = self.inner * self.normed
        return products_of_it + convolution + 3 * self.heads + norm + biases

    def _mix(self, columns: PlanTable) -> Operators:
        """Short convolution, scan and gated norm of a rank.

        The backward runs the convolution again (`mamba_split_conv1d_scan_combined`).
        """
        t, tp = columns.tokens, columns.tp
        channels = t * (self.inner + self.joint) / tp
        result = t * self.inner / tp
        return (
            convolution(channels, backward=10.0, each=CHANNEL_OPERATIONS),
            self._scan(columns),
            memory("gated norm", 6.0 * result, 10.0 * result, NORM),
        )

    def _scan(self, columns: PlanTable) -> Operator:
        """The scan of chunks of q tokens, H heads p wide, G groups and a state of n.

        Forward, a token: 2qnG for C and B, 2qpH for their product with x, 2npH for states of
        chunks and as many for what they add. Backward twice that, with 2qnG + 2npH made again.
        Bytes: x, B, C and results in 2, states of chunks (npH/q a token) in 4 and once they are
        passed on in 2, products of C and B (qG a token) in 4, each as often as a kernel reads or
        writes it: 3, 4, 12/4 and 2 times forward, 9, 13, 34/4 and 5 times backward.
        """
        share = columns.tokens / columns.tp
        q, n = self.chunk, self.state
        groups, heads = q * n * self.groups, n * self.inner
        forward = 2.0 * groups + 2.0 * q * self.inner + 4.0 * heads
        backward = 2.0 * forward + 2.0 * groups + 2.0 * heads
        inner, pair, states = self.inner, n * self.groups, heads / q
        scores = q * self.groups
        return operator_of(
            "selective scan",
            OperatorKind.SCAN,
            flops=(share * forward, share * backward),
            moved=(
                share * (6.0 * inner + 8.0 * pair + 12.0 * states + 8.0 * scores),
                share * (18.0 * inner + 26.0 * pair + 34.0 * states + 20.0 * scores),
            ),
            launches=(_FORWARD_KERNELS, _BACKWARD_KERNELS),
            scanned=ScanShape(
                heads=columns.microbatch_size * self.heads / columns.tp / columns.cp,
                chunk=q,
            ),
        )

    def _turned(self, columns: PlanTable) -> tuple[Floats, Floats]:
        """What the first product makes, B and C once for each rank that needs them; the result.

        Megatron-Core copies groups where there are fewer than ranks (`mamba_context_parallel.py`).
        """
        copies = np.maximum(columns.cp * columns.tp / self.groups, 1.0)
        first = 2 * self.inner + self.joint * copies + self.heads
        return first / columns.tp, self.inner / columns.tp
