"""Collectives against ASTRA-sim's analytical backends, and why other rows differ."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from stepsim.face.steps import collective_time
from stepsim.network.topology import Dimension, DimensionKind, LinkClass, NestedTopology

FILE = "reference/collectives/astra_sim_1d.csv"


@pytest.fixture(scope="module")
def accuracy() -> Iterator[ModuleType]:
    """The benchmark that prints the comparison."""
    path = Path(__file__).parents[2] / "benchmarks/accuracy_collectives.py"
    spec = importlib.util.spec_from_file_location("accuracy_collectives", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(path.parent)
        patch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        yield module


def test_comparable_rows_agree_within_half_a_percent(accuracy: ModuleType, shared: Path) -> None:
    rows = [row for row in accuracy.read_rows(shared / FILE) if row.comparable]
    assert len(rows) == 23 * 16
    for row in rows:
        assert accuracy.stepsim_ns(row) == pytest.approx(row.time_ns, rel=2e-3), row


def test_other_rows_are_explained_by_their_mechanism(accuracy: ModuleType, shared: Path) -> None:
    """Closed forms of what ASTRA-sim does give its numbers; a crowded ring only roughly.

    There, with store and forward at every hop, queues and latencies overlap on small messages.
    """
    rows = [row for row in accuracy.read_rows(shared / FILE) if not row.comparable]
    assert len(rows) == 49 * 16
    for row in rows:
        crowded = (row.aware, row.topology, row.algorithm) == (True, "Ring", "direct")
        expected = pytest.approx(row.time_ns, rel=0.1 if crowded else 5e-3)
        assert accuracy.mechanism_ns(row) == expected, row


@pytest.mark.parametrize("algorithm", ["ring", "halving_doubling"])
def test_the_same_mechanism_agrees_where_nothing_queues(
    accuracy: ModuleType, shared: Path, algorithm: str
) -> None:
    """One hop per message: store and forward is cut-through."""
    for row in accuracy.read_rows(shared / FILE):
        alike = row.topology == "FullyConnected" and row.collective != "AllToAll"
        if alike and row.algorithm == algorithm:
            assert accuracy.stepsim_ns(row) == pytest.approx(row.time_ns, rel=2e-3), row


KINDS = {"ring": DimensionKind.RING, "switch": DimensionKind.RAIL}
GIB = 2**30 / 1e9


def message(dimension: tuple[str, int, float, int], size: float) -> float:
    """ASTRA-sim's time of a message along one dimension, in ns."""
    wiring, _, bandwidth, latency = dimension
    return (2 if wiring == "switch" else 1) * latency + size / (bandwidth * GIB) + 1


def phase(dimension: tuple[str, int, float, int], algorithm: str, size: float) -> float:
    """A reduce-scatter or all-gather of a full tensor of `size` over one dimension, in ns."""
    count = dimension[1]
    if algorithm == "ring":
        return (count - 1) * message(dimension, size / count)
    if algorithm == "direct":
        return message(dimension, size / count)
    return sum(message(dimension, size / (2 << k)) for k in range(count.bit_length() - 1))


@pytest.mark.parametrize(
    ("kind", "optimised"), [("all_reduce", True), ("all_reduce", False), ("all_gather", True)]
)
@pytest.mark.parametrize("algorithms", [("ring", "halving_doubling"), ("ring",) * 3])
@pytest.mark.parametrize("size", [2**13, 2**26])
def test_several_dimensions(
    kind: str, optimised: bool, algorithms: tuple[str, ...], size: int
) -> None:
    """`Sys::generate_collective`: localBWAware scatters in, reduces across, gathers out; baseline
    all-reduces everything in each dimension; an all-gather begins with the last dimension."""
    dimensions = [("ring", 4, 100.0, 250), ("switch", 8, 50.0, 500), ("ring", 2, 25.0, 700)]
    dimensions = dimensions[: len(algorithms)]
    expected, share = 0.0, size
    for dimension, algorithm in zip(dimensions, algorithms, strict=True):
        rounds = 2 if kind == "all_reduce" else 1
        expected += rounds * phase(dimension, algorithm, share)
        share = share // dimension[1] if optimised else share
    network = NestedTopology(
        name="astra",
        source="ASTRA-sim",
        dimensions=tuple(
            Dimension(
                kind=KINDS[wiring],
                size=count,
                link=LinkClass(
                    name=f"d{i}",
                    bandwidth=bandwidth * 2**30,
                    latency_ps=latency * 1000,
                    endpoint_latency_ps=1000,
                ),
            )
            for i, (wiring, count, bandwidth, latency) in enumerate(dimensions)
        ),
    )
    name = f"{'hierarchical' if optimised else 'per_dimension'}:{','.join(algorithms)}"
    found = collective_time(network, kind, size, range(network.npus), name) * 1e9
    assert found == pytest.approx(expected, rel=1e-6)
