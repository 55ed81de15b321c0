"""How far protocols fitted to measured collectives are from them, at sizes and groups left out.

Usage: python benchmarks/accuracy_protocols.py FOLDER/reference
Prints the tables of docs/nccl.md and docs/appendix/nccl.md.
Each machine's protocols are fitted by `stepsim calibrate nccl`
to every second size of all group sizes but one; errors |ours / measured - 1| are those of all sizes
and groups of a table. The table of node counts fits to all groups of few nodes, and judges those of
more. Shipped topologies were fitted to everything there is of their machine.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sizes import arguments, sized

from stepsim.base.arrays import Floats
from stepsim.base.structs import replace
from stepsim.files.collectives.measurements import read_measurements
from stepsim.files.load import topology_of
from stepsim.measured.calibration.accuracy import errors_of
from stepsim.measured.calibration.protocols import fit_protocols, with_library
from stepsim.network.measured_times import CommTable, MeasuredCurve
from stepsim.network.topology import Topology
from stepsim.network.topology.dimension import GOOD, PLAIN, SIZE_BANDS
from stepsim.workload.rows import CollectiveKind

ONE_NODE = "kernels/nccl_one_node.csv"
NCCL = "measured/nccl/"
TWO_NODES = f"{NCCL}nccl_allreduce_h100_2nodes.csv"
VTRAIN = f"{NCCL}nccl_allreduce_vtrain_a100_v100.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Measurements of one machine, the topology it is built like, and the group left out.

    `start` has the protocols that a fit starts from; without it they are NCCL's constants.
    """

    name: str
    files: tuple[str, ...]
    source: str
    topology: str
    left_out: tuple[int, int]
    start: str | None = None


TABLES = (
    Table(name="A100", files=(ONE_NODE,), source="A100", topology="hgx-a100", left_out=(4, 1)),
    Table(
        name="A100, 1 to 128 GPUs",
        files=(f"{NCCL}nccl_allreduce_a100_1_128gpus.csv",),
        source="A100",
        topology="hgx-a100",
        left_out=(32, 4),
    ),
    Table(
        name="A100, vTrain", files=(VTRAIN,), source="A100", topology="hgx-a100", left_out=(4, 1)
    ),
    Table(
        name="V100, vTrain", files=(VTRAIN,), source="V100", topology="dgx-v100", left_out=(4, 1)
    ),
    Table(
        name="H100, one and two nodes",
        files=(ONE_NODE, TWO_NODES),
        source="H100",
        topology="hgx-h100",
        left_out=(4, 1),
    ),
    Table(name="H200", files=(ONE_NODE,), source="H200", topology="hgx-h200", left_out=(4, 1)),
    Table(
        name="H800",
        files=(f"{NCCL}echo_cluster_microbench.csv",),
        source="H800",
        topology="hgx-h800",
        left_out=(12, 2),
    ),
    *(
        Table(
            name=name,
            files=(ONE_NODE,),
            source=source,
            topology=topology,
            left_out=left_out,
            start="hgx-h100",
        )
        for name, source, topology, left_out in (
            ("B200", "B200,!GB200", "hgx-b200", (4, 1)),
            ("B300", "B300,!GB300", "hgx-b300", (4, 1)),
            ("GB200", "GB200", "gb200-nvl72", (2, 1)),
            ("GB300", "GB300", "gb300-nvl72", (2, 1)),
        )
    ),
)


NODES = Table(
    name="A100",
    files=(ONE_NODE, f"{NCCL}nccl_allreduce_a100_1_128gpus.csv", VTRAIN),
    source="A100",
    topology="hgx-a100",
    left_out=(0, 0),
)
"""The one machine that was measured on more than two nodes."""


def main() -> None:
    """Print all tables."""
    folder = Path(arguments()[0])
    tables = TABLES[: sized(None, 1)]
    measured = {table.name: read(folder, table) for table in tables}
    networks = {table.name: fitted(table, measured[table.name]) for table in tables}
    print("## Protocols, half of the sizes and one group left out\n")
    print_header()
    for table in tables:
        print_rows(table, networks[table.name], measured[table.name], measured[table.name])
    print("\n## Sizes and groups that no fit has seen\n")
    print_header()
    for table in tables:
        curves = measured[table.name]
        print_rows(table, networks[table.name], curves, list(unseen(table, curves)))
    print_nodes(folder)
    print("\n## Shipped topologies\n")
    print_header()
    for table in tables:
        curves = measured[table.name]
        print_rows(table, topology_of(table.topology), curves, curves)


