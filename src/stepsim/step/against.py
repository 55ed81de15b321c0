"""A simulated step held against a recorded one."""

from collections.abc import Iterator, Sequence

from stepsim.base.structs import Noun, Numbers, replace
from stepsim.explain.against import (
    Against,
    AgainstRow,
    compare_steps,
    compared_ranks,
    measured_step,
    unfused_attention,
)
from stepsim.explain.as_profile import profile_of_step
from stepsim.explain.differences import largest_differences
from stepsim.measured.profile.events import Profile
from stepsim.measured.profile.kernel_classes import KernelClass
from stepsim.run.spans import UNKNOWN, TaskKind
from stepsim.step.prepared import SimulatedStep

# A recording with a smaller share of the model's products is one of another model.
_ALIKE = 0.1
# Steps that differ by a larger factor are of different jobs, or of another batch.
_FAR = 4.0


class StepAgainst(Noun):
    """A simulated step, the recorded one that it is held against, and where they differ.

    `predicted` are the kernels of the simulated step.
    """

    simulated: SimulatedStep
    predicted: Profile
    measured: Profile
    against: Against


def hold_against(simulated: SimulatedStep, recorded: Profile) -> StepAgainst:
    """A simulated step beside the recorded step of median length.

    Raises PlanError where the recording is of another job.
    """
    measured, bounds, follows = measured_step(recorded)
    plan, report = simulated.plan, simulated.report
    ranks = compared_ranks(measured, plan.npus, plan.stage_ranks)
    predicted = profile_of_step(
        simulated.timeline, source=report.workload, ranks=ranks, kernels=True
    )
    own = 0, report.step_time_ps
    if not follows:  # both go from their first operation on a device to their last
        device = predicted.events.taken(predicted.events.kind != TaskKind.HOST)
        own = int(device.start_ps.min()), int(device.end_ps.max())
    steps = own[1] - own[0], bounds[1] - bounds[0]
    rows = compare_steps(predicted, measured, (own, bounds))
    rates = report.throughput
    against = Against(
        source=recorded.source,
        format=recorded.format,
        step=measured.steps[0],
        ranks=ranks,
        predicted_step_ps=steps[0],
        measured_step_ps=steps[1],
        predicted_peak_bytes=rates.memory_bytes if rates and recorded.peak_bytes else None,
        measured_peak_bytes=recorded.peak_bytes,
        rows=rows,
        notes=(*doubts(rows, steps, recorded.source), *_notes(recorded, plan.npus, ranks)),
    )
    words = largest_differences(
        against.summed("part", "name"),
        steps[1],
        device=rates.device if rates else "the workload's device",
        unfused=unfused_attention(predicted, measured),
    )
    return StepAgainst(
        simulated=simulated,
        predicted=predicted,
        measured=measured,
        against=replace(against, differences=words),
    )


def doubts(rows: Sequence[AgainstRow], steps: tuple[int, int], source: str) -> Iterator[str]:
    """That the recording looks like one of another job: other products, or a far longer step."""
    products = [row for row in rows if row.name == KernelClass.PRODUCTS and row.item]
    run = sum(row.measured_run_ps for row in products)
    alike = sum(row.measured_run_ps for row in products if row.predicted_run_ps)
    if run and alike < _ALIKE * run:
        yield (
            f"{source}: {alike / run:.0%} of the time of its products is of sides that the model "
            "has: is it a recording of this model, with this sequence and these degrees?"
        )
    ratio = steps[1] / steps[0] if steps[0] else _FAR
    if not 1 / _FAR < ratio < _FAR:
        yield (
            f"{source}: the steps differ by a factor of {max(ratio, 1 / ratio):.3g}: is it a "
            "recording of this job, with this batch?"
        )


def _notes(recorded: Profile, npus: int, ranks: Numbers) -> list[str]:
    """What the recording lacks, and what is compared instead."""
    events, notes = recorded.events, list(recorded.warnings)
    if len(ranks) < npus and recorded.world is None:
        notes.append(
            f"{recorded.source}: {len(ranks)} of {npus} ranks were recorded: the same ones of the "
            "prediction are compared"
        )
    if recorded.operators and not any(operator.sides for operator in recorded.operators):
        notes.append(
            f"{recorded.source}: no shapes were recorded (record_shapes): products are matched by "
            "their order, or as one"
        )
    if not (events.launch_ps != UNKNOWN).any():
        notes.append(
            f"{recorded.source}: no launches were recorded: every gap counts as the host's"
        )
    if len(recorded.steps) == 1:
        notes.append(
            f"{recorded.source}: one step was recorded: it ends with its last operation, and what "
            "the host does before the next is not known"
        )
    return notes
