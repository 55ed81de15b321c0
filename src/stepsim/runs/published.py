"""Measured steps of published models against their closed form, zero-shot and calibrated."""

from collections.abc import Iterable, Iterator, Sequence
from math import log1p
from statistics import fmean, median
from typing import Annotated, Self, TypeVar

import numpy as np
from msgspec import Meta

from stepsim.base.errors import StepsimError
from stepsim.base.structs import Count, Document, Entry, Names, Noun, Seconds, Share, replace
from stepsim.files.accelerators import read_device, read_framework
from stepsim.files.load import topology_of
from stepsim.files.model_steps import PublishedStep
from stepsim.files.reading import DEFAULT_TOPOLOGY
from stepsim.step.model_plan import interconnect_of
from stepsim.workload.model.calibration import ModelCalibration
from stepsim.workload.model.parts import Interconnect
from stepsim.workload.model.step_time import StepModel

_GIB = 2**30
_Entry = TypeVar("_Entry", bound=Entry)
_KINDS = {False: "dense", True: "with experts"}


class PublishedRun(Noun):
    """A published run beside its prediction; `calibrated_s` after the factor of its machine.

    Memory of its fullest rank is in GiB as its framework reports them, and a share of the capacity.
    """

    step: PublishedStep
    predicted_gib: float = 0.0
    memory_share: float = 0.0
    predicted_s: float = 0.0
    calibrated_s: float = 0.0

    @property
    def fits(self) -> bool:
        """Whether the run is predicted to fit in its device."""
        return self.memory_share <= 1

    @property
    def memory_error(self) -> float | None:
        """Predicted over measured memory, minus 1; None where the source gives none."""
        measured = self.step.memory_gib
        return None if not measured else self.predicted_gib / measured - 1

    @property
    def measured_s(self) -> float:
        """Seconds of the measured step."""
        assert self.step.measured_s is not None
        return self.step.measured_s

    @property
    def error(self) -> float:
        """Predicted over measured, minus 1."""
        return self.step.error(self.predicted_s)

    @property
    def calibrated_error(self) -> float:
        """Calibrated over measured, minus 1."""
        return self.step.error(self.calibrated_s)


class SourceErrors(Entry):
    """Errors of a source's runs, zero-shot and after one factor per source, device, precision.

    Memory has one factor for the source: the median of measured over predicted.
    """

    source: str
    count: Count
    mean: Share
    median: Share
    largest: Share
    calibrated_mean: Share
    calibrated_largest: Share
    memory_mean: Share | None
    memory_largest: Share | None
    memory_calibrated: Share | None


class PublishedValidation(Noun):
    """All runs, those that `ran_out` of memory, and what could not be compared."""

    rows: tuple[PublishedRun, ...]
    ran_out: tuple[PublishedRun, ...] = ()
    warnings: Names = ()

    @property
    def sources(self) -> tuple[SourceErrors, ...]:
        """Errors of each source, then of all dense and of all mixture-of-experts runs.

        A source of both kinds of runs has both apart.
        """
        of_source: dict[str, list[PublishedRun]] = {}
        for row in self.rows:
            of_source.setdefault(row.step.source, []).append(row)
        found = []
        for source, rows in [*of_source.items(), ("all", self.rows)]:
            kinds = {
                name: [row for row in rows if row.step.architecture.is_sparse is kind]
                for kind, name in _KINDS.items()
            }
            apart = source == "all" or all(kinds.values())
            found += [
                errors_of(f"{source} {name}" if apart else source, own)
                for name, own in kinds.items()
                if own
            ]
        return tuple(found)

    def exceeds(self, limit: float) -> bool:
        """Whether the error of any run is above a limit, a share."""
        return any(abs(row.error) > limit for row in self.rows)


def errors_of(name: str, rows: Sequence[PublishedRun]) -> SourceErrors:
    """Errors of some runs together."""
    errors = [abs(row.error) for row in rows]
    calibrated = [abs(row.calibrated_error) for row in rows]
    reported = [1 + row.memory_error for row in rows if row.memory_error is not None]
    memory = [abs(each - 1) for each in reported]
    return SourceErrors(
        source=name,
        count=len(rows),
        mean=fmean(errors),
        median=median(errors),
        largest=max(errors),
        calibrated_mean=fmean(calibrated),
        calibrated_largest=max(calibrated),
        memory_mean=fmean(memory) if memory else None,
        memory_largest=max(memory, default=None),
        memory_calibrated=fmean(abs(each / median(reported) - 1) for each in reported)
        if reported
        else None,  # once the median of predicted over measured is 1
    )


