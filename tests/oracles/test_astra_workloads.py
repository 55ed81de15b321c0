"""Steps of ASTRA-sim 1.0 files against its loops, written out for one network dimension.

`Workload.cc` runs a policy's rows with one collective of a dimension at a time, each followed by
its row's process time. Here the loops are functions of the file's numbers and of the times of
single collectives, which tests of their own compare with ASTRA-sim.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import stepsim
from stepsim.network.topology import Topology

NPUS = 8
KINDS = {
    "ALLREDUCE": "all_reduce",
    "ALLGATHER": "all_gather",
    "ALLTOALL": "all_to_all",
    "REDUCESCATTER": "reduce_scatter",
}
RING = ["all_reduce=ring", "all_gather=ring", "reduce_scatter=ring", "all_to_all=direct"]


@dataclass(frozen=True)
class FileRow:
    """Nanoseconds of compute, collectives as (kind, bytes), process time."""

    compute: tuple[float, float, float]
    comms: tuple[tuple[str, int], ...]
    process: float


@dataclass
class Rank:
    """The clock of a rank, and when its queue of weight-gradient collectives is free and done."""

    topology: Topology
    model: Sequence[int] = range(NPUS)
    data: Sequence[int] = range(NPUS)
    clock: float = 0.0
    free: float = 0.0
    done: float = 0.0
    times: dict[tuple[str, int, int], float] = field(default_factory=dict)

    def comm(self, comm: tuple[str, int], ranks: Sequence[int] | None = None) -> float:
        """Nanoseconds of a collective, of the model's group; an all-gather's bytes are a rank's."""
        kind, size = comm
        ranks = self.model if ranks is None else ranks
        if kind == "NONE":
            return 0.0
        key = (*comm, ranks[1])
        if key not in self.times:
            name = KINDS[kind]
            whole = size * len(ranks) if name == "all_gather" else size
            algorithm = "direct" if name == "all_to_all" else "ring"
            found = stepsim.collective_time(self.topology, name, whole, ranks, algorithm)
            self.times[key] = found * 1e9
        return self.times[key]

    def blocking(self, row: FileRow, phase: int) -> None:
        if row.comms[phase][0] != "NONE":
            self.clock += self.comm(row.comms[phase]) + row.process

    def gradient(self, row: FileRow) -> None:
        """Queue a weight-gradient collective."""
        if row.comms[2][0] != "NONE":
            self.free = max(self.free, self.clock) + self.comm(row.comms[2], self.data)
            self.done = max(self.done, self.free + row.process)

    def end(self) -> float:
        return max(self.clock, self.done)


def data(rows: Sequence[FileRow], rank: Rank) -> float:
    """`iterate_data_parallel`."""
    rank.clock += sum(row.compute[0] for row in rows)
    for i in reversed(range(len(rows))):
        rank.clock += rows[i].compute[2]
        rank.gradient(rows[i])
        rank.clock += rows[i].compute[1] * (i > 0)
    return rank.end()


def model(rows: Sequence[FileRow], rank: Rank, *, first: bool = False) -> float:
    """`iterate_model_parallel` and the hybrid loops; `first`: the first row exchanges gradients."""
    for row in rows:
        rank.clock += row.compute[0]
        rank.blocking(row, 0)
    for i in reversed(range(len(rows))):
        row = rows[i]
        rank.clock += row.compute[1]
        reduced = rank.clock
        if (i > 0 or first) and row.comms[1][0] != "NONE":
            reduced += rank.comm(row.comms[1]) + row.process
        rank.clock += row.compute[2]
        rank.gradient(row)
        rank.clock = max(rank.clock, reduced)
    return rank.end()


def transformer(rows: Sequence[FileRow], rank: Rank) -> float:
    """`iterate_hybrid_parallel_Transformer`."""
    return model(rows, rank, first=True)


