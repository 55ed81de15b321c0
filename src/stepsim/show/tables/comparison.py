"""Pipeline schedules side by side, and what explains the difference of two results."""

from collections.abc import Iterator, Sequence

from stepsim.files.simai.formula import SimaiTotals
from stepsim.show.tables.model import SHARE, SIZE, TEXT, TIME, Shown, Table, as_number
from stepsim.show.tables.step import job_pairs
from stepsim.step.document import CandidateDocument, ComparisonDocument

_SIMAI_PARTS = ("compute", "dp", "dp_ep", "tp", "ep", "bubble", "total")


def comparison_shown(found: ComparisonDocument) -> Iterator[Shown]:
    """A row per schedule, why the others cannot run, and SimAI's closed formula if it was asked."""
    yield job_pairs(found.runs[0])
    yield schedules_table(found.runs)
    yield from (f"{each.name} cannot run: {each.refusal}" for each in found.refused)
    if isinstance(found.simai_formula, SimaiTotals):
        totals = found.simai_formula
        yield Table(
            caption="SimAI's closed formula (us)",
            columns=dict.fromkeys(_SIMAI_PARTS, as_number(".0f")),
            rows=(tuple(getattr(totals, part) for part in _SIMAI_PARTS),),
        )
        yield totals.note


def schedules_table(runs: Sequence[CandidateDocument]) -> Table:
    """A row per schedule that runs."""
    return Table(
        caption="schedules; activations: peak of any rank, in chunks or bytes",
        columns={
            "schedule": TEXT,
            "p2p": TEXT,
            "step": TIME,
            "speed-up": as_number(".3f"),
            "bubble": SHARE,
            "exposed p2p": TIME,
            "activations": SIZE,
        },
        rows=tuple(
            (
                run.name,
                run.p2p,
                run.step_time_ps,
                run.speedup,
                run.bubble_fraction,
                run.breakdown_ps["exposed_pp"],
                str(run.peak_activations)
                if run.peak_activation_bytes is None
                else run.peak_activation_bytes,
            )
            for run in runs
        ),
    )