def validate_published(
    steps: Iterable[PublishedStep],
    *,
    leave_out: Sequence[str] = (),
    calibration: ModelCalibration | None = None,
    unread: int = 0,
) -> PublishedValidation:
    """Predict every complete run that has a time or ran out of memory, by what is shipped.

    The first warning counts the others, beside `unread` rows that say no run. Sources in
    `leave_out` are not predicted. One factor per source, device and precision, the
    geometric mean of measured over predicted, calibrates. `calibration` changes devices and
    frameworks first.
    """
    judged = [step for step in steps if step.source not in leave_out]
    runs, warnings = list[PublishedRun](), list[str]()
    for step in (step for step in judged if step.is_complete and _says(step)):
        try:
            model = model_of(step, calibration)
            run = published_memory(step, model)
            if not step.ran_out:
                run = replace(run, predicted_s=float(model.seconds([step.plan])[0]))
            runs.append(run)
        except StepsimError as error:
            warnings.append(f"{step.source} {step.name} is left out: {error}")
    rows = [run for run in runs if not run.step.ran_out]
    factors = _factors(rows)
    left = _said_of_left(judged, refused=len(warnings) + unread, unread=unread)
    return PublishedValidation(
        rows=tuple(
            replace(row, calibrated_s=row.predicted_s * factors[_machine(row.step)]) for row in rows
        ),
        ran_out=tuple(run for run in runs if run.step.ran_out),
        warnings=(*left, *warnings),
    )


def _says(step: PublishedStep) -> bool:
    """Whether a run says how long its step took, or that it ran out of memory."""
    return step.measured_s is not None or step.ran_out


def _said_of_left(steps: Sequence[PublishedStep], *, refused: int, unread: int) -> Iterator[str]:
    """How many runs are not compared, and why, if there are any."""
    counts = {
        "without their whole layout (complete is 0)": sum(not step.is_complete for step in steps),
        "without a time (step_s)": sum(step.is_complete and not _says(step) for step in steps),
        "refused": refused,
    }
    if any(counts.values()):
        reasons = ", ".join(f"{count} {why}" for why, count in counts.items() if count)
        every = len(steps) + unread
        yield f"{sum(counts.values())} of {every} runs are not compared: {reasons}"


def model_of(step: PublishedStep, calibration: ModelCalibration | None = None) -> StepModel:
    """What prices a run: its device and framework by name, the device's topology.

    A calibration changes device and framework by what it has of the machine.
    """
    device = read_device(step.device)
    framework = read_framework(step.framework)
    precision, sparse = step.plan.precision, step.architecture.is_sparse
    framework = framework.of_job(device.name, precision, sparse=sparse, release=step.release)
    framework = framework.of_model(step.model, device.name, precision)
    # the runs are of 2025 and before, when a loss had all logits at a time
    context = step.context or framework.context
    framework = replace(framework, context=context, loss_chunks=1)
    if calibration:
        device, framework = calibration.apply(device, framework, precision)
    return StepModel(
        architecture=step.architecture,
        device=device,
        framework=framework,
        interconnect=_interconnect(step, device.topology or DEFAULT_TOPOLOGY),
    )


def published_memory(step: PublishedStep, model: StepModel) -> PublishedRun:
    """A run with the memory of its fullest rank, on the layout that its framework chooses."""
    found = model.memory([step.plan])
    held = found.total if model.framework.reports_total else found.allocated
    share = float(found.share_of(model.device)[0])
    return PublishedRun(step=step, predicted_gib=float(held[0]) / _GIB, memory_share=share)


def _interconnect(step: PublishedStep, topology: str) -> Interconnect:
    found = interconnect_of(topology_of(topology).fit(step.plan.npus))
    if step.node_bandwidth is None:
        return found
    return replace(found, outer=step.node_bandwidth / step.npus_per_node)


def _machine(step: PublishedStep) -> tuple[str, str, str]:
    return step.source, step.device, step.plan.precision.value


def _factors(rows: Sequence[PublishedRun]) -> dict[tuple[str, str, str], float]:
    logs: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        logs.setdefault(_machine(row.step), []).append(-log1p(row.error))
    return {machine: float(np.exp(fmean(each))) for machine, each in logs.items()}


class _RowEntry(Entry):
    """A published run; errors are predicted over measured, minus 1."""

    name: str
    source: str
    model: str
    device: str
    framework: str
    measured_s: Seconds
    predicted_s: Seconds
    calibrated_s: Seconds
    error: Share
    calibrated_error: Share
    measured_gib: Annotated[float | None, Meta(description="as the source reports it")]
    predicted_gib: float
    memory_share: Annotated[float, Meta(ge=0, description="predicted, of the device's capacity")]


class _RanOutEntry(Entry):
    """A published run that ran out of memory; above a share of 1 that was predicted."""

    name: str
    source: str
    model: str
    device: str
    memory_share: Annotated[float, Meta(ge=0, description="predicted, of the device's capacity")]


class PublishedDocument(Document):
    """`stepsim validate steps.csv --json` of published models: rows, and errors per source."""

    sources: tuple[SourceErrors, ...]
    rows: tuple[_RowEntry, ...]
    ran_out: tuple[_RanOutEntry, ...]
    warnings: Names

    @classmethod
    def of(cls, found: PublishedValidation) -> Self:
        """The document of a validation."""
        return cls.taken_from(
            found,
            rows=tuple(_entry(_RowEntry, run) for run in found.rows),
            ran_out=tuple(_entry(_RanOutEntry, run) for run in found.ran_out),
        )


def _entry(kind: type[_Entry], run: PublishedRun) -> _Entry:
    """The entry of a run, of what it says itself and of what its step says."""
    step = run.step
    said = {
        "name": step.name,
        "source": step.source,
        "model": step.architecture.name,
        "device": step.device,
        "framework": step.framework,
        "measured_gib": step.memory_gib,
    }
    return kind.taken_from(run, **said)
