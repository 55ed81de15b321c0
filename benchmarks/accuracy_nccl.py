"""How well fits and interpolation meet measured NCCL collectives.

Usage: python benchmarks/accuracy_nccl.py FOLDER/reference/measured/nccl
Prints the tables of docs/nccl.md and docs/appendix/nccl.md.
Errors are relative distances, |ours / measured - 1|.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from sizes import arguments, sized

from stepsim import collective_time
from stepsim.base.arrays import Floats
from stepsim.base.errors import CalibrationError
from stepsim.base.structs import replace
from stepsim.base.units import PS_PER_S, format_size_bytes, format_time_ps
from stepsim.files.collectives.fits import write_topology
from stepsim.files.collectives.measurements import read_measurements
from stepsim.files.load import topology_of
from stepsim.measured.calibration.calibration import Fitted
from stepsim.measured.calibration.curves import CurveFit, fit_curve
from stepsim.measured.calibration.nccl import MachineFit, NcclFit, fit_nccl
from stepsim.measured.clocks import NodePlacement
from stepsim.network.measured_times import CommTable, MeasuredCurve
from stepsim.network.topology import Topology

MIB = 1 << 20
LARGE = 16 * MIB
DENSE = 100
"""From so many sizes on a curve counts as dense."""


def main() -> None:
    """Print all tables."""
    files = sorted(Path(arguments()[0]).glob("*.csv"))
    table = read_measurements(files[: sized(None, 1)])
    fit = fit_nccl(table)
    print_lines(fit, table)
    print_interpolation(fit, table)
    print_links(fit)
    print_networks(fit)
    print_outliers(fit)


def print_lines(fit: NcclFit, table: CommTable) -> None:
    """Fit of every curve at its own sizes, and at sizes it was not fitted to."""
    measured = {curve.key: curve for curve in table.curves}
    print("## Fit: up to three lines per curve, sizes from 16 MiB on\n")
    columns = ("machine", "kind", "ranks", "nodes", "sizes", "lines", "busbw", "median", "largest")
    print_header(*columns, "median with outliers", "median at sizes left out")
    for each in curve_fits(fit):
        curve = each.curve
        own, every = errors_from(each, curve), errors_from(each, measured[curve.key])
        print(
            f"| {name(curve)} | {len(curve.size_bytes)} | {len(each.regimes)} | "
            f"{each.bus_bandwidth / 1e9:.1f} | {np.median(own):.2%} | {own.max():.1%} | "
            f"{np.median(every):.2%} | {np.median(left_out_of_fit(curve)):.2%} |"
        )


def print_interpolation(fit: NcclFit, table: CommTable) -> None:
    """Every second size left out, and then the others: the two ends always stay."""
    measured = {curve.key: curve for curve in table.curves}
    print("\n## Interpolation: every second size left out\n")
    columns = ("machine", "kind", "ranks", "nodes", "left out", "mean", "median", "largest")
    print_header(*columns, "mean, the others", "median, the others", "median with outliers")
    together: dict[bool, list[tuple[Floats, ...]]] = {True: [], False: []}
    for each in curve_fits(fit):
        curve = each.curve
        errors = (
            interpolation_errors(curve, 1),
            interpolation_errors(curve, 0),
            interpolation_errors(measured[curve.key], 1),
        )
        together[len(curve.size_bytes) >= DENSE].append(errors)
        print_errors(name(curve), *errors)
    for dense, label in ((True, "dense tables"), (False, "power-of-two tables")):
        if together[dense]:
            columns_of = zip(*together[dense], strict=True)
            print_errors(f"all {label} | | |", *(np.concatenate(part) for part in columns_of))


def print_errors(start: str, first: Floats, second: Floats, every: Floats) -> None:
    """A row of the interpolation table."""
    print(
        f"| {start} | {len(first)} | {first.mean():.2%} | {np.median(first):.2%} | "
        f"{first.max():.1%} | {second.mean():.2%} | {np.median(second):.2%} | "
        f"{np.median(every):.2%} |"
    )


def print_header(*columns: str) -> None:
    """First two lines of a table."""
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")


def print_links(fit: NcclFit) -> None:
    """Numbers of each machine's links."""
    print("\n## Links\n")
    print_header("machine", "number", "value", "off by", "groups", "by")
    for machine in fit.machines:
        start = f"| {short(machine.machine)} |"
        for capacity in machine.capacities:
            print(
                f"{start} bandwidth {capacity.placement} | {capacity.bandwidth / 1e9:.1f} GB/s | "
                f"{capacity.residual:.1%} | {capacity.samples} | {capacity.kind} of "
                f"{capacity.ranks} ranks, nodes {capacity.nodes} |"
            )
        for latency in machine.latencies:
            parts: dict[str, Fitted | None] = {
                "launch": latency.launch,
                "step inside a node": latency.node_step,
                "step between nodes": latency.fabric_step,
            }
            for label, part in parts.items():
                if part:
                    print(
                        f"{start} {label}, {latency.regime} | {format_time_ps(part.value)} | "
                        f"{format_time_ps(part.residual)} | {part.samples} | {latency.pattern} |"
                    )


