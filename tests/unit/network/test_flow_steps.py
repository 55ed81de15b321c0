"""Steps of flows: what they put on links, by hand and by conservation."""

import numpy as np
import pytest
from helpers import examples, two_levels
from hypothesis import given, strategies as st
from unit.network.test_wirings import dim, network

from stepsim.network.collectives import FlowStep
from stepsim.network.collectives.flows import (
    Carrier,
    StepShape,
    step_load,
    step_times_ps,
    trace,
)
from stepsim.network.topology import NestedTopology

PAIR = np.array([[0, 1], [1, 0]])


def everyone(count: int) -> FlowStep:
    return FlowStep((), 1.0, everyone=count)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_everyone_sends_to_every_other_one_once(count: int) -> None:
    listed = everyone(count).listed
    pairs = np.transpose(listed.edges).tolist()
    assert sorted(map(tuple, pairs)) == [
        (a, b) for a in range(count) for b in range(count) if a != b
    ]
    assert listed.listed is listed


def test_equal_steps_have_one_key_however_often_they_repeat() -> None:
    step = FlowStep(PAIR, 0.5)
    assert step.key() == FlowStep(PAIR.copy(), 0.5, repeat=3).key()
    others = [FlowStep(PAIR, 0.25), FlowStep(PAIR[::-1, :1], 0.5), everyone(2)]
    assert len({step.key(), *(other.key() for other in others)}) == 4


def test_hidden_repeats_take_no_time_of_their_own() -> None:
    step = FlowStep(PAIR, 1.0, repeat=5, hidden=2)
    assert step.timed == 3


def test_a_step_of_a_ring_by_hand() -> None:
    """NPU 0 of four sends to 2, half each way round; NPU 1 to 2: both cross the link between."""
    step = FlowStep(np.array([[0, 1], [2, 2]]), 0.5)
    shape = trace(network(dim("ring", 4)), np.arange(4), step)
    assert shape.loads.tolist() == [0.5 + 0.25]
    assert sorted(shape.hops.ravel().tolist()) == [1, 2]
    assert shape.shared is shape.loads
    assert shape.alone is shape


def test_times_of_a_step_by_hand() -> None:
    """Two paths: 2 links of the first class, or 1 of each; endpoint latency is the largest met."""
    loads = np.array([3.0, 0.5])
    shape = StepShape(loads=loads, shared=loads * [1, 4], hops=np.array([[2, 0], [1, 1]]))
    capacity, latency = np.array([[1e9, 1e8]]), np.array([[10.0, 70.0]])
    endpoint = np.array([[5.0, 9.0]])
    size, links = np.array([100.0]), (capacity, latency, endpoint)
    assert [each.tolist() for each in step_times_ps(shape, size, links)] == [[89 + 2e6], [89]]
    assert step_times_ps(shape.alone, size, links)[0].tolist() == [89 + 500_000]
    carried = step_times_ps(shape, size, links, carrier([0.1, 1.0], [1.0, 0.5], [0.0, 3.0]))
    assert [each.tolist() for each in carried] == [[92 + 4e6], [92]]
    slow = step_times_ps(shape, size, links, carrier([0.01, 1.0], [1.0, 1.0], [0.0, 0.0]))
    assert slow[0].tolist() == [89 + 3e7]


def carrier(rates: list[float], shared: list[float], steps_ps: list[float]) -> Carrier:
    return Carrier(
        name="simple",
        launch_ps=0,
        copy_ps_per_byte=0,
        rates=np.array(rates),
        shared_rates=np.array(shared),
        steps_ps=np.array(steps_ps),
    )


def test_a_chained_step_has_the_mean_of_its_paths() -> None:
    """Three of four flows cross one link, one crosses three."""
    loads = np.array([1.0])
    shape = StepShape(
        loads=loads, shared=loads, hops=np.array([[1], [3]]), shares=np.array([0.75, 0.25])
    )
    links = np.array([[1e9]]), np.array([[100.0]]), np.array([[8.0]])
    nothing = np.zeros(1)
    assert step_times_ps(shape, nothing, links)[1].tolist() == [308]
    along = step_times_ps(shape, nothing, links, carrier([1.0], [1.0], [0.0]))
    assert along[1].tolist() == [150 + 8]


@given(data=st.data(), topology=st.sampled_from([network(dim("ring", 6)), two_levels(3)]))
@examples(60)
def test_what_groups_put_on_links_is_what_each_of_them_does(
    data: st.DataObject, topology: NestedTopology
) -> None:
    """Loads of groups together, of each by its owner, and of each alone: the same sums."""
    groups = np.array(data.draw(st.permutations(range(6)))).reshape(2, 3)
    edges = data.draw(st.lists(st.permutations(range(3)), min_size=1, max_size=4))
    step = FlowStep(np.array(edges).T[:2], np.array(data.draw(weights(len(edges)))))
    links = topology.link_numbers
    together = np.zeros(links)
    load = step_load(topology, groups, step)
    together[load.links] = load.loads
    own = step_load(topology, groups, step, np.array([7, 9]))
    owner, link = np.divmod(own.links, links)
    assert set(owner.tolist()) <= {7, 9}
    for name, group in zip((7, 9), groups, strict=True):
        alone, apart = step_load(topology, group, step), np.zeros(links)
        np.add.at(apart, link[owner == name], own.loads[owner == name])
        assert apart[alone.links] == pytest.approx(alone.loads)
        assert apart.sum() == pytest.approx(alone.loads.sum())
        together -= apart
    assert together == pytest.approx(np.zeros(links))


def weights(count: int) -> st.SearchStrategy[list[float]]:
    return st.lists(st.sampled_from([0.25, 0.5, 1.0]), min_size=count, max_size=count)
