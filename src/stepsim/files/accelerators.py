"""Devices and training frameworks: TOML files, shipped ones by name."""

import os
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from os.path import isfile
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from stepsim.base.errors import PlanError, StepsimError, bad_value
from stepsim.base.memo import remembered
from stepsim.base.structs import Bandwidth, Positive, Share, Size, Time, replace
from stepsim.base.units import (
    parse_bandwidth,
    parse_size_bytes,
    parse_time_ps,
)
from stepsim.files.reading import (
    first_bytes,
    read_toml,
    shipped_folder,
    shipped_once,
)
from stepsim.workload.model.context import ContextParallel
from stepsim.workload.model.device import AttentionRate, Device, MatrixRate
from stepsim.workload.model.framework import (
    ErrorBand,
    Framework,
    JobDefaults,
    Recipe,
)
from stepsim.workload.model.kernels import GroupedRate, ScanRate
from stepsim.workload.model.layout import named_layout
from stepsim.workload.model.plan import Precision

_Noun = TypeVar("_Noun", bound=msgspec.Struct)
_TFLOPS = 1e12
_LENT = MappingProxyType({Precision.FP16: Precision.BF16, Precision.MXFP8: Precision.FP8})
"""Formats that run at another's rates where a device has none of their own."""
_Tera = Annotated[Positive, Meta(description="TFLOP/s")]


class RateTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[rate.bf16]` and the like: matrix products in one precision."""

    rate: _Tera
    peak: _Tera
    start: Time = "0 us"


def _file_of(
    kind: type[msgspec.Struct], said: str, written: list[Any], skipped: Sequence[str] = ()
) -> type[msgspec.Struct]:
    """The entries of a file of nouns: their fields, but those that are `written` otherwise."""
    others = {*skipped, *(name for name, *_ in written)}
    taken: list[Any] = [
        (each.name, each.type, *(() if each.required else (each.default,)))
        for each in msgspec.structs.fields(kind)
        if not {each.name, each.name.removesuffix("_ps"), each.name.removesuffix("_bytes")} & others
    ]
    return msgspec.defstruct(
        f"{kind.__name__}File",
        [*taken, *written],
        namespace={"__doc__": said},
        forbid_unknown_fields=True,
        frozen=True,
        kw_only=True,
    )


_ScanFile: Any = _file_of(
    ScanRate,
    "`[scan.chunked]` and the like: kernels that pass a state from chunk to chunk.",
    [("step", Time, "0 us"), ("start", Time, "0 us")],
)


class DeviceFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A device: its rates, its memory, and where each number is from."""

    name: Annotated[str, Meta(description="of the device, in reports")]
    memory: Size
    memory_bandwidth: Bandwidth
    rate: dict[str, RateTable]
    attention: dict[str, AttentionRate]
    also: list[str] = []
    grouped: dict[str, GroupedRate] = {}
    scan: dict[str, _ScanFile] = {}
    processors: Annotated[int, Meta(ge=1, le=100_000, description="streaming ones")] | None = None
    channel: Annotated[Bandwidth, Meta(description="of a block of collectives")] | None = None
    group_start: Annotated[Time, Meta(description="of a product of experts among others")] = "4 us"
    sustained: Annotated[Positive, Meta(description="share of the rates kept in training")] = 1.0
    vector: Annotated[_Tera, Meta(description="without tensor cores")] = 10.0
    memory_share: Annotated[Share, Meta(ge=1e-6, le=1)] = 0.8
    kernel_floor: Time = "3 us"
    reserved: Annotated[Size, Meta(description="contexts and communication buffers")] = "0 B"
    watts: Positive | None = None
    price_per_hour: Positive | None = None
    topology: str | None = None
    generation: Annotated[str, Meta(description="whose devices share what is not measured")] = ""
    framework: Annotated[str | None, Meta(description="of its jobs where nobody says it")] = None
    lends: Annotated[
        tuple[Literal["fp16", "mxfp8"], ...],
        Meta(description="formats that the chip has, at the rates of bf16 and fp8"),
    ] = ("fp16",)
    sources: dict[str, str] = {}


_ContextFile = _file_of(
    ContextParallel,
    "`[context]`: how ranks that share a sequence compute and exchange its attention.",
    [("hop", Annotated[Time, Meta(description="launches of a hop's forward")], "0 us")],
)
_WRITTEN: list[Any] = [
    ("host_layer", Time),
    ("host_expert_layer", Time),
    ("attention", dict[str, str]),
    ("host_step", Time, "0 ms"),
    ("host_tp", Time, "0 ms"),
    ("workspace", str, "0 B"),
    ("bucket", str, "0 B"),
    ("context", _ContextFile, _ContextFile()),
    ("recipe", tuple[Recipe, ...], ()),
    ("error", tuple[ErrorBand, ...], ()),
    ("defaults", tuple[JobDefaults, ...], ()),
    ("also", list[str], []),
    ("sources", dict[str, str], {}),
]
"""Entries of a framework's file that are written otherwise than the noun has them."""
_NOT_WRITTEN = ("release", "graph_scopes", "fuses_grouped", "pads_experts", "recipes", "errors")
FrameworkFile = _file_of(
    Framework,
    "A training framework: what it adds to the operators, and where each number is from.",
    _WRITTEN,
    _NOT_WRITTEN,
)


def device_names() -> list[str]:
    """Names of the shipped devices."""
    return sorted(path.stem for path in shipped_folder("devices").glob("*.toml"))


def framework_names() -> list[str]:
    """Names of the shipped frameworks."""
    return sorted(path.stem for path in shipped_folder("frameworks").glob("*.toml"))


def is_device(name_or_path: str | Path) -> bool:
    """Whether something is a shipped device's name, or a file that has what only devices have."""
    return _is(name_or_path, "device", b"memory_bandwidth")


def is_accelerator(name_or_path: str | Path) -> bool:
    """Whether something names or describes a device or a framework."""
    return is_device(name_or_path) or _is(name_or_path, "framework", b"host_expert_layer")


def _is(name_or_path: str | Path, kind: str, key: bytes) -> bool:
    path = Path(name_or_path)
    if str(name_or_path).lower() in names_of_files(kind):
        return True
    if isfile(path):
        lines = first_bytes(path, 65536).splitlines() if path.suffix == ".toml" else []
        return any(line.startswith(key) for line in lines)
    return False


def read_device(name_or_path: str | Path) -> Device:
    """A device by name or file; raises PlanError naming the file and the entry at fault."""
    return _read_device(_file(name_or_path, "device"))


@shipped_once
def _read_device(path: Path) -> Device:
    file = read_toml(path, DeviceFile, PlanError, "device")
    try:
        memory = parse_size_bytes(file.memory)
        if not memory:
            raise PlanError(f"memory is {file.memory!r}: expected some")
        return _taken(
            Device,
            file,
            memory_bytes=memory,
            memory_bandwidth=parse_bandwidth(file.memory_bandwidth),
            rates=MappingProxyType(dict(_rates(file))),
            attention=MappingProxyType(
                {name: replace(a, rate=a.rate * _TFLOPS) for name, a in file.attention.items()}
            ),
            grouped=MappingProxyType(dict(_grouped(file))),
            scans=MappingProxyType(dict(_scans(file))),
            channel_bandwidth=parse_bandwidth(file.channel) if file.channel else None,
            group_start_ps=parse_time_ps(file.group_start),
            vector_rate=file.vector * _TFLOPS,
            kernel_floor_ps=parse_time_ps(file.kernel_floor),
            reserved_bytes=parse_size_bytes(file.reserved),
            sources=MappingProxyType(file.sources),
        )
    except StepsimError as error:
        raise PlanError(f"{path}: {error}") from None


def read_framework(name_or_path: str | Path) -> Framework:
    """A framework by name or file; raises PlanError naming the file and the entry at fault."""
    return _read_framework(_file(name_or_path, "framework"))


@shipped_once
def _read_framework(path: Path) -> Framework:
    file: Any = read_toml(path, FrameworkFile, PlanError, "framework")
    try:
        return _taken(
            Framework,
            file,
            host_layer_ps=parse_time_ps(file.host_layer),
            host_expert_layer_ps=parse_time_ps(file.host_expert_layer),
            host_step_ps=parse_time_ps(file.host_step),
            host_tp_ps=parse_time_ps(file.host_tp),
            workspace_bytes=parse_size_bytes(file.workspace),
            bucket_bytes=parse_size_bytes(file.bucket),
            context=_taken(ContextParallel, file.context, hop_ps=parse_time_ps(file.context.hop)),
            recipes=tuple(map(_checked, file.recipe)),
            errors=file.error,
            attention=MappingProxyType(file.attention),
            sources=MappingProxyType(file.sources),
        )
    except StepsimError as error:
        raise PlanError(f"{path}: {error}") from None


def _taken(kind: type[_Noun], table: msgspec.Struct, **others: object) -> _Noun:
    """A noun of the values that a table has under the names of its fields; `others` are not taken.

    Lists become tuples.
    """
    names = [name for name in kind.__struct_fields__ if name not in others]
    values = {name: getattr(table, name) for name in names if hasattr(table, name)}
    taken = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
    return kind(**taken, **others)


def _checked(recipe: Recipe) -> Recipe:
    """A recipe that can hold; raises PlanError."""
    if recipe.states and not recipe.is_of_all_plans:
        raise PlanError(
            f"recipe of {recipe.model}: states hold for all plans of a model: expected no tp, pp "
            "or chunks"
        )
    if recipe.layout is not None:
        named_layout(recipe.layout)
    return recipe


def framework_of_year(name: str, year: str) -> str:
    """The name with the year where a shipped framework has it, such as torchtitan-2024."""
    dated = f"{name}-{year}"
    return dated if dated.lower() in names_of_files("framework") else name


def _rates(file: DeviceFile) -> Iterator[tuple[Precision, MatrixRate]]:
    """Rates by precision; fp16 is bf16's and mxfp8 fp8's, where the chip has these formats.

    Raises PlanError where there are none in 16 bits, in which heads run whatever the precision.
    """
    known = {precision.value: precision for precision in Precision}
    tables = dict(file.rate)
    for own, other in _LENT.items():
        if other.value in tables and own.value in file.lends:
            tables.setdefault(own.value, tables[other.value])
    if not {Precision.BF16.value, Precision.FP16.value} & tables.keys():
        raise PlanError(bad_value("rate", "tables", sorted(file.rate), "one of them bf16 or fp16"))
    for name, table in tables.items():
        if name not in known:
            raise PlanError(bad_value("rate", "precision", name, f"one of {', '.join(known)}"))
        yield (
            known[name],
            MatrixRate(
                rate=table.rate * _TFLOPS,
                peak=table.peak * _TFLOPS,
                start_ps=parse_time_ps(table.start),
            ),
        )


def _grouped(file: DeviceFile) -> Iterator[tuple[str, GroupedRate]]:
    known = (*(each.value for each in Precision), "fp8_block")
    for name, table in file.grouped.items():
        if name not in known:
            raise PlanError(bad_value("grouped", "precision", name, f"one of {', '.join(known)}"))
        yield name, table


def _scans(file: DeviceFile) -> Iterator[tuple[str, ScanRate]]:
    for name, table in file.scan.items():
        times = {"step_ps": parse_time_ps(table.step), "start_ps": parse_time_ps(table.start)}
        yield name, _taken(ScanRate, table, **times)


def _file(name_or_path: str | Path, kind: str) -> Path:
    """File of a shipped name, in any case and by any of its names, or the user's own path.

    What files hold is read where the name is that of none of them: most people type that name.
    """
    path = Path(name_or_path)
    called = shipped_folder(f"{kind}s") / f"{str(name_or_path).lower()}.toml"
    if path.name == str(name_or_path) and isfile(called):
        return called
    names = names_of_files(kind)
    found = names.get(str(name_or_path).lower())
    if found is not None:
        return found
    if path.suffix == ".toml" or os.sep in str(name_or_path) or isfile(path):
        return path
    close = get_close_matches(str(name_or_path).lower(), names, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    known = ", ".join(sorted({path.stem for path in names.values()}))
    raise PlanError(
        f"no {kind} named {str(name_or_path)!r}{hint}: expected a file or one of {known}"
    )


@remembered
def names_of_files(kind: str) -> dict[str, Path]:
    """Files of a kind by each of their names."""
    schema: type[Any] = DeviceFile if kind == "device" else FrameworkFile
    found = {}
    for path in sorted(shipped_folder(f"{kind}s").glob("*.toml")):
        file = read_toml(path, schema, PlanError, kind)
        for name in (path.stem, file.name, *file.also):
            found[name.lower()] = path
    return found
