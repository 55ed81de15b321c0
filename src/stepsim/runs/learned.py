"""What profiles tell about a machine, and how far off predictions of other jobs then are.

Kernels of a profile are matched to the operators of its model as `simulate --against` matches them.
The work of a class is what its operators are predicted to take: all of its measured time over all
of that is one factor, however the kernels were fused or split.
"""

from collections.abc import Iterator, Sequence

from stepsim.base.arrays import bins, places_by
from stepsim.base.axes import CollectiveKind
from stepsim.base.errors import CalibrationError, TraceError
from stepsim.base.structs import Noun, Values, replace
from stepsim.base.units import PS_PER_S, format_bandwidth
from stepsim.explain.against import AgainstRow, StepPart, class_operators, unfused_attention
from stepsim.files.asked import StepInputs
from stepsim.files.collectives.samples import CurveSample, curves_of
from stepsim.measured.calibration.calibration import Calibration
from stepsim.measured.calibration.rates import recorded_rate
from stepsim.measured.calibration.runs import calibrate_traces
from stepsim.measured.clocks import DEFAULT_NODE_SIZE
from stepsim.measured.profile.events import Profile, same
from stepsim.measured.profile.kernel_classes import KernelClass
from stepsim.measured.profile_run import run_of_profile
from stepsim.measured.summary import RunSummary
from stepsim.network.measured_times import CommTable, MeasuredCurve
from stepsim.run.spans import TaskKind
from stepsim.runs.measured import calibrated_step
from stepsim.runs.validate import validate_runs
from stepsim.step.against import StepAgainst, doubts, hold_against
from stepsim.step.model_plan import setup_of
from stepsim.workload.model.calibration import (
    LEAST_JOBS,
    HeldStep,
    MeasuredKernels,
    MeasuredRate,
    bands_of,
)
from stepsim.workload.model.choices import Precision
from stepsim.workload.model.device import Device
from stepsim.workload.model.step_time import StepModel
from stepsim.workload.plan import Plan

# Fewer kernels of a class do not tell its rate.
_LEAST_KERNELS = 3
# A guess: times that differ by a larger factor are of other work.
_FAR = 5.0
_Missing = list[tuple[str, str]]


class TracedStep(Noun):
    """A profile of a model's job, beside the prediction of its step; `setup` prices the model.

    Raises PlanError where `job` is of no model.
    """

    profile: Profile
    job: StepInputs
    setup: StepModel
    held: StepAgainst

    @classmethod
    def of(cls, profile: Profile, job: StepInputs) -> "TracedStep":
        """Simulate the job and hold it against its profile; raises the errors of both."""
        return cls(
            profile=profile,
            job=job,
            setup=setup_of(job),
            held=hold_against(calibrated_step(job, None), profile),
        )

    @property
    def plan(self) -> Plan:
        """The plan of the job."""
        return self.held.simulated.plan

    @property
    def machine(self) -> Values:
        """What the job ran on, by name: rates of kernels belong to it."""
        return {
            "device": self.setup.device.name,
            "framework": self.setup.framework.name,
            "precision": self.plan.precision,
        }

    @property
    def name(self) -> str:
        """The model and its plan: traces of equal ones are of one job."""
        plan, schedule = self.plan, self.held.simulated.report.schedule
        size = f"sequence {plan.sequence}, batch {plan.global_batch}"
        return f"{self.setup.architecture.name}, {plan.words}, {schedule}, {size}"


