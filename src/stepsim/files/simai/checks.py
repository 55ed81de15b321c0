"""A workload text against itself: numbers that contradict each other, or can hardly be meant.

What AICB's generator writes where (`SimAI_training_workload_generator.py`): parameters are gathered
in 2 bytes and gradients reduced in 4 each; `layernorm` sums all parameters; an embedding's
weight gradient takes the time of whatever was timed last, at first half the optimizer's; the
backward collective of a column row has 0 bytes; `embedding_norm` is in every microbatch.
"""

from collections.abc import Iterator
from fractions import Fraction

from stepsim.base.structs import replace
from stepsim.base.units import format_size_bytes, format_time_ps
from stepsim.workload.placeholders import is_placeholder
from stepsim.workload.rows import (
    CollectiveKind,
    Doubt,
    Group,
    Role,
    Row,
    StepItem,
    Work,
    Workload,
)

_TOLERANCE = Fraction(1, 100)
_LIKE_OPTIMIZER = (0.4, 1.2)
_LONG_LOOKUP = 3
_TIED = "embedding_norm"


_MOST_WEIGHED = 1024
"""Microbatches up to which a step is run once more to weigh a doubt: that should be quick."""


def find_doubts(workload: Workload, activation_bytes: int, ga: int) -> Iterator[Doubt]:
    """Each contradiction in a workload, with the workload that would be consistent.

    `activation_bytes` is the message between stages that the rows tell, 0 where they do not; `ga`
    is the header's number of microbatches.
    """
    yield from _left_out(workload, ga)
    yield from _gathers(workload)
    yield from _all_parameters(workload)
    yield from _shared_ends(workload)
    yield from _messages(workload, activation_bytes)
    yield from _lookups(workload)
    yield from _without_bytes(workload)
    yield from _tied_embeddings(workload)
    yield from _without_compute(workload)


