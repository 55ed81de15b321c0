"""Compare ring and direct collectives with ASTRA-sim's analytical backends.

Usage: python benchmarks/accuracy_collectives.py FOLDER/reference/collectives/astra_sim_1d.csv
Prints the largest relative error per topology, collective and algorithm, over comparable rows.
"""

import csv
import sys
from collections import defaultdict
from pathlib import Path

from stepsim import collective_time
from stepsim.topology import Dimension, DimensionKind, DimensionTopology, LinkClass
from stepsim.units import PS_PER_NS

KINDS = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "AllToAll": "all_to_all",
}
TOPOLOGIES = {"Ring": "ring", "FullyConnected": "fully_connected", "Switch": "switch"}
ALGORITHMS = {"all_to_all": "direct"}


def network(row: dict[str, str]) -> DimensionTopology:
    """The row's network; ASTRA-sim's GB/s are GiB/s, its endpoint delay is 1 ns."""
    link = LinkClass(
        name="link",
        bandwidth=float(row["bandwidth_GiBps"]) * 2**30,
        latency_ps=int(row["latency_ns"]) * PS_PER_NS,
        endpoint_latency_ps=PS_PER_NS,
    )
    kind = DimensionKind(TOPOLOGIES[row["topology"]])
    dimension = Dimension(kind=kind, size=int(row["npus"]), link=link)
    return DimensionTopology(name="astra", source="ASTRA-sim", dimensions=(dimension,))


def compare(path: Path) -> dict[tuple[str, str, str], list[float]]:
    """Relative errors of the comparable rows whose algorithm stepsim has."""
    errors: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    with path.open() as file:
        for row in csv.DictReader(file):
            kind = KINDS[row["collective"]]
            algorithm = ALGORITHMS.get(kind, "ring")
            if row["comparable"] != "1" or row["algorithm"] != algorithm:
                continue
            ranks = range(int(row["npus"]))
            seconds = collective_time(network(row), kind, int(row["size_bytes"]), ranks, algorithm)
            key = row["topology"], row["collective"], row["algorithm"]
            errors[key].append(seconds * 1e9 / float(row["time_ns"]) - 1)
    return errors


def main() -> None:
    """Print the table."""
    print("| topology | collective | algorithm | rows | largest error |\n|---|---|---|---|---|")
    for (topology, kind, algorithm), errors in sorted(compare(Path(sys.argv[1])).items()):
        worst = max(errors, key=abs)
        print(f"| {topology} | {kind} | {algorithm} | {len(errors)} | {worst:+.3%} |")


if __name__ == "__main__":
    main()
