"""A calibration as TOML: what `stepsim calibrate` writes and `--calibration` reads.

Times and bandwidths are text with units. A number that could not be identified is absent, and an
entry of `[[unidentified]]` says why.
"""

from collections.abc import Callable
from typing import Annotated, Self

import numpy as np
from msgspec import Meta

from stepsim.base.errors import CalibrationError, member
from stepsim.base.structs import (
    SCHEMA_VERSION,
    Bandwidth,
    Bytes,
    Count,
    Positive,
    Share,
    Time,
    TomlTable,
)
from stepsim.base.units import exact_time, parse_bandwidth, parse_time_ps
from stepsim.measured.calibration.calibration import (
    Calibration,
    Degree,
    ExpertImbalance,
    Fitted,
    LayerTimes,
    LeafOverhead,
    LinkFit,
    Ratio,
)
from stepsim.measured.clocks import DEFAULT_NODE_SIZE, NodePlacement
from stepsim.network.measured_times import CommTable, MeasuredCurve
from stepsim.workload.model.calibration import HeldStep, MeasuredKernels, MeasuredRate
from stepsim.workload.model.device import MatrixRate
from stepsim.workload.model.plan import Precision
from stepsim.workload.rows import CollectiveKind

_PS_PER_US = 1_000_000
TFLOPS = 1e12
_PLACEMENTS = [each.value for each in NodePlacement]
_KINDS = [each.value for each in CollectiveKind]
_PlacementName = Annotated[str, Meta(extra_json_schema={"enum": _PLACEMENTS})]
_KindName = Annotated[str, Meta(extra_json_schema={"enum": _KINDS})]
_Microseconds = Annotated[float, Meta(ge=0, le=1e12, description="microseconds")]
_Milliseconds = Annotated[float, Meta(ge=-1e9, le=1e9, description="milliseconds")]

_SHAPE = ("source", "hidden", "sequence", "experts", "tp", "ep")
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


class _FittedTable(TomlTable, frozen=True, kw_only=True):
    """`[host_overhead]` and `[gradient_launch]`, times; the others, bytes per second.

    `residual` is the median relative distance of the samples.
    """

    value: Annotated[str, Meta(description="a time or bandwidth with its unit")]
    residual: Ratio
    samples: Count


class _LeafTable(TomlTable, frozen=True, kw_only=True):
    """`[leaf_overhead]`: what logs of leaf modules do not show; residuals relative."""

    action: Time
    action_residual: Ratio
    layer_factor: float
    layer_factor_residual: Ratio
    samples: Count

    @classmethod
    def of(cls, found: LeafOverhead) -> Self:
        """The table of an overhead."""
        return cls(
            action=_microseconds(found.action.value),
            action_residual=_relative(found.action),
            layer_factor=round(found.layer_factor.value, 4),
            layer_factor_residual=_relative(found.layer_factor),
            samples=found.action.samples,
        )

    def overhead(self) -> LeafOverhead:
        """The noun that the table describes."""
        action = float(parse_time_ps(self.action))
        return LeafOverhead(
            action=_number(action, self.action_residual, self.samples),
            layer_factor=_number(self.layer_factor, self.layer_factor_residual, self.samples),
        )


class _MessageTable(TomlTable, frozen=True, kw_only=True, omit_defaults=False):
    """`[[point_to_point]]`: messages between two ranks, `residual` relative."""

    placement: _PlacementName
    latency: Time
    bandwidth: Bandwidth
    residual: Ratio
    samples: Count
    sizes: tuple[Bytes, ...] = ()
    both_ways: bool = True

    @classmethod
    def of(cls, link: LinkFit) -> Self:
        """The table of a placement."""
        return cls(
            placement=link.placement,
            latency=_microseconds(link.latency_ps),
            bandwidth=_gigabytes(link.bandwidth),
            residual=round(link.residual, 4),
            samples=link.samples,
            sizes=link.sizes,
            both_ways=link.both_ways,
        )

    def link(self) -> LinkFit:
        """The noun that the table describes."""
        return LinkFit(
            placement=member(
                NodePlacement, self.placement, "point_to_point placement", CalibrationError
            ),
            latency_ps=parse_time_ps(self.latency),
            bandwidth=parse_bandwidth(self.bandwidth),
            residual=self.residual,
            samples=self.samples,
            sizes=self.sizes,
            both_ways=self.both_ways,
        )


