"""Step lines of logs: the forms of many frameworks are data, in `log_forms.toml`."""

import math
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

from stepsim.base.errors import TraceError, bad_value
from stepsim.base.structs import Noun, Numbers, replace, shipped
from stepsim.files.reading import number_of, read_text
from stepsim.measured.step_log import StepLog, StepUnit

_PLAIN = r"(?:[-+.,\deE]+[KMBTP]?|nan|inf)"
_NUMBER = f"({_PLAIN})"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_TIMERS = re.compile(r"\(?(?:min, )?max\)? time across ranks \(ms\):")
_TIMER = re.compile(rf"\s+([\w-]+) \.*: (?:\({_NUMBER}, {_NUMBER}\)|{_NUMBER})\s*$")
# The most memory of a rank as Megatron-LM prints it, in MiB, and torchtitan, in GiB.
_MEMORY = re.compile(r"\bmax allocated: (\d{1,12}(?:\.\d*)?)|\bmemory:\s*(\d{1,12}(?:\.\d*)?)GiB")
# How torchrun marks the lines of a rank: several may print the same step.
_OF_RANK = re.compile(r"\[(?:rank|default)(\d+)\]:")
# Endings of nanotron's numbers for people.
_HUMAN = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12, "P": 1e15}


# What a line may say of a step, by the names of its groups.
_RATES = ("s", "ms", "tokens_per_s", "samples_per_s", "steps_per_s")


class _Form(Noun):
    """How a framework prints a step: an entry of `log_forms.toml`, which says what they mean."""

    name: str
    line: str
    tflops: str = ""
    redrawn: bool = False


def _forms() -> list[_Form]:
    """The forms of the file, with patterns of numbers for `<N>`."""
    forms = shipped(__file__, "log_forms.toml", dict[str, list[_Form]])["form"]
    return [
        replace(
            each,
            line=each.line.replace("<N>", _PLAIN),
            tflops=each.tflops.replace("<N>", _NUMBER),
        )
        for each in forms
    ]


def _own_form(line: str) -> _Form:
    """The form of a user's own pattern; raises TraceError for one that cannot be."""
    try:
        groups = re.compile(line).groupindex
    except re.error as error:
        raise TraceError(f"--line is {line!r}: no regular expression: {error}") from None
    if not groups.keys() & _RATES:
        expected = ", ".join(f"(?P<{name}>...)" for name in _RATES)
        raise TraceError(f"--line is {line!r}: expected one of the groups {expected}")
    return _Form(name="--line", line=line)


def read_step_log(path: Path, line: str | None = None) -> StepLog:
    """Read the step lines of a log; raises TraceError naming file, line and value at fault.

    A `line` is a pattern of the user's own, with the groups that `log_forms.toml` names.
    """
    lines = plain_lines(read_text(path, TraceError, "log", "a log with a line per step"))
    forms = _forms() if line is None else [_own_form(line)]
    for form in forms:
        pattern = re.compile(form.line)
        told = [
            (f"{path}:{number}", match)
            for number, line in enumerate(lines, 1)
            if (match := pattern.search(line))
        ]
        adds = {"iter", "step"} <= pattern.groupindex.keys()
        found = list(_whole_steps(told) if adds else _steps(told, form))
        if found:
            numbers, kinds, values, tflops = zip(*found, strict=True)
            _check_order(path, numbers)
            return StepLog(
                source=str(path),
                form=form.name,
                numbers=numbers,
                tflops=tflops if None not in tflops else (),
                timers=_timers(path, lines, 0),
                quickest=_timers(path, lines, 1),
                memory=_memory(lines),
                unit=kinds[0],
                values=values,
            )
    names = ", ".join(form.name for form in forms)
    raise TraceError(
        f"{path}: no step in it: expected the step lines of {names}; of another program give --line"
    )


def tells_steps(start: bytes) -> bool:
    """Whether the beginning of a log tells how long steps took."""
    text = "\n".join(plain_lines(start.decode(errors="replace")))
    return any(re.search(form.line, text, re.MULTILINE) for form in _forms())


def plain_lines(text: str) -> list[str]:
    """The lines of a log without colours."""
    return _COLOURS.sub("", text).splitlines()


# A step: its number, what is said of it, the value, and TFLOP/s where the line has them.
_Line = tuple[int, StepUnit, float, float | None]
# Lines of a form: where each stands, and what it says.
_Matches = Iterable[tuple[str, re.Match[str]]]


