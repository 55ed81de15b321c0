"""What measurements tell about a machine: a calibration of runs, a fit of collectives."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from stepsim.base.units import format_bandwidth, format_time_ps
from stepsim.measured.calibration.calibration import Calibration
from stepsim.measured.calibration.curves import CurveFit, FitRow
from stepsim.measured.calibration.nccl import MachineFit, NcclFit
from stepsim.show.tables.model import (
    BANDWIDTH,
    COUNT,
    SHARE,
    SIZE,
    TEXT,
    TIME,
    Rows,
    Shown,
    Table,
    as_number,
)

_LARGE_BYTES = 16 << 20
"""From here on a fit's error is shown by itself: what counts in training."""

_MIXED = as_number("")
_ERROR = as_number("+.1%")


def calibration_shown(calibration: Calibration) -> Iterator[Shown]:
    """What was calibrated, and what could not be."""
    yield Table(
        caption="calibrated numbers",
        columns={"number": TEXT, "value": _MIXED, "residual": _MIXED, "samples": COUNT},
        rows=(*_times(calibration), *_links(calibration), *_factors(calibration)),
    )
    yield from (f"not identified: {name}: {reason}" for name, reason in calibration.unidentified)


def _times(calibration: Calibration) -> Rows:
    leaf = calibration.leaf_overhead
    times = {
        "host time per action": calibration.host_overhead,
        "gradient launch": calibration.gradient_launch,
        "host time per action, leaf logs": leaf.action if leaf else None,
    }
    return tuple(
        (name, format_time_ps(time.value), format_time_ps(time.residual), time.samples)
        for name, time in times.items()
        if time
    )


def _links(calibration: Calibration) -> Rows:
    rates = {
        "gradient scaling": calibration.gradient_scaling,
        "optimizer": calibration.optimizer,
    }
    messages = (
        (
            f"messages {link.placement}",
            f"{format_time_ps(link.latency_ps)} + {format_bandwidth(link.bandwidth)}",
            f"{link.residual:.1%}",
            link.samples,
        )
        for link in calibration.point_to_point
    )
    return (
        *messages,
        *(
            (name, format_bandwidth(rate.value), f"{rate.residual / rate.value:.1%}", rate.samples)
            for name, rate in rates.items()
            if rate
        ),
    )


def _factors(calibration: Calibration) -> Iterator[tuple[str | int, ...]]:
    if calibration.leaf_overhead:
        factor = calibration.leaf_overhead.layer_factor
        value, residual = f"{factor.value:.2f}", f"{factor.residual:.2f}"
        yield "layers over their leaf modules", value, residual, factor.samples
    for each in calibration.expert_imbalance:
        value = f"{each.mean:.2f} (largest {each.largest:.2f})"
        yield f"expert imbalance, ep {each.ep}", value, "", each.samples
    if calibration.collectives:
        yield "collective tables", str(len(calibration.collectives.curves)), "", ""


def nccl_shown(fit: NcclFit, *, every_size: bool) -> Iterator[Shown]:
    """Machine by machine: links, curves, errors; at the end what was left out."""
    for machine in fit.machines:
        yield f"{machine.machine or fit.source}: nodes of {machine.node_size}"
        yield _machine_links(machine)
        yield _curves(machine)
        yield from (f"not identified: {name}: {reason}" for name, reason in machine.unidentified)
        yield from (_errors(curve, every_size) for curve in machine.curves if curve.regimes)
    yield f"outliers left out: {len(fit.outliers)}"
    yield from map(str, fit.outliers)


def _machine_links(machine: MachineFit) -> Table:
    """A row per number; `off by` is the median distance of the groups it comes from."""
    rows: list[tuple[str | int, ...]] = [
        (
            each.placement,
            format_bandwidth(each.bandwidth),
            f"{each.residual:.1%}",
            each.samples,
            f"{each.kind} {each.ranks}/{each.nodes}",
        )
        for each in machine.capacities
    ]
    for latency in machine.latencies:
        parts = {
            "whole": latency.together,
            "launch": latency.launch,
            "node step": latency.node_step,
            "fabric step": latency.fabric_step,
        }
        rows += [
            (
                f"{latency.regime} {name}",
                format_time_ps(part.value),
                format_time_ps(part.residual),
                part.samples,
                latency.pattern if part is latency.fabric_step else "",
            )
            for name, part in parts.items()
            if part
        ]
    return Table(
        caption="links and latencies",
        columns={"": TEXT, "value": _MIXED, "off by": _MIXED, "groups": COUNT, "by": TEXT},
        rows=tuple(rows),
    )


def _curves(machine: MachineFit) -> Table:
    counts = ("ranks", "nodes", "sizes", "lines")
    return Table(
        caption="curves; errors are medians",
        columns={
            "collective": TEXT,
            **dict.fromkeys(counts, COUNT),
            "busbw": BANDWIDTH,
            "error": SHARE,
            "16 MiB on": SHARE,
        },
        rows=tuple(
            (
                fit.curve.kind,
                fit.curve.ranks,
                fit.curve.nodes,
                len(fit.curve.size_bytes),
                len(fit.regimes),
                fit.bus_bandwidth or "",
                _median(list(fit.rows())),
                _median([row for row in fit.rows() if row.size_bytes >= _LARGE_BYTES]),
            )
            for fit in machine.curves
        ),
    )


def _median(rows: Sequence[FitRow]) -> float | str:
    return float(np.median([abs(row.error) for row in rows])) if rows else ""


def _errors(fit: CurveFit, every_size: bool) -> Table:
    """A row per size, or per power of two with the median and the largest error in it."""
    groups = groupby(
        fit.rows(), lambda row: row.size_bytes if every_size else row.size_bytes.bit_length()
    )
    return Table(
        caption=fit.curve.label,
        columns={
            "size": SIZE,
            "sizes": COUNT,
            "measured": TIME,
            "fitted": TIME,
            "error": _ERROR,
            "largest": _ERROR,
            "busbw": BANDWIDTH,
            "efficiency": as_number(".0%"),
        },
        rows=tuple(_size_row(fit, list(rows)) for _, rows in groups),
    )


def _size_row(fit: CurveFit, rows: Sequence[FitRow]) -> tuple[float | str, ...]:
    errors = [row.error for row in rows]
    speed = float(np.median([row.bus_bandwidth for row in rows]))
    return (
        rows[0].size_bytes,
        len(rows),
        rows[0].measured_ps,
        rows[0].fitted_ps,
        float(np.median(errors)),
        max(errors, key=abs),
        speed or "",
        speed / fit.bus_bandwidth if fit.bus_bandwidth else "",
    )
