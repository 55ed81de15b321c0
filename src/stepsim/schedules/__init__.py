"""Pipeline schedules by name: pure functions from (ranks, microbatches, chunks) to actions."""

from collections.abc import Callable

from stepsim.errors import ScheduleError
from stepsim.schedules.base import Action, ActionKind, Placement, Schedule
from stepsim.schedules.one_f_one_b import one_f_one_b

BUILDERS: dict[str, Callable[..., Schedule]] = {"1f1b": one_f_one_b}


def build(name: str, *, ranks: int, microbatches: int, chunks: int = 1) -> Schedule:
    """Schedule of that name; raises ScheduleError when it is unknown or refuses the shape."""
    if name not in BUILDERS:
        raise ScheduleError(f"schedule is {name!r}: expected one of {', '.join(BUILDERS)}")
    return BUILDERS[name](ranks=ranks, microbatches=microbatches, chunks=chunks)


__all__ = ["BUILDERS", "Action", "ActionKind", "Placement", "Schedule", "build"]
