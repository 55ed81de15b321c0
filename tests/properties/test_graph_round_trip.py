"""A topology as a networkx graph, loaded again: the same network."""

from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from helpers import examples, few
from hypothesis import given, strategies as st
from networks import load_between
from pairs import in_turn
from random_jobs import listed

import stepsim
from stepsim.base.axes import CollectiveKind
from stepsim.base.errors import TopologyError
from stepsim.base.structs import replace
from stepsim.files.reading import topology_names
from stepsim.network.collectives import (
    Algorithm,
    able_algorithms,
    collective_cost,
    collective_shape,
    parse_algorithm,
)
from stepsim.network.topology import NestedTopology, Topology
from stepsim.network.topology.dimension import PLAIN
from stepsim.network.topology.listed import ListedTopology

SWITCHED = ["gb200-nvl72", "hgx-a100", "ideal"]
"""One switch joins what is inside: no flow moves along two dimensions."""
SHARED_NICS = ["dgx-v100", "dgx2-v100"]


def by_its_links(name: str, npus: int) -> NestedTopology:
    """A shipped network without protocols: a graph has none."""
    topology = stepsim.load_topology(name, npus=npus)
    assert isinstance(topology, NestedTopology)
    return replace(topology, library=PLAIN)


Way = tuple[dict[tuple[str, str], float], dict[str, int]]


def again(topology: Topology) -> Topology:
    return stepsim.load_topology(topology.graph())


def way(topology: Topology, source: int, destination: int) -> Way:
    """Share of a flow on every pair of nodes, and its links of each class."""
    load = load_between(topology, source, destination)
    shares: dict[tuple[str, str], float] = {}
    for link, share in zip(load.links.tolist(), load.loads.tolist(), strict=True):
        ends = topology.link_ends(link)
        shares[ends] = round(shares.get(ends, 0.0) + share, 9)
    hops = zip([link.name for link in topology.link_classes], load.hops[0].tolist(), strict=True)
    return shares, {name: count for name, count in hops if count}


@pytest.mark.parametrize(
    "name",
    few(sorted({*topology_names()} - {*SHARED_NICS}), "hgx-h100", "tpu-v4", "rail-only-h100"),
)
def test_routes_have_as_many_links_and_the_same_where_they_do_not_turn(name: str) -> None:
    topology = stepsim.load_topology(name, npus=32)
    listed_again = again(topology)
    dimensions = topology.layout(np.arange(topology.npus)).coordinates
    for source, destination in permutations(range(32), 2):
        mine, theirs = (way(each, source, destination) for each in (topology, listed_again))
        assert mine[1] == theirs[1]
        moves = np.count_nonzero(dimensions[source] != dimensions[destination])
        if moves == 1 or name in SWITCHED:
            assert mine[0] == theirs[0]


@pytest.mark.parametrize("name", SWITCHED)
def test_every_collective_costs_the_same_on_switches(name: str) -> None:
    topology = by_its_links(name, 32)
    listed_again = again(topology)
    groups = [range(32), range(8), range(0, 32, 8), range(4, 12), (0, 31)]
    compared = 0
    for members in (np.array(group) for group in groups):
        for kind in CollectiveKind:
            if kind is CollectiveKind.SEND_RECV and len(members) > 2:
                continue
            able = able_algorithms(kind, listed_again.layout(members))
            for algorithm in map(parse_algorithm, able):
                prices = {
                    collective_cost(
                        each, collective_shape(each, kind, members, algorithm), 1 << 24
                    ).time_ps
                    for each in (topology, listed_again)
                }
                assert len(prices) == 1, (kind, algorithm, members)
                compared += 1
    assert compared > 100


STEPS: list[tuple[str, dict[str, Any]]] = [
    ("gpt_tp4", {"npus": 32, "pp": 4, "microbatches": 8}),
    ("gpt_tp4", {"npus": 32, "pp": 2, "microbatches": 4, "contention": "fair"}),
    ("moe_128", {"npus": 64, "pp": 2, "microbatches": 4, "p2p": "overlap"}),
]


@pytest.mark.parametrize(("name", "job"), few(product(SWITCHED, STEPS), *in_turn(SWITCHED, STEPS)))
def test_steps_take_as_long_on_switches(name: str, job: tuple[str, dict[str, Any]]) -> None:
    """With what a graph knows: no switch that reduces."""
    workload, options = job
    topology = by_its_links(name, 128)
    known = tuple(each for each in topology.algorithms if each != Algorithm.NVLS)
    topology = replace(topology, algorithms=known)
    step, same = (
        stepsim.simulate(f"workloads/{workload}.txt", each, **options)
        for each in (topology, again(topology))
    )
    assert step.report.step_time_ps == same.report.step_time_ps
    assert step.report.critical_path_ps == same.report.critical_path_ps


@pytest.mark.parametrize("name", topology_names())
def test_npus_of_one_node_or_rail_pay_the_same(name: str) -> None:
    """Sent directly or along a tree: algorithms that do not follow rings through the network."""
    if name in SHARED_NICS or name.startswith(("tpu", "trn")):
        pytest.skip("its nodes are joined by more than one kind of cable")
    topology = stepsim.load_topology(name, npus=32)
    listed_again = again(topology)
    inside = np.arange(min(8, topology.node_size))
    rail = np.arange(0, 32, topology.node_size) if topology.node_size < 32 else inside
    for members in (inside, rail):
        for algorithm in map(parse_algorithm, ("direct", "halving_doubling")):
            kind = CollectiveKind.ALL_GATHER
            shapes = (
                (each, collective_shape(each, kind, members, algorithm))
                for each in (topology, listed_again)
            )
            assert (
                len({collective_cost(each, shape, 1 << 24).time_ps for each, shape in shapes}) == 1
            )


@examples(30)
@given(topology=listed(), data=st.data())
def test_listed_links_come_back_as_they_were(topology: ListedTopology, data: st.DataObject) -> None:
    found = again(topology)
    assert isinstance(found, ListedTopology)
    assert (found.npus, found.node_size) == (topology.npus, topology.node_size)
    members = np.array(
        sorted(data.draw(st.lists(st.integers(0, 23), min_size=2, max_size=9, unique=True)))
    )
    kind = data.draw(
        st.sampled_from([each for each in CollectiveKind if each is not CollectiveKind.SEND_RECV])
    )
    shapes = ((each, collective_shape(each, kind, members)) for each in (topology, found))
    assert len({collective_cost(each, shape, 3_000_000).time_ps for each, shape in shapes}) == 1


def test_a_graph_too_large_names_the_limit_and_the_way_out() -> None:
    with pytest.raises(TopologyError, match=r"131072 NPUs.*at most 65536.*\.fit\(n\)"):
        stepsim.load_topology("hgx-h100", npus=1 << 17).graph()
    assert len(stepsim.load_topology("hgx-h100", npus=1 << 17).fit(16).graph()) == 16 + 2 + 8