def print_nodes(folder: Path) -> None:
    """All-reduces over more nodes than the fit has seen, by the most nodes that it has."""
    print("\n## Node counts that no fit has seen\n")
    print("| machine | fitted to | ranks | nodes | below 10 MB | 10 to 100 MB | above | seen |")
    print("|---|---|---|---|---|---|---|---|")
    curves = read(folder, NODES)
    plain = with_library(topology_of(NODES.topology), PLAIN)
    for most in sized((1, 2, 4), (1,)):
        network = fit_protocols(plain, [curve for curve in curves if curve.nodes <= most])
        for curve in sorted(curves, key=lambda curve: curve.nodes):
            if curve.nodes < 2:
                continue
            sizes = curve.size_bytes.astype(np.float64)
            off = np.abs(errors_of(network, curve))
            cells = " | ".join(cell(sizes, off, band) for band in range(len(SIZE_BANDS)))
            seen_too = "yes" if curve.nodes <= most else "no"
            nodes = "1 node" if most == 1 else f"1 to {most} nodes"
            start = f"| {NODES.name} | {nodes} | {curve.ranks} | {curve.nodes} |"
            print(f"{start} {cells} | {seen_too} |")


def read(folder: Path, table: Table) -> list[MeasuredCurve]:
    """The curves of more than one rank; those measured every MiB at a hundredth of their sizes."""
    found = read_measurements([folder / file for file in table.files]).choose(table.source)
    clean: CommTable = found.without_outliers()[0]
    return [thinned(curve) for curve in clean.curves if curve.ranks > 1]


def thinned(curve: MeasuredCurve) -> MeasuredCurve:
    """Curves of a thousand sizes at powers of the root of two, so that all sizes count alike."""
    if len(curve.size_bytes) < 100:
        return curve
    wanted = np.unique(np.rint(2 ** (np.arange(21) / 2)).astype(np.int64)) - 1
    return only(curve, wanted)


def only(curve: MeasuredCurve, places: np.ndarray) -> MeasuredCurve:
    """Some sizes of a curve."""
    return replace(curve, size_bytes=curve.size_bytes[places], time_ps=curve.time_ps[places])


def seen(table: Table, curves: Sequence[MeasuredCurve]) -> Iterator[MeasuredCurve]:
    """What is fitted: sizes 0, 2, 4, ... of all groups but one."""
    for curve in curves:
        if (curve.ranks, curve.nodes) != table.left_out:
            yield only(curve, np.arange(0, len(curve.size_bytes), 2))


def unseen(table: Table, curves: Sequence[MeasuredCurve]) -> Iterator[MeasuredCurve]:
    """What is not: the other sizes, and all of one group."""
    for curve in curves:
        out = (curve.ranks, curve.nodes) == table.left_out
        yield curve if out else only(curve, np.arange(1, len(curve.size_bytes), 2))


def fitted(table: Table, curves: Sequence[MeasuredCurve]) -> Topology:
    """The machine with protocols fitted to what is seen."""
    plain = with_library(topology_of(table.topology), PLAIN)
    start = topology_of(table.start) if table.start else None
    return fit_protocols(plain, list(seen(table, curves)), start)


def print_header() -> None:
    """First two lines of a table."""
    print("| machine | collective | groups left out | below 10 MB | 10 to 100 MB | above | times |")
    print("|---|---|---|---|---|---|---|")


def print_rows(
    table: Table,
    network: Topology,
    curves: Sequence[MeasuredCurve],
    judged: Sequence[MeasuredCurve],
) -> None:
    """Mean and largest error of a machine by collective and size; what is too much is bold."""
    errors: dict[CollectiveKind, list[tuple[Floats, Floats]]] = defaultdict(list)
    for curve in judged:
        pair = curve.size_bytes.astype(np.float64), np.abs(errors_of(network, curve))
        errors[curve.kind].append(pair)
    ranks, nodes = table.left_out
    for kind, pairs in errors.items():
        sizes, off = (np.concatenate(part) for part in zip(*pairs, strict=True))
        out = any((c.kind, c.ranks, c.nodes) == (kind, ranks, nodes) for c in curves)
        group = f"{ranks} ranks in {nodes}" if out else "-"
        cells = " | ".join(cell(sizes, off, band) for band in range(len(SIZE_BANDS)))
        print(f"| {table.name} | {kind} | {group} | {cells} | {len(off)} |")


def cell(sizes: Floats, off: Floats, band: int) -> str:
    """Mean and largest error of a band."""
    first, end = SIZE_BANDS[band]
    inside = off[(sizes >= first) & (sizes < end)]
    if not len(inside):
        return "-"
    text = f"{inside.mean():.1%} ({inside.max():.0%})"
    return text if inside.mean() <= GOOD[band] else f"**{text}**"


if __name__ == "__main__":
    main()
