"""Floating-point operations of a step, counted over its operators."""

from collections import Counter
from collections.abc import Iterable

from stepsim.workload.model.architecture import Layer
from stepsim.workload.model.blocks import head_blocks, layer_blocks
from stepsim.workload.model.columns import PlanColumns
from stepsim.workload.model.context.parts import Block
from stepsim.workload.model.device import Device
from stepsim.workload.model.effort import Effort, error_band
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.model import Model
from stepsim.workload.model.operators import OperatorKind
from stepsim.workload.model.plan import ModelPlan, Recompute


def step_effort(
    model: Model,
    plan: ModelPlan,
    columns: PlanColumns,
    recomputed: Iterable[bool],
    device: Device,
    framework: Framework,
) -> Effort:
    """What a step of all ranks is worth; `recomputed` says which layers run forward again."""
    architecture = model.architecture
    again = Counter(zip(architecture.layers, recomputed, strict=True))
    again += Counter((layer, False) for layer in architecture.prediction_layers)
    forward = hardware = 0.0
    for (layer, twice), count in again.items():
        once, both = _layer_flops(layer, model, columns, plan)
        forward += once * count
        hardware += (both + (once if twice else 0.0)) * count
    heads = 1 + len(architecture.prediction_layers)
    once, both = _flops(head_blocks(architecture, columns, fused_loss=framework.fused_loss), plan)
    copies = plan.stage_ranks * plan.microbatches
    return Effort(
        parameters=architecture.parameters(),
        tokens=plan.tokens,
        model_flops=3 * (forward + once * heads) * copies,
        hardware_flops=(hardware + both * heads) * copies,
        peak_flops=device.rate_of(plan.precision).peak,
        device=device.name,
        framework=framework.name,
        price_per_hour=device.price_per_hour,
        watts=device.watts,
        band=error_band(framework, device, plan, sparse=architecture.is_sparse),
    )


def _layer_flops(
    layer: Layer, model: Model, columns: PlanColumns, plan: ModelPlan
) -> tuple[float, float]:
    return _flops(layer_blocks(layer, model.architecture, columns), plan)


def _flops(blocks: Iterable[Block], plan: ModelPlan) -> tuple[float, float]:
    """Floating-point operations of a rank's microbatch: of the forward, and of both passes."""
    forward = backward = 0.0
    for operator in (each for block in blocks for each in block.operators):
        if operator.kind is not OperatorKind.MEMORY:
            once = float(operator.forward.flops.item())
            if plan.recompute is Recompute.SELECTIVE and operator.core:
                backward += once
            forward += once
            backward += float(operator.input_grad.flops.item())
            backward += float(operator.weight_grad.flops.item())
    return forward, forward + backward
