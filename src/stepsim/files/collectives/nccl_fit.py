"""What was fitted to measured collectives, written: a topology as TOML, everything as JSON."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from stepsim.base.errors import CalibrationError
from stepsim.base.json_text import json_text
from stepsim.base.units import format_bandwidth
from stepsim.files.writing import write_whole
from stepsim.measured.calibration.curves import CurveFit
from stepsim.measured.calibration.document import Fitted
from stepsim.measured.calibration.lines import Line
from stepsim.measured.calibration.link_classes import Capacity, LatencyFit, Regime
from stepsim.measured.calibration.nccl import MachineFit, NcclFit
from stepsim.measured.clocks import Placement

SCHEMA_VERSION = 1
ALGORITHMS = ["ring", "double_binary_tree"]
"""Those of NCCL whose steps the latencies were fitted to."""


def write_topology(
    fit: MachineFit,
    path: Path,
    *,
    regime: Regime = Regime.BULK,
    nominal: Mapping[Placement, float] | None = None,
) -> None:
    """Write a machine's links as a topology file named like the file; see `topology_text`."""
    text = topology_text(fit, name=path.stem, regime=regime, nominal=nominal)
    write_whole(path, text.encode())


def topology_text(
    fit: MachineFit,
    *,
    name: str,
    regime: Regime = Regime.BULK,
    nominal: Mapping[Placement, float] | None = None,
) -> str:
    """Topology TOML: a switch per node and, if measured, a rail for each rank of a node.

    Only bandwidth times efficiency can be measured: with a `nominal` bandwidth (bytes/s) of a
    placement the efficiency is the measured share of it, else 1. What a step costs is written as
    endpoint latency, of which it cannot be told apart. Raises CalibrationError where the bandwidth
    inside a node or the latency is not known, or a measured bandwidth is above the nominal one.
    """
    latency, inside = fit.latency(regime), fit.capacity(Placement.INTRA_NODE)
    if latency is None or inside is None:
        what = "bandwidth inside a node" if inside is None else f"latency of {regime} sizes"
        raise CalibrationError(f"{fit.machine or 'topology'}: the {what} is not known: {_why(fit)}")
    launch = latency.launch or latency.together
    step = latency.node_step if latency.launch else None
    lines = [
        f"name = {json.dumps(name)}",
        f"source = {json.dumps(_source(fit, latency))}",
        "",
        "[collective]",
        f'launch_latency = "{_micros(launch)}"',
        f"algorithms = {json.dumps(ALGORITHMS)}",
        *_dimension("node", "switch", fit.node_size, inside, step, nominal),
    ]
    between = fit.capacity(Placement.INTER_NODE)
    if between:
        across = latency.fabric_step or step
        lines += _dimension("fabric", "rail", "auto", between, across, nominal)
    return "\n".join(lines) + "\n"


def _dimension(
    name: str,
    kind: str,
    size: int | str,
    capacity: Capacity,
    step: Fitted | None,
    nominal: Mapping[Placement, float] | None,
) -> list[str]:
    bandwidth = (nominal or {}).get(capacity.placement, capacity.bandwidth)
    if capacity.bandwidth > bandwidth:
        raise CalibrationError(
            f"{capacity.placement}: {format_bandwidth(capacity.bandwidth)} measured: expected at "
            f"most the nominal {format_bandwidth(bandwidth)}"
        )
    return [
        "",
        "[[dimension]]",
        f'name = "{name}"',
        f'kind = "{kind}"',
        f"size = {json.dumps(size)}",
        f'bandwidth = "{bandwidth / 1e9:.6g} GB/s"',
        'latency = "0 ns"',
        f'endpoint_latency = "{_micros(step)}"',
        f"efficiency = {min(1.0, capacity.bandwidth / bandwidth):.6g}",
    ]


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


def fit_json(fit: NcclFit) -> bytes:
    """Everything fitted as UTF-8 JSON, ending with a newline: ps, and bandwidths in bytes/s."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "source": fit.source,
        "machines": [_machine(machine) for machine in fit.machines],
        "outliers": [msgspec.to_builtins(outlier) for outlier in fit.outliers],
        "warnings": list(fit.warnings),
    }
    return json_text(document)


def _machine(fit: MachineFit) -> dict[str, Any]:
    rows = [msgspec.to_builtins(row) for row in fit.rows()]
    return {
        "machine": fit.machine,
        "node_size": fit.node_size,
        "latencies": [msgspec.to_builtins(each) for each in fit.latencies],
        "capacities": [msgspec.to_builtins(each) for each in fit.capacities],
        "unidentified": [{"name": name, "reason": text} for name, text in fit.unidentified],
        "curves": [_curve(curve) for curve in fit.curves],
        "rows": rows,
    }


def _curve(fit: CurveFit) -> dict[str, Any]:
    curve = fit.curve
    return {
        "source": curve.source,
        "kind": curve.kind,
        "ranks": curve.ranks,
        "nodes": curve.nodes,
        "sizes": len(curve.size_bytes),
        "bus_bandwidth": fit.bus_bandwidth or None,
        "regimes": [_line(line) for line in fit.regimes],
        "bulk": _line(fit.bulk) if fit.bulk else None,
    }


def _line(line: Line) -> dict[str, Any]:
    """A line; `bandwidth` is null where size costs nothing."""
    plain: dict[str, Any] = msgspec.to_builtins(line)
    return plain | {"bandwidth": line.bandwidth if line.ps_per_byte else None}
