"""What measurements tell about a machine: a calibration of runs, a fit of collectives."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from stepsim.base.units import PS_PER_S, format_bandwidth, format_time_ps
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
    Shown,
    Table,
    as_number,
    table_of,
)

_LARGE_BYTES = 16 << 20
"""From here on a fit's error is shown by itself: what counts in training."""

_MIXED = as_number("")
_ERROR = as_number("+.1%")


def calibration_shown(calibration: Calibration) -> Iterator[Shown]:
    """What was calibrated, and what could not be."""
    rows = (*_times(calibration), *_rates(calibration), *_factors(calibration))
    columns = {"number": TEXT, "value": _MIXED, "residual": _MIXED, "samples": COUNT}
    yield Table(caption="calibrated numbers", columns=columns, rows=rows)
    yield from (f"not identified: {name}: {reason}" for name, reason in calibration.unidentified)


def _times(calibration: Calibration) -> Iterator[tuple[str | int, ...]]:
    leaf = calibration.leaf_overhead
    times = {
        "host time per action": calibration.host_overhead,
        "gradient launch": calibration.gradient_launch,
        "host time per action, leaf logs": leaf.action if leaf else None,
    }
    for name, time in times.items():
        if time:
            yield name, format_time_ps(time.value), format_time_ps(time.residual), time.samples


def _rates(calibration: Calibration) -> Iterator[tuple[str | int, ...]]:
    for link in calibration.point_to_point:
        value = f"{format_time_ps(link.latency_ps)} + {format_bandwidth(link.bandwidth)}"
        yield f"messages {link.placement}", value, f"{link.residual:.1%}", link.samples
    for each in calibration.rates:
        start = format_time_ps(each.rate.start_ps)
        value = f"{each.rate.rate / 1e12:.1f} TFLOP/s + {start}"
        name = f"products of {each.device}, {each.precision}"
        yield name, value, f"{each.spread:.1%}", each.shapes
    rates = {"gradient scaling": calibration.gradient_scaling, "optimizer": calibration.optimizer}
    for name, rate in rates.items():
        if rate:
            residual = f"{rate.residual / rate.value:.1%}"
            yield name, format_bandwidth(rate.value), residual, rate.samples


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


def kernels_shown(calibration: Calibration) -> Iterator[Shown]:
    """The classes of kernels of a calibration: measured over predicted time, and the rate."""
    if calibration.kernels:
        yield table_of("kernels; measured over predicted time", calibration.kernels, _KERNELS)


_KERNELS = {
    "class": TEXT.of(lambda each: each.kernels),
    "factor": as_number(".3f").of(lambda each: each.factor),
    "kernels": COUNT.of(lambda each: each.count),
    "rate": TEXT.of(lambda each: each.rate),
}


def held_shown(calibration: Calibration) -> Iterator[Shown]:
    """The steps that a calibration was held against, each predicted from traces of other jobs."""
    if calibration.held:
        yield table_of("held against, each without its own job", calibration.held, _HELD)


_HELD = {
    "trace": TEXT.of(lambda step: step.source),
    "predicted": TIME.of(lambda step: round(step.predicted_s * PS_PER_S)),
    "measured": TIME.of(lambda step: round(step.measured_s * PS_PER_S)),
    "error": _ERROR.of(lambda step: step.error),
    "job": TEXT.of(lambda step: step.job),
}


def collectives_shown(calibration: Calibration) -> Iterator[Shown]:
    """The measured curves of a calibration, a row each, with the largest size of each."""
    curves = calibration.collectives.curves if calibration.collectives else ()
    if curves:
        yield table_of("collectives, each at its largest size", curves, _RECORDED)


_RECORDED = {
    "collective": TEXT.of(lambda curve: curve.kind),
    "ranks": COUNT.of(lambda curve: curve.ranks),
    "nodes": COUNT.of(lambda curve: curve.nodes),
    "sizes": COUNT.of(lambda curve: len(curve.size_bytes)),
    "size": SIZE.of(lambda curve: int(curve.size_bytes[-1])),
    "time": TIME.of(lambda curve: int(curve.time_ps[-1])),
    "bus bandwidth": BANDWIDTH.of(lambda curve: float(curve.bus_bandwidth()[-1])),
}


def nccl_shown(fit: NcclFit, *, every_size: bool) -> Iterator[Shown]:
    """Machine by machine: links, curves, errors; at the end what was left out."""
    for machine in fit.machines:
        yield f"{machine.machine or fit.source}: nodes of {machine.node_size}"
        yield _machine_links(machine)
        yield table_of("curves; errors are medians", machine.curves, _CURVES)
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
    columns = {"": TEXT, "value": _MIXED, "off by": _MIXED, "groups": COUNT, "by": TEXT}
    return Table(caption="links and latencies", columns=columns, rows=tuple(rows))


def _median(rows: Sequence[FitRow]) -> float | str:
    return float(np.median([abs(row.error) for row in rows])) if rows else ""


_CURVES = {
    "collective": TEXT.of("curve.kind"),
    "ranks": COUNT.of("curve.ranks"),
    "nodes": COUNT.of("curve.nodes"),
    "sizes": COUNT.of(lambda fit: len(fit.curve.size_bytes)),
    "lines": COUNT.of(lambda fit: len(fit.regimes)),
    "busbw": BANDWIDTH.of(lambda fit: fit.bus_bandwidth or ""),
    "error": SHARE.of(lambda fit: _median(list(fit.rows()))),
    "16 MiB on": SHARE.of(
        lambda fit: _median([row for row in fit.rows() if row.size_bytes >= _LARGE_BYTES])
    ),
}


def _errors(fit: CurveFit, every_size: bool) -> Table:
    """A row per size, or per power of two with the median and the largest error in it."""
    groups = groupby(
        fit.rows(), lambda row: row.size_bytes if every_size else row.size_bytes.bit_length()
    )

    def speed(rows: Sequence[FitRow]) -> float:
        return float(np.median([row.bus_bandwidth for row in rows]))

    def efficiency(rows: Sequence[FitRow]) -> float | str:
        return speed(rows) / fit.bus_bandwidth if fit.bus_bandwidth else ""

    return table_of(
        fit.curve.label,
        [list(rows) for _, rows in groups],
        {
            "size": SIZE.of(lambda rows: rows[0].size_bytes),
            "sizes": COUNT.of(len),
            "measured": TIME.of(lambda rows: rows[0].measured_ps),
            "fitted": TIME.of(lambda rows: rows[0].fitted_ps),
            "error": _ERROR.of(lambda rows: float(np.median([row.error for row in rows]))),
            "largest": _ERROR.of(lambda rows: max((row.error for row in rows), key=abs)),
            "busbw": BANDWIDTH.of(lambda rows: speed(rows) or ""),
            "efficiency": as_number(".0%").of(efficiency),
        },
    )
