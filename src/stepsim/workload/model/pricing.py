"""How long operators take on a device under a framework: seconds, arrays over plans."""

from collections.abc import Iterable

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.structs import Noun
from stepsim.base.units import PS_PER_S
from stepsim.workload.model.choices import Precision
from stepsim.workload.model.device import AttentionRate, Device
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.host import in_one_graph
from stepsim.workload.model.parts import Amounts, Operator, OperatorKind
from stepsim.workload.plan import PlanTable

WEIGHT_GRADIENT_FACTOR = 1.05  # fp32 accumulation costs 5 %: SimuMax's NT products on B200
_ALIGNED = 8  # elements: tensor cores take rows of 16 bytes


class PhaseSeconds(Noun):
    """Time of operators by phase, arrays over plans.

    `again` is the forward of those that the backward runs again, where parts of a layer are
    recomputed. Frozen weights have no gradients.
    """

    forward: Floats
    input_grad: Floats
    weight_grad: Floats
    again: Floats

    @property
    def backward(self) -> Floats:
        """Input and weight gradients."""
        return self.input_grad + self.weight_grad


class Pricer(Noun):
    """Prices operators of some plans, all of one precision."""

    device: Device
    framework: Framework
    columns: PlanTable

    @property
    def precision(self) -> Precision:
        """The number format of products, which all plans share."""
        (precision,) = {plan.precision for plan in self.columns.plans}
        return precision

    def price_one(self, operator: Operator) -> PhaseSeconds:
        """Time of an operator."""
        slower = self.device.slower.get(operator.called_as, 1.0)
        first, input_grad, weight_grad = (
            slower * self._seconds(operator, amounts, phase)
            for phase, amounts in enumerate(operator.phases)
        )
        return PhaseSeconds(
            forward=first,
            input_grad=input_grad,
            weight_grad=weight_grad * (1 - self.columns.adapters),
            again=self._recomputed(operator) * first,
        )

    def together(self, prices: Iterable[PhaseSeconds]) -> PhaseSeconds:
        """The sum of some times, phase by phase."""
        forward = input_grad = weight_grad = again = np.zeros(len(self.columns))
        for price in prices:
            forward = forward + price.forward
            input_grad = input_grad + price.input_grad
            weight_grad = weight_grad + price.weight_grad
            again = again + price.again
        return PhaseSeconds(
            forward=forward, input_grad=input_grad, weight_grad=weight_grad, again=again
        )

    def _recomputed(self, operator: Operator) -> Floats:
        """1 where the backward runs an operator's forward again as one of chosen parts."""
        columns = self.columns
        chosen = columns.drops(operator.module) if operator.module else 0.0 * columns.tp
        return np.maximum(chosen, columns.recompute_selective * operator.core)

    def bytes_seconds(self, moved: Floats) -> Floats:
        """Time of memory-bound kernels that move so many bytes."""
        return moved / self.device.bytes_per_s * self.framework.memory_factor

    @property
    def _filled(self) -> float:
        """Share of the device's SMs that products run on, where the framework leaves some free."""
        sms = self.device.processors
        return 1.0 - self.framework.free_sms / sms if sms else 1.0

    def _seconds(self, operator: Operator, amounts: Amounts, phase: int) -> Floats:
        match operator.kind:
            case OperatorKind.MEMORY:
                return self._memory(operator, amounts) * self._beside(operator)
            case OperatorKind.ATTENTION:
                return self._attention(operator, amounts, backward=phase > 0)
            case OperatorKind.SCORES if operator.head_dim % _ALIGNED:
                return amounts.flops / self.device.vector_rate
            case OperatorKind.MIXED | OperatorKind.SCAN:
                return self._mixer(operator, amounts, backward=phase > 0)
            case OperatorKind.GROUPED:
                return self._groups(operator, amounts, phase)
            case _:
                return self._products(operator, amounts, phase)

    def _memory(self, operator: Operator, amounts: Amounts) -> Floats:
        """Bytes, or operations of vectors where they take longer; nothing if fused away."""
        if operator.apart and self.framework.fuses_experts:
            return np.zeros(len(self.columns))
        floor = self.device.kernel_floor_ps / PS_PER_S * amounts.launches
        moved = np.maximum(self.bytes_seconds(amounts.bytes_moved), floor)
        vector = self.device.vector_rate
        return np.maximum(moved, amounts.flops / vector) if vector else moved

    def _beside(self, operator: Operator) -> Floats | float:
        """0 where a kernel that moves bytes is part of products of experts, 1 where it is not.

        Those that have it in them need no sizes that the host knows: steps in one graph run them.
        """
        if not (operator.inside and self.framework.fuses_grouped):
            return 1.0
        return 1.0 - in_one_graph(self.columns, self.framework)

    def _products(self, operator: Operator, amounts: Amounts, phase: int) -> Floats:
        """Products of no groups; heads and scores run in bf16 whatever the precision."""
        moved = amounts.bytes_moved / self.device.bytes_per_s
        head = operator.kind in (OperatorKind.HEAD, OperatorKind.SCORES) and self.precision.casts
        product = self._product(amounts, self.device.usual_precision if head else self.precision)
        slower = WEIGHT_GRADIENT_FACTOR if phase == 2 else 1.0
        added = self._added(operator) if phase == 2 else 0.0
        return np.maximum(slower * product, moved) + added

    def _added(self, operator: Operator) -> Floats | float:
        """Adding a weight gradient to the sum so far, where no product does it by itself.

        The gradient is read in 2 bytes, the sum read and written in its own.
        """
        if self.framework.fuses_gradient_sums or operator.sides is None:
            return 0.0
        _, inner, outer = operator.sides
        each = 2.0 + 2.0 * self.framework.gradient_bytes
        return self.bytes_seconds(each * inner * outer)

    def _product(self, amounts: Amounts, precision: Precision) -> Floats:
        rate = self.device.rate_of(precision)
        return rate.seconds(amounts.flops, amounts.launches, self.device.sustained * self._filled)

    def _groups(self, operator: Operator, amounts: Amounts, phase: int) -> Floats:
        """Products of experts, tile by tile: one kernel, or launched one by one.

        One by one they reach the rate of any product, and each costs a start. Weight gradients are
        read and written in the framework's bytes; amounts hold them in 4.
        """
        assert operator.groups is not None
        device, shape = self.device, operator.groups[phase]
        moved = amounts.bytes_moved
        if phase == 2:
            weights = shape.count * shape.rows * shape.columns
            moved = moved - 2.0 * (4 - self.framework.gradient_bytes) * weights
        if self.framework.groups_experts:
            whole = device.grouped_seconds(str(self.precision), shape, shape.tiles(), moved)
            return whole / self._filled
        rate = device.rate_of(self.precision).rate * device.sustained * self._filled
        products = shape.seconds(shape.tiles(), rate, device.tile_processors)
        starts = device.group_start_ps / PS_PER_S * shape.count
        return np.hypot(products, moved / device.bytes_per_s) + starts

    def _mixer(self, operator: Operator, amounts: Amounts, *, backward: bool) -> Floats:
        """Kernels of a mixer: a scan of chunks if they pass a state on, else products or bytes."""
        if operator.scanned is None:
            moved = self.bytes_seconds(amounts.bytes_moved)
            return np.maximum(self._product(amounts, self.device.usual_precision), moved)
        return self.device.scan_seconds(
            operator.scanned, amounts.flops, self.columns.sequence, backward=backward
        )

    def _attention(self, operator: Operator, amounts: Amounts, *, backward: bool) -> Floats:
        rate = self._attention_rate()
        assert operator.rows is not None
        length = self.columns.attended if operator.length is None else operator.length
        reached = rate.flops_per_s(
            length, operator.rows, operator.head_dim, backward=backward, keys=operator.keys
        )
        if operator.sharing is None:
            return amounts.flops / reached
        return rate.computed(operator.sharing, operator.head_dim) * amounts.flops / reached

    def _attention_rate(self) -> AttentionRate:
        """The kernel family that the framework uses on the device, else the device's first."""
        family = self.framework.attention_on(self.device.name)
        return self.device.attention.get(family) or next(iter(self.device.attention.values()))
