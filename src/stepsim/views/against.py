"""A predicted step beside a measured one: the answer, the parts, and every row."""

from stepsim.base.units import format_size_bytes, format_time_ps
from stepsim.documents.table import ERROR, Sheet, paths, table_of
from stepsim.explain.against import Against

_TIMES = {
    **paths("predicted_ps, measured_ps, difference = difference_ps"),
    "change": ERROR.of(
        lambda row: row.measured_ps / row.predicted_ps - 1 if row.predicted_ps else None
    ),
}
_RUN = paths(
    "predicted_run_ps, measured_run_ps, kernels predicted = predicted_count, "
    "kernels measured = measured_count"
)
# Steps that are further apart than this factor are of two jobs, not of one that runs badly.
_OF_ANOTHER = 3.0
# A part that is a smaller share of both steps stands in the whole table alone.
_LARGE = 0.002


def against_answer(against: Against) -> Sheet:
    """Both steps, their parts, and the largest differences, at most about fifteen lines."""
    first, second = against.predicted_step_ps, against.measured_step_ps
    change = f"{second / first - 1:+.1%}" if first else "-"
    apart = max(first, second) / max(min(first, second), 1)
    if apart > _OF_ANOTHER:
        faster = "faster" if second < first else "slower"
        yield f"another job: measured is {apart:.3g} times {faster} than this model and plan"
    ranks = f"rank {against.ranks[0]}" if len(against.ranks) == 1 else f"{len(against.ranks)} ranks"
    yield (
        f"{format_time_ps(first)} per step predicted, {format_time_ps(second)} measured "
        f"({change}): {against.source} ({against.format}), step {against.step}, {ranks}"
    )
    least = _LARGE * max(first, second)
    parts = [
        row for row in against.summed("part") if max(row.predicted_ps, row.measured_ps) >= least
    ]
    yield table_of("", parts, paths("mean rank = part") | _TIMES)
    told = (f"{number}. {text}" for number, text in enumerate(against.differences, 1))
    yield "\n".join(told) or "no row differs"


def against_tables(against: Against) -> Sheet:
    """Every row, by what it is and by its name, and the peaks of memory."""
    names = paths("part, row = name") | _TIMES | _RUN
    yield table_of("by what runs", against.summed("part", "name"), names)
    if any(row.item for row in against.rows):
        names = paths("part, row = name, of = item")
        yield table_of("every row", against.rows, names | _TIMES | _RUN)
    if against.measured_peak_bytes:
        predicted = against.predicted_peak_bytes
        yield (
            ("peak of memory, predicted", format_size_bytes(predicted) if predicted else "-"),
            ("peak of memory, measured", format_size_bytes(against.measured_peak_bytes)),
        )


def against_shown(against: Against) -> Sheet:
    """The answer and every table."""
    yield from against_answer(against)
    yield from against_tables(against)
