"""The exceptions stepsim raises: one tree, one clear message each.

Every exception takes the message as its only argument, so that it survives pickling and
SimPy's re-raising (`type(error)(*error.args)`).
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from math import inf
from typing import Any, TypeVar

_LONGEST = 1000
_Member = TypeVar("_Member", bound=StrEnum)


class StepsimError(Exception):
    """Base of all errors a user can cause; the command line prints it and exits with 2.

    The message is one line that any terminal can show, whatever the names and values in it.
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class StepsimWarning(UserWarning):
    """What a reader of a result should know of its input; Python shows it once per line of code."""


class UnitError(StepsimError):
    """A quantity has no unit, an unknown unit, or a value outside its range."""


class WorkloadError(StepsimError):
    """A workload file cannot be read or means something stepsim cannot run."""


class TopologyError(StepsimError):
    """A topology file is malformed, or the topology cannot hold the job."""


class PlanError(StepsimError):
    """Parallel degrees, microbatches or options contradict each other."""


class ScheduleError(StepsimError):
    """A pipeline schedule does not exist for these ranks, microbatches or chunks."""


class SimulationError(StepsimError):
    """A run could not finish; the message names the stuck tasks and what each waits for."""


class TraceError(StepsimError):
    """A measured run cannot be read, or its operations cannot have happened as written."""


class CalibrationError(StepsimError):
    """A calibration file is malformed, or holds nothing for what is asked."""


class SweepError(StepsimError):
    """A sweep cannot be run as asked, or its database holds something else."""


class OutputError(StepsimError):
    """A result cannot be written where the user asked."""


@contextmanager
def errors_at(place: object, kind: type[StepsimError]) -> Iterator[None]:
    """Raise what goes wrong inside as an error of a kind whose message begins with a place."""
    try:
        yield
    except StepsimError as error:
        raise kind(f"{place}: {error}") from None


def printable(text: str) -> str:
    r"""The text with escapes such as `\x1b` for what is not printed but obeyed by a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def one_line(text: str) -> str:
    """The text in one line of printable characters, of a long one the beginning and the end."""
    if len(text) > _LONGEST:
        text = f"{text[: 3 * _LONGEST // 4]} ... {text[-_LONGEST // 4 :]}"
    return printable(text)


def bad_value(place: str, field: str, value: object, allowed: str) -> str:
    """Message for one wrong value: where it stands, what it is, and what is allowed."""
    try:
        whole = repr(value)
    except ValueError:  # an integer of thousands of digits
        whole = "a huge number"
    shown = whole if len(whole) <= 60 else f"{whole[:57]}..."
    return f"{place}: {field} is {shown}: expected {allowed}"


def member(
    kind: type[_Member], value: Any, field: str, error: type[StepsimError] = PlanError
) -> _Member:
    """The member of an enumeration that a text names; raises `error`, naming those there are."""
    try:
        return kind(value)
    except ValueError:
        raise error(f"{field} is {value!r}: expected one of {', '.join(kind)}") from None


def within(
    name: str,
    value: float | None,
    least: float,
    most: float = inf,
    error: type[StepsimError] = PlanError,
) -> None:
    """Raise `error` where a number that is given lies outside its bounds, both of which are in."""
    if value is not None and not least <= value <= most:
        bounds = f"at least {least}" if most == inf else f"{least} to {most}"
        raise error(f"{name} is {value}: expected {bounds}")


def said(module: str, text: str, *values: object) -> None:
    """Say something in a module's name, with `values` in place of `%d` and `%s`.

    Nobody listens where nobody has imported `logging`, which takes longer than all that is said.
    """
    if logging := sys.modules.get("logging"):
        logging.getLogger(module).info(text, *values, stacklevel=2)
