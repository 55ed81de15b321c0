"""What `stepsim doctor` found."""

from collections.abc import Sequence

from stepsim.show.doctor import Check
from stepsim.show.tables.model import LONG, TEXT, Table


def checks_table(checks: Sequence[Check]) -> Table:
    """A row per check."""
    return Table(
        caption="checks of this installation",
        columns={"status": TEXT, "check": TEXT, "what was found": LONG},
        rows=tuple((check.status, check.name, check.detail) for check in checks),
    )
