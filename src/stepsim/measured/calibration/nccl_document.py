"""What was fitted to measured collectives as a document: `stepsim calibrate nccl --json`."""

from typing import Annotated, Self

from msgspec import Meta

from stepsim.base.documents import Bytes, BytesPerSecond, Document, Entry, Names, Share
from stepsim.measured.calibration.curves import CurveFit, FitRow
from stepsim.measured.calibration.lines import FittedLine
from stepsim.measured.calibration.link_classes import Capacity, LatencyFit
from stepsim.measured.calibration.nccl import MachineFit, NcclFit
from stepsim.network.measured_times import Outlier


class _LineEntry(Entry, frozen=True, kw_only=True):
    """Times of sizes from `first_bytes` to `last_bytes`; bandwidth null where size is free."""

    latency_ps: Annotated[float, Meta(description="picoseconds")]
    ps_per_byte: Annotated[float, Meta(description="picoseconds per byte")]
    first_bytes: Bytes
    last_bytes: Bytes
    residual: Share
    samples: int
    bandwidth: BytesPerSecond | None

    @classmethod
    def of(cls, line: FittedLine) -> Self:
        """The entry of a line."""
        return cls.taken_from(line, bandwidth=line.bandwidth if line.ps_per_byte else None)


class _CurveEntry(Entry, frozen=True, kw_only=True):
    """A group's collective: lines over ranges of sizes, and one from 1 MiB on."""

    source: str
    kind: str
    ranks: int
    nodes: int
    sizes: int
    bus_bandwidth: BytesPerSecond | None
    regimes: tuple[_LineEntry, ...]
    bulk: _LineEntry | None

    @classmethod
    def of(cls, fit: CurveFit) -> Self:
        """The entry of a curve."""
        return cls.taken_from(
            fit.curve,
            sizes=len(fit.curve.size_bytes),
            bus_bandwidth=fit.bus_bandwidth or None,
            regimes=[_LineEntry.of(line) for line in fit.regimes],
            bulk=_LineEntry.of(fit.bulk) if fit.bulk else None,
        )


class _UnidentifiedEntry(Entry, frozen=True, kw_only=True):
    """What the measurements cannot tell, and why."""

    name: str
    reason: str


class _MachineEntry(Entry, frozen=True, kw_only=True):
    """A machine: latencies in ps, capacities in bytes/s, and every size measured and fitted."""

    machine: str
    node_size: int
    latencies: tuple[LatencyFit, ...]
    capacities: tuple[Capacity, ...]
    unidentified: tuple[_UnidentifiedEntry, ...]
    curves: tuple[_CurveEntry, ...]
    rows: tuple[FitRow, ...]

    @classmethod
    def of(cls, fit: MachineFit) -> Self:
        """The entry of a machine."""
        return cls.taken_from(
            fit,
            unidentified=[
                _UnidentifiedEntry(name=name, reason=reason) for name, reason in fit.unidentified
            ],
            curves=[_CurveEntry.of(curve) for curve in fit.curves],
            rows=list(fit.rows()),
        )


class CollectiveFitDocument(Document, frozen=True, kw_only=True):
    """`stepsim calibrate nccl --json`: what was fitted to measured collectives."""

    source: str
    machines: tuple[_MachineEntry, ...]
    outliers: tuple[Outlier, ...]
    warnings: Names

    @classmethod
    def of(cls, fit: NcclFit) -> Self:
        """The document of all that was fitted."""
        return cls.taken_from(fit, machines=[_MachineEntry.of(machine) for machine in fit.machines])