class _LayerTable(TomlTable, frozen=True, kw_only=True):
    """`[[layer_times]]`: a layer, and what the pipeline's ends add, in one run; ms."""

    source: str
    hidden: Count
    sequence: Count
    experts: Degree | None = None
    tp: Degree
    ep: Degree
    forward_ms: _Milliseconds
    backward_ms: _Milliseconds
    first_forward_ms: _Milliseconds
    first_backward_ms: _Milliseconds
    last_forward_ms: _Milliseconds
    last_backward_ms: _Milliseconds
    get_batch_ms: _Milliseconds
    loss_ms: _Milliseconds

    @classmethod
    def of(cls, layer: LayerTimes) -> Self:
        """The table of a run."""
        shape = {name: getattr(layer, name) for name in _SHAPE}
        times = {f"{part}_ms": getattr(layer, f"{part}_ps") for part in _LAYER_PARTS}
        return cls(**shape, **{name: time / _PS_PER_US / 1000 for name, time in times.items()})

    def times(self) -> LayerTimes:
        """The noun that the table describes."""
        shape = {name: getattr(self, name) for name in _SHAPE}
        times = {f"{part}_ps": getattr(self, f"{part}_ms") for part in _LAYER_PARTS}
        return LayerTimes(
            **shape, **{name: round(time * _PS_PER_US * 1000) for name, time in times.items()}
        )


class _UnidentifiedTable(TomlTable, frozen=True, kw_only=True):
    """`[[unidentified]]`: what the runs could not tell, and why."""

    name: str
    reason: str


class _CurveTable(TomlTable, frozen=True, kw_only=True):
    """`[[collective]]`: measured times of a group size and placement."""

    machine: str
    source: str
    kind: _KindName
    ranks: Degree
    nodes: Degree
    size_bytes: tuple[Bytes, ...]
    time_us: tuple[_Microseconds, ...]

    @classmethod
    def of(cls, curve: MeasuredCurve) -> Self:
        """The table of a curve."""
        return cls(
            machine=curve.machine,
            source=curve.source,
            kind=curve.kind,
            ranks=curve.ranks,
            nodes=curve.nodes,
            size_bytes=tuple(curve.size_bytes.tolist()),
            time_us=tuple(time / _PS_PER_US for time in curve.time_ps.tolist()),
        )

    def curve(self) -> MeasuredCurve:
        """The noun that the table describes."""
        times = [round(time * _PS_PER_US) for time in self.time_us]
        return MeasuredCurve(
            machine=self.machine,
            source=self.source,
            kind=member(CollectiveKind, self.kind, "collective kind", CalibrationError),
            ranks=self.ranks,
            nodes=self.nodes,
            size_bytes=np.array(self.size_bytes, dtype=np.int64),
            time_ps=np.array(times, dtype=np.int64),
        )


class ProductRateTable(TomlTable, frozen=True, kw_only=True):
    """`[[rate]]`: matrix products on a device; `rate` and `peak` in TFLOP per second."""

    device: str
    precision: Precision
    rate: Annotated[Positive, Meta(description="TFLOP/s")]
    peak: Annotated[Positive, Meta(description="TFLOP/s")]
    start: Time
    shapes: Annotated[int, Meta(ge=1)]
    spread: Annotated[Share, Meta(description="mean residual of a shape", ge=0, le=1e9)]

    @classmethod
    def of(cls, found: MeasuredRate) -> Self:
        """The table of a rate."""
        return cls(
            device=found.device,
            precision=found.precision,
            rate=round(found.rate.rate / TFLOPS, 1),
            peak=round(found.rate.peak / TFLOPS, 1),
            start=exact_time(found.rate.start_ps),
            shapes=found.shapes,
            spread=round(found.spread, 4),
        )

    def measured(self) -> MeasuredRate:
        """The rate that the table says."""
        rate = MatrixRate(
            rate=self.rate * TFLOPS, peak=self.peak * TFLOPS, start_ps=parse_time_ps(self.start)
        )
        return MeasuredRate(
            device=self.device,
            precision=self.precision,
            rate=rate,
            shapes=self.shapes,
            spread=self.spread,
        )