def dlrm(rows: Sequence[FileRow], rank: Rank, bottom: int = 4) -> float:
    """`iterate_hybrid_parallel_DLRM`."""
    exchanged = 0.0
    for i, row in enumerate(rows):
        rank.clock += row.compute[0]
        if i == 0:
            exchanged = rank.clock + rank.comm(row.comms[0]) + row.process
        if i == bottom:
            rank.clock = max(rank.clock, exchanged)
    back = 0.0
    for i in reversed(range(len(rows))):
        rank.clock += rows[i].compute[2]
        rank.gradient(rows[i])
        if i == 0:
            rank.clock = max(rank.clock, back)
            break
        rank.clock += rows[i].compute[1]
        if i == bottom + 1:
            back = rank.clock + rank.comm(rows[0].comms[1]) + rows[0].process
    return rank.end()


def inference(rows: Sequence[FileRow], rank: Rank) -> float:
    """`iterate_distributed_inference`."""
    for row in rows:
        rank.clock += row.compute[0]
        rank.blocking(row, 0)
    return rank.end()


def read(path: Path) -> list[FileRow]:
    lines = [line.split() for line in path.read_text().splitlines() if line.strip()]
    return [
        FileRow(
            compute=(float(row[2]), float(row[5]), float(row[8])),
            comms=tuple((row[i], int(row[i + 1])) for i in (3, 6, 9)),
            process=float(row[11]),
        )
        for row in lines[2:]
    ]


@pytest.mark.parametrize(
    ("file", "loop"),
    [
        ("exercise_4_vanilla.txt", data),
        ("workload_text.txt", model),
        ("DLRM_HybridParallel.txt", dlrm),
        ("InferenceProposed.txt", inference),
    ],
)
@pytest.mark.parametrize("bandwidth", [5.0, 50.0])
def test_a_step_is_its_loop(
    file: str,
    loop: Callable[[Sequence[FileRow], Rank], float],
    bandwidth: float,
    shared: Path,
    tmp_path: Path,
) -> None:
    """Within the cycles that ASTRA-sim spends between rows, which are none here."""
    topology = written(tmp_path, "[ Ring ]", f"[ {NPUS} ]", f"[ {bandwidth} ]", "[ 500.0 ]")
    path = shared / "reference/workloads" / file
    found = stepsim.simulate(path, topology, npus=NPUS, algorithm=RING).report.step_time_ps / 1e3
    assert found == pytest.approx(loop(read(path), Rank(topology)), rel=1e-3)


@pytest.mark.parametrize(
    ("file", "loop", "data_inside"),
    [
        ("14683a694e__Transformer_HybridParallel.txt", transformer, False),
        ("MLP_HybridParallel_Data_Model.txt", model, False),
        ("MLP_HybridParallel_Model_Data.txt", model, True),
    ],
)
@pytest.mark.parametrize("bandwidth", [20.0, 50.0])
def test_model_and_data_parallel_groups_have_a_dimension_each(
    file: str,
    loop: Callable[[Sequence[FileRow], Rank], float],
    data_inside: bool,
    bandwidth: float,
    shared: Path,
    tmp_path: Path,
) -> None:
    rates = f"[ {bandwidth}, {bandwidth / 2} ]"
    topology = written(tmp_path, "[ Ring, Ring ]", "[ 4, 2 ]", rates, "[ 500.0, 500.0 ]")
    inner, outer = range(4), range(0, NPUS, 4)
    groups = (outer, inner) if data_inside else (inner, outer)
    path = shared / "reference/workloads" / file
    levels = "hierarchical:ring,ring"
    found = stepsim.simulate(path, topology, npus=NPUS, algorithm=levels).report.step_time_ps / 1e3
    rank = Rank(topology, model=groups[0], data=groups[1])
    assert found == pytest.approx(loop(read(path), rank), rel=1e-3)


def written(folder: Path, kinds: str, sizes: str, rates: str, latencies: str) -> Topology:
    """A network file of ASTRA-sim, read."""
    path = folder / "network.yml"
    lines = [f"topology: {kinds}", f"npus_count: {sizes}", f"bandwidth: {rates}"]
    path.write_text("\n".join([*lines, f"latency: {latencies}"]) + "\n")
    return stepsim.load_topology(path)
