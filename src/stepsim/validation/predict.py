"""A run predicted from calibrations of other runs: nothing of it but its shape is looked at.

Layers cost what they did in a run of the same shape. Gradients are scaled in place after a launch,
then reduced in the time a micro-benchmark took for such a group.
"""

from collections.abc import Sequence

from stepsim.base.units import PS_PER_S
from stepsim.measured.calibration.calibration import Calibration, LayerTimes
from stepsim.measured.calibration.gradients import gradient_group
from stepsim.measured.calibration.runs import shape_of
from stepsim.measured.layers import StageCost
from stepsim.measured.run import OpKind
from stepsim.measured.step_ops import StepOp, gradient_bytes
from stepsim.measured.summary import RunSummary
from stepsim.parallel.schedules import build
from stepsim.step.simulate import SimulatedStep
from stepsim.validation.replay import ReplayRuntime
from stepsim.validation.what_if import simulate_costs
from stepsim.workload.rows import CollectiveKind, Phase, StepItem, Work


def predicted_op_ps(summary: RunSummary, op: StepOp, calibration: Calibration) -> float | None:
    """An operation after the pipeline from tables and rates alone; None where they do not say."""
    if op.kind is OpKind.OPTIMIZER:
        rate = calibration.optimizer
        size = gradient_bytes(summary.step_ops, op.stage)
        return size / rate.value * PS_PER_S if rate and size else None
    group, scaling = gradient_group(summary, op), calibration.gradient_scaling
    if group is None or scaling is None:
        return None
    launch = calibration.gradient_launch.value if calibration.gradient_launch else 0.0
    scaled = launch + op.size_bytes / scaling.value * PS_PER_S
    if group[0] == 1:
        return scaled
    known = calibration.collectives
    alike = CollectiveKind.ALL_REDUCE, *group, op.size_bytes
    reduced = known.time_ps(*alike) if known else None
    return None if reduced is None else scaled + reduced


def predict(
    summary: RunSummary, calibration: Calibration, runtime: ReplayRuntime
) -> SimulatedStep | None:
    """The whole step; None where no calibrated run has the shape of this one.

    Operations after the pipeline that cannot be predicted are left out: then only the pipeline time
    says something, see `whole_step`.
    """
    degrees, shape = summary.run.degrees, shape_of(summary)
    alike = [layer for layer in calibration.layer_times if layer.shape == shape]
    if not alike or summary.schedule is None or not degrees.layers or degrees.layers % degrees.pp:
        return None
    order = build(summary.schedule.label, ranks=degrees.pp, microbatches=degrees.microbatches)
    costs = _stage_costs_of(alike, degrees.pp, degrees.layers // degrees.pp)
    items = [tuple(_items(summary, stage, calibration)) for stage in range(degrees.pp)]
    return simulate_costs(summary, costs, order, runtime, items)


def whole_step(summary: RunSummary, calibration: Calibration) -> bool:
    """Whether every operation after the pipeline can be predicted."""
    return all(predicted_op_ps(summary, op, calibration) is not None for op in summary.step_ops)


def _stage_costs_of(layers: Sequence[LayerTimes], pp: int, held: int) -> list[StageCost]:
    """Stages of so many layers each, from the mean of runs of one shape."""

    def mean(name: str) -> int:
        total: int = sum(getattr(layer, name) for layer in layers)
        return round(total / len(layers))

    costs = []
    for stage in range(pp):
        ends = [name for name, at in (("first", 0), ("last", pp - 1)) if stage == at]
        costs.append(
            StageCost(
                layers=held,
                forward_ps=mean("forward_ps"),
                backward_ps=mean("backward_ps"),
                end_forward_ps=sum(mean(f"{end}_forward_ps") for end in ends),
                end_backward_ps=sum(mean(f"{end}_backward_ps") for end in ends),
                get_batch_ps=mean("get_batch_ps") if ends else 0,
                loss_ps=mean("loss_ps") if "last" in ends else 0,
            )
        )
    return costs


def _items(summary: RunSummary, stage: int, calibration: Calibration) -> Sequence[StepItem]:
    items = []
    for op in summary.step_ops:
        time = predicted_op_ps(summary, op, calibration) if op.stage == stage else None
        if time is not None:
            work = Work(compute_ps=round(time))
            items.append(StepItem(name=op.label, phase=Phase.FORWARD, work=work))
    return items
