"""Gated short convolution of LFM2: it mixes a few neighbouring tokens in place of attention.

Everything about the block: parameters, operators, what it keeps, and how it is split. Shapes are
those of `Lfm2ShortConv` of transformers: one product makes two gates and the input; the gated input
goes through a convolution over the last tokens of its channel; the second gate multiplies that, and
a product leads back. Channels are split over tp like heads.
"""

from collections.abc import Mapping
from typing import ClassVar

from stepsim.base.arrays import Floats
from stepsim.base.errors import WorkloadError, bad_value
from stepsim.workload.model.architecture import Mixer
from stepsim.workload.model.context import layouts_of_heads, turned_against_heads
from stepsim.workload.model.operators import memory, products
from stepsim.workload.model.parts import MixerExchanges, MixerOperators
from stepsim.workload.plan import PlanTable


class ShortConvolution(Mixer):
    """A gated convolution over `length` tokens; `heads` are its channels, as many as hidden."""

    length: int = 3
    bias: bool = False

    assumption: ClassVar[str] = (
        "no time of a gated short convolution in training is known: it is assumed to be one "
        "kernel at the rate of memory"
    )

    def __post_init__(self) -> None:
        if min(self.heads, self.length) < 1:
            expected = "a whole number of at least 1"
            raise WorkloadError(bad_value("short convolution", "length", self.length, expected))

    def parameters(self, hidden: int) -> int:
        """Both products, the convolution, and their biases."""
        channels = self.heads
        biases = self.bias * (4 * channels + hidden)
        return 3 * hidden * channels + channels * self.length + channels * hidden + biases

    def shared_out(self) -> Mapping[str, int]:
        """Channels: a rank has whole ones."""
        return {"convolution channels": self.heads}

    def operators(self, hidden: int, columns: PlanTable) -> MixerOperators:
        """Products, and the gates with the convolution between them as one kernel.

        It reads three inputs and writes one result: 8 bytes a channel. Backward it reads these
        three and the result's gradient, and writes three gradients: 14 bytes.
        """
        t, h = columns.tokens, float(hidden)
        channels = self.heads / columns.tp
        size = t * channels
        return MixerOperators(
            before=tuple(products(columns, ("mixer in", t, h, 3.0 * channels))),
            mix=(
                layouts_of_heads(*self._turned(columns), columns),
                memory("gated convolution", 8.0 * size, 14.0 * size),
            ),
            after=tuple(products(columns, ("mixer out", t, channels, h))),
        )

    def exchanges(self, columns: PlanTable) -> MixerExchanges:
        """Tokens turned against channels before the mixing, and back after it."""
        return turned_against_heads(*self._turned(columns), columns)

    def _turned(self, columns: PlanTable) -> tuple[Floats, Floats]:
        return 3.0 * self.heads / columns.tp, self.heads / columns.tp

    def outputs(self, columns: PlanTable) -> list[Floats]:
        """Elements that the first product makes."""
        return [3.0 * columns.tokens * self.heads / columns.tp]

    def result(self, columns: PlanTable) -> Floats:
        """Elements of the gated result."""
        return columns.tokens * self.heads / columns.tp

    def kept(self, columns: PlanTable, element: Floats) -> Floats:
        """Both gates and the input, the convolution's result, and the last product's input."""
        return 2.0 * self.outputs(columns)[0] + (2.0 + element) * self.result(columns)