def _steps(matches: _Matches, form: _Form) -> Iterator[_Line]:
    """The steps of a form; of ranks that print the same step the first one counts.

    Lines of a form that have no number of their own are counted.
    """
    last: _Line | None = None
    first_rank = total = None
    for where, told in matches:
        line, groups = told.string, told.groupdict()
        rank = (_OF_RANK.match(line) or [""])[0]
        first_rank = rank if first_rank is None else first_rank
        total = total or groups.get("total")
        counted = (last[0] if last else 0) + 1
        step = _step(where, groups["step"]) if "step" in groups else counted
        again = last is not None and last[0] == step
        if rank != first_rank or groups.get("total") != total or (again and not form.redrawn):
            continue
        if last and not again:
            yield last
        rate = re.search(form.tflops, line) if form.tflops else None
        tflops = _value(where, rate[1]) if rate and rate[1].strip("0.") else None
        last = step, *_said(where, told), tflops
    if last:
        yield last


def _whole_steps(matches: _Matches) -> Iterator[_Line]:
    """The steps of a form whose lines are iterations: a step's number stands at its last one.

    Iterations 1, 2, 3 of step 0 and 4 of step 1 are step 1. Raises TraceError where one is missing.
    """
    seconds, before, done = 0.0, None, math.inf
    for where, told in matches:
        iteration, step = (_step(where, told[name]) for name in ("iter", "step"))
        if before not in (None, iteration - 1):
            raise TraceError(
                f"{where}: iteration {iteration} follows {before}: expected a line of each "
                "iteration, for a step is all of its own (or --line)"
            )
        seconds += _said(where, told)[1]
        if step > done:
            yield step, StepUnit.SECONDS, seconds, None
        if step != done:
            seconds = 0.0
        before, done = iteration, step


def _said(where: str, told: re.Match[str]) -> tuple[StepUnit, float]:
    """What a line says of its step: seconds, or a rate."""
    groups = told.groupdict()
    name = next(name for name in _RATES if groups.get(name))
    value = _value(where, groups[name] or "")
    match name:
        case "s":
            return StepUnit.SECONDS, value
        case "ms":
            return StepUnit.SECONDS, value / 1e3
        case "steps_per_s":
            return StepUnit.SECONDS, 1 / value
        case _:
            return StepUnit(name), value


def _check_order(path: Path, numbers: Numbers) -> None:
    for one, other in pairwise(numbers):
        if other <= one:
            raise TraceError(
                f"{path}: step {other} follows step {one}: expected the log of one run (one "
                "that was started again has several) and of one rank"
            )


def _memory(lines: list[str]) -> int | None:
    """The most bytes that any line says that a rank held; None where none does."""
    found = (match for line in lines if (match := _MEMORY.search(line)))
    sizes = [float(m[1]) * 2**20 if m[1] else float(m[2]) * 2**30 for m in found]
    return round(max(sizes)) if sizes else None


def _timers(path: Path, lines: list[str], which: int) -> dict[str, tuple[float, ...]]:
    """Seconds under each timer of Megatron-LM of the slowest rank, or of the quickest (1).

    What is printed as 0.00 is too short to say anything.
    """
    found: dict[str, list[float]] = {}
    inside = False
    for number, line in enumerate(lines, 1):
        told = _TIMER.match(line) if inside else None
        if told:
            text = told[2] if which else told[3] or told[4]
            if text and text.strip("0."):
                found.setdefault(told[1], []).append(_value(f"{path}:{number}", text) / 1e3)
        inside = bool(told) or _TIMERS.search(line) is not None
    return {name: tuple(values) for name, values in found.items()}


def _step(where: str, text: str) -> int:
    """The number of a step, which some print as 1.0 or 1e+3."""
    value = number_of(text)
    if not 0 <= value < 1e15:
        raise TraceError(bad_value(where, "step", text, "a number of at least 0, below 1e15"))
    return int(value)


def _value(where: str, text: str) -> float:
    """A number whose commas stand between thousands: 1,200.5 is one, 1200,5 and 1.200,5 are not."""
    ending = _HUMAN.get(text[-1:], 1.0)
    whole, point, rest = text.rstrip("KMBTP,").partition(".")
    if re.fullmatch(r"\d{1,3}(,\d{3})+", whole):
        whole = whole.replace(",", "")
    value = number_of(whole + point + rest) * ending
    if not 0 < value < 1e12:
        raise TraceError(bad_value(where, "step", text, "a number above 0, below 1e12"))
    return value