def _left_out(workload: Workload, ga: int) -> Iterator[Doubt]:
    """Fewer microbatches in the rows than in the header."""
    found = len(workload.microbatches)
    if found < ga and not ga % found:
        yield Doubt(
            text=f"the header says ga {ga}, the rows hold {found} microbatch(es)",
            instead=f"{ga} microbatches",
            mended=(
                replace(workload, microbatches=workload.microbatches * (ga // found))
                if ga <= _MOST_WEIGHED
                else None
            ),
            remedy=f"--microbatches {ga}",
        )


def _gathers(workload: Workload) -> Iterator[Doubt]:
    """Parameters gathered against gradients reduced, in each group: half as many bytes."""
    for group in (Group.DP, Group.DP_EP):
        reduced = _bytes(workload, Role.GRADIENTS, CollectiveKind.REDUCE_SCATTER, group)
        gathered = _bytes(workload, Role.PARAMETERS, CollectiveKind.ALL_GATHER, group)
        if not (reduced and gathered) or abs(Fraction(2 * gathered, reduced) - 1) <= _TOLERANCE:
            continue
        names = _names(workload, Role.PARAMETERS, group), _names(workload, Role.GRADIENTS, group)
        yield Doubt(
            text=f"{names[0]} gathers {format_size_bytes(gathered)}, "
            f"{_ratio(2 * gathered, reduced)} of half of what {names[1]} reduces "
            f"({format_size_bytes(reduced)}, in 4 bytes each)",
            instead="as many parameters gathered in 2 bytes each",
            mended=_with_items(workload, Role.PARAMETERS, group, Fraction(reduced, 2 * gathered)),
        )


def _all_parameters(workload: Workload) -> Iterator[Doubt]:
    """Norm gradients as large as those of all parameters."""
    summed = _bytes(workload, Role.NORM_GRADIENTS, CollectiveKind.ALL_REDUCE, Group.TP)
    reduced = _bytes(workload, Role.GRADIENTS, CollectiveKind.REDUCE_SCATTER, Group.DP)
    if reduced and 10 * summed > reduced:
        yield Doubt(
            text=f"{_names(workload, Role.NORM_GRADIENTS, Group.TP)} sums "
            f"{format_size_bytes(summed)}, as if all parameters were norms",
            instead="norms alone, whose gradients tensor-parallel ranks have in common,",
            mended=_with_items(workload, Role.NORM_GRADIENTS, Group.TP, Fraction(0)),
        )


def _shared_ends(workload: Workload) -> Iterator[Doubt]:
    """Embedding and head counted on every stage."""
    shares = [item.embedding_share + item.head_share for item in workload.per_step]
    if workload.made_for.pp > 1 and any(shares):
        bare = (
            replace(item, embedding_share=Fraction(0), head_share=Fraction(0))
            for item in workload.per_step
        )
        yield Doubt(
            text="gradients and parameters of every stage include embedding and head "
            f"({float(max(shares)):.1%} by weight-gradient compute): stepsim leaves these out of "
            "stages that have neither",
            instead="all of them on every stage, as written,",
            mended=replace(workload, per_step=tuple(bare)),
        )


def _messages(workload: Workload, activation_bytes: int) -> Iterator[Doubt]:
    """The header's pp_comm against the activation behind an output row."""
    said = workload.pp_comm_bytes
    if workload.made_for.pp == 1 or workload.pp_comm_assumed or not (said and activation_bytes):
        return
    if abs(Fraction(said, activation_bytes) - 1) > _TOLERANCE:
        yield Doubt(
            text=f"pp_comm is {format_size_bytes(said)}, {_ratio(said, activation_bytes)} of the "
            f"activation of a row on one rank ({format_size_bytes(activation_bytes)})",
            instead="the activation of the rows between stages",
            mended=replace(workload, pp_comm_bytes=activation_bytes),
        )


def _lookups(workload: Workload) -> Iterator[Doubt]:
    """Weight gradients of embeddings that are another row's, and forwards that no lookup takes."""
    block = workload.microbatches[0]
    if not block.embedding:
        return
    row = block.embedding[0]
    update = sum(item.work.compute_ps for item in workload.per_step if item.role is Role.UPDATE)
    low, high = (update * share for share in _LIKE_OPTIMIZER)
    weight_ps, forward_ps = row.weight_grad.compute_ps, row.forward.compute_ps
    if not is_placeholder(weight_ps) and weight_ps and low <= weight_ps <= high:
        yield Doubt(
            text=f"the weight gradient of {row.name} takes {format_time_ps(weight_ps)}, about as "
            f"long as the optimizer ({format_time_ps(update)}): AICB writes such files",
            instead="one no longer than its forward",
            mended=workload.with_rows(_short_gradient),
        )
    rows = (row for layer in block.layers for row in layer)
    longest = max(row.forward.compute_ps for row in rows)
    if not is_placeholder(longest) and forward_ps > _LONG_LOOKUP * longest > 0:
        yield Doubt(
            text=f"the forward of {row.name} takes {format_time_ps(forward_ps)}, "
            f"{forward_ps / longest:.0f} times the longest row of a layer",
            instead="one as long as that row",
            mended=workload.with_rows(lambda row: _short_lookup(row, longest)),
        )


def _short_gradient(row: Row) -> Row:
    most = row.forward.compute_ps
    if not row.lookup or row.weight_grad.compute_ps <= most:
        return row
    return replace(row, weight_grad=replace(row.weight_grad, compute_ps=most))


def _short_lookup(row: Row, most: int) -> Row:
    if not row.lookup or row.forward.compute_ps <= most:
        return row
    return replace(row, forward=replace(row.forward, compute_ps=most))


def _without_bytes(workload: Workload) -> Iterator[Doubt]:
    """Input-gradient collectives that are named and have no bytes, beside forward ones that do."""
    rows = [row for block in workload.microbatches for row in block.rows() if row.unsized]
    if not rows:
        return
    kinds = {str(op.kind).replace("_", "-") for row in rows for op in row.unsized}
    yield Doubt(
        text=f"{len(rows)} row(s) ({', '.join(sorted({row.name for row in rows}))}) name a "
        f"{' or '.join(sorted(kinds))} of 0 bytes in their input gradient",
        instead="the bytes of their forwards",
        mended=workload.with_rows(_sized),
    )


def _sized(row: Row) -> Row:
    if not row.unsized:
        return row
    return replace(row, input_grad=replace(row.input_grad, comms=row.unsized))


def _tied_embeddings(workload: Workload) -> Iterator[Doubt]:
    """The all-reduce of a whole embedding in every forward; training sums it once per step."""
    tied = [row for block in workload.microbatches for row in block.head if row.name == _TIED]
    size = sum(op.size_bytes for row in tied[:1] for op in row.forward.comms)
    if size:
        yield Doubt(
            text=f"{_TIED} all-reduces the whole embedding ({format_size_bytes(size)}) in the "
            "forward of every microbatch",
            instead="none",
            mended=workload.with_rows(_untied),
        )


def _untied(row: Row) -> Row:
    return replace(row, forward=replace(row.forward, comms=())) if row.name == _TIED else row


def _without_compute(workload: Workload) -> Iterator[Doubt]:
    """Rows of layers that take no time, and phases that no row of a layer has, beside others."""
    rows = [row for block in workload.microbatches for layer in block.layers for row in layer]
    times = [[work.compute_ps for _, work in row.works()] for row in rows]
    measured = [any(t and not is_placeholder(t) for t in each) for each in times]
    if not any(measured):
        return
    bare = [row.name for row, each in zip(rows, times, strict=True) if not any(each)]
    if bare:
        names = ", ".join(dict.fromkeys(bare))
        yield Doubt(text=f"{len(bare)} of {len(rows)} rows have no compute time: {names}")
    piped = any(not row.lookup for row in rows)
    if piped and not any(t and not is_placeholder(t) for each in times for t in each[1:]):
        yield Doubt(text="no row of a layer has a backward: a forward alone is simulated")


def _bytes(workload: Workload, role: Role, kind: CollectiveKind, group: Group) -> int:
    return sum(
        op.size_bytes
        for item in workload.per_step
        if item.role is role
        for op in item.work.comms
        if op.kind is kind and op.group is group
    )


def _names(workload: Workload, role: Role, group: Group) -> str:
    found = (
        item.name
        for item in workload.per_step
        if item.role is role and any(op.group is group for op in item.work.comms)
    )
    return ", ".join(dict.fromkeys(found))


def _ratio(size: int, other: int) -> str:
    """A ratio as people say it, e.g. 1/64 or 128 times."""
    if size >= other:
        return f"{size / other:.4g} times"
    return f"1/{other / size:.4g}"


def _with_items(workload: Workload, role: Role, group: Group, factor: Fraction) -> Workload:
    """The workload with the sizes of a role's collectives in a group times a factor."""

    def changed(item: StepItem) -> StepItem:
        if item.role is not role:
            return item
        comms = (
            replace(op, size_bytes=round(op.size_bytes * factor)) if op.group is group else op
            for op in item.work.comms
        )
        kept = tuple(op for op in comms if op.size_bytes)
        return replace(item, work=Work(compute_ps=item.work.compute_ps, comms=kept))

    return replace(workload, per_step=tuple(map(changed, workload.per_step)))
