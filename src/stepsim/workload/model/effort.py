"""What a step of a model is: tokens and floating-point operations, and what they run on.

Operations are counted over its operators.
"""

from collections import Counter
from collections.abc import Iterable

from stepsim.base.structs import Noun, replace
from stepsim.workload.model.blocks import head_blocks, layer_blocks
from stepsim.workload.model.columns import PlanColumns
from stepsim.workload.model.context import Block
from stepsim.workload.model.device import Device
from stepsim.workload.model.framework import ErrorBand, Framework
from stepsim.workload.model.model import Model
from stepsim.workload.model.operators import OperatorKind
from stepsim.workload.model.plan import ModelPlan, Recompute
from stepsim.workload.model.tower import tower_blocks


class Effort(Noun):
    """A step of a model on all its ranks.

    `model_flops` are those that the model needs: twice the forward's in the backward, or fewer
    where no gradient goes on, attention as far as its mask reaches. `hardware_flops` are those that
    run: recomputed ones too. `peak_flops` is the peak of one NPU in the precision, in FLOP/s;
    `price_per_hour` and `watts` are of one NPU. `memory_bytes` is what the fullest rank holds, of
    `capacity_bytes`. A step has `global_batch` samples of `sequence` tokens, `microbatch_size` of
    them in a microbatch.
    """

    parameters: int
    tokens: int
    sequence: int
    global_batch: int
    microbatch_size: int
    model_flops: float
    hardware_flops: float
    peak_flops: float
    device: str
    framework: str
    price_per_hour: float | None = None
    watts: float | None = None
    band: ErrorBand | None = None
    memory_bytes: int | None = None
    capacity_bytes: int | None = None


def error_band(
    framework: Framework,
    device: Device,
    plan: ModelPlan,
    *,
    sparse: bool,
    mixes: bool = False,
) -> ErrorBand | None:
    """Errors of published runs with this framework on this device; None where none was compared.

    A device whose generation was compared has a range all the same, and no errors (0 runs). The
    range is wider for a plan beyond the largest job, the longest sequence or the largest cp; beyond
    traced jobs that of published runs counts, for the traces say nothing there.
    """
    alike = [
        each
        for each in framework.errors
        if (each.sparse, each.mixes) == (sparse, mixes)
        and not (each.traced and _beyond(each, plan))
    ]
    here = [each for each in alike if each.device == device.name]
    if not here:
        generation = [each for each in alike if device.generation == each.generation != ""]
        here = [replace(each, device=device.name, runs=0) for each in generation[:1]]
    return _widened(here[0], plan) if here else None


_WIDER = 1.5
"""A guess: how much wider a range is beyond the runs in one respect, as a power of its factors."""


def _widened(band: ErrorBand, plan: ModelPlan) -> ErrorBand:
    """The band with its range for a plan: wider for each respect in which the plan exceeds it."""
    if not band.others:
        return band
    power = _WIDER ** _beyond(band, plan)
    return replace(band, low=band.low**power, high=band.high**power)


def _beyond(band: ErrorBand, plan: ModelPlan) -> int:
    """In how many respects a plan exceeds the runs of a band."""
    return (
        (plan.npus > band.most_npus)
        + (plan.sequence > band.most_sequence)
        + (plan.cp > band.most_cp)
    )


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
    forward = hardware = spared = 0.0
    for (layer, twice), count in again.items():
        once, both, fewer = _flops(layer_blocks(layer, model.architecture, columns), plan)
        forward += once * count
        hardware += (both + (once if twice else 0.0)) * count
        spared += fewer * count
    heads = 1 + len(architecture.prediction_layers)
    once, both, _ = _flops(
        head_blocks(architecture, columns, fused_loss=framework.fused_loss), plan
    )
    first, first_both, first_spared = _flops(tower_blocks(architecture, columns), plan)
    forward, hardware, spared = forward + first, hardware + first_both, spared + first_spared
    copies = plan.stage_ranks * plan.microbatches
    return Effort(
        parameters=architecture.parameters()
        + architecture.first_parameters
        - architecture.embedding_parameters,
        tokens=plan.tokens,
        sequence=plan.sequence,
        global_batch=plan.global_batch,
        microbatch_size=plan.microbatch_size,
        model_flops=(3 * (forward + once * heads) - spared) * copies,
        hardware_flops=(hardware + both * heads) * copies,
        peak_flops=device.rate_of(plan.precision).peak,
        device=device.name,
        framework=framework.name,
        price_per_hour=device.price_per_hour,
        watts=device.watts,
        band=None
        if architecture.seeing is not None  # no run with images was compared
        else error_band(
            framework, device, plan, sparse=architecture.is_sparse, mixes=architecture.mixes
        ),
    )


def _flops(blocks: Iterable[Block], plan: ModelPlan) -> tuple[float, float, float]:
    """Floating-point operations of a rank's microbatch.

    Those of the forward, of both passes, and how many fewer than twice the forward's the backward
    has where an operator needs fewer.
    """
    forward = backward = spared = 0.0
    for operator in (each for block in blocks for each in block.operators):
        if operator.kind is not OperatorKind.MEMORY:
            once = float(operator.forward.flops.item())
            if plan.recompute is Recompute.SELECTIVE and operator.core:
                backward += once
            forward += once
            inputs = float(operator.input_grad.flops.item())
            weights = 0.0 if plan.adapters else float(operator.weight_grad.flops.item())
            backward += inputs
            backward += weights
            spared += max(2 * once - inputs - weights, 0.0)
    return forward, forward + backward, spared
