"""What collectives cost: sums of steps by hand, and what faster links and more bytes can do."""

from math import inf

import numpy as np
import pytest
from helpers import examples, two_levels
from hypothesis import given
from hypothesis import strategies as st

from stepsim.base.errors import SimulationError
from stepsim.base.structs import replace
from stepsim.network.collectives import (
    Algorithm,
    AlgorithmChoice,
    Beside,
    Cost,
    Siblings,
    StepCost,
    collective_cost,
    collective_shape,
    collective_time_ps,
    collective_times_ps,
    with_siblings_ps,
)
from stepsim.network.topology import Dimension, DimensionKind, LinkClass, NestedTopology
from stepsim.network.topology.wirings import Ports
from stepsim.workload.rows import CollectiveKind

RING = AlgorithmChoice(algorithm=Algorithm.RING)
KINDS = [kind for kind in CollectiveKind if kind is not CollectiveKind.SEND_RECV]
ALL_REDUCE = CollectiveKind.ALL_REDUCE


def switch(
    npus: int, *, bandwidth: float = 1e9, latency: int = 100, launch: int = 0
) -> NestedTopology:
    link = LinkClass(name="wire", bandwidth=bandwidth, latency_ps=latency)
    dimension = Dimension(kind=DimensionKind.SWITCH, size=npus, link=link)
    return NestedTopology(
        name="net", source="test", dimensions=(dimension,), launch_latency_ps=launch
    )


def cost(
    topology: NestedTopology,
    size: int,
    kind: CollectiveKind = ALL_REDUCE,
    algorithm: AlgorithmChoice | Algorithm = Algorithm.AUTO,
) -> Cost:
    members = np.arange(topology.npus)
    return collective_cost(topology, collective_shape(topology, kind, members, algorithm), size)


@pytest.mark.parametrize("npus", [2, 3, 5, 8])
def test_a_ring_is_its_rounds_and_the_launch(npus: int) -> None:
    """An all-reduce takes 2 (n - 1) rounds, each two links and size / n bytes at 1 byte per ns."""
    size = 1_000 * npus
    found = cost(switch(npus, launch=7), size, algorithm=RING)
    rounds, round_ps = 2 * (npus - 1), 2 * 100 + 1_000 * 1_000
    assert found.time_ps == found.alone_ps == 7 + rounds * round_ps
    assert (found.launch_ps, found.latency_ps) == (7, 7 + rounds * 200)
    assert sum(step.repeat for step in found.steps) == rounds
    assert {(step.time_ps, step.latency_ps) for step in found.steps} == {(round_ps, 200)}
    assert (found.way, found.protocol, found.measured) == ("ring", "", False)


def test_nothing_to_send_takes_no_time_not_even_a_launch() -> None:
    found = cost(switch(4, launch=7), 0)
    assert (found.time_ps, found.launch_ps, found.steps) == (0, 0, ())
    alone = switch(1, launch=7)
    assert collective_time_ps(alone, collective_shape(alone, ALL_REDUCE, np.arange(1)), 10**9) == 0


@given(
    kind=st.sampled_from(KINDS),
    npus=st.integers(2, 9),
    size=st.integers(1, 10**9),
    launch=st.integers(0, 10**6),
)
@examples(60)
def test_steps_and_launch_add_up(kind: CollectiveKind, npus: int, size: int, launch: int) -> None:
    found = cost(switch(npus, launch=launch), size, kind)
    assert found.time_ps == launch + sum(step.time_ps * step.repeat for step in found.steps)
    assert all(0 <= step.latency_ps <= step.time_ps for step in found.steps)
    fast = cost(switch(npus, bandwidth=inf, launch=launch), size, kind, found.algorithm)
    assert fast.time_ps == found.latency_ps == fast.latency_ps


@given(kind=st.sampled_from(KINDS), npus=st.integers(2, 9), size=st.integers(1, 10**9))
@examples(60)
def test_what_is_more_or_slower_is_never_quicker(
    kind: CollectiveKind, npus: int, size: int
) -> None:
    plain = cost(switch(npus), size, kind).time_ps
    assert cost(switch(npus), size + 1, kind).time_ps >= plain
    assert cost(switch(npus, bandwidth=0.9e9), size, kind).time_ps >= plain
    assert cost(switch(npus, latency=101), size, kind).time_ps >= plain
    assert cost(switch(npus), size, kind, RING_OR_DIRECT[kind]).time_ps >= plain


RING_OR_DIRECT = {
    kind: Algorithm.DIRECT if kind is CollectiveKind.ALL_TO_ALL else Algorithm.AUTO
    for kind in KINDS
} | {ALL_REDUCE: Algorithm.RING, CollectiveKind.ALL_GATHER: Algorithm.RING}


