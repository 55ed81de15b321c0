"""Protocols: the fastest one sets a collective's time; without any, links alone do."""

import numpy as np
import pytest

from stepsim.base.axes import CollectiveKind
from stepsim.base.errors import TopologyError
from stepsim.base.structs import replace
from stepsim.network.collectives import Cost, collective_cost, collective_shape, parse_algorithm
from stepsim.network.topology import Dimension, DimensionKind, LinkClass, NestedTopology
from stepsim.network.topology.dimension import Library, Protocol

US = 1_000_000
LL = Protocol(
    name="LL",
    algorithms=("ring", "direct"),
    launch_ps=2 * US,
    steps_ps={"node": US, "net": 3 * US},
    rates={"node": 0.25, "net": 0.5},
    copy_bandwidth=50e9,
)
SIMPLE = Protocol(
    name="Simple",
    algorithms=("ring", "direct"),
    launch_ps=20 * US,
    steps_ps={"node": 4 * US, "net": 10 * US},
)
NETWORK = NestedTopology(
    name="two",
    source="test",
    dimensions=(
        Dimension(
            kind=DimensionKind.SWITCH,
            size=4,
            link=LinkClass(name="node", latency_ps=0, bandwidth=100e9),
        ),
        Dimension(
            kind=DimensionKind.RAIL,
            size=2,
            link=LinkClass(name="net", latency_ps=0, bandwidth=10e9),
        ),
    ),
    launch_latency_ps=US,
    algorithms=("ring",),
    library=Library(protocols=(LL, SIMPLE)),
)


def cost(
    size: int,
    ranks: int = 4,
    kind: CollectiveKind = CollectiveKind.ALL_REDUCE,
    network: NestedTopology = NETWORK,
) -> Cost:
    members = np.arange(ranks, dtype=np.int64)
    return collective_cost(network, collective_shape(network, kind, members), size)


def test_a_ring_pays_launch_steps_and_the_share_that_a_rank_copies() -> None:
    # 6 steps of S/4 at a quarter of 100 GB/s; S/4 copied at 50 GB/s
    found = cost(100_000)
    assert found.protocol == "LL"
    assert found.time_ps == (1 + 2 + 6) * US + 6 * US + US // 2
    assert found.launch_ps + 6 * found.steps[0].time_ps == found.time_ps


def test_large_sizes_take_the_protocol_with_the_higher_rate() -> None:
    size = 400 * 10**6
    found = cost(size)
    assert (found.protocol, str(found.algorithm), found.way) == ("Simple", "ring", "ring Simple")
    assert found.time_ps == (1 + 20 + 6 * 4) * US + 6 * 1000 * US


def test_each_size_takes_the_faster_protocol() -> None:
    for size in (1, 10**4, 10**6, 10**7, 10**9):
        alone = [
            cost(size, network=replace(NETWORK, library=Library(protocols=(each,)))).time_ps
            for each in (LL, SIMPLE)
        ]
        assert cost(size).time_ps == min(alone)


def test_a_ring_over_nodes_passes_every_hop_not_the_slowest_each_time() -> None:
    # every ring of 8 leaves a node twice; 14 steps, of which 2 in 8 cross the network
    expected = (1 + 2 + 14 * (6 * 1 + 2 * 3) / 8) * US
    assert cost(1, ranks=8).time_ps == pytest.approx(expected, abs=100)


def test_messages_pay_a_launch() -> None:
    found = cost(10**5, ranks=2, kind=CollectiveKind.SEND_RECV)
    assert found.time_ps == (1 + 2 + 1 + 4) * US


def test_a_protocol_for_a_kind_stands_for_those_of_all_kinds() -> None:
    own = replace(SIMPLE, name="own", kinds=("send_recv",), launch_ps=70 * US)
    network = replace(NETWORK, library=Library(protocols=(LL, SIMPLE, own)))
    found = cost(1000, ranks=2, kind=CollectiveKind.SEND_RECV, network=network)
    assert (found.protocol, found.launch_ps) == ("own", 71 * US)
    assert cost(1000, network=network).protocol == "LL"


def test_a_protocol_serves_the_numbers_of_nodes_it_names() -> None:
    one, more = replace(LL, most_nodes=1), replace(SIMPLE, least_nodes=2)
    network = replace(NETWORK, library=Library(protocols=(one, more)))
    assert cost(1, network=network).protocol == "LL"
    assert cost(1, ranks=8, network=network).protocol == "Simple"


def test_a_group_reaches_only_some_links_of_its_node() -> None:
    size = 10**9
    plain, reached = (
        cost(size, 8, network=replace(NETWORK, library=Library(protocols=(SIMPLE,), reach=reach)))
        for reach in ((), (("net", 2),))
    )
    sent = [each.time_ps - each.latency_ps for each in (plain, reached)]
    assert sent[1] == pytest.approx(2 * sent[0], rel=1e-9)


def test_a_library_names_links_of_its_topology() -> None:
    with pytest.raises(TopologyError, match="protocols name links 'nic': expected node, net"):
        replace(NETWORK, library=Library(protocols=(SIMPLE,), reach=(("nic", 1),)))


def test_an_algorithm_without_protocol_is_not_taken_by_itself() -> None:
    network = replace(NETWORK, algorithms=("ring", "double_binary_tree"))
    assert cost(10**6, network=network) == cost(10**6)
    members = np.arange(4, dtype=np.int64)
    tree = parse_algorithm("double_binary_tree")
    asked = collective_shape(network, CollectiveKind.ALL_REDUCE, members, tree)
    assert collective_cost(network, asked, 10**6).protocol == ""


def test_two_way_rings_over_cables_with_a_library() -> None:
    cables = tuple((i, (i + 1) % 4) for i in range(4))
    node = Dimension(
        kind=DimensionKind.CABLES,
        size=4,
        link=LinkClass(name="node", latency_ps=0, bandwidth=100e9),
        cables=cables,
    )
    network = replace(NETWORK, dimensions=(node,), library=Library(protocols=()))
    both = replace(network, library=Library(protocols=(replace(SIMPLE, steps_ps={}),)))
    one_way, two_ways = (cost(4 * 10**9, network=each) for each in (network, both))
    assert one_way.steps[0].time_ps == 2 * two_ways.steps[0].time_ps
