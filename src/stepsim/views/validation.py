"""How far simulations are from measurements, number by number, by kind of number, and drawn."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from stepsim.base.errors import OutputError
from stepsim.base.units import PS_PER_S
from stepsim.documents.table import TEXT, Sheet, as_number, paths, table_of
from stepsim.runs.published import PublishedRun, PublishedValidation
from stepsim.runs.validate import RunEntry, TimeEntry, Validation
from stepsim.show.figures.drawing import drawn, legend
from stepsim.show.figures.style import FigureStyle
from stepsim.show.palette import FAINT, series_colour, series_marker
from stepsim.workload.model.calibration import ModelCalibration

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def validation_shown(found: Validation) -> Sheet:
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


def published_shown(found: PublishedValidation) -> Sheet:
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


def model_calibration_shown(found: ModelCalibration, rows: Sequence[PublishedRun]) -> Sheet:
    """Residual of every step, then factors and rates."""
    if rows:
        yield table_of("steps", rows, _RESIDUALS, most=_MOST_ROWS, both_ends=True)
        yield table_of("factors on compute, measured over predicted", found.factors, _FACTORS)
    if found.rates:
        yield table_of("rates of matrix products", found.rates, _RATES)


@drawn
def plot_validation(found: Validation, style: FigureStyle) -> "Figure":
    """Simulated over measured times; raises OutputError where nothing was measured."""
    points = {
        kind: [(each.measured_ps / PS_PER_S, each.simulated_ps / PS_PER_S) for each in times]
        for kind, times in found.kinds().items()
        if not kind.startswith("waits")
    }
    return _over_measured(points, "simulated", style)


@drawn
def plot_published(found: PublishedValidation, style: FigureStyle) -> "Figure":
    """Predicted over measured steps, by source; raises OutputError where there are none."""
    points: dict[str, list[tuple[float, float]]] = {}
    for row in found.rows:
        points.setdefault(row.step.source, []).append((row.measured_s, row.predicted_s))
    named = {f"{source} ({len(several)})": several for source, several in points.items()}
    return _over_measured(named, "predicted", style)


def _over_measured(
    points: Mapping[str, Sequence[tuple[float, float]]], what: str, style: FigureStyle
) -> "Figure":
    """Seconds of `what` over those measured, a colour and a marker for each kind of points.

    Both axes are logarithmic. On the line between the corners both times are equal.
    """
    from matplotlib.ticker import NullFormatter

    known = {name: [each for each in some if all(each)] for name, some in points.items()}
    times = [time for several in known.values() for each in several for time in each]
    if not times:
        raise OutputError(f"nothing to draw: no time was both measured and {what}")
    figure = style.figure(4.5)
    axes = figure.subplots()
    low, high = min(times) / 1.3, max(times) * 1.3
    axes.plot([low, high], [low, high], color=FAINT, zorder=1)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda seconds, _: f"{seconds:g}")
        axis.set_minor_formatter(NullFormatter())
    axes.set(xlabel="measured (s)", ylabel=f"{what} (s)")
    for i, (name, several) in enumerate(known.items()):
        if several:
            axes.scatter(
                *zip(*several, strict=True),
                marker=series_marker(i),
                facecolors="none",
                edgecolors=series_colour(i),
                label=name,
                zorder=2,
            )
    legend(figure, style)
    return figure
