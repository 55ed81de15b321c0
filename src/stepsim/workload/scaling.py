"""Compute times of a workload: scaling to another device, and rows that were never profiled."""

import re
from dataclasses import dataclass, replace

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.errors import PlanError
from stepsim.base.units import PS_PER_NS
from stepsim.workload.rows import Phase, Work, Workload

PLACEHOLDERS_PS = (1 * PS_PER_NS, 1000 * PS_PER_NS)
_MAX_SCALE = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeScale:
    """Factors on compute time per phase: 0.5 is a device twice as fast."""

    forward: float = 1.0
    input_grad: float = 1.0
    weight_grad: float = 1.0

    def __post_init__(self) -> None:
        for phase in ("forward", "input_grad", "weight_grad"):
            factor = getattr(self, phase)
            if not 0 < factor <= _MAX_SCALE:
                raise PlanError(
                    f"compute scale of {phase} is {factor}: expected above 0, at most 1e6"
                )


def parse_compute_scale(text: str) -> ComputeScale:
    """Factors in `0.5` or `forward=0.5,input_grad=0.6,weight_grad=0.6`; phases left out keep 1.

    Raises PlanError for anything else.
    """
    factors: dict[str, float] = {}
    phases = ("forward", "input_grad", "weight_grad")
    for item in text.split(","):
        name, equals, number = item.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = 0.0
        if not value > 0 or (equals and name.strip() not in phases):
            expected = f"a factor such as 0.5, or PHASE=FACTOR with phases {', '.join(phases)}"
            raise PlanError(f"compute scale is {text!r}: expected {expected}")
        factors |= {name.strip(): value} if equals else dict.fromkeys(phases, value)
    return ComputeScale(**factors)


def scale_compute(workload: Workload, scale: ComputeScale) -> Workload:
    """The workload with every compute time scaled, per-step rows included."""
    if scale == ComputeScale():
        return workload

    def scaled(phase: Phase, work: Work) -> Work:
        """Rounded; what computes still does, for without compute a graph has other tasks."""
        least = min(work.compute_ps, 1)
        return replace(work, compute_ps=max(round(work.compute_ps * getattr(scale, phase)), least))

    return workload.with_works(scaled)


def slow_ranks(text: str, npus: int) -> Floats:
    """Factor on every rank's compute time, from `12:1.3,40-47:1.1`; others have 1.

    Raises PlanError for what is not such a list, or ranks that the job does not have.
    """
    factors = np.ones(npus)
    for item in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*:\s*([\d.]+(?:e[+-]?\d+)?)\s*", item, re.ASCII)
        first, last, factor = match.groups() if match else ("0", "0", "0")
        try:
            low, high, value = int(first), int(last or first), float(factor)
        except ValueError:
            low, high, value = 0, 0, 0.0
        if not 0 < value <= _MAX_SCALE:
            expected = "RANK:FACTOR or FIRST-LAST:FACTOR, factors above 0, at most 1e6"
            raise PlanError(f"slow is {item.strip()!r}: expected {expected}")
        if not low <= high < npus:
            raise PlanError(f"slow is {item.strip()!r}: expected ranks 0 to {npus - 1}, ascending")
        factors[low : high + 1] = value
    return factors


def placeholder_rows(workload: Workload) -> tuple[int, int]:
    """(rows of layers that have only placeholder compute, rows of layers that have compute).

    Writers without a profile put 1 or 1000 ns everywhere.
    """
    rows = [row for block in workload.microbatches for row in block.rows()]
    times = [[w.compute_ps for _, w in row.works() if w.compute_ps] for row in rows]
    bare = sum(1 for row in times if row and all(t in PLACEHOLDERS_PS for t in row))
    return bare, sum(1 for row in times if row)
