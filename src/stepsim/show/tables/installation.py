"""What `stepsim doctor` found."""

from collections.abc import Sequence

from stepsim.show.doctor import Check
from stepsim.show.tables.model import LONG, TEXT, Table, table_of


def checks_table(checks: Sequence[Check]) -> Table:
    """A row per check."""
    columns = {
        "status": TEXT.of("status"),
        "check": TEXT.of("name"),
        "what was found": LONG.of("detail"),
    }
    return table_of("checks of this installation", checks, columns)
