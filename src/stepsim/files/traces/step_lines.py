"""Step lines of logs: Megatron-LM with its timers, NeMo, torchtitan, nanotron, DeepSpeed.

Sources: `training_log` in megatron/training/training.py and `Timers` in megatron/core/timers.py;
`training_log` in src/megatron/bridge/training/utils/train_utils.py of Megatron-Bridge, which prints
Megatron-LM's line after its own; the progress printer of NeMo 2 and the bar of NeMo 1
(`train_step_timing in s`); `MetricsProcessor.log` of torchtitan, whose tps are tokens per second
and device; `train_step_logs` in src/nanotron/trainer.py with `human_format` of
src/nanotron/logging/base.py; the pipeline engine of DeepSpeed (`deepspeed/runtime/pipe/engine.py`).
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

_NUMBER = r"([-+.,\deE]+[KMBTP]?|nan|inf)"
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_TIMERS = re.compile(r"\(?(?:min, )?max\)? time across ranks \(ms\):")
_TIMER = re.compile(rf"\s+([\w-]+) \.*: (?:\({_NUMBER}, {_NUMBER}\)|{_NUMBER})\s*$")
_OF_RANK = re.compile(r"\[(?:rank|default)(\d+)\]:")
"""How torchrun marks the lines of a rank: several may print the same step."""
_HUMAN = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12, "P": 1e15}
"""Endings of nanotron's numbers for people."""


class _Form(Struct, frozen=True, kw_only=True):
    """How a framework prints a step: its number and a value, of which a second has `scale`.

    A form whose line has no number counts its lines. `tflops` is what stands before the TFLOP/s of
    a device in the same line. A bar, as of NeMo 1, prints a step again when it is drawn again: the
    last one counts.
    """

    name: str
    line: re.Pattern[str]
    scale: float = 1.0
    of_tokens: bool = False
    tflops: re.Pattern[str] | None = None
    redrawn: bool = False


_FORMS = (
    _Form(
        name="Megatron-LM",
        line=re.compile(
            rf"iteration\s+(\d+)/\s*\d+ \|.*elapsed time per iteration \(ms\): {_NUMBER}"
        ),
        scale=1e3,
        tflops=re.compile(rf"(?:throughput per GPU \(TFLOP/s/GPU\)|TFLOPs): {_NUMBER}"),
    ),
    _Form(
        name="Megatron-Bridge",
        line=re.compile(rf"()Step Time : {_NUMBER}s GPU utilization:"),
        tflops=re.compile(rf"GPU utilization: {_NUMBER}\s?MODEL_TFLOP/s/GPU"),
    ),
    _Form(
        name="NeMo",
        line=re.compile(rf"global_step[:=]\s*(\d+).*?train_step_timing in s[:=]\s*{_NUMBER}"),
        tflops=re.compile(rf"(?i:tflops_(?:per_sec_)?per_gpu)[:=]\s*{_NUMBER}"),
        redrawn=True,
    ),
    _Form(
        name="torchtitan",
        line=re.compile(rf"(?<!validate )step:\s*(\d+)\s.*\btps:\s*{_NUMBER}"),
        of_tokens=True,
        tflops=re.compile(rf"\btflops:\s*{_NUMBER}"),
    ),
    _Form(
        name="nanotron",
        line=re.compile(
            rf"iteration: (\d+) / \d+ \|.*?(?:elapsed_)?time_per_iteration_ms: {_NUMBER}"
        ),
        scale=1e3,
        tflops=re.compile(rf"model_tflops_per_gpu: {_NUMBER}"),
    ),
    _Form(
        name="DeepSpeed",
        line=re.compile(rf"steps:\s*(\d+)\s.*iter time \(s\):\s*{_NUMBER}"),
    ),
)


def read_step_log(path: Path) -> StepLog:
    """Read the step lines of a log; raises TraceError naming file, line and value at fault."""
    expected = "a log with a line per step"
    lines = plain_lines(read_text(path, TraceError, "log", expected))
    for form in _FORMS:
        found = list(_steps(path, lines, form))
        if found:
            numbers, values, tflops = zip(*found, strict=True)
            _check_order(path, numbers)
            return StepLog(
                source=str(path),
                form=form.name,
                numbers=numbers,
                seconds=() if form.of_tokens else tuple(each / form.scale for each in values),
                tokens_per_s=values if form.of_tokens else (),
                tflops=tflops if None not in tflops else (),
                timers=_timers(path, lines),
            )
    names = ", ".join(form.name for form in _FORMS)
    raise TraceError(f"{path}: no step in it: expected the step lines of {names}")


def plain_lines(text: str) -> list[str]:
    """The lines of a log without colours."""
    return _COLOURS.sub("", text).splitlines()


_Line = tuple[int, float, float | None]
"""A step: its number, its value, and TFLOP/s of a device where the line has them."""


def _steps(path: Path, lines: list[str], form: _Form) -> Iterator[_Line]:
    last: _Line | None = None
    first_rank: str | None = None
    for number, line in enumerate(lines, 1):
        told = form.line.search(line)
        if told:
            rank = (_OF_RANK.match(line) or [""])[0]
            first_rank = rank if first_rank is None else first_rank
            if rank != first_rank:
                continue
            where = f"{path}:{number}"
            rate = form.tflops.search(line) if form.tflops else None
            step = int(told[1][:18]) if told[1] else (last[0] if last else 0) + 1
            if last and not (form.redrawn and last[0] == step):
                yield last
            last = step, _value(where, told[2]), _value(where, rate[1]) if rate else None
    if last:
        yield last


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
    ending = _HUMAN.get(text[-1:], 1.0)
    try:
        value = float(text.replace(",", "").rstrip("KMBTP")) * ending
    except ValueError:
        value = math.nan
    if not 0 < value < 1e12:
        raise TraceError(bad_value(where, "step", text, "a number above 0"))
    return value
