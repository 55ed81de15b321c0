"""Nested dimensions of any kinds: what flows put on links adds up."""

import numpy as np
import pytest
from helpers import examples
from hypothesis import given, strategies as st
from networks import load_between
from random_jobs import nested

from stepsim.network.topology import NestedTopology
from stepsim.network.topology.wiring import Flows


@given(topology=nested(), data=st.data())
@examples(60)
def test_what_flows_put_on_links_is_what_each_crosses(
    topology: NestedTopology, data: st.DataObject
) -> None:
    """Loads sum to weight times links crossed, are even in weights, and split by owner."""
    ends = st.integers(0, topology.npus - 1)
    count = data.draw(st.integers(1, 6))
    sources, destinations = (
        np.array(data.draw(st.lists(ends, min_size=count, max_size=count))) for _ in range(2)
    )
    weights = np.array(
        data.draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=count, max_size=count))
    )
    load = load_between(topology, sources, destinations, weights)
    crossed = 0.0
    for source, destination, weight in zip(sources, destinations, weights, strict=True):
        alone = load_between(topology, source, destination)
        hops = alone.hops.sum()
        assert (hops == 0) == (source == destination)
        assert alone.loads.sum() == pytest.approx(hops)
        crossed += weight * hops
    assert load.loads.sum() == pytest.approx(crossed)
    twice = load_between(topology, sources, destinations, 2 * weights)
    assert twice.links.tolist() == load.links.tolist()
    assert twice.loads == pytest.approx(2 * load.loads)
    apart = topology.load(Flows(np.arange(count), sources, destinations, weights))
    owner, link = np.divmod(apart.links, topology.link_numbers)
    total = np.zeros(topology.link_numbers)
    np.add.at(total, link, apart.loads)
    assert total[load.links] == pytest.approx(load.loads)
    assert set(owner.tolist()) <= set(range(count))