def calibrate_profiles(
    profiles: Sequence[Profile],
    *,
    node_size: int | None = None,
    device: Device | None = None,
    precision: Precision = Precision.BF16,
    jobs: Sequence[StepInputs] = (),
) -> tuple[Calibration, list[str]]:
    """What profiles of one machine tell: collectives by size, host and message times, kernels.

    A node has `node_size` ranks where profiles do not tell it. With `jobs`, of a model for each
    profile, all classes of kernels are learned, and steps are held against what traces of the other
    jobs tell. Without them, products of a `device` are, in one `precision`, by their shapes. The
    notes say how far the steps of each are off when they are predicted from the others, or that
    nothing was left to hold the numbers against. What a profile does not hold is left out, and
    `unidentified` says why.
    """
    notes = [text for profile in profiles for text in profile.warnings]
    if jobs:
        steps = [TracedStep.of(*pair) for pair in zip(profiles, jobs, strict=True)]
        held = _left_out(steps, node_size)
        return replace(_learned(steps, node_size), held=held), [*notes, *_said_of(held)]
    found, runs = _times(profiles, node_size)
    rates, missing = list[MeasuredRate](), found.unidentified
    if device:
        try:
            rates.append(recorded_rate(profiles, device, precision))
        except CalibrationError as error:
            missing = (("rate of products", str(error)), *missing)
    notes.append(_replayed(runs))
    return replace(found, rates=tuple(rates), unidentified=missing), notes


def _times(
    profiles: Sequence[Profile], node_size: int | None
) -> tuple[Calibration, list[RunSummary]]:
    """Collectives, host and message times of profiles, and their runs."""
    runs, missing = list[RunSummary](), list[tuple[str, str]]()
    for profile in profiles:
        try:
            runs.append(run_of_profile(profile, node_size=node_size))
        except TraceError as error:
            missing.append(("host and message times", str(error)))
    curves = [curve for each in profiles for curve in recorded_collectives(each, node_size)]
    if not curves:
        missing.append(("collectives", "none was recorded on all ranks of its group, with bytes"))
    table = CommTable(source="profiles", curves=tuple(curves)) if curves else None
    found = calibrate_traces(runs, table)
    sources = tuple(profile.source for profile in profiles)
    return replace(found, sources=sources, unidentified=(*missing, *found.unidentified)), runs


def _learned(steps: Sequence[TracedStep], node_size: int | None) -> Calibration:
    """What profiles of models tell."""
    found, _ = _times([step.profile for step in steps], node_size)
    missing: _Missing = []
    kernels = tuple(learn_kernels(steps, missing))
    known = {each.kernels for each in kernels}
    untold = [(name, reason) for name, reason in found.unidentified if name not in known]
    return replace(found, kernels=kernels, unidentified=(*missing, *untold))


def learn_kernels(steps: Sequence[TracedStep], missing: _Missing) -> Iterator[MeasuredKernels]:
    """How long the kernels of each class take over their prediction, by device and framework.

    Why a class tells none is added to `missing`. Recordings that look like one of another model or
    batch tell nothing.
    """
    machines: dict[tuple[str, ...], list[TracedStep]] = {}
    for step in steps:
        against = step.held.against
        lengths = (against.predicted_step_ps, against.measured_step_ps)
        said = (*doubts(against.rows, lengths, against.source), *_other_products(step))
        if said:
            missing.append(("kernels", said[0]))
        else:
            machines.setdefault(tuple(step.machine.values()), []).append(step)
    for several in machines.values():
        step, held = several[0], [each.held for each in several]
        operators = [class_operators(each.predicted) for each in held]
        fused = all(unfused_attention(each.predicted, each.measured) is None for each in held)
        for row in _kernel_rows(several):
            work, alike = row.name, fused or row.name != KernelClass.ATTENTION
            doubt = _doubt([row], alike=alike) or _too_fast(step, row)
            if doubt or work == KernelClass.OTHER:
                missing.append((f"rate of {work}", doubt or "nothing says what they do"))
                continue
            factor = row.measured_run_ps / row.predicted_run_ps
            called = {name for each in operators for name in each.get(work, ())}
            yield MeasuredKernels(
                **step.machine,
                kernels=work,
                operators=tuple(sorted(called)),
                factor=round(factor, 6),
                count=row.measured_count,
                rate=_reached(work, step, factor),
            )


def _kernel_rows(steps: Sequence[TracedStep]) -> tuple[AgainstRow, ...]:
    """The rows of classes of kernels, one each, of all steps together."""
    rows = (row for step in steps for row in step.held.against.rows)
    kernels = [row for row in rows if row.part == StepPart.COMPUTE and row.name in set(KernelClass)]
    return replace(steps[0].held.against, rows=tuple(kernels)).summed("part", "name")


