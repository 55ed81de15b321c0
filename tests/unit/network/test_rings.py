"""Rings that follow the network: every member once, neighbours close, cables shared by none."""

from itertools import pairwise, product

import numpy as np
import pytest
from networks import cabled, load_between
from unit.network.test_wirings import CUBE_MESH, dim, network

from stepsim.network.topology import NestedTopology
from stepsim.network.topology.dimension import LinkClass
from stepsim.network.topology.network import Topology
from stepsim.network.topology.rings import disjoint_rings, node_rings


def steps(topology: Topology, members: list[int]) -> list[tuple[list[int], float]]:
    """Per ring, the hops of each step; and the most that all rings put on a link."""
    orders = topology.layout(np.array(members)).orders
    npus = [np.array(members)[order] for order in orders]
    for ring in npus:
        assert sorted(ring.tolist()) == sorted(members)
    after = np.concatenate([np.roll(r, -1) for r in npus])
    load = load_between(topology, np.concatenate(npus), after)
    hops = [
        [int(load_between(topology, a, b).hops.sum()) for a, b in
         [*pairwise(ring.tolist()), (int(ring[-1]), int(ring[0]))]]
        for ring in npus
    ]  # fmt: skip
    return [(each, float(load.loads.max())) for each in hops]


def test_a_line_goes_out_on_even_and_back_on_odd_places() -> None:
    topology = network(dim("line", 7))
    ((hops, most),) = steps(topology, list(range(7)))
    assert (max(hops), most) == (2, 1.0)


def test_part_of_a_ring_is_a_line_and_all_of_it_is_not() -> None:
    topology = network(dim("ring", 16))
    ((part, _),) = steps(topology, list(range(6)))
    ((whole, _),) = steps(topology, list(range(16)))
    ((spread, _),) = steps(topology, [0, 4, 8, 12])
    assert (max(part), max(whole), max(spread)) == (2, 1, 4)


@pytest.mark.parametrize("shape", [(3, 3), (8, 4), (4, 4, 4), (4, 4, 8)])
def test_tori_have_two_rings_of_neighbours_that_share_no_cable(shape: tuple[int, ...]) -> None:
    npus = int(np.prod(shape))
    topology = network(dim("torus", npus, shape=shape))
    orders = topology.layout(np.arange(npus)).orders
    assert len(orders) == 2
    assert len(set().union(*(cables(order.tolist()) for order in orders))) == 2 * npus
    after = np.concatenate([np.roll(o, -1) for o in orders])
    load = load_between(topology, np.concatenate(orders), after)
    assert (load.loads.max(), load.hops.tolist()) == (1.0, [[1]])


def cables(ring: list[int]) -> set[frozenset[int]]:
    return {frozenset(step) for step in [*pairwise(ring), (ring[-1], ring[0])]}


@pytest.mark.parametrize("shape", [(2, 2), (4, 3), (2, 5), (3, 3, 2)])
@pytest.mark.parametrize("kind", ["mesh", "torus"])
def test_even_blocks_have_a_ring_of_neighbours(kind: str, shape: tuple[int, ...]) -> None:
    npus = int(np.prod(shape))
    for hops, _ in steps(network(dim(kind, npus, shape=shape)), list(range(npus))):
        assert max(hops) == 1


def test_odd_mesh_has_one_long_step() -> None:
    ((hops, _),) = steps(network(dim("mesh", 9, shape=(3, 3))), list(range(9)))
    assert sorted(hops)[-2] == 1


def test_a_block_within_a_torus_is_a_mesh() -> None:
    topology = network(dim("torus", 64, shape=(8, 8)))
    block = [x + 8 * y for y, x in product(range(2, 6), range(1, 5))]
    ((hops, _),) = steps(topology, block)
    assert max(hops) == 1


def test_members_that_fill_no_block_keep_their_order() -> None:
    topology = network(dim("torus", 16, shape=(4, 4)))
    (order,) = topology.layout(np.array([0, 1, 5])).orders
    assert order.tolist() == [0, 1, 2]


def test_channels_enter_nodes_at_different_members() -> None:
    orders = node_rings(np.arange(6), 3)
    assert [order.tolist() for order in orders] == [
        [0, 1, 2, 3, 4, 5],
        [1, 2, 0, 4, 5, 3],
        [2, 0, 1, 5, 3, 4],
    ]


def test_cabled_nodes_are_crossed_from_neighbour_to_neighbour() -> None:
    node = dim("cables", 8, cables=CUBE_MESH)
    topology: NestedTopology = network(node, dim("switch", 2, "b"))
    assert len(topology.layout(np.arange(8)).orders) == 3
    for hops, _ in steps(topology, list(range(16))):
        assert sorted(hops) == [1] * 14 + [2] * 2


def test_listed_cables_give_rings_that_share_none() -> None:
    cables = [(f"npu{a}", f"npu{b}") for a, b in CUBE_MESH]
    wire = LinkClass(name="wire", latency_ps=0, bandwidth=1.0)
    topology = cabled(8, cables, [wire], npus_forward=True)
    found = steps(topology, list(range(8)))
    assert len(found) == 3
    assert all(max(hops) == 1 for hops, _ in found)


def test_networks_without_a_ring_have_none() -> None:
    star = np.zeros((4, 4), dtype=np.int64)
    star[0, 1:] = star[1:, 0] = 1
    assert disjoint_rings(star) == ()
    assert disjoint_rings(np.ones((2, 2), dtype=np.int64)) == ()
