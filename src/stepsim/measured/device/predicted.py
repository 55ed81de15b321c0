"""What a device's constants say of kernels, to hold against their measured times."""

from typing import assert_never

import numpy as np
from msgspec import Struct

from stepsim.base.structs import replace
from stepsim.base.units import PS_PER_S
from stepsim.measured.device.kernels import AttentionCall, MovingCall, ProductCall
from stepsim.measured.device.shapes import Shapes
from stepsim.workload.model.architecture import DenseMlp, GroupedAttention
from stepsim.workload.model.blocks import layer_blocks
from stepsim.workload.model.device import Device
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.held import layer_bytes
from stepsim.workload.model.plan import Precision
from stepsim.workload.model.pricing import WEIGHT_GRADIENT_FACTOR, Pricer
from stepsim.workload.rows import Phase

_ONE = np.ones(1)


class PredictedLayer(Struct, frozen=True, kw_only=True):
    """Seconds of a layer's passes, and the bytes that its backward needs."""

    forward_s: float
    backward_s: float
    kept_bytes: float


def predicted_s(call: ProductCall | AttentionCall | MovingCall, device: Device) -> float:
    """Seconds of a kernel alone, at the rates of short runs.

    Raises PlanError for a precision that the device has no rate for.
    """
    match call:
        case ProductCall():
            slower = WEIGHT_GRADIENT_FACTOR if call.phase is Phase.WEIGHT_GRAD else 1.0
            rate = device.rate_of(call.precision)
            return slower * float(rate.seconds(call.flops * _ONE, _ONE)[0])
        case AttentionCall():
            rates = next(iter(device.attention.values()))
            reached = rates.flops_per_s(
                call.sequence * _ONE, call.rows * _ONE, call.head_dim, backward=call.backward
            )
            return call.flops / float(reached[0])
        case MovingCall():
            floor = device.kernel_floor_ps / PS_PER_S
            return max(call.bytes_moved / device.bytes_per_s, floor)
        case _:
            assert_never(call)


def predicted_layer(shapes: Shapes, device: Device, framework: Framework) -> PredictedLayer:
    """The layer that `Shapes.layer` chooses, whole on one device, at the rates of short runs."""
    columns = shapes.columns(1)
    architecture = shapes.architecture
    layer = next(
        each
        for each in architecture.layers
        if isinstance(each.attention, GroupedAttention) and isinstance(each.mlp, DenseMlp)
    )
    pricer = Pricer(
        device=replace(device, sustained=1.0),
        framework=framework,
        columns=columns,
        precision=Precision.BF16,
    )
    blocks = layer_blocks(layer, architecture, columns)
    price = pricer.price([each for block in blocks for each in block.operators])
    kept = layer_bytes(layer, architecture, columns, framework)
    return PredictedLayer(
        forward_s=float(price.forward[0]),
        backward_s=float(price.backward[0]),
        kept_bytes=float(kept[0]),
    )
