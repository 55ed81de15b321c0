"""Step lines of logs: Megatron-LM with its timers, torchtitan, DeepSpeed.

Sources: `training_log` in megatron/training/training.py and `Timers` in megatron/core/timers.py;
`MetricsProcessor.log` of torchtitan, whose tps are tokens per second and device; the pipeline
engine of DeepSpeed (`deepspeed/runtime/pipe/engine.py`).
"""

import math
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from msgspec import Struct

from stepsim.base.errors import TraceError, bad_value
from stepsim.files.reading import read_text
from stepsim.measured.step_log import StepLog

_NUMBER = r"([-+.,\deE]+|nan|inf)"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_TIMERS = re.compile(r"\(?(?:min, )?max\)? time across ranks \(ms\):")
_TIMER = re.compile(rf"\s+([\w-]+) \.*: (?:\({_NUMBER}, {_NUMBER}\)|{_NUMBER})\s*$")


class _Form(Struct, frozen=True, kw_only=True):
    """How a framework prints a step: its number and a value, of which a second has `scale`."""

    name: str
    line: re.Pattern[str]
    scale: float = 1.0
    of_tokens: bool = False


_FORMS = (
    _Form(
        name="Megatron-LM",
        line=re.compile(
            rf"iteration\s+(\d+)/\s*\d+ \|.*elapsed time per iteration \(ms\): {_NUMBER}"
        ),
        scale=1e3,
    ),
    _Form(
        name="torchtitan",
        line=re.compile(rf"step:\s*(\d+)\s.*\btps:\s*{_NUMBER}"),
        of_tokens=True,
    ),
    _Form(
        name="DeepSpeed",
        line=re.compile(rf"steps:\s*(\d+)\s.*iter time \(s\):\s*{_NUMBER}"),
    ),
)


def read_step_log(path: Path) -> StepLog:
    """Read the step lines of a log; raises TraceError naming file, line and value at fault."""
    expected = "a log with a line per step"
    lines = _COLOURS.sub("", read_text(path, TraceError, "log", expected)).splitlines()
    for form in _FORMS:
        found = list(_steps(path, lines, form))
        if found:
            numbers, values = zip(*found, strict=True)
            _check_order(path, numbers)
            return StepLog(
                source=str(path),
                form=form.name,
                numbers=numbers,
                seconds=() if form.of_tokens else tuple(each / form.scale for each in values),
                tokens_per_s=values if form.of_tokens else (),
                timers=_timers(path, lines),
            )
    names = ", ".join(form.name for form in _FORMS)
    raise TraceError(f"{path}: no step in it: expected the step lines of {names}")


def _steps(path: Path, lines: list[str], form: _Form) -> Iterator[tuple[int, float]]:
    for number, line in enumerate(lines, 1):
        told = form.line.search(line)
        if told:
            yield int(told[1][:18]), _value(f"{path}:{number}", told[2])


def _check_order(path: Path, numbers: tuple[int, ...]) -> None:
    for one, other in pairwise(numbers):
        if other <= one:
            raise TraceError(
                f"{path}: step {other} follows step {one}: expected the log of one run (a run that "
                "was started again has several)"
            )


def _timers(path: Path, lines: list[str]) -> dict[str, tuple[float, ...]]:
    """Seconds that the slowest rank spent under each timer of Megatron-LM, in the order printed."""
    found: dict[str, list[float]] = {}
    inside = False
    for number, line in enumerate(lines, 1):
        told = _TIMER.match(line) if inside else None
        if told:
            slowest = _value(f"{path}:{number}", told[3] or told[4])
            found.setdefault(told[1], []).append(slowest / 1e3)
        inside = bool(told) or _TIMERS.search(line) is not None
    return {name: tuple(values) for name, values in found.items()}


def _value(where: str, text: str) -> float:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        value = math.nan
    if not 0 < value < 1e12:
        raise TraceError(bad_value(where, "step", text, "a number above 0"))
    return value
