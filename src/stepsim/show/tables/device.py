"""A measured device: its constants, a layer, and every kernel beside what is predicted of it."""

from collections.abc import Iterator

from msgspec import Struct

from stepsim.base.units import PS_PER_S, format_bandwidth, format_size_bytes, format_time_ps
from stepsim.measured.device.kernels import KernelTimes, LayerPasses, MovingCall
from stepsim.measured.device.measure import MeasuredDevice, Timed
from stepsim.measured.device.predicted import PredictedLayer, predicted_s
from stepsim.show.frames import Columns, columns_of_rows
from stepsim.show.tables.model import ERROR, SHARE, TEXT, TIME, Pairs, Shown, as_number, table_of
from stepsim.workload.model.device import Device

_MOST_ROWS = 40
_TERA = as_number(".3g")
_PRODUCT_COLUMNS = ("phase", "precision", "m", "n", "k", "tflops", "seconds", "spread")


class _KernelLine(Struct, frozen=True, kw_only=True):
    """A kernel with its time; `before` and `after` are predicted over measured, minus 1."""

    label: str
    times: KernelTimes
    tera: float | None
    before: float | None
    after: float


_KERNELS = {
    "kernel": TEXT.of("label"),
    "measured": TIME.of(lambda line: line.times.median * PS_PER_S),
    "spread": SHARE.of("times.spread"),
    "TFLOP/s": _TERA.of("tera"),
    "before": ERROR.of("before"),
    "after": ERROR.of("after"),
}


def device_shown(
    found: MeasuredDevice, base: Device | None, layer: PredictedLayer | None
) -> Iterator[Shown]:
    """The constants, the layer beside its prediction, and the kernels."""
    yield tuple(_constants(found.device))
    if found.layer and layer:
        yield tuple(_layer(found.layer[1], layer))
    lines = [_line(each, found.device, base) for each in found.kernels]
    yield table_of("kernels", lines, _KERNELS, most=_MOST_ROWS, both_ends=True)
    yield (
        "before, after: predicted over measured, by the device's file that was given and by the "
        "one that was written"
    )


def product_columns(found: MeasuredDevice) -> Columns:
    """The products as `stepsim calibrate model --gemm` takes them."""
    rows = [
        (
            *(call.phase, call.precision, *call.shape),
            *(call.flops / times.median / 1e12, times.median, times.spread),
        )
        for call, times in found.products
    ]
    return columns_of_rows(_PRODUCT_COLUMNS, rows)


def _constants(device: Device) -> Iterator[tuple[str, str]]:
    yield "device", device.name
    for precision, rate in device.rates.items():
        start = format_time_ps(rate.start_ps)
        yield str(precision), f"{rate.rate / 1e12:.4g} TFLOP/s and {start} a product"
    for name, rates in device.attention.items():
        share = f"backward {rates.backward:.2f} of it"
        yield f"attention {name}", f"{rates.rate / 1e12:.4g} TFLOP/s of long sequences, {share}"
    yield "sustained", f"{device.sustained:.2f} of the rates"
    reached = device.memory_bandwidth * device.memory_share
    yield "memory", f"{format_size_bytes(device.memory_bytes)}, {format_bandwidth(reached)}"
    yield "kernel floor", format_time_ps(device.kernel_floor_ps)


def _layer(times: LayerPasses, predicted: PredictedLayer) -> Pairs:
    passes = (
        ("forward", times.forward, predicted.forward_s),
        ("backward", times.backward, predicted.backward_s),
    )
    lines = [
        (
            f"layer {name}",
            f"{format_time_ps(measured.median * PS_PER_S)}, predicted "
            f"{format_time_ps(seconds * PS_PER_S)}",
        )
        for name, measured, seconds in passes
    ]
    if times.host:
        lines.append(("layer launches", format_time_ps(times.host.median * PS_PER_S)))
    kept = f"{format_size_bytes(times.kept_bytes)}, predicted"
    lines.append(("layer keeps", f"{kept} {format_size_bytes(predicted.kept_bytes)}"))
    if times.peak_bytes is not None:
        lines.append(("layer peak", format_size_bytes(times.peak_bytes)))
    return tuple(lines)


def _line(timed: Timed, device: Device, base: Device | None) -> _KernelLine:
    call, times = timed
    tera = None if isinstance(call, MovingCall) else call.flops / times.median / 1e12
    return _KernelLine(
        label=call.label,
        times=times,
        tera=tera,
        before=_error(timed, base) if base else None,
        after=_error(timed, device),
    )


def _error(timed: Timed, device: Device) -> float:
    call, times = timed
    return predicted_s(call, device) / times.median - 1
