"""Host launches of a backward that runs row by row: each row has its share of them."""

from collections.abc import Sequence

from stepsim.base.structs import replace
from stepsim.workload.rows import Row


def spread_launches(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Rows whose backward launches are shared out over the rows that they are for, by compute.

    A backward meets a row with host times first, and then the rows before it in `rows` up to the
    next with such. Run as one list, those rows take the longer of their compute and their launches;
    run one by one they take as long again where each has the same share of both. For example rows
    of 3, 0 and 1 ps of compute, the last with 8 ps of launches, get 6, 0 and 2 ps.
    """
    found = list(rows)
    last = len(rows)
    for first in range(len(rows) - 1, -1, -1):
        if first and not _launches(rows[first - 1]):
            continue
        found[first:last] = _shared(rows[first:last])
        last = first
    return tuple(found)


def _launches(row: Row) -> bool:
    return row.input_grad.host_ps > 0 or row.weight_grad.host_ps > 0


def _shared(unit: Sequence[Row]) -> list[Row]:
    """The launches of a unit's last row, over all its rows."""
    host = unit[-1].input_grad.host_ps, unit[-1].weight_grad.host_ps
    compute = [row.input_grad.compute_ps + row.weight_grad.compute_ps for row in unit]
    total, done, found = sum(compute), 0, []
    if not total or not any(host):
        return list(unit)
    for row, own in zip(unit, compute, strict=True):
        input_ps, weight_ps = (each * (done + own) // total - each * done // total for each in host)
        done += own
        found.append(
            replace(
                row,
                input_grad=replace(row.input_grad, host_ps=input_ps),
                weight_grad=replace(row.weight_grad, host_ps=weight_ps),
            )
        )
    return found
