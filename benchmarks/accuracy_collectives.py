"""Compare collectives with ASTRA-sim's analytical backends, and say why they differ.

Usage: python benchmarks/accuracy_collectives.py FOLDER/reference/collectives/astra_sim_1d.csv
Prints a table: per backend, topology, algorithm and collective the errors of stepsim, and how far
ASTRA-sim's numbers are from the closed form of the mechanism that explains the difference.
"""

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from math import log2
from pathlib import Path
from statistics import median

from sizes import arguments, sized

from stepsim import collective_time
from stepsim.base.units import PS_PER_NS
from stepsim.network.topology import Dimension, DimensionKind, LinkClass, NestedTopology

KINDS = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "AllToAll": "all_to_all",
}
WIRINGS = {
    "Ring": DimensionKind.RING,
    "FullyConnected": DimensionKind.FULLY_CONNECTED,
    "Switch": DimensionKind.SWITCH,
}
Group = tuple[bool, str, str, str, str]
"""Whether the mechanisms differ, backend, topology, algorithm, collectives."""

MESSAGE_NS = 1
"""What ASTRA-sim adds per message (endpoint delay)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One time of ASTRA-sim: sizes in bytes, bandwidth in bytes/ns, times in ns."""

    aware: bool
    topology: str
    collective: str
    algorithm: str
    npus: int
    bandwidth: float
    latency_ns: int
    size_bytes: int
    time_ns: int
    comparable: bool

    @property
    def group(self) -> Group:
        """Rows that differ for one reason."""
        backend = "aware" if self.aware else "unaware"
        forwarded = self.collective == "AllToAll" and self.algorithm == "ring"
        name = "AllToAll" if forwarded else "all"
        return not self.comparable, backend, self.topology, self.algorithm, name


def read_rows(path: Path) -> Iterator[Row]:
    """Rows of the reference file."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            yield Row(
                aware=row["backend"] == "congestion_aware",
                topology=row["topology"],
                collective=row["collective"],
                algorithm=row["algorithm"],
                npus=int(row["npus"]),
                bandwidth=float(row["bandwidth_GiBps"]) * 2**30 / 1e9,
                latency_ns=int(row["latency_ns"]),
                size_bytes=int(row["size_bytes"]),
                time_ns=int(row["time_ns"]),
                comparable=row["comparable"] == "1",
            )


def stepsim_ns(row: Row) -> float:
    """Time of the same collective, algorithm and network in stepsim."""
    link = LinkClass(
        name="link",
        bandwidth=row.bandwidth * 1e9,
        latency_ps=row.latency_ns * PS_PER_NS,
        endpoint_latency_ps=MESSAGE_NS * PS_PER_NS,
    )
    dimension = Dimension(kind=WIRINGS[row.topology], size=row.npus, link=link)
    network = NestedTopology(name="astra", source="ASTRA-sim", dimensions=(dimension,))
    kind = KINDS[row.collective]
    return collective_time(network, kind, row.size_bytes, range(row.npus), row.algorithm) * 1e9


def hops(row: Row, distance: int) -> int:
    """Links between NPUs so far apart."""
    match row.topology:
        case "Switch":
            return 2
        case "FullyConnected":
            return 1
        case _:
            return min(distance, row.npus - distance)


def message_ns(row: Row, distance: int, size: float) -> float:
    """A message alone: `congestion_aware` stores and forwards it whole at every hop."""
    count, carry = hops(row, distance), size / row.bandwidth
    return count * row.latency_ns + carry * (count if row.aware else 1) + MESSAGE_NS


def mechanism_ns(row: Row) -> float:
    """Closed form of what ASTRA-sim does, after its source (system/collective, analytical)."""
    n, block = row.npus, row.size_bytes / row.npus
    rounds = 2 if row.collective == "AllReduce" else 1
    match row.algorithm:
        case "ring" if row.collective == "AllToAll":
            return n * (n - 1) / 2 * message_ns(row, 1, block)
        case "ring":
            return rounds * (n - 1) * message_ns(row, 1, block)
        case "direct":
            return rounds * _direct_ns(row, block)
        case "halving_doubling":
            steps = range(round(log2(n)))
            return rounds * sum(message_ns(row, 1 << k, row.size_bytes / (2 << k)) for k in steps)
        case _:
            return _tree_ns(row)


def _direct_ns(row: Row, block: float) -> float:
    """All blocks at once: whole links for each (unaware), or queues at every link (aware)."""
    n = row.npus
    if not row.aware or row.topology == "FullyConnected":
        return message_ns(row, n // 2, block)
    # the queue of the port up and one block down; a ring sends all opposite blocks one way round
    blocks = n if row.topology == "Switch" else (n // 2) * (n // 2 + 1) / 2
    return hops(row, n // 2) * row.latency_ns + blocks * block / row.bandwidth + MESSAGE_NS


def _tree_ns(row: Row) -> float:
    """Whole messages up and down one tree of ranks in order, root last; no pieces, no second tree.

    Two children wait for each other at the switch port of their parent (aware).
    """
    edges = [
        message_ns(row, row.npus >> k, row.size_bytes) for k in range(1, row.npus.bit_length())
    ]
    waits = (len(edges) - 1) * row.size_bytes / row.bandwidth
    return 2 * (sum(edges) + (waits if row.aware and row.topology == "Switch" else 0.0))


def compare(
    rows: Iterable[Row],
) -> dict[Group, list[tuple[float, float]]]:
    """Per group of rows: (error of stepsim, error of the mechanism), relative to ASTRA-sim."""
    errors = defaultdict(list)
    for row in rows:
        mine, theirs = stepsim_ns(row), mechanism_ns(row)
        errors[row.group].append((mine / row.time_ns - 1, theirs / row.time_ns - 1))
    return dict(sorted(errors.items()))


def reason(group: Group) -> str:
    """The mechanism by which ASTRA-sim differs, see docs/collectives.md."""
    apart, backend, topology, algorithm, collectives = group
    single = topology == "FullyConnected" or (topology == "Ring" and algorithm == "ring")
    if algorithm == "double_binary_tree":
        return "one tree, whole messages"
    if collectives == "AllToAll":
        return "a message per block and hop"
    if not apart or single:
        return "none"
    if backend == "unaware":
        return "whole links for each message"
    return "queues, store and forward" if algorithm == "direct" else "store and forward"


def main() -> None:
    """Print the table."""
    columns = ["comparable", "backend", "topology", "algorithm", "collectives", "rows"]
    columns += ["least", "median", "most", "difference", "closed form"]
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    rows = islice(read_rows(Path(arguments()[0])), 0, None, sized(1, 7))
    for group, errors in compare(rows).items():
        apart, *names = group
        mine = [error for error, _ in errors]
        theirs = max(abs(error) for _, error in errors)
        cells = ["no" if apart else "yes", *names, str(len(errors))]
        cells += [f"{value:+.2%}" for value in (min(mine), median(mine), max(mine))]
        print(f"| {' | '.join(cells)} | {reason(group)} | {theirs:.2%} |")


if __name__ == "__main__":
    main()
