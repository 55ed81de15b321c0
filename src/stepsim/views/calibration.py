"""What measurements tell about a machine: a calibration of runs, measured collectives."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from stepsim.base.arrays import rows_of
from stepsim.base.units import PS_PER_S, format_bandwidth, format_time_ps
from stepsim.documents.table import (
    AS_IS,
    BANDWIDTH,
    COUNT,
    SHARE,
    SIZE,
    TEXT,
    TIME,
    Cell,
    Sheet,
    Table,
    paths,
    table_of,
)
from stepsim.measured.calibration.calibration import Calibration, Fitted
from stepsim.network.measured_times import CommTable, Outlier


def calibration_shown(calibration: Calibration) -> Sheet:
    """What was calibrated, and what could not be."""
    heads = {"number": TEXT, "value": COUNT, "residual": SHARE, "samples": COUNT}
    rows = (*_fitted(calibration), *_others(calibration))
    yield Table(caption="calibrated numbers", columns=heads, rows=rows)
    yield from (f"not identified: {name}: {reason}" for name, reason in calibration.unidentified)


def _fitted(calibration: Calibration) -> Iterator[tuple[Cell, ...]]:
    """Numbers by themselves."""
    leaf = calibration.leaf_overhead
    numbers: dict[str, tuple[Fitted | None, Callable[[Any], str]]] = {
        "host time per action": (calibration.host_overhead, format_time_ps),
        "host time per action, leaf logs": (leaf.action if leaf else None, format_time_ps),
        "layers over their leaf modules": (leaf.layer_factor if leaf else None, "{:.2f}".format),
        "gradient launch": (calibration.gradient_launch, format_time_ps),
        "gradient scaling": (calibration.gradient_scaling, format_bandwidth),
        "optimizer": (calibration.optimizer, format_bandwidth),
    }
    for name, (number, write) in numbers.items():
        if number:
            yield name, write(number.value), number.residual, number.samples


def _others(calibration: Calibration) -> Iterator[tuple[Cell, ...]]:
    """Messages, products, experts and collectives."""
    for link in calibration.point_to_point:
        value = f"{format_time_ps(link.latency_ps)} + {format_bandwidth(link.bandwidth)}"
        yield f"messages {link.placement}", value, link.residual, link.samples
    for each in calibration.rates:
        value = f"{each.rate / 1e12:.1f} TFLOP/s + {format_time_ps(each.start_ps)}"
        yield f"products of {each.device}, {each.precision}", value, each.spread, each.shapes
    for expert in calibration.expert_imbalance:
        value = f"{expert.mean:.2f} (largest {expert.largest:.2f})"
        yield f"expert imbalance, ep {expert.ep}", value, "", expert.samples
    if calibration.collective:
        yield "collective tables", len(calibration.collective), "", ""


def learned_shown(calibration: Calibration) -> Sheet:
    """What traces tell beside: classes of kernels, steps it was held against, collectives.

    Steps are predicted from traces of other jobs. Each measured curve has a row for its largest
    size.
    """
    if calibration.kernels:
        yield table_of("kernels; measured over predicted time", calibration.kernels, _KERNELS)
    if calibration.held:
        yield table_of("held against, each without its own job", calibration.held, _HELD)
    if calibration.collective:
        caption = "collectives, each at its largest size"
        yield table_of(caption, calibration.collective, _RECORDED)


_KERNELS = paths("class = kernels, factor:.3f, kernels = count, rate")
_HELD = paths("trace = source, predicted_s, measured_s, error:+.1%, job")
_RECORDED = {
    **paths("collective = kind, ranks, nodes"),
    "sizes": AS_IS.of(lambda curve: len(curve.sizes)),
    "size": SIZE.of(lambda curve: curve.sizes[-1]),
    "time": TIME.of(lambda curve: curve.times_ps[-1]),
    "bus bandwidth": BANDWIDTH.of(lambda curve: float(curve.bus_bandwidth()[-1])),
}


def measurements_shown(table: CommTable, outliers: Sequence[Outlier], *, every_size: bool) -> Sheet:
    """Times and bandwidths of measured collectives, a row per size or power of two; outliers."""
    for curve in table.curves:
        speed = curve.size_bytes / curve.time_ps * PS_PER_S
        columns = curve.size_bytes, curve.time_ps, speed, curve.bus_bandwidth()
        rows = [*rows_of(*columns)]
        powers = [row for row in rows if not row[0] & (row[0] - 1)]
        yield table_of(curve.label, rows if every_size or not powers else powers, _MEASURED)
    yield f"outliers left out: {len(outliers)}"
    yield from map(str, outliers)


_MEASURED = {
    "size": SIZE.of("0"),
    "time": TIME.of("1"),
    "algbw": BANDWIDTH.of("2"),
    "busbw": BANDWIDTH.of("3"),
}
