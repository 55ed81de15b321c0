"""Logs of Optimus pipeline runs: forward sums of leaf modules per stage and step, ms per batch.

    [rank:7 stage:7] transformer-block(module) forward time (no send/recv) - step 2
      layer[14]: total=38.362ms, ops=256, avg/op=0.150ms
    | epoch   1 |     2/  323 batches | lr 0.00 | ms/batch 1600.43 | loss ...

All ranks write to one stream, so lines of different ranks mix: a block whose stage cannot be told
is left out.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from stepsim.base.errors import TraceError, bad_value
from stepsim.files.reading import number_in, read_bytes
from stepsim.measured.run import PS_PER_MS
from stepsim.measured.step_log import LeafLog, LeafStage
from stepsim.workload.plan import Plan

_HEADER = re.compile(r"\[rank:\d+ stage:(\d{1,9})\] transformer-block\(module\) forward time")
_STEP = re.compile(r"- step (\d{1,9})")
_LAYER = re.compile(r"layer\[(\w+)\]: total=([\d.]+)ms, ops=(\d+)")
_BATCH = re.compile(r"\|\s*(\d{1,9})/\s*\d+ batches .*?ms/batch\s+([\d.]+)")
_SETTING = re.compile(r"> (PP|TP|DP|GBS|MBS): (\d{1,9})")
_LEAVES_PER_LAYER = 8
_LARGEST = 1e12

# Milliseconds and operations of layers by their names.
_Layers = dict[str, tuple[float, int]]


def read_optimus_log(path: Path) -> LeafLog:
    """A run from its log.

    Raises TraceError naming the file and what is missing: degrees, steps after the first, stages.
    """
    try:
        text = read_bytes(path).decode(errors="replace")
    except OSError as error:
        raise TraceError(f"{path}: cannot read the log: {error.strerror}") from None
    settings = {name: int(value) for name, value in reversed(_SETTING.findall(text))}
    count = _microbatches(settings, path)
    batches = defaultdict[int, list[float]](list)
    for step, value in _BATCH.findall(text):
        batches[int(step)].append(_number(path, "ms/batch", value))
    numbers = sorted(batches)
    if max(numbers, default=1) < 2:
        raise TraceError(f"{path}: no 'ms/batch' after the first step, which is warm-up")
    notes = [
        "forward times are sums of leaf modules: no attention, norms, loss, backward, host time"
    ]
    blocks, mixed = _blocks(path, text)
    if mixed:
        notes.append(f"{mixed} blocks of mixed ranks left out")
    stages = []
    for stage in range(settings["PP"]):
        mine = [layers for (of, step), layers in blocks.items() if of == stage and step > 1]
        if not any(mine):
            raise TraceError(f"{path}: no forward times of stage {stage} after the first step")
        stages.append(_stage([*filter(None, mine)], stage, count))
    return LeafLog(
        source=str(path),
        form="Optimus",
        numbers=tuple(numbers),
        values=tuple(median(batches[number]) / 1e3 for number in numbers),
        plan=Plan(
            pp=settings["PP"],
            tp=settings["TP"],
            dp=settings["DP"],
            microbatch_size=settings["MBS"],
            microbatches=count,
        ),
        stages=tuple(stages),
        warnings=tuple(f"{path}: {note}" for note in notes),
    )


def _microbatches(settings: Mapping[str, int], path: Path) -> int:
    """Microbatches of each pipeline; raises TraceError where the settings do not tell them."""
    for name in ("PP", "TP", "DP", "GBS", "MBS"):
        if not settings.get(name):
            raise TraceError(bad_value(str(path), name, settings.get(name), f"'> {name}: N'"))
    batch = settings["MBS"] * settings["DP"]
    count, left = divmod(settings["GBS"], batch)
    if left or not count:
        allowed = f"a multiple of MBS * DP, {batch}"
        raise TraceError(bad_value(str(path), "GBS", settings["GBS"], allowed))
    return count


def _blocks(path: Path, text: str) -> tuple[dict[tuple[int, int], _Layers], int]:
    """The layers of every stage and step, and how many blocks of mixed ranks are left out."""
    blocks, mixed = dict[tuple[int, int], _Layers](), 0
    block: _Layers | None = None
    for line in text.splitlines():
        stages, steps = _HEADER.findall(line), _STEP.findall(line)
        if len(stages) == len(steps) == 1:
            block = blocks[int(stages[0]), int(steps[0])] = {}
        elif stages:
            mixed += len(stages)
            block = None
        for name, total, operations in _LAYER.findall(line):
            if block is not None:
                count = _number(path, f"ops of layer {name}", operations)
                block[name] = _number(path, f"total of layer {name}", total), int(count)
    return blocks, mixed


def _number(path: Path, name: str, text: str) -> float:
    """A number as a log has it; raises TraceError for what is none, or too large to be one."""
    return number_in(str(path), name, text, TraceError, 0, _LARGEST)


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
