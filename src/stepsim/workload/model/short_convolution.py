"""Gated short convolution of LFM2: it mixes a few neighbouring tokens in place of attention.

Everything about the block: parameters, operators, what it keeps, and how it is split. Shapes are
those of `Lfm2ShortConv` of transformers: one product makes two gates and the input; the gated input
goes through a convolution over the last tokens of its channel; the second gate multiplies that, and
a product leads back. Channels are split over tp like heads.
"""

from stepsim.base.structs import AtLeastOne
from stepsim.workload.model.operators import memory
from stepsim.workload.model.parts import Operators
from stepsim.workload.model.state_mixer import StateMixer
from stepsim.workload.plan import PlanTable


class ShortConvolution(StateMixer):
    """A gated convolution over `length` tokens; `heads` are its channels, as many as hidden."""

    length: AtLeastOne = 3
    bias: bool = False

    widths = 3  # two gates and the input
    split = {"convolution channels": "heads"}
    assumption = "be one kernel at the rate of memory"

    def parameters(self, hidden: int) -> int:
        """Both products, the convolution, and their biases."""
        channels = self.heads
        biases = self.bias * (4 * channels + hidden)
        return 3 * hidden * channels + channels * self.length + channels * hidden + biases

    def _mix(self, columns: PlanTable) -> Operators:
        """The gates with the convolution between them as one kernel.

        It reads three inputs and writes one result: 8 bytes a channel. Backward it reads these
        three and the result's gradient, and writes three gradients: 14 bytes.
        """
        size = self.result(columns)
        return (memory("gated convolution", 8.0 * size, 14.0 * size),)
