"""Pipeline schedules side by side, and what explains the difference of two results."""

from collections.abc import Iterator, Sequence

from stepsim.files.simai.formula import SimaiTotals
from stepsim.show.tables.model import SHARE, SIZE, TEXT, TIME, Shown, Table, as_number, table_of
from stepsim.show.tables.step import job_pairs
from stepsim.step.document import CandidateDocument, ComparisonDocument

_SIMAI_PARTS = ("compute", "dp", "dp_ep", "tp", "ep", "bubble", "total")


def comparison_shown(found: ComparisonDocument) -> Iterator[Shown]:
    """A row per schedule, why the others cannot run, and SimAI's closed formula if it was asked."""
    yield job_pairs(found.runs[0])
    yield schedules_table(found.runs)
    yield from (f"{each.name} cannot run: {each.refusal}" for each in found.refused)
    if isinstance(found.simai_formula, SimaiTotals):
        columns = {part: as_number(".0f").of(part) for part in _SIMAI_PARTS}
        yield table_of("SimAI's closed formula (us)", [found.simai_formula], columns)
        yield found.simai_formula.note


def schedules_table(runs: Sequence[CandidateDocument]) -> Table:
    """A row per schedule that runs."""
    return table_of(
        "schedules; activations: the most that a rank holds, in chunks or bytes", runs, _COLUMNS
    )


def _activations(run: CandidateDocument) -> str | int:
    known = run.peak_activation_bytes
    return str(run.peak_activations) if known is None else known


_COLUMNS = {
    "schedule": TEXT.of("name"),
    "p2p": TEXT.of("p2p"),
    "step": TIME.of("step_time_ps"),
    "speed-up": as_number(".3f").of("speedup"),
    "bubble": SHARE.of("bubble_fraction"),
    "exposed p2p": TIME.of(lambda run: run.breakdown_ps["exposed_pp"]),
    "activations": SIZE.of(_activations),
}
