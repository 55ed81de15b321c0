"""A mixer of channels between two products, as Mamba-2, the gated delta net and convolutions are.

It carries a state or the last few tokens along the sequence. One product makes all that the mixing
takes, and one product takes its result back. Ranks that share a sequence turn its tokens against
heads, so that no state passes between them (`tensor_a2a_cp2hp` of Megatron-Core).
"""

from typing import ClassVar

from stepsim.base.arrays import Floats
from stepsim.base.structs import AtLeastOne
from stepsim.workload.model.architecture import Mixer
from stepsim.workload.model.context import turned_against_heads
from stepsim.workload.model.operators import products
from stepsim.workload.model.parts import Block, Held, Mixing, Operators
from stepsim.workload.plan import PlanTable


class StateMixer(Mixer):
    """A mixer whose heads, or channels, are apart from each other, between two products.

    A head is `head_dim` wide, a channel 1. Where the first product makes nothing but inputs as wide
    as the result it makes so many `widths`.
    """

    widths: ClassVar[int]
    head_dim: AtLeastOne = 1

    @property
    def turned_heads(self) -> int:
        """All heads."""
        return self.heads

    @property
    def first(self) -> int:
        """Width of what the first product makes."""
        return self.widths * self.inner

    @property
    def inner(self) -> int:
        """Width of the result."""
        return self.heads * self.head_dim

    def mixing(self, hidden: int, columns: PlanTable) -> Mixing:
        """Both products, and between them the layouts of heads and what mixes tokens.

        Ranks turn tokens against heads before the mixing, and back after it.
        """
        out = "mixer out", columns.tokens, self.inner / columns.tp, hidden
        layouts, there, home = turned_against_heads(*self._turned(columns), columns)
        return (
            Block("mixer in", self._before(hidden, columns), (there,)),
            Block("mixer", (layouts, *self._mix(columns)), (home,), (there,)),
            Block("mixer out", tuple(products(columns, out)), backward=(home,)),
        )

    def _before(self, hidden: float, columns: PlanTable) -> Operators:
        """What makes all that the mixing takes: a product."""
        made = "mixer in", columns.tokens, hidden, self.first / columns.tp
        return tuple(products(columns, made))

    def _mix(self, columns: PlanTable) -> Operators:
        """What runs between the products, of a rank's heads."""
        raise NotImplementedError

    def _turned(self, columns: PlanTable) -> tuple[Floats, Floats]:
        """Elements of a token that change ranks: what the first product makes, and the result."""
        return self.first / columns.tp, self.inner / columns.tp

    def result(self, columns: PlanTable) -> Floats:
        """Elements of the result."""
        return columns.tokens * self.inner / columns.tp

    def held(self, columns: PlanTable, element: Floats) -> Held:
        """What the first product made, the mixing's result, and the input of the last product."""
        made, result = columns.tokens * self.first / columns.tp, self.result(columns)
        return Held(kept=2.0 * made + (2.0 + element) * result, outputs=[made], result=result)
