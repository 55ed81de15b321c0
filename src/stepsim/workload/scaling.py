"""Compute times of a workload: scaling to another device, and rows that were never profiled."""

import re

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Floats
from stepsim.base.errors import PlanError
from stepsim.base.structs import replace
from stepsim.base.units import MAX_INT64
from stepsim.workload.axes import ParallelAxis
from stepsim.workload.rows import CommOp, Phase, Work, Workload, scaled_ps

_MAX_SCALE = 1e6
_PHASES = ("forward", "input_grad", "weight_grad")


class ComputeScale(Struct, frozen=True, kw_only=True):
    """Factors on compute time per phase: 0.5 is a device twice as fast."""

    forward: float = 1.0
    input_grad: float = 1.0
    weight_grad: float = 1.0

    def __post_init__(self) -> None:
        for phase in _PHASES:
            factor = getattr(self, phase)
            if not 0 < factor <= _MAX_SCALE:
                raise PlanError(
                    f"compute scale of {phase} is {factor}: expected above 0, at most 1e6"
                )

    def __str__(self) -> str:
        """As people write it: one factor where all phases have it, else those that are not 1."""
        factors = {phase: getattr(self, phase) for phase in _PHASES}
        if len({*factors.values()}) == 1:
            return str(self.forward)
        return ",".join(f"{phase}={factor}" for phase, factor in factors.items() if factor != 1)


def parse_compute_scale(text: str) -> ComputeScale:
    """Factors in `0.5` or `forward=0.5,input_grad=0.6,weight_grad=0.6`; phases left out keep 1.

    Raises PlanError for anything else.
    """
    factors: dict[str, float] = {}
    for item in text.split(","):
        name, equals, number = item.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = 0.0
        if not value > 0 or (equals and name.strip() not in _PHASES):
            expected = f"a factor such as 0.5, or PHASE=FACTOR with phases {', '.join(_PHASES)}"
            raise PlanError(f"compute scale is {text!r}: expected {expected}")
        factors |= {name.strip(): value} if equals else dict.fromkeys(_PHASES, value)
    return ComputeScale(**factors)


def scale_compute(workload: Workload, scale: ComputeScale) -> Workload:
    """The workload with every compute time scaled, per-step rows included."""
    if scale == ComputeScale():
        return workload

    def scaled(phase: Phase, work: Work) -> Work:
        return replace(work, compute_ps=scaled_ps(work.compute_ps, getattr(scale, phase)))

    owned = (
        replace(each, scale=each.scale * getattr(scale, each.phase))
        for each in workload.per_parameter
    )
    return replace(workload.with_works(scaled), per_parameter=tuple(owned))


def enlarge_microbatches(workload: Workload, samples: int) -> Workload:
    """The workload with microbatches of so many samples, those it has taken as one sample.

    What follows the tokens grows in proportion: compute of the rows, activations that collectives
    and stages exchange. Parameters and their gradients do not: collectives of weight gradients and
    of the dp axis, and what runs once per step. Raises PlanError where nothing follows the tokens
    or a number outgrows 64 bits.
    """
    asked = f"microbatch_size is {samples}"
    if samples < 1:
        raise PlanError(f"{asked}: expected at least 1")
    if samples == 1:
        return workload

    def grown(phase: Phase, work: Work) -> Work:
        return replace(
            work,
            compute_ps=work.compute_ps * samples,
            comms=tuple(
                replace(op, size_bytes=op.size_bytes * samples) if _is_tokens(phase, op) else op
                for op in work.comms
            ),
        )

    enlarged = replace(
        workload.with_row_works(grown), pp_comm_bytes=workload.pp_comm_bytes * samples
    )
    if enlarged == workload:
        raise PlanError(f"{asked}: nothing in {workload.source} follows the number of samples")
    works = [work for row in enlarged.rows() for _, work in row.works()]
    sizes = [op.size_bytes for work in works for op in work.comms]
    if max(*(work.compute_ps for work in works), *sizes, enlarged.pp_comm_bytes) > MAX_INT64:
        raise PlanError(f"{asked}: expected times and sizes of at most 2**63 - 1 ps and bytes")
    return replace(
        enlarged,
        warnings=(
            *workload.warnings,
            f"{asked}: compute and activations grow in proportion from {workload.source}, whose "
            "microbatch is taken as 1 sample; the gain of larger kernels is not modelled",
        ),
    )


def _is_tokens(phase: Phase, op: CommOp) -> bool:
    """Whether a collective carries activations or their gradients, not parameters or theirs."""
    return phase is not Phase.WEIGHT_GRAD and op.axis is not ParallelAxis.DP


class SlowRanks(Struct, frozen=True, kw_only=True):
    """Ranges of ranks, (first, last, factor) each, and the factors on their compute times."""

    ranges: tuple[tuple[int, int, float], ...]

    def __str__(self) -> str:
        """As people write them, e.g. `12:1.3,40-47:1.1`."""
        return ",".join(
            f"{first if first == last else f'{first}-{last}'}:{str(factor).removesuffix('.0')}"
            for first, last, factor in self.ranges
        )

    def factors(self, npus: int) -> Floats:
        """The factor of every rank, 1 where none is given; raises PlanError for ranks not there."""
        factors = np.ones(npus)
        for first, last, factor in self.ranges:
            if last >= npus:
                shown = first if first == last else f"{first}-{last}"
                raise PlanError(f"slow is {shown}: expected ranks 0 to {npus - 1}")
            factors[first : last + 1] = factor
        return factors


def parse_slow_ranks(text: str) -> SlowRanks:
    """Factors on ranks' compute times, from `12:1.3,40-47:1.1`.

    Raises PlanError for what is not such a list, and for a rank that has two factors.
    """
    ranges: list[tuple[int, int, float]] = []
    for item in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*:\s*([\d.]+(?:e[+-]?\d+)?)\s*", item, re.ASCII)
        first, last, number = match.groups() if match else ("0", "0", "0")
        try:
            low, high, factor = int(first), int(last or first), float(number)
        except ValueError:
            low, high, factor = 0, 0, 0.0
        if not (low <= high and 0 < factor <= _MAX_SCALE):
            expected = "RANK:FACTOR or FIRST-LAST:FACTOR, factors above 0, at most 1e6"
            raise PlanError(f"slow is {item.strip()!r}: expected {expected}")
        if any(low <= end and start <= high for start, end, _ in ranges):
            raise PlanError(f"slow is {item.strip()!r}: expected each rank once")
        ranges.append((low, high, factor))
    return SlowRanks(ranges=tuple(ranges))
