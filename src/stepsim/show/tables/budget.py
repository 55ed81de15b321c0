"""A plan against its budget as a table."""

from collections.abc import Iterator

from stepsim.explore.plan.budget import BudgetDocument
from stepsim.show.tables.model import TEXT, Shown, table_of


def budget_shown(found: BudgetDocument) -> Iterator[Shown]:
    """A row per number."""
    yield table_of(
        found.plan,
        found.lines,
        {
            "": TEXT.of("what"),
            "budget": TEXT.of(lambda line: line.budget or "-"),
            "predicted": TEXT.of("predicted"),
            "verdict": TEXT.of(lambda line: "holds" if line.holds else "exceeded"),
        },
    )
