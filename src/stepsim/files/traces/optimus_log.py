"""Logs of Optimus pipeline runs: forward sums of leaf modules per stage and step, ms per batch.

    [rank:7 stage:7] transformer-block(module) forward time (no send/recv) - step 2
      layer[14]: total=38.362ms, ops=256, avg/op=0.150ms
    | epoch   1 |     2/  323 batches | lr 0.00 | ms/batch 1600.43 | loss ...

All ranks write to one stream, so lines of different ranks mix: a block whose stage cannot be told
is left out.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from msgspec import Struct, field

from stepsim.base.errors import TraceError, bad_value
from stepsim.files.reading import read_bytes
from stepsim.measured.run import PS_PER_MS
from stepsim.measured.step_log import LeafLog, LeafStage
from stepsim.workload.plan import Plan

_HEADER = re.compile(r"\[rank:(\d+) stage:(\d+)\] transformer-block\(module\) forward time")
_STEP = re.compile(r"- step (\d+)")
_LAYER = re.compile(r"layer\[(\w+)\]: total=([\d.]+)ms, ops=(\d+)")
_BATCH = re.compile(r"\|\s*(\d+)/\s*\d+ batches .*?ms/batch\s+([\d.]+)")
_SETTING = re.compile(r"> (PP|TP|DP|GBS|MBS): (\d{1,9})")
_LEAVES_PER_LAYER = 8
_LARGEST = 1e12

# Milliseconds and operations of layers by their names.
_Layers = dict[str, tuple[float, int]]


class _Log(Struct, kw_only=True):
    """What a log says: settings, ms of steps, and (stage, step) to its layers' (ms, operations)."""

    settings: dict[str, int] = {}
    batches: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    blocks: dict[tuple[int, int], _Layers] = {}
    mixed: int = 0


def read_optimus_log(path: Path) -> LeafLog:
    """A run from its log.

    Raises TraceError naming the file and what is missing: degrees, steps after the first, stages.
    """
    log = _read(path)
    count = _microbatches(log, path)
    numbers = sorted(log.batches)
    if max(numbers, default=1) < 2:
        raise TraceError(f"{path}: no 'ms/batch' after the first step, which is warm-up")
    notes = [
        "forward times are sums of leaf modules: no attention, norms, loss, backward, host time"
    ]
    if log.mixed:
        notes.append(f"{log.mixed} blocks of mixed ranks left out")
    return LeafLog(
        source=str(path),
        form="Optimus",
        numbers=tuple(numbers),
        values=tuple(median(log.batches[number]) / 1e3 for number in numbers),
        plan=Plan(
            pp=log.settings["PP"],
            tp=log.settings["TP"],
            dp=log.settings["DP"],
            microbatch_size=log.settings["MBS"],
            microbatches=count,
        ),
        stages=tuple(_stage(mine, stage, count) for stage, mine in enumerate(_blocks(log, path))),
        warnings=tuple(f"{path}: {note}" for note in notes),
    )


def _microbatches(log: _Log, path: Path) -> int:
    """Microbatches of each pipeline; raises TraceError where the settings do not tell them."""
    for name in ("PP", "TP", "DP", "GBS", "MBS"):
        if not log.settings.get(name):
            raise TraceError(bad_value(str(path), name, log.settings.get(name), f"'> {name}: N'"))
    batch = log.settings["MBS"] * log.settings["DP"]
    count, left = divmod(log.settings["GBS"], batch)
    if left or not count:
        allowed = f"a multiple of MBS * DP, {batch}"
        raise TraceError(bad_value(str(path), "GBS", log.settings["GBS"], allowed))
    return count


def _read(path: Path) -> _Log:
    log = _Log()
    block: tuple[int, int] | None = None
    try:
        for line in read_bytes(path).decode(errors="replace").splitlines():
            for name, value in _SETTING.findall(line):
                log.settings.setdefault(name, int(value))
            if "layer[" in line or "forward time" in line:
                block = _layers(log, line, block)
            for step, value in _BATCH.findall(line):
                log.batches[int(step)].append(_number(value))
    except OSError as error:
        raise TraceError(f"{path}: cannot read the log: {error.strerror}") from None
    except ValueError as error:
        raise TraceError(f"{path}: {error}") from None
    return log


def _layers(log: _Log, line: str, block: tuple[int, int] | None) -> tuple[int, int] | None:
    """Take in a header or a layer; returns the block that further layers belong to."""
    headers, steps = _HEADER.findall(line), _STEP.findall(line)
    if headers:
        if len(headers) > 1 or len(steps) != 1:
            log.mixed += len(headers)
            return None
        block = int(headers[0][1]), int(steps[0])
        log.blocks[block] = {}
    for name, total, operations in _LAYER.findall(line):
        if block is not None:
            log.blocks[block][name] = _number(total), int(_number(operations))
    return block


def _number(text: str) -> float:
    """A number as a log has it; raises ValueError for what is none, or too large to be one."""
    value = float(text)
    if not value <= _LARGEST:
        raise ValueError(bad_value("log", "number", text, f"at most {_LARGEST:g}"))
    return value


def _blocks(log: _Log, path: Path) -> Iterator[list[_Layers]]:
    """The blocks of every stage after the first step, which is warm-up."""
    for stage in range(log.settings["PP"]):
        found = [layers for (of, step), layers in log.blocks.items() if of == stage and step > 1]
        if not any(found):
            raise TraceError(f"{path}: no forward times of stage {stage} after the first step")
        yield [layers for layers in found if layers]


def _stage(mine: Sequence[_Layers], stage: int, microbatches: int) -> LeafStage:
    """A stage from its blocks; blocks with other layers were mixed up."""
    usual, _ = Counter(tuple(sorted(layers)) for layers in mine).most_common(1)[0]
    whole = [layers for layers in mine if tuple(sorted(layers)) == usual]
    inside = [name for name in usual if name.isdecimal()]

    def per_microbatch(names: Sequence[str]) -> int:
        sums = [sum(layers[name][0] for name in names) for layers in whole]
        return round(median(sums) * PS_PER_MS / microbatches)

    operations = {name: count for name, (_, count) in whole[0].items()}
    return LeafStage(
        stage=stage,
        layers_ps=per_microbatch(inside),
        ends_ps=per_microbatch([name for name in usual if name not in inside]),
        layers=sum(operations[name] for name in inside) / microbatches / _LEAVES_PER_LAYER,
        samples=len(whole),
    )
