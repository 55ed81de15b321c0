"""What the host takes to launch a layer's kernels, on the rows with which it begins."""

from collections.abc import Sequence

from stepsim.base.structs import replace
from stepsim.workload.rows import Row

_PASSES = 3
"""A forward, input gradients and weight gradients take about as many kernels, and as long."""


def with_launches(rows: Sequence[Row], host_ps: int) -> tuple[Row, ...]:
    """A layer's rows with `host_ps` of launches, a third in each phase.

    The forward begins with its first row that computes, the backward with its last: those rows
    hold the time. A forward that runs again in the backward launches its kernels again.
    """
    found = list(rows)
    share = host_ps // _PASSES
    first = next((i for i, row in enumerate(rows) if row.forward.compute_ps), 0)
    last = next((i for i in range(len(rows) - 1, 0, -1) if rows[i].input_grad.compute_ps), 0)
    forward = replace(found[first].forward, host_ps=host_ps - 2 * share)
    found[first] = replace(found[first], forward=forward)
    found[last] = replace(
        found[last],
        input_grad=replace(found[last].input_grad, host_ps=share),
        weight_grad=replace(found[last].weight_grad, host_ps=share),
    )
    return tuple(found)
