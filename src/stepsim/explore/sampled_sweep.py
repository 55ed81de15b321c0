"""Steps drawn of every scenario of a grid."""

from collections.abc import Callable
from typing import TypeVar

from stepsim.base.errors import StepsimError
from stepsim.base.structs import Entry, Values
from stepsim.files.axes import Grid

_Entry = TypeVar("_Entry", bound=Entry)


def sample_sweep(
    grid: Grid,
    entry: type[_Entry],
    find: Callable[[int], Values],
    progress: Callable[[int, int, int], None] | None,
) -> tuple[_Entry, ...]:
    """An entry for each scenario: its settings, with the numbers that are found, or why it fails.

    `progress` is called with the scenarios done, failed, and all. Raises the error of the first
    scenario when none can run.
    """
    found, failures = list[_Entry](), list[StepsimError]()
    for scenario in range(grid.size):
        try:
            numbers = find(scenario)
        except StepsimError as error:
            failures.append(error)
            numbers = {"error": str(error)}
        found.append(entry(settings=grid.values(scenario), **numbers))
        if progress:
            progress(len(found), len(failures), grid.size)
    if len(failures) == len(found):
        raise failures[0]
    return tuple(found)
