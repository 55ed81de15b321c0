"""Calibration files, `calibration.toml`: what `stepsim calibrate` writes and `--calibration` reads.

Times and bandwidths are text with units. A number that could not be identified is absent, and an
entry of `[[unidentified]]` says why.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from stepsim.base.errors import CalibrationError, StepsimError, bad_value
from stepsim.base.units import MAX_INT64, parse_bandwidth, parse_time_ps
from stepsim.files.quantities import Bandwidth, Time
from stepsim.files.reading import read_toml
from stepsim.files.writing import write_whole
from stepsim.measured.calibration.document import (
    DEFAULT_NODE_SIZE,
    Calibration,
    ExpertImbalance,
    Fitted,
    LayerTimes,
    LeafOverhead,
    LinkFit,
)
from stepsim.measured.clocks import Placement
from stepsim.network.measured_times import CommTable, MeasuredCurve
from stepsim.workload.rows import CollectiveKind

SCHEMA_VERSION = 1
PS_PER_US = 1_000_000
PlacementName = Annotated[str, Meta(extra_json_schema={"enum": [each.value for each in Placement]})]
KindName = Annotated[str, Meta(extra_json_schema={"enum": [each.value for each in CollectiveKind]})]
Count = Annotated[int, Meta(ge=0, le=MAX_INT64)]
Bytes = Annotated[int, Meta(ge=0, le=MAX_INT64, description="bytes")]
Degree = Annotated[int, Meta(ge=1, le=1 << 24)]
Ratio = Annotated[float, Meta(ge=0, le=1e6, description="relative: 0.1 is 10 %")]
Microseconds = Annotated[float, Meta(ge=0, le=1e12, description="microseconds")]
Milliseconds = Annotated[float, Meta(ge=-1e9, le=1e9, description="milliseconds")]
Choice = TypeVar("Choice", Placement, CollectiveKind)


class FittedTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[host_overhead]` and `[gradient_launch]`, times; the others, bytes per second.

    `residual` is the median relative distance of the samples.
    """

    value: Annotated[str, Meta(description="a time or bandwidth with its unit")]
    residual: Ratio
    samples: Count


class LeafTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[leaf_overhead]`: what logs of leaf modules do not show; residuals relative."""

    action: Time
    action_residual: Ratio
    layer_factor: float
    layer_factor_residual: Ratio
    samples: Count


class LinkTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[[point_to_point]]`: messages between two ranks, `residual` relative."""

    placement: PlacementName
    latency: Time
    bandwidth: Bandwidth
    residual: Ratio
    samples: Count
    sizes: list[Bytes] = []
    both_ways: bool = True


class CollectiveEntry(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[[collective]]`: measured times of a group size and placement."""

    machine: str
    source: str
    kind: KindName
    ranks: Degree
    nodes: Degree
    size_bytes: list[Bytes]
    time_us: list[Microseconds]


class ImbalanceTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[[expert_imbalance]]`: busiest expert rank over the mean, per run."""

    source: str
    ep: Degree
    mean: Ratio
    largest: Ratio
    samples: Count
    experts: Degree | None = None


class LayerTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[[layer_times]]`: a layer, and what the pipeline's ends add, in one run; ms."""

    source: str
    hidden: Count
    sequence: Count
    tp: Degree
    ep: Degree
    forward_ms: Milliseconds
    backward_ms: Milliseconds
    first_forward_ms: Milliseconds
    first_backward_ms: Milliseconds
    last_forward_ms: Milliseconds
    last_backward_ms: Milliseconds
    get_batch_ms: Milliseconds
    loss_ms: Milliseconds
    experts: Degree | None = None


