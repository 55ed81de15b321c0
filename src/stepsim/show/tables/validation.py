"""How far simulations are from measurements, number by number and by kind of number."""

from collections.abc import Iterator

from stepsim.explain.runs.document import Validation
from stepsim.explain.runs.validate import Compared, RunValidation
from stepsim.show.tables.model import COUNT, ERROR, TEXT, TIME, Shown, as_number, table_of

_PERCENT = as_number(".2%")


def validation_shown(found: Validation) -> Iterator[Shown]:
    """Errors of every run and row, then mean and largest of each kind of number."""
    for run in found.runs:
        caption = f"{run.name}, {run.durations} durations{_origin(run)}"
        columns = {"time": TEXT.of("name"), **_TIMES, "its samples": TEXT.of(_spread), **_ERROR}
        yield table_of(caption, (*run.times(), *run.waits), columns)
        if run.bubbles:
            yield f"rank bubbles: at most {run.worst_bubble_points:.1f} points off"
        yield from (f"note: {note}" for note in run.notes)
    columns = {"run": TEXT.of("name"), **_TIMES, **_ERROR}
    yield table_of("steps of logs and tables", found.rows, columns)
    yield table_of("errors by kind of number", found.errors().items(), _KINDS)


_KINDS = {
    "errors": TEXT.of(lambda item: item[0]),
    "mean": _PERCENT.of(lambda item: item[1].mean),
    "largest": _PERCENT.of(lambda item: item[1].largest),
    "numbers": COUNT.of(lambda item: item[1].count),
}
_TIMES = {
    "from": TEXT.of(lambda each: str(each.source)),
    "simulated": TIME.of("simulated_ps"),
    "measured": TIME.of("measured_ps"),
}
_ERROR = {"error": ERROR.of(lambda each: each.error if each.measured_ps else "")}


def _spread(each: Compared) -> str:
    low, high = each.spread
    return f"{low:+.1%} {high:+.1%}" if len(each.samples_ps) > 1 else ""


def _origin(run: RunValidation) -> str:
    if run.inferred:
        return "; host, messages and untraced stages from its own waits"
    if run.calibrated_on_itself:
        return "; host and message times are its own, so nothing is predicted"
    return f"; host and message times of {len(run.calibrated_from)} other run(s)"