def _doubt(rows: Sequence[AgainstRow], *, alike: bool = True) -> str:
    """Why the kernels of rows together tell no rate; empty where they do.

    Those of attention are not `alike` where it is fused in the prediction or in the trace alone.
    """
    names = ("predicted_run_ps", "measured_run_ps", "predicted_count", "measured_count")
    predicted_ps, measured_ps, predicted, measured = (
        sum(getattr(row, name) for row in rows) for name in names
    )
    if not predicted_ps:
        return f"{measured} kernels, and the model has no such operators"
    if not measured_ps:
        return f"no kernel of {predicted} predicted ones was recorded"
    if measured < _LEAST_KERNELS:
        return f"{measured} kernels recorded: expected at least {_LEAST_KERNELS}"
    if not alike:
        return "it is fused in the prediction or in the trace alone: --attention says which"
    ratio = measured_ps / predicted_ps
    if not 1 / _FAR < ratio < _FAR:
        return f"they take {ratio:.3g} times their prediction: other work is in them"
    return ""


def _other_products(step: TracedStep) -> Iterator[str]:
    """That the products of a recording are not those of the model, so that nothing else is."""
    doubt = _doubt([row for row in _kernel_rows([step]) if row.name in _PRODUCTS])
    if doubt:
        yield f"{step.profile.source}: is it of this model? products: {doubt}"


_PRODUCTS = (KernelClass.PRODUCTS, KernelClass.EXPERTS, KernelClass.BATCHED)


def _too_fast(step: TracedStep, row: AgainstRow) -> str:
    """That products of a class are faster than their device; empty where they are not."""
    device, precision = step.setup.device, step.plan.precision
    rate = device.rate_of(precision)
    reached = rate.rate * device.sustained * row.predicted_run_ps / row.measured_run_ps
    if row.name not in _PRODUCTS or reached <= rate.peak:
        return ""
    return (
        f"{reached / 1e12:.0f} TFLOP/s, and the peak of {device.name} in "
        f"{precision} is {rate.peak / 1e12:.0f}: is it the device and the precision of the "
        "trace?"
    )


def _reached(work: str, step: TracedStep, factor: float) -> str:
    """The rate of a class in the words of device files, where they have one."""
    device, framework, precision = step.setup.device, step.setup.framework, step.plan.precision
    product = device.rate_of(precision)
    if work == KernelClass.PRODUCTS:
        return f"{product.rate * device.sustained / factor / 1e12:.4g} TFLOP/s"
    if work == KernelClass.EXPERTS and framework.groups_experts:
        share = device.grouped_rate(str(precision)).share
        return f"{share * product.peak * device.sustained / factor / 1e12:.4g} TFLOP/s"
    if work == KernelClass.ATTENTION:
        rate = framework.attention_on(device).rate
        return f"{rate / factor / 1e12:.4g} TFLOP/s of long sequences"
    if work in _OF_BYTES:
        moves = 1.0 if work == KernelClass.OPTIMIZER else framework.memory_factor
        share = device.memory_share / moves / factor
        if share > 1:
            return "beyond the memory's: they move less than the model's operators"
        return f"{format_bandwidth(share * device.memory_bandwidth)}, {share:.0%} of the memory's"
    return ""


_OF_BYTES = frozenset(
    {
        *(KernelClass.NORMS, KernelClass.ACTIVATIONS, KernelClass.ELEMENTWISE, KernelClass.CASTS),
        *(KernelClass.EMBEDDING, KernelClass.LOSS, KernelClass.OPTIMIZER),
    }
)


