"""A hierarchical collective in chunks against queues: each dimension works on a chunk at a time.

As ASTRA-sim 1.0 runs a collective of several dimensions (`preferred-dataset-splits`): a chunk
passes the phases in order, and waits at a dimension until those that came before it are done.
"""

from heapq import heappop, heappush
from pathlib import Path

import numpy as np
import pytest

import stepsim
from stepsim.base.axes import CollectiveKind
from stepsim.base.errors import PlanError
from stepsim.explore.batch.evaluation import make_batch
from stepsim.face.steps import collective_time
from stepsim.files.asked import StepInputs, read_options
from stepsim.network.collectives import parse_algorithm
from stepsim.network.one_collective import probe_collective
from stepsim.network.topology import Dimension, DimensionKind, LinkClass, NestedTopology
from stepsim.step.prepared import prepare


def network(*dimensions: tuple[int, float]) -> NestedTopology:
    """Rings of so many NPUs with so many GB/s."""
    return NestedTopology(
        name="rings",
        source="test",
        dimensions=tuple(
            Dimension(
                kind=DimensionKind.RING,
                size=size,
                link=LinkClass(name=f"d{i}", bandwidth=rate * 1e9, latency_ps=500_000),
            )
            for i, (size, rate) in enumerate(dimensions)
        ),
    )


def queued(phases: list[tuple[int, float]], chunks: int) -> float:
    """When the last chunk has passed all phases: (dimension, time), first come first served."""
    free: dict[int, float] = {}
    arrivals = [(0.0, chunk, 0) for chunk in range(chunks)]
    end = 0.0
    while arrivals:
        arrived, chunk, number = heappop(arrivals)
        dimension, time = phases[number]
        done = max(arrived, free.get(dimension, 0.0)) + time
        free[dimension] = done
        end = max(end, done)
        if number + 1 < len(phases):
            heappush(arrivals, (done, chunk, number + 1))
    return end


def ring(size: int, rate: float, data: float, rounds: int) -> float:
    """Seconds of one or two rounds of a ring over `data` bytes."""
    return rounds * (size - 1) * (500e-9 + data / size / (rate * 1e9))


def phases_of(
    kind: str, dimensions: list[tuple[int, float]], data: float
) -> list[tuple[int, float]]:
    shares, found = [data], []
    for size, _ in dimensions:
        shares.append(shares[-1] / size)
    last = len(dimensions) - 1
    for i, (size, rate) in enumerate(dimensions):
        rounds = 2 if kind == "all_reduce" and i == last else 1
        found.append((i, ring(size, rate, shares[i], rounds)))
    if kind == "all_reduce":
        found += [(i, time) for i, time in reversed(found[:last])]
    return found[::-1] if kind == "all_gather" else found


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize("chunks", [1, 4, 16])
@pytest.mark.parametrize(
    "dimensions",
    [[(4, 100.0), (4, 25.0)], [(4, 50.0), (8, 50.0)], [(4, 100.0), (2, 50.0), (4, 10.0)]],
)
def test_chunks_pass_the_dimensions_as_through_queues(
    kind: str, chunks: int, dimensions: list[tuple[int, float]]
) -> None:
    size = 1 << 26
    topology = network(*dimensions)
    name = f"hierarchical:{','.join(['ring'] * len(dimensions))}/{chunks}"
    found = collective_time(topology, kind, size, range(topology.npus), name)
    expected = queued(phases_of(kind, dimensions, size / chunks), chunks)
    assert found == pytest.approx(expected, rel=0.02)


def test_chunks_move_the_same_bytes() -> None:
    topology = network((4, 100.0), (4, 25.0))
    moved = []
    for name in ("hierarchical:ring,ring", "hierarchical:ring,ring/8"):
        kind, choice = CollectiveKind.ALL_REDUCE, parse_algorithm(name)
        result = probe_collective(topology, kind, [1 << 26], range(16), choice)
        moved.append([link.total_bytes for row in result.rows for link in row.links])
    assert moved[0] == pytest.approx(moved[1])


def test_a_flat_algorithm_in_chunks_takes_its_latency_for_each() -> None:
    topology = network((8, 50.0))
    plain, cut = (
        collective_time(topology, "all_reduce", 1 << 20, range(8), name)
        for name in ("ring", "ring/4")
    )
    assert cut - plain == pytest.approx(3 * 14 * 500e-9, rel=1e-3)


@pytest.mark.parametrize("text", ["ring/0", "ring/x", "ring/", "hierarchical:ring,ring/99999999"])
def test_chunks_are_a_number(text: str) -> None:
    with pytest.raises(PlanError, match="chunks"):
        parse_algorithm(text)


def test_a_choice_is_read_as_it_is_written() -> None:
    for text in ("ring/4", "hierarchical:ring,direct/8", "hierarchical/2", "ring"):
        assert str(parse_algorithm(text)) == text


def test_steps_with_chunks_are_evaluated_together_as_they_are_run(workloads: Path) -> None:
    """A batch of bandwidths takes the level that is slowest in each of them."""
    workload = stepsim.load_workload(workloads / "moe_128.txt")
    options, _ = read_options({"algorithm": ["all_reduce=hierarchical/4"], "stage_rows": "every"})
    topology = network((4, 100.0), (32, 25.0))
    batch = make_batch(StepInputs(workload, topology, options))
    rates = [5e9, 100e9, 2000e9]
    found = batch.evaluate({"d1.bandwidth": np.array(rates)}).step_time_ps.tolist()
    for rate, step_ps in zip(rates, found, strict=True):
        faster = network((4, 100.0), (32, rate / 1e9))
        alone = prepare(StepInputs(workload, faster, options)).simulated()
        assert alone.report.step_time_ps == step_ps
