"""What collectives cost: sums of steps by hand, and what faster links and more bytes can do."""

from math import inf

import numpy as np
import pytest
from helpers import examples, two_levels
from hypothesis import given, strategies as st

from stepsim.base.axes import CollectiveKind
from stepsim.base.structs import replace
from stepsim.network.collectives import (
    Algorithm,
    AlgorithmChoice,
    Cost,
    StepCost,
    collective_cost,
    collective_shape,
)
from stepsim.network.collectives.algorithms import FASTEST
from stepsim.network.collectives.cost import with_siblings_ps
from stepsim.network.topology import Dimension, DimensionKind, LinkClass, NestedTopology

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
    algorithm: AlgorithmChoice = FASTEST,
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


def test_the_first_of_equally_fast_candidates_is_taken() -> None:
    """Of two ranks every algorithm is an exchange."""
    topology = switch(2)
    shape = collective_shape(topology, ALL_REDUCE, np.arange(2))
    found = collective_cost(topology, shape, 1_000)
    assert found.algorithm == shape.candidates[0].algorithm
    assert len(shape.candidates) > 1


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


STEPS = (StepCost(time_ps=10, latency_ps=4, repeat=2),)
KNOWN = Cost(time_ps=25, alone_ps=25, launch_ps=5, algorithm=RING, steps=STEPS)


def test_what_is_measured_takes_the_place_of_the_model() -> None:
    measured = KNOWN.measured_as(40)
    assert (measured.time_ps, measured.alone_ps, measured.way) == (40, 40, "measured")
    stretched = replace(KNOWN, time_ps=50).measured_as(40)
    assert (stretched.time_ps, stretched.alone_ps) == (80, 40)
    assert replace(KNOWN, protocol="LL").way == "ring LL"


def test_what_passes_besides_passes_if_anything_is_sent() -> None:
    found = KNOWN.with_process(0, 3)
    assert (found.time_ps, found.alone_ps, found.launch_ps, found.latency_ps) == (28, 28, 8, 16)
    nothing = Cost(time_ps=0, alone_ps=0, launch_ps=0, algorithm=RING)
    assert nothing.with_process(7, 3) is nothing
    assert KNOWN.with_process(25, 0) == KNOWN
    assert replace(KNOWN, alone_ps=20).with_process(25, 3).alone_ps == 23
    longer = replace(KNOWN, alone_ps=20).with_process(40, 3)
    assert (longer.time_ps, longer.alone_ps, longer.launch_ps) == (43, 43, 23)


def test_a_measured_time_stretches_as_the_model_does() -> None:
    shared, alone = np.array([30, 10, 0, 15]), np.array([10, 10, 0, 10])
    assert with_siblings_ps(100, shared, alone).tolist() == [300, 100, 100, 150]
