"""How far simulations are from measurements, number by number and by kind of number."""

from collections.abc import Iterator, Sequence

from stepsim.show.tables.model import COUNT, ERROR, TEXT, TIME, Shown, Table, Value, as_number
from stepsim.validation.document import Validation
from stepsim.validation.validate import Compared, RunValidation

_PERCENT = as_number(".2%")


def validation_shown(found: Validation) -> Iterator[Shown]:
    """Errors of every run and row, then mean and largest of each kind of number."""
    for run in found.runs:
        yield _run(run)
        if run.bubbles:
            yield f"rank bubbles: at most {run.worst_bubble_points:.1f} points off"
        yield from (f"note: {note}" for note in run.notes)
    yield _rows(found.rows)
    yield Table(
        caption="errors by kind of number",
        columns={"errors": TEXT, "mean": _PERCENT, "largest": _PERCENT, "numbers": COUNT},
        rows=tuple(
            (name, errors.mean, errors.largest, errors.count)
            for name, errors in found.errors().items()
        ),
    )


def _run(run: RunValidation) -> Table:
    return Table(
        caption=f"{run.name}, {run.durations} durations{_origin(run)}",
        columns={
            "time": TEXT,
            "from": TEXT,
            "simulated": TIME,
            "measured": TIME,
            "its samples": TEXT,
            "error": ERROR,
        },
        rows=tuple(
            (*_times(each), _spread(each), _error(each)) for each in (*run.times(), *run.waits)
        ),
    )


def _rows(rows: Sequence[Compared]) -> Table:
    return Table(
        caption="steps of logs and tables",
        columns={"run": TEXT, "from": TEXT, "simulated": TIME, "measured": TIME, "error": ERROR},
        rows=tuple((*_times(each), _error(each)) for each in rows),
    )


def _times(each: Compared) -> tuple[Value, ...]:
    return each.name, str(each.source), each.simulated_ps, each.measured_ps


def _spread(each: Compared) -> str:
    low, high = each.spread
    return f"{low:+.1%} {high:+.1%}" if len(each.samples_ps) > 1 else ""


def _error(each: Compared) -> float | str:
    return each.error if each.measured_ps else ""


def _origin(run: RunValidation) -> str:
    if run.inferred:
        return "; host, messages and untraced stages from its own waits"
    if run.calibrated_on_itself:
        return "; host and message times are its own, so nothing is predicted"
    return f"; host and message times of {len(run.calibrated_from)} other run(s)"