class CalibrationFile(TomlTable, frozen=True, kw_only=True, omit_defaults=False):
    """A calibration: what runs tell about a machine; `node_size` ranks share a node."""

    schema_version: int
    sources: Annotated[tuple[str, ...], Meta(description="what it was calibrated on")]
    traces: Annotated[tuple[str, ...], Meta(description="fingerprints of the ranks' traces")] = ()
    node_size: Annotated[Degree, Meta(description="ranks of a node")] = DEFAULT_NODE_SIZE
    host_overhead: _FittedTable | None = None
    gradient_launch: _FittedTable | None = None
    gradient_scaling: _FittedTable | None = None
    optimizer: _FittedTable | None = None
    leaf_overhead: _LeafTable | None = None
    point_to_point: tuple[_MessageTable, ...] = ()
    expert_imbalance: tuple[ExpertImbalance, ...] = ()
    unidentified: tuple[_UnidentifiedTable, ...] = ()
    layer_times: tuple[_LayerTable, ...] = ()
    rate: tuple[ProductRateTable, ...] = ()
    kernels: tuple[MeasuredKernels, ...] = ()
    held: tuple[HeldStep, ...] = ()
    collective: tuple[_CurveTable, ...] = ()

    @classmethod
    def of(cls, found: Calibration) -> Self:
        """The file of a calibration."""
        curves = found.collectives.curves if found.collectives else ()
        return cls(
            schema_version=SCHEMA_VERSION,
            sources=found.sources,
            traces=found.traces,
            node_size=found.node_size,
            host_overhead=_fitted_table(found.host_overhead, _microseconds),
            gradient_launch=_fitted_table(found.gradient_launch, _microseconds),
            gradient_scaling=_fitted_table(found.gradient_scaling, _gigabytes),
            optimizer=_fitted_table(found.optimizer, _gigabytes),
            leaf_overhead=_LeafTable.of(found.leaf_overhead) if found.leaf_overhead else None,
            point_to_point=tuple(_MessageTable.of(link) for link in found.point_to_point),
            expert_imbalance=tuple(each.rounded() for each in found.expert_imbalance),
            unidentified=tuple(
                _UnidentifiedTable(name=name, reason=reason) for name, reason in found.unidentified
            ),
            layer_times=tuple(_LayerTable.of(layer) for layer in found.layer_times),
            rate=tuple(ProductRateTable.of(each) for each in found.rates),
            kernels=found.kernels,
            held=found.held,
            collective=tuple(_CurveTable.of(curve) for curve in curves),
        )

    def calibration(self) -> Calibration:
        """What the file says; raises StepsimError naming the field and value at fault."""
        curves = tuple(table.curve() for table in self.collective)
        return Calibration(
            sources=self.sources,
            traces=self.traces,
            node_size=self.node_size,
            host_overhead=_fitted(self.host_overhead, parse_time_ps),
            point_to_point=tuple(table.link() for table in self.point_to_point),
            collectives=CommTable(source="collective", curves=curves) if curves else None,
            gradient_launch=_fitted(self.gradient_launch, parse_time_ps),
            gradient_scaling=_fitted(self.gradient_scaling, parse_bandwidth),
            optimizer=_fitted(self.optimizer, parse_bandwidth),
            leaf_overhead=self.leaf_overhead.overhead() if self.leaf_overhead else None,
            expert_imbalance=self.expert_imbalance,
            layer_times=tuple(table.times() for table in self.layer_times),
            rates=tuple(table.measured() for table in self.rate),
            kernels=self.kernels,
            held=self.held,
            unidentified=tuple((each.name, each.reason) for each in self.unidentified),
        )


def _fitted_table(found: Fitted | None, text: Callable[[float], str]) -> _FittedTable | None:
    if found is None:
        return None
    return _FittedTable(value=text(found.value), residual=_relative(found), samples=found.samples)


def _fitted(table: _FittedTable | None, parse: Callable[[str], float]) -> Fitted | None:
    if table is None:
        return None
    return _number(float(parse(table.value)), table.residual, table.samples)


def _number(value: float, residual: float, samples: int) -> Fitted:
    """A number with its relative residual."""
    return Fitted(value=value, residual=residual * value, samples=samples)


def _relative(number: Fitted) -> float:
    return round(number.residual / number.value, 4) if number.value else 0.0


def _microseconds(time_ps: float) -> str:
    return f"{time_ps / 1e6:.3f} us"


def _gigabytes(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e9:.3f} GB/s"
