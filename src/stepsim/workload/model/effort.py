"""What a step of a model is: tokens and floating-point operations, and what they run on.

Operations are counted over its operators.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from stepsim.base.structs import replace
from stepsim.workload.model.blocks import head_blocks, layer_blocks
from stepsim.workload.model.choices import Recompute
from stepsim.workload.model.device import Device
from stepsim.workload.model.evidence import Effort, ErrorBand
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.model import Model
from stepsim.workload.model.parts import Block, OperatorKind
from stepsim.workload.model.tower import tower_blocks
from stepsim.workload.plan import Plan, PlanTable


def error_band(
    framework: Framework,
    device: Device,
    plan: Plan,
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


def _widened(band: ErrorBand, plan: Plan) -> ErrorBand:
    """The band with its range for a plan: wider for each respect in which the plan exceeds it."""
    if not band.others:
        return band
    power = _WIDER ** _beyond(band, plan)
    return replace(band, low=band.low**power, high=band.high**power)


def _beyond(band: ErrorBand, plan: Plan) -> int:
    """In how many respects a plan exceeds the runs of a band."""
    return (
        (plan.npus > band.most_npus)
        + (plan.sequence > band.most_sequence)
        + (plan.cp > band.most_cp)
    )


Operations = tuple[float, float, float]
"""Operations of the forward, of both passes, and how many fewer than twice the forward's these are.

They are those of a rank's microbatch.
"""


def step_effort(
    model: Model,
    plan: Plan,
    recomputed: Sequence[bool],
    device: Device,
    framework: Framework,
    known: dict[object, Operations],
) -> Effort:
    """What a step of all ranks is worth; `recomputed` says which layers run forward again.

    `known` are the operations of layers and ends of plans whose rows are the same.
    """
    architecture = model.architecture
    counted = Counter(zip(architecture.layers, recomputed, strict=True))
    counted += Counter((layer, False) for layer in architecture.prediction_layers)
    if not known:
        columns = PlanTable(plans=[plan])
        for layer in architecture.layer_kinds():
            known[layer] = _flops(layer_blocks(layer, architecture, columns), plan)
        head = head_blocks(architecture, columns, fused_loss=framework.fused_loss)
        known["head"] = _flops(head, plan)
        known["tower"] = _flops(tower_blocks(architecture, columns), plan)
    forward = hardware = spared = 0.0
    for (layer, twice), count in counted.items():
        once, both, fewer = known[layer]
        forward += once * count
        hardware += (both + (once if twice else 0.0)) * count
        spared += fewer * count
    heads = 1 + len(architecture.prediction_layers)
    once, both, _ = known["head"]
    first, first_both, first_spared = known["tower"]
    forward, hardware, spared = forward + first, hardware + first_both, spared + first_spared
    copies = plan.stage_ranks * plan.microbatches
    return Effort(
        parameters=architecture.parameters()
        + architecture.first_parameters
        - architecture.embedding_parameters,
        tokens=plan.step_tokens,
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


def _flops(blocks: Iterable[Block], plan: Plan) -> Operations:
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
