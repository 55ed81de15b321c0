"""What collectives measured alone tell about machines: lines of every curve, links of each machine.

Each curve is fitted by itself (`calibration.curves`), because NCCL changes protocol and algorithm
with size and with the group. From them come the numbers of links (`calibration.link_classes`).
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from stepsim.base.errors import CalibrationError
from stepsim.measured.calibration.curves import CurveFit, FitRow, fit_curve
from stepsim.measured.calibration.link_classes import (
    Capacity,
    LatencyFit,
    Missing,
    Regime,
    fabric_capacity,
    fit_latencies,
    node_capacity,
)
from stepsim.measured.clocks import NodePlacement
from stepsim.network.measured_times import CommTable, MeasuredCurve, Outlier, group_text


class MachineFit(Struct, frozen=True, kw_only=True):
    """Curves of one machine, of `node_size` ranks per node, and its links.

    `unidentified` are (name, reason) pairs.
    """

    machine: str
    node_size: int
    curves: tuple[CurveFit, ...]
    latencies: tuple[LatencyFit, ...]
    capacities: tuple[Capacity, ...]
    unidentified: tuple[tuple[str, str], ...]

    def latency(self, regime: Regime) -> LatencyFit | None:
        """Latencies of a regime."""
        return next((each for each in self.latencies if each.regime is regime), None)

    def capacity(self, placement: NodePlacement) -> Capacity | None:
        """Capacity of the links of a placement."""
        return next((each for each in self.capacities if each.placement is placement), None)

    def rows(self) -> Iterator[FitRow]:
        """Every measured size of every fitted curve."""
        for fit in self.curves:
            yield from fit.rows()


class NcclFit(Struct, frozen=True, kw_only=True):
    """Fits of all machines in some files, and the measurements that were rejected."""

    source: str
    machines: tuple[MachineFit, ...]
    outliers: tuple[Outlier, ...]
    warnings: tuple[str, ...] = ()


def fit_nccl(table: CommTable, node_size: int | None = None) -> NcclFit:
    """Fits of all curves, machine by machine; outliers are left out (`without_outliers`).

    `node_size`, in ranks, is by default that of the fullest node measured. Raises
    CalibrationError where a node would hold more.
    """
    clean, outliers = table.without_outliers()
    machines: dict[str, list[MeasuredCurve]] = {}
    for curve in clean.curves:
        machines.setdefault(curve.machine, []).append(curve)
    return NcclFit(
        source=table.source,
        machines=tuple(fit_machine(name, curves, node_size) for name, curves in machines.items()),
        outliers=outliers,
        warnings=table.warnings,
    )


def fit_machine(
    machine: str, curves: Sequence[MeasuredCurve], node_size: int | None = None
) -> MachineFit:
    """Fits of a machine's curves, outliers left out before, and of its links.

    Raises CalibrationError where a node would hold more than `node_size` ranks.
    """
    fits = tuple(fit_curve(curve) for curve in curves)
    fullest = max(fit.ranks_per_node for fit in fits)
    if node_size is not None and node_size < fullest:
        raise CalibrationError(
            f"node_size is {node_size}: {machine or 'a file'} has {fullest} ranks in a node"
        )
    missing: Missing = [
        (group_text(fit.curve.kind, fit.curve.ranks, fit.curve.nodes), "fewer than four sizes")
        for fit in fits
        if not fit.regimes
    ]
    inside = node_capacity(fits, missing)
    capacities = (inside, fabric_capacity(fits, inside, missing))
    latencies = [fit_latencies(fits, regime, missing) for regime in Regime]
    return MachineFit(
        machine=machine,
        node_size=node_size or fullest,
        curves=fits,
        latencies=tuple(each for each in latencies if each),
        capacities=tuple(each for each in capacities if each),
        unidentified=tuple(missing),
    )
