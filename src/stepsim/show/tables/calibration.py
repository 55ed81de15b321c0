"""What measurements tell about a machine: a calibration of runs, measured collectives."""

from collections.abc import Iterator, Sequence

from stepsim.base.units import PS_PER_S, format_bandwidth, format_time_ps
from stepsim.measured.calibration.calibration import Calibration
from stepsim.network.measured_times import CommTable, Outlier
from stepsim.show.tables.model import (
    AS_IS,
    BANDWIDTH,
    COUNT,
    SIZE,
    TEXT,
    TIME,
    Shown,
    Table,
    paths,
    table_of,
)


def calibration_shown(calibration: Calibration) -> Iterator[Shown]:
    """What was calibrated, and what could not be."""
    rows = (*_times(calibration), *_rates(calibration), *_factors(calibration))
    heads = {"number": TEXT, **dict.fromkeys(("value", "residual", "samples"), COUNT)}
    yield Table(caption="calibrated numbers", columns=heads, rows=rows)
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
            yield (
                name,
                format_time_ps(time.value),
                format_time_ps(time.residual * time.value),
                time.samples,
            )


def _rates(calibration: Calibration) -> Iterator[tuple[str | int, ...]]:
    for link in calibration.point_to_point:
        value = f"{format_time_ps(link.latency_ps)} + {format_bandwidth(link.bandwidth)}"
        yield f"messages {link.placement}", value, f"{link.residual:.1%}", link.samples
    for each in calibration.rates:
        start = format_time_ps(each.start_ps)
        value = f"{each.rate / 1e12:.1f} TFLOP/s + {start}"
        name = f"products of {each.device}, {each.precision}"
        yield name, value, f"{each.spread:.1%}", each.shapes
    rates = {"gradient scaling": calibration.gradient_scaling, "optimizer": calibration.optimizer}
    for name, rate in rates.items():
        if rate:
            residual = f"{rate.residual:.1%}"
            yield name, format_bandwidth(rate.value), residual, rate.samples


def _factors(calibration: Calibration) -> Iterator[tuple[str | int, ...]]:
    if calibration.leaf_overhead:
        factor = calibration.leaf_overhead.layer_factor
        value, residual = f"{factor.value:.2f}", f"{factor.residual * factor.value:.2f}"
        yield "layers over their leaf modules", value, residual, factor.samples
    for each in calibration.expert_imbalance:
        value = f"{each.mean:.2f} (largest {each.largest:.2f})"
        yield f"expert imbalance, ep {each.ep}", value, "", each.samples
    if calibration.collective:
        yield "collective tables", str(len(calibration.collective)), "", ""


def learned_shown(calibration: Calibration) -> Iterator[Shown]:
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


def measurements_shown(
    table: CommTable, outliers: Sequence[Outlier], *, every_size: bool
) -> Iterator[Shown]:
    """Times and bandwidths of measured collectives, a row per size or power of two; outliers."""
    for curve in table.curves:
        speed = curve.size_bytes / curve.time_ps * PS_PER_S
        columns = curve.size_bytes, curve.time_ps, speed, curve.bus_bandwidth()
        rows = [*zip(*(column.tolist() for column in columns), strict=True)]
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
