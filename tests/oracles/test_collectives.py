"""Collective times against closed forms, to the ps, and against ASTRA-sim's numbers."""

from collections.abc import Sequence
from itertools import product
from math import ceil, log2
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from pairs import pairwise

from stepsim.base.axes import CollectiveKind
from stepsim.base.errors import PlanError, SimulationError
from stepsim.face.steps import collective_time
from stepsim.network.collectives import (
    collective_cost,
    collective_shape,
    flow_steps,
    parse_algorithm,
)
from stepsim.network.topology import Dimension, DimensionKind, LinkClass, NestedTopology
from stepsim.network.topology.rings import node_rings

HOPS = {DimensionKind.RING: 1, DimensionKind.FULLY_CONNECTED: 1, DimensionKind.SWITCH: 2}
ROUNDS = {
    CollectiveKind.ALL_REDUCE: 2,
    CollectiveKind.ALL_GATHER: 1,
    CollectiveKind.REDUCE_SCATTER: 1,
}
BANDWIDTH, LATENCY_PS = 50e9, 500_000
SIZES = [1, 1_000, 123_457, 2**30]

Built = tuple[DimensionKind, int, LinkClass]


def link(name: str = "wire", bandwidth: float = BANDWIDTH, endpoint_ps: int = 0) -> LinkClass:
    return LinkClass(
        name=name,
        bandwidth=bandwidth,
        latency_ps=LATENCY_PS,
        endpoint_latency_ps=endpoint_ps,
    )


def network(*dimensions: Built, launch_ps: int = 0) -> NestedTopology:
    return NestedTopology(
        name="network",
        source="test",
        dimensions=tuple(Dimension(kind=k, size=n, link=wire) for k, n, wire in dimensions),
        launch_latency_ps=launch_ps,
    )


def time_ps(
    topology: NestedTopology,
    kind: CollectiveKind,
    size: int,
    ranks: int = 0,
    algorithm: str = "auto",
) -> int:
    """Time over the first `ranks` NPUs, by default all."""
    members = np.arange(ranks or topology.npus)
    shape = collective_shape(topology, kind, members, parse_algorithm(algorithm))
    return collective_cost(topology, shape, size).time_ps


RINGS: dict[str, Sequence[Any]] = {
    "kind": list(ROUNDS),
    "wiring": list(HOPS),
    "npus": (2, 3, 8),
    "size": SIZES,
}


@pytest.mark.parametrize("case", pairwise(RINGS))
def test_ring_algorithms(case: dict[str, Any]) -> None:
    check_ring(**case)


@pytest.mark.slow
@pytest.mark.parametrize("values", [*product(*RINGS.values())])
def test_all_ring_algorithms(values: tuple[Any, ...]) -> None:
    check_ring(*values)


def check_ring(kind: CollectiveKind, wiring: DimensionKind, npus: int, size: int) -> None:
    """A ring takes its rounds, each a block over the hops to the neighbour."""
    round_ps = round(HOPS[wiring] * LATENCY_PS + size / npus / BANDWIDTH * 1e12)
    expected = ROUNDS[kind] * (npus - 1) * round_ps
    assert time_ps(network((wiring, npus, link())), kind, size, algorithm="ring") == expected


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("npus", [2, 3, 8])
def test_all_to_all_on_fully_connected_sends_every_block_at_once(npus: int, size: int) -> None:
    topology = network((DimensionKind.FULLY_CONNECTED, npus, link()))
    expected = round(LATENCY_PS + size / npus / BANDWIDTH * 1e12)
    assert time_ps(topology, CollectiveKind.ALL_TO_ALL, size) == expected


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("npus", [2, 3, 8])
def test_all_to_all_on_a_switch_sends_all_but_its_own_share(npus: int, size: int) -> None:
    topology = network((DimensionKind.SWITCH, npus, link()))
    expected = round(2 * LATENCY_PS + size * (npus - 1) / npus / BANDWIDTH * 1e12)
    assert time_ps(topology, CollectiveKind.ALL_TO_ALL, size) == expected