def test_many_scenarios_are_each_what_they_are_alone() -> None:
    topologies = [switch(4, bandwidth=b, latency=ps) for b, ps in ((1e9, 100), (4e9, 7), (2e8, 0))]
    shape = collective_shape(topologies[0], ALL_REDUCE, np.arange(4))
    links = [[each.link_classes[0]] for each in topologies]
    parameters = (
        np.array([[link.capacity for link in row] for row in links]),
        np.array([[float(link.latency_ps) for link in row] for row in links]),
        np.zeros((3, 1)),
    )
    sizes, launch = np.array([1_000.0, 5e6, 0.0]), np.array([0, 3, 5])
    times, chosen = collective_times_ps(shape, sizes, launch, parameters)
    for i, topology in enumerate(topologies):
        alone = cost(replace(topology, launch_latency_ps=int(launch[i])), int(sizes[i]))
        assert times[i] == alone.time_ps
        if sizes[i]:
            assert shape.candidates[chosen[i]].algorithm == alone.algorithm


def test_the_first_of_equally_fast_candidates_is_taken() -> None:
    """Of two ranks every algorithm is an exchange."""
    topology = switch(2)
    shape = collective_shape(topology, ALL_REDUCE, np.arange(2))
    found = collective_cost(topology, shape, 1_000)
    assert found.algorithm == shape.candidates[0].algorithm
    assert len(shape.candidates) > 1


def test_groups_on_one_wire_wait_for_each_other() -> None:
    """Two pairs across nodes behind one NIC each: two rounds of half the bytes, of both pairs."""
    topology = shared_nic()
    groups = np.array([[0, 2], [1, 3]])
    siblings = Siblings(topology=topology, looks=(groups[0],), groups=(groups,))
    beside = Beside(siblings=siblings, look=0)
    shape = collective_shape(topology, ALL_REDUCE, groups[0], RING, beside=beside)
    found = collective_cost(topology, shape, 2_000)
    assert shape.is_shared
    assert found.alone_ps == 2 * (2 * 1_000 + 1_000 * 1_000)
    assert found.time_ps == 2 * (2 * 1_000 + 2 * 1_000 * 1_000)
    alone = shape.alone(RING, "")
    assert not alone.is_shared
    assert collective_cost(topology, alone, 2_000).time_ps == found.alone_ps
    lone = Siblings(topology=topology, looks=(groups[0],), groups=(groups[:1],))
    own = collective_shape(
        topology, ALL_REDUCE, groups[0], RING, beside=Beside(siblings=lone, look=0)
    )
    assert not own.is_shared


def shared_nic() -> NestedTopology:
    """Nodes of two NPUs that have one NIC together, at 1 GB/s and 1,000 ps, through a switch."""
    inner, outer = two_levels().dimensions
    ports = Ports(nics=1, npus_per_nic=2)
    across = replace(outer, kind=DimensionKind.SWITCH, ports=ports)
    return NestedTopology(name="shared", source="test", dimensions=(inner, across))


def test_the_slowest_level_decides_how_long_two_chunks_take() -> None:
    """8 MB in two chunks over two nodes of two NPUs, where the links between nodes never wait.

    A chunk of 4 MB is 2 MB at 4 GB/s inside, there and back, and two steps of 1 MB at 1 GB/s
    between. Both chunks pass between the nodes, one goes in before and one comes out after. Were
    the links inside to decide, both chunks would pass them there and back, in 2 ms.
    """
    levels = (Algorithm.RING, Algorithm.RING)
    halves = AlgorithmChoice(algorithm=Algorithm.HIERARCHICAL, levels=levels, chunks=2)
    inside, between = 100 + 500_000_000, 1_000 + 1_000_000_000
    assert cost(two_levels(), 8_000_000, algorithm=halves).time_ps == 2 * inside + 2 * 2 * between


def test_a_time_beyond_106_days_is_an_error() -> None:
    with pytest.raises(SimulationError, match="at most 2\\*\\*63 - 1 ps"):
        cost(switch(4, bandwidth=1e-3), 10**15)


STEPS = (StepCost(time_ps=10, latency_ps=4, repeat=2),)
KNOWN = Cost(time_ps=25, alone_ps=25, launch_ps=5, algorithm=RING, steps=STEPS)


def test_what_is_measured_takes_the_place_of_the_model() -> None:
    measured = KNOWN.measured_as(40)
    assert (measured.time_ps, measured.alone_ps, measured.way) == (40, 40, "measured")
    stretched = replace(KNOWN, time_ps=50).measured_as(40)
    assert (stretched.time_ps, stretched.alone_ps) == (80, 40)
    assert replace(KNOWN, protocol="LL").way == "ring LL"


def test_what_passes_besides_passes_if_anything_is_sent() -> None:
    found = KNOWN.and_then(3)
    assert (found.time_ps, found.alone_ps, found.launch_ps, found.latency_ps) == (28, 28, 8, 16)
    nothing = Cost(time_ps=0, alone_ps=0, launch_ps=0, algorithm=RING)
    assert nothing.and_then(3) is nothing
    assert KNOWN.and_then(0) is KNOWN


def test_a_measured_time_stretches_as_the_model_does() -> None:
    shared, alone = np.array([30, 10, 0, 15]), np.array([10, 10, 0, 10])
    assert with_siblings_ps(100, shared, alone).tolist() == [300, 100, 100, 150]
