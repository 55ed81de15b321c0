"""The numbers of a device or a framework, each with what it rests on."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import fields

from stepsim.base.units import format_bandwidth, format_size_bytes, format_time_ps
from stepsim.show.tables.model import COUNT, LONG, SHARE, TEXT, Shown, table_of
from stepsim.workload.evidence import Evidence, Provenance, source_of
from stepsim.workload.model.context.parallel import ContextParallel
from stepsim.workload.model.device import Device
from stepsim.workload.model.framework import Framework

_TERA = 1e12
_NOT_NUMBERS = ("name", "attention", "errors", "sources", "defaults", "recipes", "rates", "context")


_USUAL = f"{Evidence.SHARED}: the usual case, which a framework's file leaves out"


class _Constant(NamedTuple):
    """A number in words, and where it is from."""

    name: str
    value: str
    source: Provenance


_COLUMNS = {
    "number": TEXT.of("name"),
    "value": TEXT.of("value"),
    "evidence": TEXT.of("source.evidence"),
    "source": LONG.of("source.text"),
}
_ERRORS = {
    "GPU": TEXT.of("device"),
    "models": TEXT.of(lambda band: "experts" if band.sparse else "dense"),
    "runs": COUNT.of("runs"),
    "mean": SHARE.of("error"),
    "median": SHARE.of("median"),
    "90 % within": SHARE.of("ninety"),
    "sources": LONG.of("source"),
}


def constants_of_device(device: Device) -> Iterator[Shown]:
    """The numbers of a device."""
    yield table_of(f"device {device.name}", list(_of_device(device)), _COLUMNS)


def constants_of_framework(framework: Framework) -> Iterator[Shown]:
    """The numbers of a framework, and how far off predictions with it were."""
    yield table_of(f"framework {framework.name}", list(_of_framework(framework)), _COLUMNS)
    if framework.errors:
        caption = "errors of predictions, each source with constants set without it"
        yield table_of(caption, framework.errors, _ERRORS)
    else:
        yield "no published run with it was compared: its error is not known"


def _of_device(device: Device) -> Iterator[_Constant]:
    def constant(name: str, value: str, source: str) -> _Constant:
        return _Constant(name, value, source_of(device.sources.get(source)))

    yield constant("memory", format_size_bytes(device.memory_bytes), "memory")
    bandwidth = format_bandwidth(device.memory_bandwidth)
    yield constant("memory bandwidth", bandwidth, "memory")
    yield constant("share that kernels reach", f"{device.memory_share:.2f}", "memory_share")
    for precision, rate in device.rates.items():
        start = format_time_ps(rate.start_ps)
        yield constant(f"peak {precision}", f"{rate.peak / _TERA:,.0f} TFLOP/s", "peak")
        shown = f"{rate.rate / _TERA:,.0f} TFLOP/s after {start}"
        yield constant(f"products {precision}", shown, "rate")
    yield constant("clocks kept in training", f"{device.sustained:.2f}", "sustained")
    for family, reached in device.attention.items():
        yield constant(f"attention {family}", f"{reached.rate / _TERA:,.0f} TFLOP/s", "attention")
    yield constant("without tensor cores", f"{device.vector_rate / _TERA:.1f} TFLOP/s", "vector")
    yield constant("shortest kernel", format_time_ps(device.kernel_floor_ps), "kernel_floor")
    yield constant("kept by libraries", format_size_bytes(device.reserved_bytes), "reserved")
    if device.watts is not None:
        yield constant("power", f"{device.watts:.0f} W", "watts")


def _of_framework(framework: Framework) -> Iterator[_Constant]:
    yield from _numbers_of(framework, framework.sources, "")
    yield from _numbers_of(framework.context, framework.sources, "context_")
    source = source_of(framework.sources.get("attention"))
    for device, family in framework.attention.items():
        yield _Constant(f"attention on {device}", family, source)


def _numbers_of(
    noun: Framework | ContextParallel, sources: Mapping[str, str], prefix: str
) -> Iterator[_Constant]:
    """The fields of a noun; their sources have a prefix before the name, and no unit after it."""
    for field in fields(noun):
        if field.name in _NOT_NUMBERS:
            continue
        value, name = getattr(noun, field.name), prefix + field.name.removesuffix("_ps")
        text = sources.get(name) or sources.get(name.removesuffix("_bytes"))
        if text is None and value == field.default:
            text = _USUAL
        shown = format_time_ps(value) if field.name.endswith("_ps") else str(value)
        yield _Constant(name.replace("_", " "), shown, source_of(text))
