"""Tensor-parallel collectives that are pipelined with the products beside them.

Most of an overlapped collective runs beside a product, a share stays visible. An all-gather feeds
the next block, a reduction ends the block itself: their hidden parts lie in rows of no compute
between blocks, which the forward passes one block early, and the backward one block late.
"""

from collections.abc import Sequence

from stepsim.base.structs import replace
from stepsim.workload.rows import CollectiveKind, CommOp, Group, Row, Work


def with_gaps(rows: Sequence[Row], *, exposed: float) -> tuple[Row, ...]:
    """Rows whose tp collectives keep the `exposed` share, the rest in rows between them."""
    found: list[Row] = []
    for i in range(len(rows) + 1):
        before = rows[i - 1] if i else None
        after = rows[i] if i < len(rows) else None
        forward = [*_hidden(before, "forward", exposed, gathers=True)]
        forward += _hidden(after, "forward", exposed, gathers=False)
        back = [*_hidden(after, "input_grad", exposed, gathers=True)]
        back += _hidden(before, "input_grad", exposed, gathers=False)
        gap_here = bool(forward or back)
        if gap_here:
            if found and found[-1].forward_lag:
                found[-1] = replace(found[-1], forward_lag=found[-1].forward_lag + 1)
            gap = Row(
                name="overlapped_tp",
                forward=Work(comms=tuple(forward)),
                input_grad=Work(comms=tuple(back)),
                weight_grad=Work(),
                forward_lag=1,
                backward_lag=1 if i else 2,  # past the last gap of the layer before
            )
            found.append(gap)
        if after is not None:
            shown = _visible(after, exposed)
            later = gap_here and bool(shown.backward_lag)
            found.append(replace(shown, backward_lag=shown.backward_lag + later))
    return tuple(found)


def _hidden(row: Row | None, phase: str, exposed: float, *, gathers: bool) -> list[CommOp]:
    """The hidden parts of a row's gathers, or of its reductions."""
    if row is None:
        return []
    work: Work = getattr(row, phase)
    return [
        replace(op, size_bytes=op.size_bytes - round(op.size_bytes * exposed))
        for op in work.comms
        if op.group is Group.TP and (op.kind is CollectiveKind.ALL_GATHER) == gathers
    ]


def _visible(row: Row, exposed: float) -> Row:
    def shorter(work: Work) -> Work:
        comms = (
            replace(op, size_bytes=round(op.size_bytes * exposed)) if op.group is Group.TP else op
            for op in work.comms
        )
        return replace(work, comms=tuple(comms))

    return row.with_works(lambda _, work: shorter(work))