def print_networks(fit: NcclFit) -> None:
    """The written topology of each machine, priced by stepsim, against every group: medians."""
    print("\n## One network per machine: the topology that -o writes, algorithm auto\n")
    print_header("machine", "kind", "ranks", "nodes", "1 to 8 MiB", "from 16 MiB, signed")
    for machine in fit.machines:
        network = network_of(machine)
        for each in machine.curves:
            if each.curve.ranks < 2 or network is None:
                continue
            sizes, errors = network_errors(machine, network, each)
            small, large = errors[sizes < LARGE], errors[sizes >= LARGE]
            print(
                f"| {name(each.curve)} | {np.median(np.abs(small)):.0%} | {np.median(large):+.1%} |"
            )


def print_outliers(fit: NcclFit) -> None:
    """What was left out of all of the above."""
    print("\n## Outliers\n")
    print_header("curve", "size", "time", "times its neighbours")
    for each in fit.outliers:
        group, _, origin = each.curve.partition(" (")
        print(
            f"| {short(origin)}, {group} | {format_size_bytes(each.size_bytes)} | "
            f"{format_time_ps(each.time_ps)} | {each.factor:.1f} |"
        )


def curve_fits(fit: NcclFit) -> Iterator[CurveFit]:
    """All curves of more than one rank."""
    for machine in fit.machines:
        yield from (each for each in machine.curves if each.curve.ranks > 1)


def errors_from(fit: CurveFit, curve: MeasuredCurve) -> Floats:
    """Of the sizes of a curve from 16 MiB on."""
    large = curve.size_bytes >= LARGE
    return np.abs(fit.times_ps(curve.size_bytes[large]) / curve.time_ps[large] - 1)


def halves(curve: MeasuredCurve, first: int) -> tuple[MeasuredCurve, MeasuredCurve]:
    """Sizes kept, the ends among them, and every second size from number `first` on, left out."""
    out = np.zeros(len(curve.size_bytes), dtype=bool)
    out[first::2] = True
    out[[0, -1]] = False
    kept, left = (
        replace(curve, size_bytes=curve.size_bytes[which], time_ps=curve.time_ps[which])
        for which in (~out, out)
    )
    return kept, left


def interpolation_errors(curve: MeasuredCurve, first: int) -> Floats:
    """Of the sizes left out, from the table of those kept."""
    kept, left = halves(curve, first)
    table = CommTable(source="half", curves=(kept,))
    found = [
        table.time_ps(curve.kind, curve.ranks, curve.nodes, size)
        for size in left.size_bytes.tolist()
    ]
    return np.abs(np.array(found, dtype=np.float64) / left.time_ps - 1)


def left_out_of_fit(curve: MeasuredCurve) -> Floats:
    """Of the sizes from 16 MiB on that were left out, from the lines of those kept."""
    kept, left = halves(curve, 1)
    return errors_from(fit_curve(kept), left)


def network_of(machine: MachineFit) -> Topology | None:
    """The topology that -o writes; None where too little was measured for one."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "machine.toml"
        try:
            write_topology(machine, path)
        except CalibrationError:
            return None
        return topology_of(path)


def network_errors(
    machine: MachineFit, topology: Topology, each: CurveFit
) -> tuple[Floats, Floats]:
    """Powers of two from 1 MiB on, and signed errors of the machine's topology."""
    curve = each.curve
    if machine.capacity(NodePlacement.INTER_NODE):
        topology = topology.fit(machine.node_size * curve.nodes)
    members = [
        node * machine.node_size + rank
        for node in range(curve.nodes)
        for rank in range(curve.ranks // curve.nodes)
    ]
    sizes, errors = [], []
    for size, time in zip(curve.size_bytes.tolist(), curve.time_ps.tolist(), strict=True):
        if size >= MIB and size & (size - 1) == 0:
            seconds = collective_time(topology, curve.kind, size, members)
            sizes.append(size)
            errors.append(seconds * PS_PER_S / time - 1)
    return np.array(sizes, dtype=np.float64), np.array(errors)


def short(machine: str) -> str:
    """The first word of a machine's name."""
    return machine.split(maxsplit=1)[0].rstrip(":")


def name(curve: MeasuredCurve) -> str:
    """The first columns of a row."""
    run = f", {curve.source[-10:-4]}" if (curve.ranks, curve.nodes) == (2, 2) else ""
    return f"{short(curve.machine)} | {curve.kind}{run} | {curve.ranks} | {curve.nodes}"


if __name__ == "__main__":
    main()
