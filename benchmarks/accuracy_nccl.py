"""How far collectives of shipped machines are from measured ones, and how well tables interpolate.

Usage: python benchmarks/accuracy_nccl.py FOLDER/reference
Prints the tables of docs/nccl.md: mean (largest) of |ours / measured - 1| by machine, collective
and size. Dense tables count at powers of the root of two.
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sizes import arguments, sized

from stepsim import collective_time, load_topology
from stepsim.base.arrays import Floats
from stepsim.base.axes import CollectiveKind
from stepsim.base.structs import replace
from stepsim.base.units import PS_PER_S
from stepsim.files.collectives.measurements import read_measurements
from stepsim.network.measured_times import CommTable, MeasuredCurve
from stepsim.network.topology.dimension import GOOD, SIZE_BANDS

ONE_NODE = "kernels/nccl_one_node.csv"
NCCL = "measured/nccl/nccl_allreduce"
_DENSE = 100


class Table(NamedTuple):
    """Measurements of a machine: files, words of their source, and the topology that is like it."""

    name: str
    topology: str
    files: tuple[str, ...]
    source: str


TABLES = (
    Table("A100", "hgx-a100", (ONE_NODE,), "A100"),
    Table("A100, 1 to 128 GPUs", "hgx-a100", (f"{NCCL}_a100_1_128gpus.csv",), "A100"),
    Table("A100, vTrain", "hgx-a100", (f"{NCCL}_vtrain_a100_v100.csv",), "A100"),
    Table("V100, vTrain", "dgx-v100", (f"{NCCL}_vtrain_a100_v100.csv",), "V100"),
    Table("H100, one and two nodes", "hgx-h100", (ONE_NODE, f"{NCCL}_h100_2nodes.csv"), "H100"),
    Table("H200", "hgx-h200", (ONE_NODE,), "H200"),
    Table("H800", "hgx-h800", ("measured/nccl/echo_cluster_microbench.csv",), "H800"),
    Table("B200", "hgx-b200", (ONE_NODE,), "B200,!GB200"),
    Table("B300", "hgx-b300", (ONE_NODE,), "B300,!GB300"),
    Table("GB200", "gb200-nvl72", (ONE_NODE,), "GB200"),
    Table("GB300", "gb300-nvl72", (ONE_NODE,), "GB300"),
)


def read(folder: Path, table: Table) -> list[MeasuredCurve]:
    """The curves of more than one rank, without outliers."""
    found = read_measurements([folder / file for file in table.files]).choose(table.source)
    clean: CommTable = found.without_outliers()[0]
    return [thinned(curve) for curve in clean.curves if curve.ranks > 1]


def thinned(curve: MeasuredCurve) -> MeasuredCurve:
    """Curves of a thousand sizes at powers of the root of two, so that all sizes count alike."""
    if len(curve.size_bytes) < _DENSE:
        return curve
    return only(curve, np.unique(np.rint(2 ** (np.arange(21) / 2)).astype(np.int64)) - 1)


def only(curve: MeasuredCurve, places: np.ndarray) -> MeasuredCurve:
    """Some sizes of a curve."""
    sizes, times = (tuple(each[places].tolist()) for each in (curve.size_bytes, curve.time_ps))
    return replace(curve, sizes=sizes, times_ps=times)


def errors_of(name: str, curve: MeasuredCurve) -> Floats:
    """Ours / measured - 1 of every size, the ranks as few to a node as they were measured."""
    node = load_topology(name).node_size
    topology = load_topology(name, curve.nodes * node)
    each = curve.ranks // curve.nodes
    ranks = [i * node + j for i in range(curve.nodes) for j in range(each)]
    times = [
        collective_time(topology, curve.kind, int(size), ranks) * PS_PER_S
        for size in curve.size_bytes
    ]
    return np.array(times) / curve.time_ps - 1


def rows(table: Table, curves: list[MeasuredCurve]) -> Iterator[str]:
    """Mean and largest error of a machine by collective and size; what is too much is bold."""
    errors: dict[CollectiveKind, list[tuple[Floats, Floats]]] = defaultdict(list)
    for curve in curves:
        off = np.abs(errors_of(table.topology, curve))
        errors[curve.kind].append((curve.size_bytes.astype(np.float64), off))
    for kind, pairs in errors.items():
        sizes, off = (np.concatenate(part) for part in zip(*pairs, strict=True))
        cells = " | ".join(cell(sizes, off, band) for band in range(len(SIZE_BANDS)))
        yield f"| {table.name} | {kind} | {cells} | {len(off)} |"


def cell(sizes: Floats, off: Floats, band: int) -> str:
    """Mean and largest error of a band of sizes."""
    first, end = SIZE_BANDS[band]
    inside = off[(sizes >= first) & (sizes < end)]
    if not len(inside):
        return "-"
    text = f"{inside.mean():.1%} ({inside.max():.0%})"
    return text if inside.mean() <= GOOD[band] else f"**{text}**"


def left_out(curve: MeasuredCurve, first: int) -> Floats:
    """Sizes of errors at every second size, told by the table of the others; the ends stay."""
    out = np.zeros(len(curve.size_bytes), dtype=bool)
    out[first::2] = True
    out[[0, -1]] = False
    half = CommTable(source="half", curves=(only(curve, ~out),))
    told = [
        half.time_ps(curve.kind, curve.ranks, curve.nodes, int(size))
        for size in curve.size_bytes[out]
    ]
    errors: Floats = np.abs(np.array(told, dtype=np.float64) / curve.time_ps[out] - 1)
    return errors


def interpolated(folder: Path) -> Iterator[str]:
    """Errors of measured tables at sizes that were left out, dense tables and others."""
    files = sorted((folder / "measured" / "nccl").glob("*.csv"))
    curves = read_measurements(files).without_outliers()[0].curves
    for name, is_dense in (("dense", True), ("others", False)):
        some = [each for each in curves if (len(each.size_bytes) >= _DENSE) == is_dense]
        some = [each for each in some if each.ranks > 1]
        found = np.concatenate([left_out(each, first) for each in some for first in (0, 1)])
        yield f"| {name} | {len(some)} | {found.mean():.2%} | {np.median(found):.2%} |"


def main() -> None:
    """Print both tables."""
    folder = Path(arguments()[0])
    print("## Shipped machines\n")
    print("| machine | collective | below 10 MB | 10 to 100 MB | above | times |")
    print("|---|---|---|---|---|---|")
    for table in sized(TABLES, TABLES[5:6]):
        for line in rows(table, read(folder, table)):
            print(line)
    print("\n## Sizes between those measured\n")
    print("| tables | curves | mean error | median |")
    print("|---|---|---|---|")
    for line in interpolated(folder):
        print(line)


if __name__ == "__main__":
    main()
