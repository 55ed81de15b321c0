"""Rows of a workload with other compute times: on another device, never profiled, or uneven.

A writer without a profile puts 1 or 1000 ns: such placeholders are filled or doubted. With uneven
expert load some expert-parallel ranks get more tokens than others. Expert rows lie between two
all-to-alls over the expert-parallel group, and the second one waits for all members, so the busiest
rank decides how long they take.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from math import lcm

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.axes import CollectiveKind, Group, ParallelAxis, Phase
from stepsim.base.errors import PlanError, within
from stepsim.base.structs import Noun, replace
from stepsim.base.units import MAX_INT64, PS_PER_NS
from stepsim.workload.expert_load import ExpertCounts, ExpertLaw, ExpertLoad, ExpertSkew
from stepsim.workload.rows import CommOp, Doubt, Row, Work, Workload, scaled_ps

_MAX_SCALE = 1e6
_PHASES = tuple(Phase)


class ComputeScale(Noun):
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
    within("microbatch_size", samples, 1)
    asked = f"microbatch_size is {samples}"
    if samples == 1:
        return workload

    def grown(phase: Phase, work: Work) -> Work:
        return replace(
            work,
            compute_ps=work.compute_ps * samples,
            comms=tuple(
                # activations or their gradients, not parameters or theirs
                replace(op, size_bytes=op.size_bytes * samples)
                if phase is not Phase.WEIGHT_GRAD and op.axis is not ParallelAxis.DP
                else op
                for op in work.comms
            ),
        )

    enlarged = replace(
        workload.with_works(grown),
        per_step=workload.per_step,
        pp_comm_bytes=workload.pp_comm_bytes * samples,
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


class SlowRanks(Noun):
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


def fullest_load(tokens: Sequence[float], ep: int) -> float:
    """Load of the fullest expert-parallel rank over the mean, from the tokens of each expert.

    Experts (or ranks) are shared out in order, equally many to each rank. Raises PlanError when
    they cannot be, when a number is negative or when there are no tokens at all.
    """
    if not tokens or len(tokens) % ep:
        raise PlanError(f"expert load has {len(tokens)} numbers: expected a multiple of ep, {ep}")
    if min(tokens) < 0 or not 0 < sum(tokens) < float("inf"):
        raise PlanError("expert load: expected tokens per expert, none negative, not all zero")
    each = len(tokens) // ep
    sums = [sum(tokens[rank * each : (rank + 1) * each]) for rank in range(ep)]
    return max(sums) / sum(sums) * ep


def load_experts(workload: Workload, load: ExpertLoad, microbatches: int | None) -> Workload:
    """The workload with the load of experts in each layer and each of so many microbatches.

    With `microbatches` None nobody says how many there are. Expert rows and the exchanges around
    them take what the fullest rank has: all ranks wait for that one, and what it receives is what
    its link carries. Loads of a law are drawn from its seed, layer and microbatch, for
    `_MOST_LOADS` microbatches at most, which then repeat. Raises PlanError where the workload does
    not say how many experts there are, where counts are of another number of them, or where no row
    exchanges tokens between experts.
    """
    blocks, count = workload.microbatches, 1  # so many have loads that differ
    if not any(_has_experts(block.rows()) for block in blocks):
        raise PlanError(f"{workload.source}: no all-to-all over ep groups: no experts to load")
    if isinstance(load, ExpertCounts):
        count = load.microbatches
    elif isinstance(load, ExpertLaw):
        count = microbatches or _MOST_LOADS
    fullest, loaded = list[float](), []
    for microbatch in range(lcm(min(count, _MOST_LOADS), len(blocks))):
        block = blocks[microbatch % len(blocks)]
        layers = list(block.layers)
        for number in filter(lambda number: _has_experts(layers[number]), range(len(layers))):
            fullest.append(_fullest(workload, load, number, microbatch))
            layers[number] = tuple(_rows(layers[number], fullest[-1]))
        loaded.append(replace(block, layers=tuple(layers)))
    text = (
        f"the fullest of {workload.degrees['ep']} expert ranks has "
        f"{sum(fullest) / len(fullest):.2f} times the mean load, {max(fullest):.2f} in the worst "
        f"of {len(fullest)} layers of microbatches: expert rows of all ranks take as long as there"
    )
    return replace(workload, microbatches=tuple(loaded), warnings=(*workload.warnings, text))


# Microbatches whose loads differ: more would be tasks without end.
_MOST_LOADS = 64


def _fullest(workload: Workload, load: ExpertLoad, layer: int, microbatch: int) -> float:
    """Tokens of the fullest expert rank over the mean, 1 if none are counted; raises PlanError."""
    ep = workload.degrees["ep"]
    if isinstance(load, ExpertSkew):
        within(f"ep is {ep}: expert skew", load.over_mean, 1, ep)
        return load.over_mean
    if isinstance(load, tuple):
        return fullest_load(load, ep)
    if isinstance(load, ExpertCounts):
        counted = load.of(layer, microbatch)
        if counted is not None and workload.experts not in (None, len(counted)):
            raise PlanError(
                f"{load}: {len(counted)} experts: {workload.source} has {workload.experts} in a "
                "layer"
            )
        return fullest_load(counted, ep) if counted else 1.0
    if workload.experts is None:
        raise PlanError(
            f"expert_load is {load}: {workload.source} does not say how many experts it has: "
            "expected a file with the tokens of each of them"
        )
    random = np.random.default_rng([load.seed, layer, microbatch])
    return fullest_load(load.shares(random, workload.experts, workload.top_k).tolist(), ep)


def _has_experts(rows: Iterable[Row]) -> bool:
    """Whether rows exchange tokens between experts."""
    return any(_exchanges(op) for row in rows for op in row.forward.comms)


def _rows(rows: Sequence[Row], factor: float) -> Iterator[Row]:
    """Rows of a layer with `factor` times the tokens of experts.

    Where rows do not say which are the experts' own, those are from after the first exchange to the
    second.
    """
    inside, says = False, any(row.routed for row in rows)
    for row in rows:
        own = row.routed if says else inside
        yield row.with_works(partial(_loaded, factor, own))
        if any(map(_exchanges, row.forward.comms)):
            inside = not inside


def _loaded(factor: float, own: bool, _: Phase, work: Work) -> Work:
    """A row's work with more tokens, its compute if it is experts' `own`."""

    def grown(op: CommOp) -> CommOp:
        size = round(op.size_bytes * factor)
        if _exchanges(op):
            return replace(op, size_bytes=size, least_ps=round(op.least_ps * factor))
        return replace(op, size_bytes=size) if own or op.group is Group.ETP else op

    compute_ps = round(work.compute_ps * factor) if own else work.compute_ps
    return replace(work, compute_ps=compute_ps, comms=tuple(map(grown, work.comms)))


def _exchanges(op: CommOp) -> bool:
    return op.kind is CollectiveKind.ALL_TO_ALL and op.group is Group.EP


_PLACEHOLDERS_PS = (1 * PS_PER_NS, 1000 * PS_PER_NS)


def is_known_time(compute_ps: int) -> bool:
    """Whether something computes, for a time that writers do not put where they have none."""
    return compute_ps > 0 and compute_ps not in _PLACEHOLDERS_PS


def placeholder_rows(workload: Workload) -> tuple[int, int]:
    """(rows of layers that have only placeholder compute, rows of layers that have compute)."""
    rows = [row for block in workload.microbatches for row in block.rows()]
    times = [[work.compute_ps for _, work in row.works()] for row in rows]
    computing = [row for row in times if any(row)]
    return sum(not any(map(is_known_time, row)) for row in computing), len(computing)


def fill_placeholders(workload: Workload) -> Workload:
    """The workload with work in place of placeholders, in rows that have work in another phase.

    An input gradient takes as long as the forward, a weight gradient as long as the input
    gradient. Embeddings have no input gradient: their weight gradient is like the forward. A phase
    in which no row of a layer has work is left out of the source on purpose: it stays.
    """
    given = {
        phase
        for block in workload.microbatches
        for row in chain.from_iterable(block.layers)
        for phase, work in row.works()
        if is_known_time(work.compute_ps)
    }
    return workload.with_rows(lambda row: _filled(row, given))


def doubt_placeholders(workload: Workload) -> Doubt | None:
    """What filling in would change, None where it changes nothing."""
    mended = fill_placeholders(workload)
    pairs = zip(workload.rows(), mended.rows(), strict=True)
    changed = [before.name for before, after in pairs if before is not after]
    if not changed:
        return None
    names = dict.fromkeys(name.rstrip("0123456789").rstrip("_") for name in changed)
    rows = f"{len(changed)} row{'s' * (len(changed) > 1)} ({', '.join(names)})"
    return Doubt(
        text=f"{rows} with work in one phase and a placeholder, 1 or 1000 ns, in another",
        instead="weight gradients like their input gradients",
        mended=mended,
        remedy="--fill-placeholders",
    )


def _filled(row: Row, given: set[Phase]) -> Row:
    """The row with the work of the phase before in place of placeholders of phases `given`."""
    like, found = 0, {}
    fills = given - {Phase.INPUT_GRAD} if row.lookup else given
    for phase, work in row.works():
        if is_known_time(work.compute_ps):
            like = work.compute_ps
        elif like and work.compute_ps and phase in fills:
            found[phase] = replace(work, compute_ps=like)
    return replace(row, **found) if found else row
