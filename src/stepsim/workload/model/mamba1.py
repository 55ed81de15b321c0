"""Mamba: a state of its own for every channel (Gu and Dao 2023, 2312.00752), as Jamba has it.

Everything about the block: parameters, operators, what it keeps, and how it is split. Shapes are
those of `JambaMambaMixer` and `MambaMixer` of transformers: one product makes the input and its
gate; a short convolution runs over the input; a product of that makes a time step of low rank, B
and C; the scan goes token by token over states of every channel; its gated result is multiplied
back. The scan has no products that tensor cores could run.
"""

from stepsim.base.arrays import Floats
from stepsim.base.axes import CollectiveKind, Group
from stepsim.base.structs import AtLeastOne, replace
from stepsim.workload.model.operators import memory, products
from stepsim.workload.model.parts import Exchange, Held, Mixing, Operators
from stepsim.workload.model.state_mixer import StateMixer
from stepsim.workload.plan import PlanTable


class Mamba1(StateMixer):
    """A Mamba mixer of `heads` channels, each with `state` numbers; `rank` is of the time step.

    With `normed` time step, B and C have norms (Jamba).
    """

    state: AtLeastOne
    rank: AtLeastOne
    convolution: AtLeastOne = 4
    convolution_bias: bool = True
    bias: bool = False
    normed: bool = False

    widths = 2  # the input and its gate
    split = {"mamba channels": "heads"}
    assumption = "be one kernel at the rate of memory"

    @property
    def joint(self) -> int:
        """Width of the time step's rank, B and C together."""
        return self.rank + 2 * self.state

    def parameters(self, hidden: int) -> int:
        """Products, convolution, time steps, and A and D of every channel."""
        inner = self.heads
        ends = 3 * hidden * inner + self.bias * (2 * inner + hidden)
        convolution = inner * (self.convolution + self.convolution_bias)
        step = inner * self.joint + inner * (self.rank + 1)
        return ends + convolution + step + inner * (self.state + 1) + self.joint * self.normed

    def _mix(self, columns: PlanTable) -> Operators:
        """Short convolution, time steps, scan and gate.

        The scan reads input, time step and gate and writes its result, in 2 bytes each, B and C
        beside them; backward it reads them and the result's gradient and writes three gradients.
        States stay on chip. A token of a channel takes 9 operations a number of its state, which no
        tensor core runs.
        """
        t, inner, size = columns.tokens, self.heads / columns.tp, self.result(columns)
        joint = t * self.joint
        return (
            memory("short convolution", 4.0 * size, 10.0 * size, "aten::conv1d"),
            *products(
                columns,
                ("time step, B and C", t, inner, self.joint),
                ("time steps", t, self.rank, inner),
            ),
            memory(
                "selective scan",
                8.0 * size + 2.0 * joint,
                16.0 * size + 6.0 * joint,
                "selective_scan",
            ),
        )

    def mixing(self, hidden: int, columns: PlanTable) -> Mixing:
        """As of others, and time step, B and C summed over tp."""
        before, mix, after = super().mixing(hidden, columns)
        size = 2.0 * columns.tokens * self.joint * (columns.tp > 1)
        summed = Exchange(CollectiveKind.ALL_REDUCE, Group.TP, size)
        forward, backward = (summed, *mix.forward), (summed, *mix.backward)
        return before, replace(mix, forward=forward, backward=backward), after

    def held(self, columns: PlanTable, element: Floats) -> Held:
        """Input and gate, the convolution's result, time steps, the scan's result, the last input.

        Time step's rank, B and C are kept as norms take them and make them; states are made again.
        Products make input and gate, then time step, B and C.
        """
        joint, result = columns.tokens * self.joint, self.result(columns)
        return Held(
            kept=(2.0 * 5 + element) * result + (2.0 + element) * joint,
            outputs=[columns.tokens * self.first / columns.tp, joint, result],
            result=result,
        )
