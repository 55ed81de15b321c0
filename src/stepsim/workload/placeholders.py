"""Compute times that nobody measured: writers without a profile put 1 or 1000 ns."""

from itertools import chain

from stepsim.base.kept import kept
from stepsim.base.structs import replace
from stepsim.base.units import PS_PER_NS
from stepsim.workload.rows import Doubt, Phase, Row, Workload

_PLACEHOLDERS_PS = (1 * PS_PER_NS, 1000 * PS_PER_NS)


def is_placeholder(compute_ps: int) -> bool:
    """Whether a compute time is one that writers put where they have none."""
    return compute_ps in _PLACEHOLDERS_PS


@kept(4)
def placeholder_rows(workload: Workload) -> tuple[int, int]:
    """(rows of layers that have only placeholder compute, rows of layers that have compute)."""
    rows = [row for block in workload.microbatches for row in block.rows()]
    times = [[w.compute_ps for _, w in row.works() if w.compute_ps] for row in rows]
    bare = sum(1 for row in times if row and all(map(is_placeholder, row)))
    return bare, sum(1 for row in times if row)


def fill_placeholders(workload: Workload) -> Workload:
    """The workload with work in place of placeholders, in rows that have work in another phase.

    An input gradient takes as long as the forward, a weight gradient as long as the input
    gradient. Embeddings have no input gradient: their weight gradient is like the forward. A phase
    in which no row of a layer has work is left out of the source on purpose: it stays.
    """
    layers = chain.from_iterable(block.layers for block in workload.microbatches)
    rows = {id(row): row for row in chain.from_iterable(layers)}
    given = {
        phase
        for row in rows.values()
        for phase, work in row.works()
        if work.compute_ps and not is_placeholder(work.compute_ps)
    }
    return workload.with_rows(lambda row: _filled(row, given))


@kept(4)
def doubt_placeholders(workload: Workload) -> Doubt | None:
    """What filling in would change, None where it changes nothing."""
    mended = fill_placeholders(workload)
    names: dict[str, None] = {}
    count = 0
    for before, after in zip(workload.rows(), mended.rows(), strict=True):
        if before is not after:
            count += 1
            names[_stem(before.name)] = None
    if not count:
        return None
    return Doubt(
        text=f"{count} row(s) ({', '.join(names)}) with work in one phase and a placeholder, 1 or "
        "1000 ns, in another",
        instead="weight gradients like their input gradients",
        mended=mended,
        remedy="--fill-placeholders",
    )


def _stem(name: str) -> str:
    """A row's name without its number."""
    return name.rstrip("0123456789").rstrip("_")


def _filled(row: Row, given: set[Phase]) -> Row:
    forward, gradient, weight = (work.compute_ps for _, work in row.works())
    like = forward
    if not is_placeholder(forward) and is_placeholder(gradient) and not row.lookup:
        gradient = forward if Phase.INPUT_GRAD in given else gradient
    if gradient and not is_placeholder(gradient):
        like = gradient
    if is_placeholder(weight) and like and not is_placeholder(like) and Phase.WEIGHT_GRAD in given:
        weight = like
    if (gradient, weight) == (row.input_grad.compute_ps, row.weight_grad.compute_ps):
        return row
    return replace(
        row,
        input_grad=replace(row.input_grad, compute_ps=gradient),
        weight_grad=replace(row.weight_grad, compute_ps=weight),
    )
