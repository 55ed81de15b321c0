"""A device measured: kernels timed one by one, then the constants that their times mean."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import TypeVar

from msgspec import Struct

from stepsim.base.structs import replace
from stepsim.base.units import PS_PER_S, format_size_bytes, format_time_ps
from stepsim.measured.device.fit import (
    AttentionSample,
    FittedAttention,
    FittedRate,
    fit_attention,
    fit_rate,
)
from stepsim.measured.device.kernels import (
    AttentionCall,
    DeviceFacts,
    KernelTimer,
    KernelTimes,
    LayerCall,
    LayerPasses,
    MovingCall,
    ProductCall,
)
from stepsim.measured.device.shapes import Shapes
from stepsim.workload.model.device import AttentionRate, Device, MatrixRate
from stepsim.workload.model.plan import Precision
from stepsim.workload.model.pricing import WEIGHT_GRADIENT_FACTOR
from stepsim.workload.rows import Phase

_FAMILY = "sdpa"
_LEAST_SIDE = 1024
_VECTOR_RATE = 10e12


class Measurement(Struct, frozen=True, kw_only=True):
    """What is measured: kernels of `shapes`, products in each of `precisions`.

    The largest product runs without a pause for `sustained_s` seconds; 0 leaves that out. A
    `trace` is written of a layer.
    """

    shapes: Shapes
    precisions: tuple[Precision, ...] = (Precision.BF16,)
    sustained_s: float = 10.0
    trace: Path | None = None


_Call = TypeVar("_Call", bound=ProductCall | AttentionCall | MovingCall)
Timed = tuple[ProductCall | AttentionCall | MovingCall, KernelTimes]
"""A kernel and its times."""


class MeasuredDevice(Struct, frozen=True, kw_only=True):
    """A device as measured: its kernels, what they say of it, and what they do not say.

    `sustained` is the share of the short rate that a long run of products kept, None where none
    ran.
    """

    facts: DeviceFacts
    device: Device
    kernels: tuple[Timed, ...]
    layer: tuple[LayerCall, LayerPasses] | None
    notes: tuple[str, ...]

    @property
    def products(self) -> list[tuple[ProductCall, KernelTimes]]:
        """The products among the kernels."""
        return [(call, times) for call, times in self.kernels if isinstance(call, ProductCall)]


def measure_device(
    timer: KernelTimer,
    asked: Measurement,
    base: Device | None = None,
) -> MeasuredDevice:
    """Time a model's kernels and make a device of them.

    `base` gives what no kernel tells: peaks, price, power, other precisions, the topology.
    Raises CalibrationError where kernels cannot run.
    """
    shapes = asked.shapes
    products = _timed(shapes.products(asked.precisions), timer.product)
    attention = _timed(shapes.attention(), timer.attention)
    moving = _timed(shapes.moving(), timer.moving)
    narrow = _timed(shapes.narrow(), timer.attention)
    smallest, launch = timer.smallest(), timer.launch()
    found = _Findings(
        rates={each: _rate(each, products, base) for each in asked.precisions},
        attention=_attention(attention, narrow),
        bandwidth=_bandwidth(moving),
        sustained=_sustained(timer, products, asked.sustained_s),
        floor_s=smallest.median,
        launch_s=launch.median if launch else None,
    )
    call = shapes.layer()
    layer = (call, timer.layer(call, asked.trace)) if call else None
    every: list[Timed] = [*products, *attention, *moving]
    facts = timer.facts
    return MeasuredDevice(
        facts=facts,
        device=_device(facts, found, base, every, layer),
        kernels=tuple(every),
        layer=layer,
        notes=(*shapes.notes(), *_notes(found, base)),
    )


class _Findings(Struct, frozen=True, kw_only=True):
    rates: dict[Precision, FittedRate]
    attention: FittedAttention
    bandwidth: float
    sustained: float | None
    floor_s: float
    launch_s: float | None


def _timed(
    calls: Iterable[_Call], time: Callable[[_Call], KernelTimes]
) -> list[tuple[_Call, KernelTimes]]:
    return [(call, time(call)) for call in calls]


def _rate(
    precision: Precision, products: Sequence[tuple[ProductCall, KernelTimes]], base: Device | None
) -> FittedRate:
    """Rate and start of one precision, from products of at least 1,024 a side where there are any.

    Weight gradients count without what `Pricer` adds to them.
    """
    own = [(call, times) for call, times in products if call.precision is precision]
    large = [each for each in own if min(each[0].shape) >= _LEAST_SIDE]
    used = large if len(large) >= len(own) / 4 else own
    seconds = [
        times.median / (WEIGHT_GRADIENT_FACTOR if call.phase is Phase.WEIGHT_GRAD else 1.0)
        for call, times in used
    ]
    known = base.rates.get(precision) if base else None
    return fit_rate([call.flops for call, _ in used], seconds, known.peak if known else None)


def _attention(
    timed: Sequence[tuple[AttentionCall, KernelTimes]],
    narrow: Sequence[tuple[AttentionCall, KernelTimes]],
) -> FittedAttention:
    passes: tuple[list[AttentionSample], list[AttentionSample]] = [], []
    for call, times in timed:
        sample = AttentionSample(
            sequence=call.sequence, rows=call.rows, flops=call.flops, seconds=times.median
        )
        passes[call.backward].append(sample)
    found = fit_attention(*passes)
    slow, fast = (call.flops / times.median for call, times in narrow)
    return replace(found, rate=replace(found.rate, narrow=slow / fast))


def _bandwidth(timed: Sequence[tuple[MovingCall, KernelTimes]]) -> float:
    """Bytes/s of the fastest kernel: plain torch's norms and gates are several kernels."""
    return max(call.bytes_moved / times.median for call, times in timed)


