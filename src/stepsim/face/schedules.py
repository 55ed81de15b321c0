"""Schedules of one's own from Python: orders of actions, given as arguments."""

from collections.abc import Sequence

from stepsim.base.arguments import checked
from stepsim.base.errors import one_line
from stepsim.files.schedule_csv import parse_schedule
from stepsim.parallel.schedules import Schedule

__all__ = ["make_schedule"]


@checked
def make_schedule(name: str, orders: Sequence[Sequence[str]]) -> Schedule:
    """A schedule of a name, from what each pipeline rank runs in order, in torch's notation.

    `orders` has a list of tokens per rank: `0F1` is the forward of stage 0 for microbatch 1; B is a
    full backward, I the input gradient and W the weight gradient. `simulate` and `compare` take the
    schedule where they take a name. Raises ScheduleError naming rank, place and token unless every
    stage runs every microbatch once, forward and backward, after all that it needs.
    """
    text = "".join(f"{','.join(tokens)}\n" for tokens in orders)
    shown = one_line(name)
    return parse_schedule(text, source=f"orders of {shown}", name=shown)
