"""Uneven expert load: some expert-parallel ranks get more tokens than others.

Expert rows lie between two all-to-alls over the expert-parallel group, and the second one waits for
all members, so the busiest rank decides how long they take.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from stepsim.base.errors import PlanError
from stepsim.base.structs import replace
from stepsim.workload.rows import (
    CollectiveKind,
    CommOp,
    Group,
    Microbatch,
    Phase,
    Row,
    Work,
    Workload,
)


def rank_loads(tokens: Sequence[float], ep: int) -> tuple[float, ...]:
    """Load of each expert-parallel rank over the mean, from the tokens of each expert (or rank).

    Experts are shared out in order, equally many to each rank. Raises PlanError when they cannot
    be, when a number is negative or when there are no tokens at all.
    """
    if not tokens or len(tokens) % ep:
        raise PlanError(f"expert load has {len(tokens)} numbers: expected a multiple of ep, {ep}")
    if min(tokens) < 0 or not 0 < sum(tokens) < float("inf"):
        raise PlanError("expert load: expected tokens per expert, none negative, not all zero")
    each = len(tokens) // ep
    sums = [sum(tokens[rank * each : (rank + 1) * each]) for rank in range(ep)]
    return tuple(load / sum(sums) * ep for load in sums)


def skewed_loads(skew: float, ep: int) -> tuple[float, ...]:
    """One rank with `skew` times the mean load, the others alike; raises PlanError."""
    if not 1 <= skew <= ep:
        raise PlanError(f"expert skew is {skew}: expected 1 (even) to ep, {ep} (all on one rank)")
    return skew, *((ep - skew) / (ep - 1) for _ in range(ep - 1))


def load_experts(workload: Workload, loads: tuple[float, ...]) -> Workload:
    """The workload with all-to-alls that carry `loads` and expert rows of the busiest rank.

    Compute and bytes of expert rows grow with the largest load: all ranks wait for that one. Raises
    PlanError if no row exchanges tokens between experts.
    """
    rows = (row for block in workload.microbatches for row in block.rows())
    if not any(_exchanges(op) for row in rows for op in row.forward.comms):
        raise PlanError(f"{workload.source}: no all-to-all over ep groups: no experts to load")
    busiest = f"the busiest of {len(loads)} expert ranks has {max(loads):.2f} times the mean load"
    return replace(
        workload,
        microbatches=tuple(_block(block, loads) for block in workload.microbatches),
        warnings=(*workload.warnings, f"{busiest}: expert rows of all ranks take as long as its"),
    )


def _block(block: Microbatch, loads: tuple[float, ...]) -> Microbatch:
    return replace(block, layers=tuple(tuple(_rows(layer, loads)) for layer in block.layers))


def _rows(rows: Iterable[Row], loads: tuple[float, ...]) -> Iterator[Row]:
    """Rows of a layer: expert rows from after the first exchange to the second."""
    inside = False
    for row in rows:
        factor = max(loads) if inside else 1.0
        yield row.with_works(partial(_loaded, factor, loads))
        if any(map(_exchanges, row.forward.comms)):
            inside = not inside


def _loaded(factor: float, loads: tuple[float, ...], _: Phase, work: Work) -> Work:
    """A row's work with more tokens; its exchanges between experts carry the loads instead."""
    return replace(
        work,
        compute_ps=round(work.compute_ps * factor),
        comms=tuple(
            replace(op, loads=loads)
            if _exchanges(op)
            else replace(op, size_bytes=round(op.size_bytes * factor))
            for op in work.comms
        ),
    )


def _exchanges(op: CommOp) -> bool:
    return op.kind is CollectiveKind.ALL_TO_ALL and op.group is Group.EP
