"""What a gradient all-reduce takes beside the collective: a launch, and in-place scaling.

It is what remains when the collective's own time, from a table, is taken away; all of it where the
group has one rank.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.axes import CollectiveKind
from stepsim.base.units import PS_PER_S
from stepsim.measured.calibration.calibration import CLEAR, FittedSpeed, FittedTime, fitted
from stepsim.measured.run import gradient_groups
from stepsim.measured.step_ops import ALIKE, StepOp
from stepsim.measured.summary import RunSummary
from stepsim.network.measured_times import CommTable

# All-reduces that tell the scaling alone: below, the launch is as long.
_LARGE_BYTES = 10**9

Samples = Floats
"""A row per group and operation: bytes, ps beside the collective, ps in all, ranks."""


def reduced_ps(summary: RunSummary, op: StepOp, known: CommTable | None) -> float | None:
    """What the collective of a gradient all-reduce takes by a table, in ps; 0 of one rank alone.

    None for other operations, and where the group or its times are not known.
    """
    if not gradient_groups(summary.degrees, op.kind, op.stage):
        return None
    ranks, nodes = len(op.group), op.nodes(summary.clocks.node_size)
    if ranks == 1:
        return 0.0
    return known.time_ps(CollectiveKind.ALL_REDUCE, ranks, nodes, op.size_bytes) if known else None


def gradient_costs(
    summaries: Sequence[RunSummary], known: CommTable | None, missing: list[tuple[str, str]]
) -> tuple[FittedTime | None, FittedSpeed | None]:
    """Launch in ps and scaling in bytes/s; what cannot be told is added to `missing`."""
    rows = [row for summary in summaries for row in _samples(summary, known)]
    samples = np.array(rows, np.float64).reshape(-1, 4)
    both = launch_and_rate(samples)
    if both:
        return both
    scaling = _rate(samples)
    if scaling:
        missing.append(("gradient_launch", "operations of several sizes do not show it clearly"))
    else:
        reason = "no gradient all-reduce of one rank, and none whose group has a table"
        missing.append(("gradient_scaling", reason))
    return None, scaling


def launch_and_rate(samples: Samples) -> tuple[FittedTime, FittedSpeed] | None:
    """The line through times over sizes, least squares of errors relative to whole operations.

    None with fewer than three kinds of operation, or where the line's start is not clearly above 0:
    then noise of long operations would be read as a launch.
    """
    kinds = _kinds(samples)
    if len(kinds) < 3 or np.ptp(kinds[:, 0]) == 0:
        return None
    size, time, whole = kinds[:, 0] / _LARGE_BYTES, kinds[:, 1], kinds[:, 2]
    columns = np.stack([np.ones(len(size)), size], axis=1) / whole[:, None]
    launch, slope = np.linalg.lstsq(columns, time / whole, rcond=None)[0]
    errors = columns @ (launch, slope) - time / whole
    variance = np.linalg.inv(columns.T @ columns)[0, 0] * (errors @ errors) / (len(size) - 2)
    if slope <= 0 or not launch > CLEAR * np.sqrt(variance):
        return None
    spread = float(np.median(np.abs(errors * whole))) / float(launch)
    rate = _LARGE_BYTES * PS_PER_S / slope
    relative = float(np.median(np.abs(errors * whole) / (launch + slope * size)))
    return (
        FittedTime(value=round(float(launch)), residual=spread, samples=len(samples)),
        FittedSpeed(value=float(rate), residual=relative, samples=len(samples)),
    )


def _kinds(samples: Samples) -> Samples:
    """Medians of operations alike in ranks and bytes.

    They share the error of their table's entry, so together they tell no more than one.
    """
    alike: list[list[Floats]] = []
    for row in samples[np.lexsort((samples[:, 0], samples[:, 3]))]:
        first = alike[-1][0] if alike else None
        if first is None or row[3] != first[3] or row[0] > (1 + ALIKE) * first[0]:
            alike.append([])
        alike[-1].append(row)
    return np.array([np.median(rows, axis=0) for rows in alike])


def _samples(summary: RunSummary, known: CommTable | None) -> Iterator[tuple[float, ...]]:
    for op in summary.step_ops:
        reduced = reduced_ps(summary, op, known) if op.size_bytes else None
        if reduced is None:
            continue
        for time in op.times_ps:
            if reduced < time:
                yield op.size_bytes, time - reduced, time, len(op.group)


def _rate(samples: Samples) -> FittedSpeed | None:
    """Scaling without a launch; operations of one rank show it alone and count first."""
    alone = samples[samples[:, 3] == 1]
    used = alone if len(alone) else samples[samples[:, 0] >= _LARGE_BYTES]
    return fitted((used[:, 0] / used[:, 1] * PS_PER_S).tolist()) if len(used) else None
