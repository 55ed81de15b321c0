"""What was fitted to measured collectives, as topology files: links, and protocols.

A topology file has one line per option, with short lists and tables on it.
"""

from collections.abc import Iterator, Mapping
from json import dumps
from pathlib import Path
from textwrap import fill
from typing import Any, TypeVar

import msgspec

from stepsim.base.errors import CalibrationError, TopologyError
from stepsim.base.structs import toml_text
from stepsim.base.units import format_bandwidth
from stepsim.files.reading import read_toml
from stepsim.files.topology.tables import (
    CollectiveTable,
    DimensionTable,
    LinkClassTable,
    TopologyFile,
)
from stepsim.files.topology.toml import library_tables
from stepsim.files.writing import write_whole
from stepsim.measured.calibration.calibration import Fitted
from stepsim.measured.calibration.link_classes import Capacity, LatencyFit, Regime
from stepsim.measured.calibration.nccl import MachineFit
from stepsim.measured.clocks import NodePlacement
from stepsim.network.topology import LinkClass, Topology

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


_LinksTable = TypeVar("_LinksTable", bound=LinkClassTable)

_SAYS = "\nProtocols, launch, endpoint latency and efficiency: fitted by `stepsim calibrate nccl`"


def write_fitted(base: Path, fitted: Topology, path: Path) -> None:
    """Write the file of a topology with the library and the numbers of a fit; see `fit_protocols`.

    Raises TopologyError naming the file and what it cannot be.
    """
    file = read_toml(base, TopologyFile, TopologyError, "topology")
    links = {link.name: link for link in fitted.link_classes}
    protocols, accuracy = library_tables(fitted.library)
    sources = "; ".join(dict.fromkeys(each.source for each in fitted.library.accuracy))
    said, _, _ = file.source.strip().partition(_SAYS)
    written = msgspec.structs.replace(
        file,
        name=path.stem,
        source=f"{said}{_SAYS}\nto {sources}.\n",
        collective=msgspec.structs.replace(
            file.collective, launch_latency=f"{fitted.launch_latency_ps / 1e6:.4g} us"
        ),
        dimension=[_numbered(each, links) for each in file.dimension],
        link_class=[_numbered(each, links) for each in file.link_class],
        protocol=protocols,
        accuracy=accuracy,
    )
    write_whole(path, topology_file_text(written).encode())


def _numbered(table: _LinksTable, links: dict[str, LinkClass]) -> _LinksTable:
    link = links[table.name]
    return msgspec.structs.replace(
        table,
        endpoint_latency=f"{link.endpoint_latency_ps / 1e6:.4g} us",
        efficiency=link.efficiency,
    )


_WIDTH = 100


def topology_file_text(file: TopologyFile) -> str:
    """TOML of a topology file: what it says of itself, then its tables."""
    plain = msgspec.to_builtins(file)
    lines: list[str] = []
    for name, value in plain.items():
        if not isinstance(value, list | dict):
            lines += _lines(name, value)
    for name, value in sorted(plain.items(), key=lambda pair: isinstance(pair[1], list)):
        tables = value if isinstance(value, list) else [value] if isinstance(value, dict) else []
        head = f"[[{name}]]" if isinstance(value, list) else f"[{name}]"
        for table in tables:
            lines += ["", head, *(line for pair in table.items() for line in _lines(*pair))]
    return "\n".join(lines) + "\n"


def _lines(name: str, value: Any) -> Iterator[str]:
    text = f"{name} = {_text(value)}"
    if isinstance(value, str) and "\n" in value:
        yield from (f'{name} = """', *(_escaped(line) for line in value.strip().split("\n")), '"""')
    elif isinstance(value, list) and len(text) > _WIDTH:
        items = fill(
            ", ".join(map(_text, value)) + ",",
            _WIDTH,
            initial_indent="  ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        yield from (f"{name} = [", items, "]")
    else:
        yield text


def _escaped(line: str) -> str:
    return line.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_text(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    return dumps(value, ensure_ascii=False)


def _key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() else dumps(name)