def _sustained(
    timer: KernelTimer,
    products: Sequence[tuple[ProductCall, KernelTimes]],
    seconds: float,
) -> float | None:
    """Share of the largest product's rate that it keeps without a pause, at most 1."""
    if not seconds:
        return None
    call, alone = max(products, key=lambda each: each[0].flops)
    return min(alone.median / timer.sustained(call, seconds).median, 1.0)


def _device(
    facts: DeviceFacts,
    found: _Findings,
    base: Device | None,
    kernels: Sequence[Timed],
    layer: tuple[LayerCall, LayerPasses] | None,
) -> Device:
    rates: dict[Precision, MatrixRate] = dict(base.rates) if base else {}
    rates |= {precision: fitted.rate for precision, fitted in found.rates.items()}
    bandwidth = base.memory_bandwidth if base else found.bandwidth
    known: AttentionRate = found.attention.rate
    return Device(
        name=facts.name,
        memory_bytes=facts.memory_bytes,
        memory_bandwidth=bandwidth,
        memory_share=min(found.bandwidth / bandwidth, 1.0),
        rates=MappingProxyType(rates),
        attention=MappingProxyType({_FAMILY: known}),
        grouped=base.grouped if base else MappingProxyType({}),
        scans=base.scans if base else MappingProxyType({}),
        processors=base.processors if base else facts.processors,
        channel_bandwidth=base.channel_bandwidth if base else None,
        vector_rate=base.vector_rate if base else _VECTOR_RATE,
        sustained=found.sustained or (base.sustained if base else 1.0),
        kernel_floor_ps=round(found.floor_s * PS_PER_S),
        reserved_bytes=facts.reserved_bytes,
        watts=base.watts if base else None,
        price_per_hour=base.price_per_hour if base else None,
        topology=base.topology if base else None,
        sources=MappingProxyType(dict(_sources(facts, found, base, kernels, layer))),
    )


def _sources(
    facts: DeviceFacts,
    found: _Findings,
    base: Device | None,
    kernels: Sequence[Timed],
    layer: tuple[LayerCall, LayerPasses] | None,
) -> dict[str, str]:
    """Where each number is from: what was timed, how well it fits, how far times lie apart."""
    spread = fmean(times.spread for _, times in kernels)
    lent = f"as {base.name}" if base else "not known"
    fits = "; ".join(
        f"{precision}: {each.shapes} products, mean residual {each.residual:.1%}"
        for precision, each in found.rates.items()
    )
    said = {
        "measured": f"stepsim measure on {facts.name}: {', '.join(facts.versions)}",
        "spread": f"{spread:.1%} of a kernel's time, mean of {len(kernels)} kernels",
        "rate": fits,
        "peak": lent if base else "the measured rate: no data sheet",
        "attention": f"{found.attention.shapes} passes of torch's fused attention, mean residual "
        f"{found.attention.residual:.1%}",
        "memory_share": f"{found.bandwidth / 1e9:.0f} GB/s, the fastest memory-bound kernel",
        "sustained": "the largest product without a pause" if found.sustained else lent,
        "vector": lent,
        "processors": lent if base else "measured kernel: as the driver says",
        "channel": lent,
        "grouped": lent,
        "scan": lent,
    }
    if found.launch_s:
        said["kernel_floor"] = f"a CUDA graph's; the host launches one in {_time(found.launch_s)}"
    if layer:
        said["layer"] = _said_of(layer[1])
    return said


def _said_of(layer: LayerPasses) -> str:
    passes = layer.forward.median + layer.backward.median
    launched = f", {_time(layer.host.median)} to launch" if layer.host else ""
    return f"plain torch: {_time(passes)}{launched}; keeps {format_size_bytes(layer.kept_bytes)}"


def _time(seconds: float) -> str:
    return format_time_ps(seconds * PS_PER_S)


def _notes(found: _Findings, base: Device | None) -> list[str]:
    notes = []
    if base is None:
        notes.append("no data sheet: peaks are the measured rates, so MFU says little (--device)")
    else:
        others = sorted(each for each in base.rates if each not in found.rates)
        if others:
            notes.append(f"rates of {', '.join(others)} are those of {base.name}, not measured")
    if found.sustained is None:
        notes.append("no long run: the sustained share of the rates is not measured")
    if found.bandwidth > (base.memory_bandwidth if base else found.bandwidth):
        notes.append("copies are faster than the data sheet's memory: they stay in a cache")
    return notes
