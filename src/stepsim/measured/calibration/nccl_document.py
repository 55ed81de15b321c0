"""What was fitted to measured collectives as a document: `stepsim calibrate nccl --json`."""

from typing import Self

from stepsim.base.structs import BytesPerSecond, Document, Entry, Names
from stepsim.measured.calibration.curves import CurveFit, FitRow
from stepsim.measured.calibration.lines import FittedLine
from stepsim.measured.calibration.link_classes import Capacity, LatencyFit
from stepsim.measured.calibration.nccl import MachineFit, NcclFit
from stepsim.network.measured_times import Outlier


class _CurveEntry(Entry, frozen=True, kw_only=True):
    """A group's collective: lines over ranges of sizes, and one from 1 MiB on."""

    source: str
    kind: str
    ranks: int
    nodes: int
    sizes: int
    bus_bandwidth: BytesPerSecond | None
    regimes: tuple[FittedLine, ...]
    bulk: FittedLine | None

    @classmethod
    def of(cls, fit: CurveFit) -> Self:
        """The entry of a curve."""
        return cls.taken_from(
            fit.curve,
            sizes=len(fit.curve.size_bytes),
            bus_bandwidth=fit.bus_bandwidth or None,
            regimes=fit.regimes,
            bulk=fit.bulk,
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
