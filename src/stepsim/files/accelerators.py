"""Devices and training frameworks: TOML files, shipped ones by name."""

import os
import re
from collections.abc import Iterator
from difflib import get_close_matches
from os.path import isfile
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, TypeVar

import msgspec
import tomli_w
from msgspec import Meta

from stepsim.base.errors import PlanError, StepsimError, bad_value
from stepsim.base.memo import remembered
from stepsim.base.structs import Bandwidth, Positive, Share, Size, Time
from stepsim.base.units import (
    exact_size,
    exact_time,
    parse_bandwidth,
    parse_size_bytes,
    parse_time_ps,
)
from stepsim.files.reading import (
    csv_rows,
    first_bytes,
    read_text,
    read_toml,
    shipped_folder,
    shipped_once,
)
from stepsim.workload.model.choices import ContextParallelKind, ExpertDispatch, GraphScope
from stepsim.workload.model.context import ContextParallel
from stepsim.workload.model.coverage import HeldRuns
from stepsim.workload.model.device import AttentionRate, Device, MatrixRate
from stepsim.workload.model.framework import (
    ErrorBand,
    Framework,
    JobDefaults,
    PublishedRate,
    Recipe,
)
from stepsim.workload.model.kernels import GroupedRate, ScanRate
from stepsim.workload.model.layout import named_layout
from stepsim.workload.model.plan import Precision, RecomputeModule

_Noun = TypeVar("_Noun", bound=msgspec.Struct)
_TFLOPS = 1e12
_WORDS = re.compile("[a-z0-9]+")
_CARD = "pcie"
_LENT = MappingProxyType({Precision.FP16: Precision.BF16, Precision.MXFP8: Precision.FP8})
"""Formats that run at another's rates where a device has none of their own."""
_Tera = Annotated[Positive, Meta(description="TFLOP/s")]
_Part = Annotated[Share, Meta(ge=0, le=1)]
_Amount = Annotated[float, Meta(ge=0, le=1e9)]

RATES_HEADER = ("frameworks", *(each for each in PublishedRate.__struct_fields__))
"""Columns of `frameworks/rates.csv`, which `benchmarks/model_constants.py` writes."""

HELD_HEADER = tuple(HeldRuns.__struct_fields__)
"""Columns of `frameworks/held.csv`, which `benchmarks/model_constants.py` writes."""


class RateTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[rate.bf16]` and the like: matrix products in one precision."""

    rate: _Tera
    peak: _Tera
    start: Time = "0 us"


class AttentionTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[attention.flash2]` and the like: fused attention of one kernel family."""

    rate: _Tera
    half_sequence: _Amount = 0.0
    half_work: _Amount = 0.0
    narrow: Positive = 0.75
    wide: Positive = 1.0
    window_keys: _Amount | None = None
    shared_heads: Annotated[int, Meta(ge=1, le=10_000)] = 64
    latent_heads: Annotated[int, Meta(ge=1, le=10_000)] = 64
    backward: Positive = 0.85


class GroupedTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[grouped.bf16]` and the like: one kernel for the products of all experts."""

    share: Annotated[Share, Meta(gt=0, le=1.5, description="of the peak")]
    memory_share: Annotated[Share, Meta(ge=1e-6, le=1)] = 0.89


class ScanTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[scan.chunked]` and the like: kernels that pass a state from chunk to chunk."""

    share: Annotated[_Part, Meta(description="of the bf16 peak; 0: steps alone take time")] = 0.0
    step: Annotated[Time, Meta(description="of a state to the next chunk")] = "0 us"
    start: Annotated[Time, Meta(description="all launches of a forward")] = "0 us"
    whole: Annotated[bool, Meta(description="a processor takes a head's chunks in turn")] = False


class DeviceFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A device: its rates, its memory, and where each number is from."""

    name: Annotated[str, Meta(description="of the device, in reports")]
    memory: Size
    memory_bandwidth: Bandwidth
    rate: dict[str, RateTable]
    attention: dict[str, AttentionTable]
    also: list[str] = []
    grouped: dict[str, GroupedTable] = {}
    scan: dict[str, ScanTable] = {}
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


class ErrorTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[[error]]`: predictions against published runs on a device (`experts`: with experts).

    `benchmarks/model_constants.py` writes them: each source is predicted with constants that were
    set without it.
    """

    device: str
    mean: Annotated[Share, Meta(ge=0, le=1e9)] = 0.0
    runs: Annotated[int, Meta(ge=0, description="0: those of kin alone tell its range")] = 0
    source: str = ""
    experts: bool = False
    mixes: Annotated[bool, Meta(description="of hybrids and of sparse attention")] = False
    generation: Annotated[str, Meta(description="of the device")] = ""
    median: _Amount = 0.0
    ninety: Annotated[_Amount, Meta(description="error that 90 % of the runs stay below")] = 0.0
    low: Annotated[_Amount, Meta(description="measured over predicted, 10 % of the kind")] = 0.0
    high: Annotated[_Amount, Meta(description="measured over predicted, 90 % of the kind")] = 0.0
    others: Annotated[int, Meta(ge=0, description="sources of the kind")] = 0
    most_npus: Annotated[int, Meta(ge=0)] = 0
    most_sequence: Annotated[int, Meta(ge=0)] = 0
    most_cp: Annotated[int, Meta(ge=0)] = 0


class StatesTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`states` of a recipe: fields of the framework that are others for all plans of the model."""

    gradient_bytes: Annotated[int, Meta(ge=2, le=4)] | None = None
    optimizer_bytes: Annotated[float, Meta(ge=2, le=16)] | None = None
    gate_bytes: Annotated[float, Meta(ge=0.5, le=2)] | None = None
    result_bytes: Annotated[float, Meta(ge=0.5, le=4)] | None = None
    casts_weights: bool | None = None
    drops_cast_norms: bool | None = None
    graph_scopes: Annotated[list[GraphScope], Meta(description="none: steps")] | None = None
    pads_experts: bool | None = None
    free_sms: Annotated[int, Meta(ge=0, le=64)] | None = None


class RecipeTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[[recipe]]`: what public recipes of a model set beside degrees; the first one counts."""

    model: str
    device: Annotated[str, Meta(description="any where it is left out")] | None = None
    precision: Annotated[Precision, Meta(description="any where it is left out")] | None = None
    sharded: Annotated[bool, Meta(description="of plans under FSDP")] = False
    tp: Annotated[int, Meta(ge=1, description="of plans with this degree alone")] | None = None
    pp: Annotated[int, Meta(ge=1, description="of such pipelines alone")] | None = None
    chunks: Annotated[int, Meta(ge=1, description="of so many virtual stages alone")] | None = None
    recompute_modules: list[RecomputeModule] = []
    offload_layers: Annotated[int, Meta(ge=0, le=100_000)] = 0
    layout: Annotated[str, Meta(description="as --layout takes it")] | None = None
    zero: Annotated[int, Meta(ge=0, le=3)] | None = None
    dispatch: ExpertDispatch | None = None
    states: StatesTable | None = None
    source: str = ""


class DefaultsTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[[defaults]]`: how jobs of the framework run where nobody says it; the last one counts."""

    source: str
    experts: Annotated[bool | None, Meta(description="for models with or without experts")] = None
    devices: Annotated[list[str], Meta(description="names; none: on all")] = []
    zero: Annotated[int, Meta(ge=0, le=3)] | None = None
    dp_overlap: bool | None = None
    tp_comm_overlap: bool | None = None
    cuda_graph: bool | None = None
    reshard: bool | None = None
    dispatch: ExpertDispatch | None = None
    shared_overlap: bool | None = None
    delay_wgrad: bool | None = None
    overlaps_experts: bool | None = None
    precisions: Annotated[list[Precision], Meta(description="none: in all")] = []
    since: Annotated[str, Meta(description="first release, as in 26.06")] | None = None
    until: Annotated[str, Meta(description="first release without")] | None = None
    graph_scopes: Annotated[list[GraphScope], Meta(description="none: steps")] | None = None
    fuses_grouped: Annotated[bool, Meta(description="products of experts")] | None = None


class ContextTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[context]`: how ranks that share a sequence compute and exchange its attention."""

    exchange: Annotated[ContextParallelKind, Meta(description="where nobody says it")] = (
        ContextParallelKind.RING
    )
    balanced: Annotated[bool, Meta(description="head and tail chunks on each rank")] = True
    gathers_by_hop: Annotated[bool, Meta(description="an all-gather runs a kernel a hop")] = False
    gathers_by_head: Annotated[bool, Meta(description="and a ring, for each head of keys")] = False
    hides: Annotated[bool, Meta(description="messages run beside kernels")] = True
    kernels_at_once: Annotated[int, Meta(ge=1, le=8)] = 2
    repeats_heads: Annotated[bool, Meta(description="sends as many heads as queries have")] = False
    merge_bytes: Annotated[_Amount, Meta(description="per element of the output and hop")] = 6.0
    sum_bytes: Annotated[_Amount, Meta(description="per element of gradients and hop")] = 6.0
    gradient_bytes: Annotated[int, Meta(ge=1, le=4)] = 2
    returns_gradients: Annotated[bool, Meta(description="one more hop, beside nothing")] = False
    hop: Annotated[Time, Meta(description="launches of a hop's forward")] = "0 us"


class FrameworkFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A training framework: what it adds to the operators, and where each number is from."""

    name: Annotated[str, Meta(description="of the framework, in reports")]
    memory_factor: Annotated[Positive, Meta(description="of memory-bound kernels")]
    host_layer: Time
    host_expert_layer: Time
    attention: dict[str, str]
    also: list[str] = []
    graph_share: _Part = 0.1
    host_step: Time = "0 ms"
    host_tp: Time = "0 ms"
    exposed_tp: _Part = 0.4
    fsdp_slowdown: _Amount = 0.08
    skew: _Amount = 0.0
    overlaps_input_gradient: bool = True
    overlaps_p2p: bool = True
    fuses_gradient_sums: bool = True
    balances_stages: bool = False
    operator_recompute: _Part = 0.3
    keeps_casts: bool = True
    casts_weights: bool = False
    keeps_outputs: bool = False
    collects_logits: bool = False
    fuses_gates: bool = True
    copies_heads: bool = False
    weighs_inside: bool = False
    fuses_experts: bool = True
    groups_experts: Annotated[bool, Meta(description="in one kernel, else one by one")] = False
    free_sms: Annotated[int, Meta(ge=0, le=64, description="that products leave free")] = 0
    drops_cast_norms: bool = False
    gate_bytes: Annotated[float, Meta(ge=0.5, le=2)] = 2.0
    result_bytes: Annotated[float, Meta(ge=0.5, le=4)] | None = None
    gradient_bytes: Annotated[int, Meta(ge=2, le=4)] = 4
    cast_gradient_bytes: Annotated[int, Meta(ge=2, le=4)] | None = None
    sharded_gradient_bytes: Annotated[int, Meta(ge=2, le=4)] = 2
    optimizer_bytes: Annotated[float, Meta(ge=2, le=16)] = 12.0
    logit_bytes: Annotated[int, Meta(ge=2, le=1000)] = 7
    split_logit_bytes: Annotated[int, Meta(ge=2, le=1000)] | None = None
    unsummed_bytes: Annotated[int, Meta(ge=0, le=4)] = 0
    workspace: str = "0 B"
    norm_bytes: Annotated[int, Meta(ge=0, le=8)] = 0
    bucket: str = "0 B"
    fragmentation: Annotated[float, Meta(ge=1, le=1e9)] = 1.0
    reports_total: bool = False
    fused_loss: bool = True
    context: ContextTable = ContextTable()
    recipe: list[RecipeTable] = []
    error: list[ErrorTable] = []
    defaults: list[DefaultsTable] = []
    sources: dict[str, str] = {}


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


def read_gpu(called: str) -> Device:
    """The shipped device that a tool calls so, e.g. `NVIDIA H100 80GB HBM3`.

    It is the one with most words of its name among the words of this one; cards with PCIe are other
    GPUs than those without. Raises PlanError where there is none.
    """
    words = set(_WORDS.findall(called.lower()))
    known = {name: set(_WORDS.findall(name)) for name in names_of_files("device")}
    fits = [
        name for name, own in known.items() if own <= words and (_CARD in own) == (_CARD in words)
    ]
    if not fits:
        raise PlanError(
            f"GPU is {called!r}: expected one of {', '.join(device_names())}, or a device file"
        )
    return read_device(max(fits, key=lambda name: (len(known[name]), name)))


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
            attention=MappingProxyType(dict(_attention(file))),
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


def device_toml(device: Device) -> str:
    """A device as its file has it; sizes and times are exact, rates have four digits."""
    lends = [
        own.value
        for own, other in _LENT.items()
        if own in device.rates and device.rates[own] == device.rates.get(other)
    ]
    rates = {
        name.value: {
            "peak": _tera(rate.peak),
            "rate": _tera(rate.rate),
            "start": exact_time(rate.start_ps),
        }
        for name, rate in device.rates.items()
        if name.value not in lends
    }
    attention = {
        name: {
            "rate": _tera(rate.rate),
            "half_sequence": round(rate.half_sequence),
            "half_work": round(rate.half_work),
            "narrow": _four_digits(rate.narrow),
            "wide": _four_digits(rate.wide),
            "shared_heads": rate.shared_heads,
            "latent_heads": rate.latent_heads,
            **({} if rate.window_keys is None else {"window_keys": round(rate.window_keys)}),
            "backward": _four_digits(rate.backward),
        }
        for name, rate in device.attention.items()
    }
    grouped = {
        name: {"share": _four_digits(rate.share), "memory_share": _four_digits(rate.memory_share)}
        for name, rate in device.grouped.items()
    }
    scans = {
        name: {
            "share": _four_digits(rate.share),
            "step": exact_time(rate.step_ps),
            "start": exact_time(rate.start_ps),
            "whole": rate.whole,
        }
        for name, rate in device.scans.items()
    }
    channel = device.channel_bandwidth
    numbers = {
        "name": device.name,
        "memory": exact_size(device.memory_bytes),
        "memory_bandwidth": f"{device.memory_bandwidth / 1e9:.5g} GB/s",
        "memory_share": _four_digits(device.memory_share),
        "sustained": _four_digits(device.sustained),
        "vector": _tera(device.vector_rate),
        "processors": device.processors,
        "channel": f"{channel / 1e9:.5g} GB/s" if channel else None,
        "group_start": exact_time(device.group_start_ps),
        "kernel_floor": exact_time(device.kernel_floor_ps),
        "reserved": exact_size(device.reserved_bytes),
        "watts": device.watts,
        "price_per_hour": device.price_per_hour,
        "topology": device.topology,
        "generation": device.generation or None,
        "framework": device.framework,
        "lends": None if lends == ["fp16"] else lends,
    }
    optional = {name: table for name, table in (("grouped", grouped), ("scan", scans)) if table}
    tables = {"rate": rates, "attention": attention, **optional, "sources": dict(device.sources)}
    known = {name: value for name, value in numbers.items() if value is not None}
    return tomli_w.dumps({**known, **tables})


def _tera(rate: float) -> float:
    return _four_digits(rate / _TFLOPS)


def _four_digits(value: float) -> float:
    return float(f"{value:.4g}")


def read_framework(name_or_path: str | Path) -> Framework:
    """A framework by name or file; raises PlanError naming the file and the entry at fault."""
    return _read_framework(_file(name_or_path, "framework"))


@shipped_once
def _read_framework(path: Path) -> Framework:
    file = read_toml(path, FrameworkFile, PlanError, "framework")
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
            recipes=tuple(map(_recipe, file.recipe)),
            errors=tuple(_taken(ErrorBand, e, error=e.mean, sparse=e.experts) for e in file.error),
            rates=tuple(_published_rates(file.name)),
            defaults=tuple(_taken(JobDefaults, each) for each in file.defaults),
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


def _published_rates(framework: str) -> Iterator[PublishedRate]:
    """What published runs with a framework achieved."""
    path = shipped_folder("frameworks") / "rates.csv"
    for row in csv_rows(path, read_text(path, PlanError, "table of rates", "CSV"), PlanError):
        if framework in row["frameworks"].split():
            yield msgspec.convert(row, PublishedRate, strict=False)


def read_held() -> tuple[HeldRuns, ...]:
    """What predictions were held against: published runs by source, model, device and precision."""
    path = shipped_folder("frameworks") / "held.csv"
    rows = csv_rows(path, read_text(path, PlanError, "table of held runs", "CSV"), PlanError)
    return tuple(msgspec.convert(row, HeldRuns, strict=False) for row in rows)


def _recipe(table: RecipeTable) -> Recipe:
    states = msgspec.structs.asdict(table.states) if table.states else {}
    known = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in states.items()
        if value is not None
    }
    recipe = _taken(Recipe, table, states=MappingProxyType(known))
    if known and not recipe.is_of_all_plans:
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


def _attention(file: DeviceFile) -> Iterator[tuple[str, AttentionRate]]:
    for name, table in file.attention.items():
        yield name, _taken(AttentionRate, table, rate=table.rate * _TFLOPS)


def _grouped(file: DeviceFile) -> Iterator[tuple[str, GroupedRate]]:
    known = (*(each.value for each in Precision), "fp8_block")
    for name, table in file.grouped.items():
        if name not in known:
            raise PlanError(bad_value("grouped", "precision", name, f"one of {', '.join(known)}"))
        yield name, _taken(GroupedRate, table)


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
    schema: type[DeviceFile | FrameworkFile] = DeviceFile if kind == "device" else FrameworkFile
    found = {}
    for path in sorted(shipped_folder(f"{kind}s").glob("*.toml")):
        file = read_toml(path, schema, PlanError, kind)
        for name in (path.stem, file.name, *file.also):
            found[name.lower()] = path
    return found
