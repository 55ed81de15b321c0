"""The links that were fitted to measured collectives, written as a topology file."""

from collections.abc import Mapping
from pathlib import Path

from stepsim.base.documents import toml_text
from stepsim.base.errors import CalibrationError
from stepsim.base.units import format_bandwidth
from stepsim.files.topology.tables import CollectiveTable, DimensionTable, TopologyFile
from stepsim.files.writing import write_whole
from stepsim.measured.calibration.calibration import Fitted
from stepsim.measured.calibration.link_classes import Capacity, LatencyFit, Regime
from stepsim.measured.calibration.nccl import MachineFit
from stepsim.measured.clocks import NodePlacement

_ALGORITHMS = ("ring", "double_binary_tree")
"""Those of NCCL whose steps the latencies were fitted to."""


def write_topology(
    fit: MachineFit,
    path: Path,
    *,
    regime: Regime = Regime.BULK,
    nominal: Mapping[NodePlacement, float] | None = None,
) -> None:
    """Write a machine's links as a topology file named like the file; see `topology_text`."""
    text = topology_text(fit, name=path.stem, regime=regime, nominal=nominal)
    write_whole(path, text.encode())


def topology_text(
    fit: MachineFit,
    *,
    name: str,
    regime: Regime = Regime.BULK,
    nominal: Mapping[NodePlacement, float] | None = None,
) -> str:
    """Topology TOML: a switch per node and, if measured, a rail for each rank of a node.

    Only bandwidth times efficiency can be measured: with a `nominal` bandwidth (bytes/s) of a
    placement the efficiency is the measured share of it, else 1. What a step costs is written as
    endpoint latency, of which it cannot be told apart. Raises CalibrationError where the bandwidth
    inside a node or the latency is not known, or a measured bandwidth is above the nominal one.
    """
    latency, inside = fit.latency(regime), fit.capacity(NodePlacement.INTRA_NODE)
    if latency is None or inside is None:
        what = "bandwidth inside a node" if inside is None else f"latency of {regime} sizes"
        raise CalibrationError(f"{fit.machine or 'topology'}: the {what} is not known: {_why(fit)}")
    launch = latency.launch or latency.together
    step = latency.node_step if latency.launch else None
    dimensions = [_dimension("node", "switch", fit.node_size, inside, step, nominal)]
    between = fit.capacity(NodePlacement.INTER_NODE)
    if between:
        across = latency.fabric_step or step
        dimensions.append(_dimension("fabric", "rail", "auto", between, across, nominal))
    return toml_text(
        TopologyFile(
            name=name,
            source=_source(fit, latency),
            dimension=dimensions,
            collective=CollectiveTable(launch_latency=_micros(launch), algorithms=[*_ALGORITHMS]),
        )
    )


def _dimension(
    name: str,
    kind: str,
    size: int | str,
    capacity: Capacity,
    step: Fitted | None,
    nominal: Mapping[NodePlacement, float] | None,
) -> DimensionTable:
    bandwidth = (nominal or {}).get(capacity.placement, capacity.bandwidth)
    if capacity.bandwidth > bandwidth:
        raise CalibrationError(
            f"{capacity.placement}: {format_bandwidth(capacity.bandwidth)} measured: expected at "
            f"most the nominal {format_bandwidth(bandwidth)}"
        )
    return DimensionTable(
        name=name,
        kind=kind,
        size=size,
        bandwidth=f"{bandwidth / 1e9:.6g} GB/s",
        latency="0 ns",
        endpoint_latency=_micros(step),
        efficiency=float(f"{min(1.0, capacity.bandwidth / bandwidth):.6g}"),
    )


def _micros(latency: Fitted | None) -> str:
    return f"{latency.value / 1e6:.6g} us" if latency else "0 us"


def _source(fit: MachineFit, latency: LatencyFit) -> str:
    """Where a topology's numbers come from, and how far one number serves all groups."""
    parts = [f"Fitted to collectives measured on {fit.machine or 'one machine'}."]
    for capacity in fit.capacities:
        group = f"{capacity.ranks} ranks in {capacity.nodes} nodes"
        parts.append(
            f"Bandwidth {capacity.placement}: {capacity.kind} of {group}; the {capacity.samples} "
            f"groups measured differ by {capacity.residual:.1%} (median)."
        )
    parts.append(f"Latencies: {latency.regime} sizes, {latency.pattern} steps between nodes.")
    if fit.unidentified:
        parts.append(f"Not known: {_why(fit)}.")
    return " ".join(parts)


def _why(fit: MachineFit) -> str:
    """What could not be identified, each with its reason."""
    return "; ".join(f"{name} ({reason})" for name, reason in fit.unidentified)