class Unidentified(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[[unidentified]]`: what the runs could not tell, and why."""

    name: str
    reason: str


class CalibrationFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A calibration: what runs tell about a machine; `node_size` ranks share a node."""

    schema_version: int
    sources: Annotated[list[str], Meta(description="what it was calibrated on")]
    traces: Annotated[list[str], Meta(description="fingerprints of the ranks' traces")] = []
    node_size: Annotated[Degree, Meta(description="ranks of a node")] = DEFAULT_NODE_SIZE
    host_overhead: FittedTable | None = None
    gradient_launch: FittedTable | None = None
    gradient_scaling: FittedTable | None = None
    optimizer: FittedTable | None = None
    leaf_overhead: LeafTable | None = None
    point_to_point: list[LinkTable] = []
    expert_imbalance: list[ImbalanceTable] = []
    layer_times: list[LayerTable] = []
    unidentified: list[Unidentified] = []
    collective: list[CollectiveEntry] = []


def read_calibration(path: str | Path) -> Calibration:
    """Calibration in a TOML file; raises CalibrationError naming file, field and value."""
    path = Path(path)
    file = read_toml(path, CalibrationFile, CalibrationError, "calibration")
    if file.schema_version != SCHEMA_VERSION:
        raise CalibrationError(
            bad_value(str(path), "schema_version", file.schema_version, str(SCHEMA_VERSION))
        )
    try:
        return _calibration(file)
    except StepsimError as error:
        raise CalibrationError(f"{path}: {error}") from None


def write_calibration(calibration: Calibration, path: str | Path) -> None:
    """Write a calibration; raises OutputError when the file cannot be written."""
    write_whole(Path(path), calibration_toml(calibration).encode())


def _calibration(file: CalibrationFile) -> Calibration:
    return Calibration(
        sources=tuple(file.sources),
        traces=tuple(file.traces),
        node_size=file.node_size,
        host_overhead=_fitted(file.host_overhead, parse_time_ps),
        point_to_point=tuple(_link(entry) for entry in file.point_to_point),
        collectives=_collectives(file.collective),
        gradient_launch=_fitted(file.gradient_launch, parse_time_ps),
        gradient_scaling=_fitted(file.gradient_scaling, parse_bandwidth),
        optimizer=_fitted(file.optimizer, parse_bandwidth),
        leaf_overhead=_leaf_overhead(file.leaf_overhead),
        expert_imbalance=tuple(
            ExpertImbalance(
                source=each.source,
                ep=each.ep,
                experts=each.experts,
                mean=each.mean,
                largest=each.largest,
                samples=each.samples,
            )
            for each in file.expert_imbalance
        ),
        layer_times=tuple(_layers(each) for each in file.layer_times),
        unidentified=tuple((each.name, each.reason) for each in file.unidentified),
    )


def _fitted(table: FittedTable | None, parse: Callable[[str], float]) -> Fitted | None:
    if table is None:
        return None
    return _number(float(parse(table.value)), table.residual, table.samples)


def _number(value: float, residual: float, samples: int) -> Fitted:
    """A number with its relative residual."""
    return Fitted(value=value, residual=residual * value, samples=samples)


def _leaf_overhead(table: LeafTable | None) -> LeafOverhead | None:
    if table is None:
        return None
    action = float(parse_time_ps(table.action))
    factor, residual = table.layer_factor, table.layer_factor_residual
    return LeafOverhead(
        action=_number(action, table.action_residual, table.samples),
        layer_factor=_number(factor, residual, table.samples),
    )


def _layers(table: LayerTable) -> LayerTimes:
    times = {
        f"{name}_ps": round(getattr(table, f"{name}_ms") * PS_PER_US * 1000)
        for name in _LAYER_PARTS
    }
    return LayerTimes(
        source=table.source,
        hidden=table.hidden,
        sequence=table.sequence,
        experts=table.experts,
        tp=table.tp,
        ep=table.ep,
        **times,
    )


def _link(table: LinkTable) -> LinkFit:
    return LinkFit(
        placement=_choice(Placement, "point_to_point placement", table.placement),
        latency_ps=parse_time_ps(table.latency),
        bandwidth=parse_bandwidth(table.bandwidth),
        residual=table.residual,
        samples=table.samples,
        sizes=tuple(table.sizes),
        both_ways=table.both_ways,
    )


def _collectives(entries: list[CollectiveEntry]) -> CommTable | None:
    if not entries:
        return None
    curves = [
        MeasuredCurve(
            machine=entry.machine,
            source=entry.source,
            kind=_choice(CollectiveKind, "collective kind", entry.kind),
            ranks=entry.ranks,
            nodes=entry.nodes,
            size_bytes=np.array(entry.size_bytes, dtype=np.int64),
            time_ps=np.array([round(time * PS_PER_US) for time in entry.time_us], dtype=np.int64),
        )
        for entry in entries
    ]
    return CommTable(source="collective", curves=tuple(curves))


def _choice(kind: type[Choice], field: str, value: str) -> Choice:
    try:
        return kind(value)
    except ValueError:
        raise CalibrationError(f"{field} is {value!r}: expected one of {', '.join(kind)}") from None


def calibration_toml(calibration: Calibration) -> str:
    """A calibration as TOML text."""
    return "\n".join(_lines(calibration)) + "\n"


_LAYER_PARTS = (
    "forward",
    "backward",
    "first_forward",
    "first_backward",
    "last_forward",
    "last_backward",
    "get_batch",
    "loss",
)
_FITTED = (
    ("host_overhead", "us", 1e6),
    ("gradient_launch", "us", 1e6),
    ("gradient_scaling", "GB/s", 1e9),
    ("optimizer", "GB/s", 1e9),
)
"""Numbers written as quantities: field, unit, and the unit in what the document holds."""


def _lines(calibration: Calibration) -> Iterator[str]:
    yield f"schema_version = {SCHEMA_VERSION}"
    yield f"sources = {_text(list(calibration.sources))}"
    yield f"traces = {_text(list(calibration.traces))}"
    yield f"node_size = {calibration.node_size}"
    for name, unit, scale in _FITTED:
        found: Fitted | None = getattr(calibration, name)
        if found:
            yield from _table(
                f"[{name}]",
                value=f"{found.value / scale:.3f} {unit}",
                residual=_relative(found),
                samples=found.samples,
            )
    if calibration.leaf_overhead:
        action, factor = calibration.leaf_overhead.action, calibration.leaf_overhead.layer_factor
        yield from _table(
            "[leaf_overhead]",
            action=f"{action.value / 1e6:.3f} us",
            action_residual=_relative(action),
            layer_factor=round(factor.value, 4),
            layer_factor_residual=_relative(factor),
            samples=action.samples,
        )
    for link in calibration.point_to_point:
        yield from _table(
            "[[point_to_point]]",
            placement=str(link.placement),
            latency=f"{link.latency_ps / 1e6:.3f} us",
            bandwidth=f"{link.bandwidth / 1e9:.3f} GB/s",
            residual=round(link.residual, 4),
            samples=link.samples,
            sizes=list(link.sizes),
            both_ways=link.both_ways,
        )
    yield from _evidence(calibration)


def _relative(number: Fitted) -> float:
    return round(number.residual / number.value, 4) if number.value else 0.0


def _evidence(calibration: Calibration) -> Iterator[str]:
    """Imbalances, what could not be identified, and what is long."""
    for each in calibration.expert_imbalance:
        experts = {} if each.experts is None else {"experts": each.experts}
        yield from _table(
            "[[expert_imbalance]]",
            source=each.source,
            ep=each.ep,
            **experts,
            mean=round(each.mean, 4),
            largest=round(each.largest, 4),
            samples=each.samples,
        )
    for name, reason in calibration.unidentified:
        yield from _table("[[unidentified]]", name=name, reason=reason)
    yield from _bulk(calibration)


def _bulk(calibration: Calibration) -> Iterator[str]:
    """Times of layers, and measured tables."""
    for layer in calibration.layer_times:
        experts = {} if layer.experts is None else {"experts": layer.experts}
        yield from _table(
            "[[layer_times]]",
            source=layer.source,
            hidden=layer.hidden,
            sequence=layer.sequence,
            **experts,
            tp=layer.tp,
            ep=layer.ep,
            **{
                f"{name}_ms": getattr(layer, f"{name}_ps") / PS_PER_US / 1000
                for name in _LAYER_PARTS
            },
        )
    for curve in calibration.collectives.curves if calibration.collectives else ():
        yield from _table(
            "[[collective]]",
            machine=curve.machine,
            source=curve.source,
            kind=str(curve.kind),
            ranks=curve.ranks,
            nodes=curve.nodes,
            size_bytes=curve.size_bytes.tolist(),
            time_us=[time / PS_PER_US for time in curve.time_ps.tolist()],
        )


def _table(header: str, **values: object) -> Iterator[str]:
    yield ""
    yield header
    for key, value in values.items():
        yield f"{key} = {_text(value)}"


def _text(value: object) -> str:
    """A TOML value; JSON's strings, numbers, lists and truth values are TOML's."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
