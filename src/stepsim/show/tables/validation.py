"""How far simulations are from measurements, number by number and by kind of number.

Predictions of published steps are compared by source and by run.
"""

from collections.abc import Iterator, Sequence

from stepsim.runs.published import PublishedRun, PublishedValidation
from stepsim.runs.validate import RunEntry, TimeEntry, Validation
from stepsim.show.tables.model import (
    TEXT,
    Shown,
    as_number,
    paths,
    table_of,
)
from stepsim.workload.model.calibration import ModelCalibration


def validation_shown(found: Validation) -> Iterator[Shown]:
    """How far off steps are, errors of every run and row, mean and largest of each kind.

    A replay has the run's own durations: it differs, and a prediction is off.
    """
    kinds = sorted(found.errors.items(), key=lambda item: not item[0].startswith("step"))
    off = (
        f"{name} differs {error.mean:.2%}" if "(replay)" in name else f"{name} {error.mean:.2%} off"
        for name, error in kinds
    )
    yield f"{'   '.join(off)} (means over what was measured)"
    if any("(replay)" in name for name, _ in kinds):
        yield "a replay puts the run's own durations back in order: it is no accuracy"
    for run in found.runs:
        caption = f"{run.name}, {run.durations} durations{_origin(run)}"
        yield table_of(caption, (*run.times(), *run.waits), _OF_RUN)
        if run.bubbles:
            yield f"rank bubbles: at most {run.worst_bubble_points:.1f} points off"
        yield from (f"note: {note}" for note in run.notes)
    yield table_of("steps of logs and tables", found.rows, paths(f"run = name, {_COMPARED}"))
    yield table_of("errors by kind of number", found.errors.items(), _KINDS)


_KINDS = paths("errors = 0, 1.mean:.2%, 1.largest:.2%, numbers = 1.count")


def _spread(each: TimeEntry) -> str:
    low, high = each.spread
    return f"{low:+.1%} {high:+.1%}" if len(each.samples_ps) > 1 else ""


_COMPARED = "from = source, simulated_ps, measured_ps, error = known_error:+.2%"
_OF_RUN = paths(f"time = name, {_COMPARED}, its samples", {"its samples": TEXT.of(_spread)})


def _origin(run: RunEntry) -> str:
    if run.inferred:
        return "; host, messages and untraced stages from its own waits"
    if run.calibrated_on_itself:
        return "; host and message times are its own, so nothing is predicted"
    others = len(run.calibrated_from)
    return f"; host and message times of {others} other run{'s' * (others != 1)}"


_MOST_ROWS = 40
_SOURCES = paths(
    "source, runs = count, mean, median, largest, calibrated = calibrated_mean, "
    "its largest = calibrated_largest, memory = memory_mean"
)
_STEP = "run = step.name, step.source, model = step.architecture.name, step.device"
_ROWS = paths(
    f"{_STEP}, GPUs = step.plan.npus, measured_s, predicted_s, error:+.2%, "
    "calibrated = calibrated_error:+.2%, GiB = predicted_gib:.1f"
)


def published_shown(found: PublishedValidation) -> Iterator[Shown]:
    """How far off all are, most of the runs, then errors of each source."""
    whole = [each for each in found.sources if each.source.startswith("all ")]
    off = (f"{each.source}: {each.mean:.1%} off, {each.count} runs" for each in whole)
    yield "   ".join(off)
    yield table_of("published steps", found.rows, _ROWS, most=_MOST_ROWS, both_ends=True)
    yield table_of("errors by source", found.sources, _SOURCES)
    yield (
        "calibrated: with one factor per source, device and precision; memory: mean error where "
        "the source reports it"
    )
    ran, out = found.rows, found.ran_out
    if out or any(row.step.memory_gib for row in ran):
        also = f", {sum(not each.fits for each in out)} of {len(out)} that ran out not to"
        fit = f"{sum(row.fits for row in ran)} of {len(ran)} runs are predicted to fit"
        yield f"memory: {fit}{also * bool(out)}"


_RESIDUALS = paths(
    f"{_STEP}, precision = step.plan.precision.value, measured = step.measured_s, predicted_s, "
    "residual = calibrated_error:+.2%"
)
_FACTORS = paths(
    "device, framework, precision = precision.value, factor:.3f, steps = runs, "
    "largest residual = spread"
)
_RATES = paths(
    "device, precision = precision.value, TFLOP/s, start_ps, shapes, mean residual = spread",
    {"TFLOP/s": as_number(".0f").of(lambda each: each.rate / 1e12)},
)


def model_calibration_shown(
    found: ModelCalibration, rows: Sequence[PublishedRun]
) -> Iterator[Shown]:
    """Residual of every step, then factors and rates."""
    if rows:
        yield table_of("steps", rows, _RESIDUALS, most=_MOST_ROWS, both_ends=True)
        yield table_of("factors on compute, measured over predicted", found.factors, _FACTORS)
    if found.rates:
        yield table_of("rates of matrix products", found.rates, _RATES)