@pytest.mark.parametrize(
    ("npus", "halves"),
    [(4, 4), (6, 9), (5, 6), (2, 2)],  # half blocks over the busiest link, see below
)
def test_all_to_all_on_a_ring_is_limited_by_its_links(npus: int, halves: int) -> None:
    """Distances 1..n/2 each way load every link alike: their sum, the last one half if n is even.

    n=4: 1 + 2/2 = 2 blocks; n=6: 1 + 2 + 3/2; n=5: 1 + 2; n=2: one cable, one block.
    """
    topology = network((DimensionKind.RING, npus, link()))
    expected = round(npus // 2 * LATENCY_PS + 6_000_000 / npus * halves / 2 / BANDWIDTH * 1e12)
    assert time_ps(topology, CollectiveKind.ALL_TO_ALL, 6_000_000) == expected


@pytest.mark.parametrize("npus", [2, 3, 4, 5, 8, 9])
def test_broadcast_doubles_the_informed_ranks_each_round(npus: int) -> None:
    topology = network((DimensionKind.FULLY_CONNECTED, npus, link()))
    expected = ceil(log2(npus)) * round(LATENCY_PS + 1_000_000 / BANDWIDTH * 1e12)
    assert time_ps(topology, CollectiveKind.BROADCAST, 1_000_000, algorithm="tree") == expected


@pytest.mark.parametrize("ranks", range(2, 12))
def test_broadcast_reaches_everyone_once_from_those_who_have_it(ranks: int) -> None:
    informed = {0}
    layout = network((DimensionKind.SWITCH, ranks, link())).layout(np.arange(ranks))
    for step in flow_steps(CollectiveKind.BROADCAST, layout, parse_algorithm("tree")):
        assert set(step.edges[0].tolist()) <= informed
        reached = step.edges[1].tolist()
        assert not informed & set(reached)
        informed |= set(reached)
    assert informed == set(range(ranks))


NVLINK, FABRIC = link("nvlink", 400e9, 200_000), link("fabric", 50e9, 3_000_000)
NODE = (DimensionKind.SWITCH, 8, NVLINK)


@pytest.mark.parametrize("kind", ROUNDS)
def test_two_nodes_ring_over_all_eight_rails(kind: CollectiveKind) -> None:
    """Eight channels of S/8 over 16 ranks, blocks of S/128.

    Each NPU sends on 7 channels to a neighbour and on one, over NVLink, to the NPU on the rail
    that the channel leaves by: 8 blocks per NVLink port, one per rail port. The longest message
    takes two hops of each network, and the larger endpoint latency.
    """
    size = 2**30
    topology = network(NODE, (DimensionKind.RAIL, 2, FABRIC))
    slowest = max(size / 16 / NVLINK.bandwidth, size / 128 / FABRIC.bandwidth)
    round_ps = round(4 * LATENCY_PS + 3_000_000 + slowest * 1e12)
    assert time_ps(topology, kind, size, algorithm="ring") == ROUNDS[kind] * 15 * round_ps


def test_one_rank_per_node_has_one_channel_on_its_rail() -> None:
    topology = network(NODE, (DimensionKind.RAIL, 2, FABRIC))
    shape = collective_shape(topology, CollectiveKind.ALL_REDUCE, np.array([3, 11]))
    expected = 2 * round(2 * LATENCY_PS + 3_000_000 + 1_000_000 / 2 / FABRIC.bandwidth * 1e12)
    assert collective_cost(topology, shape, 1_000_000).time_ps == expected


def test_every_channel_is_a_ring_of_all_ranks_on_its_own_rail() -> None:
    """Nodes of 4 that hold 2, 3 and 2 of the ranks: two channels."""
    members = np.array([0, 1, 4, 5, 7, 8, 9])
    orders = node_rings(members, node_size=4)
    assert len(orders) == 2
    assert all(sorted(order.tolist()) == list(range(7)) for order in orders)
    entries = [{int(m) for m in members[order][[0, 2, 5]]} for order in orders]
    assert entries == [{0, 4, 8}, {1, 5, 9}]


@pytest.mark.parametrize("kind", CollectiveKind)
def test_nothing_to_send_and_nobody_to_send_to_cost_nothing(kind: CollectiveKind) -> None:
    topology = network(NODE, launch_ps=6_600_000)
    assert time_ps(topology, kind, 0) == 0
    assert time_ps(topology, kind, 2**30, ranks=1) == 0


@pytest.mark.parametrize("kind", CollectiveKind)
def test_launch_latency_is_paid_once_per_collective_but_not_by_messages(
    kind: CollectiveKind,
) -> None:
    extra = time_ps(network(NODE, launch_ps=7), kind, 8_000) - time_ps(network(NODE), kind, 8_000)
    assert extra == (0 if kind is CollectiveKind.SEND_RECV else 7)


def test_a_free_link_leaves_the_latency() -> None:
    topology = network((DimensionKind.RING, 4, link(bandwidth=float("inf"))))
    ring = time_ps(topology, CollectiveKind.ALL_GATHER, 2**40, algorithm="ring")
    assert ring == 3 * LATENCY_PS


def test_efficiency_is_the_share_that_payload_gets() -> None:
    half = LinkClass(name="wire", bandwidth=2 * BANDWIDTH, efficiency=0.5, latency_ps=LATENCY_PS)
    times = [
        time_ps(network((DimensionKind.RING, 4, wire)), CollectiveKind.ALL_REDUCE, 2**20)
        for wire in (half, link())
    ]
    assert times[0] == times[1]


WIRINGS = st.sampled_from(DimensionKind)
BANDWIDTHS = st.floats(1e8, 1e12)
COLLECTIVES = st.sampled_from(CollectiveKind)


@settings(deadline=None)
@given(
    st.lists(st.tuples(WIRINGS, st.integers(1, 4), BANDWIDTHS), min_size=1, max_size=3),
    COLLECTIVES,
    st.integers(1, 2**34),
    st.data(),
)
def test_a_faster_link_is_never_slower(
    dimensions: list[tuple[DimensionKind, int, float]],
    kind: CollectiveKind,
    size: int,
    data: st.DataObject,
) -> None:
    def cost(bandwidths: list[float]) -> int:
        built = [
            (wiring, npus, link(f"d{i}", bandwidth))
            for i, ((wiring, npus, _), bandwidth) in enumerate(
                zip(dimensions, bandwidths, strict=True)
            )
        ]
        return time_ps(network(*built), kind, size)

    slow = [bandwidth for _, _, bandwidth in dimensions]
    sped_up = data.draw(st.integers(0, len(slow) - 1))
    factor = data.draw(st.floats(1, 100))
    fast = [b * factor if i == sped_up else b for i, b in enumerate(slow)]
    assert cost(fast) <= cost(slow)


@settings(deadline=None)
@given(WIRINGS, st.integers(2, 6), COLLECTIVES, st.integers(1, 2**30), st.integers(0, 2**30))
def test_more_bytes_are_never_faster(
    wiring: DimensionKind, npus: int, kind: CollectiveKind, size: int, more: int
) -> None:
    topology = network((wiring, npus, link()))
    assert time_ps(topology, kind, size) <= time_ps(topology, kind, size + more)


def test_a_collective_of_centuries_is_an_error() -> None:
    topology = network((DimensionKind.RING, 2, link(bandwidth=1e-3)))
    with pytest.raises(SimulationError, match=r"1000000000 bytes .* network.*106 days"):
        time_ps(topology, CollectiveKind.ALL_REDUCE, 10**9)


@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [
        (CollectiveKind.ALL_REDUCE, "ring"),
        (CollectiveKind.ALL_TO_ALL, "direct"),
        (CollectiveKind.BROADCAST, "tree"),
        (CollectiveKind.ALL_GATHER, "hierarchical:ring,direct"),
        (CollectiveKind.ALL_GATHER, "auto"),
    ],
)
def test_interface_gives_seconds_and_names_algorithms(kind: CollectiveKind, algorithm: str) -> None:
    topology = network(NODE, (DimensionKind.RAIL, 2, FABRIC))
    seconds = collective_time(topology, str(kind), 2**20, range(16), algorithm)
    assert seconds == time_ps(topology, kind, 2**20, algorithm=algorithm) / 1e12


@pytest.mark.parametrize(
    ("kind", "size", "ranks", "algorithm", "words"),
    [
        ("all_reduce", 8, [0, 1], "tree", ["all_reduce", "tree", "expected ring, "]),
        ("all_reduced", 8, [0, 1], "auto", ["all_reduced", "all_reduce, ", "send_recv"]),
        ("all_reduce", 8, [0, 1], "rings", ["rings", "ring, ", "tree"]),
        ("all_reduce", 8, [0, 1], "ring:ring", ["ring has no levels"]),
        ("all_reduce", 8, [0, 1], "hierarchical", ["one dimension only"]),
        ("all_reduce", 8, [0, 1], "nvls", ["nvls", "no switch that reduces"]),
        ("all_reduce", 8, [0, 8], "auto", ["ranks", "distinct", "0 to 7"]),
        ("all_reduce", -8, [0, 1], "auto", ["size_bytes", "-8"]),
    ],
)
def test_interface_refuses_what_it_cannot_price(
    kind: str, size: int, ranks: list[int], algorithm: str, words: list[str]
) -> None:
    with pytest.raises(PlanError) as caught:
        collective_time(network(NODE), kind, size, ranks, algorithm)
    assert [word for word in words if word not in str(caught.value)] == []