def _left_out(steps: Sequence[TracedStep], node_size: int | None) -> tuple[HeldStep, ...]:
    """Every step beside its prediction by what the traces of the other jobs tell.

    None where all traces are of one job: a prediction of it is no evidence for another one.
    """
    found = []
    for step in steps:
        others = [other for other in steps if other.name != step.name]
        if others:
            job = calibrated_step(step.job, _learned(others, node_size))
            again = hold_against(job, step.profile)
            held = HeldStep(
                **step.machine,
                source=step.profile.source,
                job=step.name,
                experts=step.setup.architecture.is_sparse,
                mixes=step.setup.architecture.mixes,
                npus=again.simulated.plan.npus,
                sequence=again.simulated.plan.sequence,
                cp=again.simulated.plan.cp,
                predicted_s=again.against.predicted_step_ps / PS_PER_S,
                measured_s=again.against.measured_step_ps / PS_PER_S,
            )
            found.append(held)
    return tuple(found)


def _said_of(held: Sequence[HeldStep]) -> Iterator[str]:
    """How far off the left-out steps are, and what that means for the interval of a prediction."""
    if not held:
        yield (
            "all traces are of one job: no other job was left out to hold the numbers against, so "
            "the interval of a prediction stays as it is"
        )
        return
    errors = [abs(step.error) for step in held]
    jobs = len({step.job for step in held})
    yield (
        f"held against {len(held)} traces of {jobs} jobs, each predicted from the other jobs: "
        f"steps {sum(errors) / len(errors):.1%} off on average, {max(errors):.1%} at most"
    )
    if not bands_of(held):
        yield (
            f"the interval of a prediction stays as it is: traces of {LEAST_JOBS} jobs of a kind "
            "(dense, with experts) on one machine tell it"
        )


def _replayed(runs: Sequence[RunSummary]) -> str:
    """How far off the steps of runs are that are replayed with the numbers of the others."""
    if len(runs) < 2:
        return (
            "one profile with stage times at most: nothing was left out to hold the numbers "
            "against, so the interval of a prediction stays as it is"
        )
    errors = [abs(run.step.error) for run in validate_runs(runs, leave_one_out=True)]
    return (
        f"replayed with the numbers of the other profiles, the steps of {len(errors)} are "
        f"{sum(errors) / len(errors):.1%} off on average, {max(errors):.1%} at most"
    )


_TIMED = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL,
    CollectiveKind.BROADCAST,
)


def recorded_collectives(
    profile: Profile, node_size: int | None = None
) -> tuple[MeasuredCurve, ...]:
    """Median times by collective, ranks, nodes and size; none where no time is without waits.

    Those alone count of which every rank was recorded: the time of others holds what they wait for
    the ranks that were not. A node has `node_size` ranks where the profile does not tell it, 8
    without it. Recorded steps share their links with whatever else ran.
    """
    events, samples = profile.events, list[CurveSample]()
    kinds = [_kind_of(name) for name in profile.names]
    met = events.of_kind(TaskKind.COLLECTIVE) & (events.meeting >= 0) & (events.size_bytes > 0)
    events = events.taken(met)
    number = same(events.meeting)
    for members in places_by(number, bins(number)):
        group, kind = int(events.group[members[0]]), kinds[int(events.name[members[0]])]
        ranks = profile.groups[group].ranks if group >= 0 else ()
        expected = len(ranks) or (profile.world or len(profile.ranks))
        if kind is None or expected < 2 or len(members) != expected:
            continue
        lasts = int(events.end_ps[members].max() - events.start_ps[members].max())
        lie = (profile.ranks[place] for place in events.rank[members].tolist())
        size_of_node = node_size or DEFAULT_NODE_SIZE
        nodes = {each.rank // size_of_node if each.node is None else each.node for each in lie}
        size = int(events.size_bytes[members].max())
        if lasts > 0:
            samples.append((("", profile.source, kind, expected, len(nodes)), size, lasts))
    return curves_of(sorted(samples, key=lambda sample: sample[0]))


def _kind_of(name: str) -> CollectiveKind | None:
    """The collective that a kernel's name tells, e.g. of `nccl _allgather_base`."""
    plain = name.lower().replace("_", "")
    return next((kind for kind in _TIMED if kind.value.replace("_", "") in plain), None)
