"""An exchange priced by the symmetry of its members costs what its pairs cost, one by one."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from random_jobs import networks

from stepsim.base.arrays import Ints, Summand
from stepsim.base.axes import CollectiveKind
from stepsim.files.load import topology_of
from stepsim.files.reading import topology_names
from stepsim.network.collectives import flows
from stepsim.network.collectives.direct import DIRECT
from stepsim.network.collectives.flows import FlowStep, step_load
from stepsim.network.one_collective import probe_collective
from stepsim.network.topology import Topology
from stepsim.network.topology.exchange import exchange as exchange_of

SIZES = [1, 4097, 1 << 20, 3 << 30]


def exchange(topology: Topology, members: Ints) -> FlowStep:
    return DIRECT.steps(CollectiveKind.ALL_TO_ALL, topology.layout(members))[0]


def same_loads(topology: Topology, groups: Ints) -> bool:
    """Whether symmetry was of use; where it was, loads and paths are those of the pairs."""
    step = exchange(topology, np.atleast_2d(groups)[0])
    if any(exchange_of(topology, group) is None for group in np.atleast_2d(groups)):
        return False
    pairs, found = (step_load(topology, groups, each) for each in (step.listed, step))
    assert found.links.tolist() == pairs.links.tolist()
    assert np.allclose(found.loads, pairs.loads, rtol=1e-12, atol=0)
    assert {*map(tuple, found.hops.tolist())} == {*map(tuple, pairs.hops.tolist())}
    pair_by_pair, alike = (of_each_group(topology, groups, each) for each in (step.listed, step))
    assert alike[0].tolist() == pair_by_pair[0].tolist()
    assert np.allclose(alike[1], pair_by_pair[1], rtol=1e-12, atol=0)
    return True


def of_each_group(topology: Topology, groups: Ints, step: FlowStep) -> Summand:
    """Links of each group apart, numbered one group after the other, and what they carry."""
    several = np.atleast_2d(groups)
    load = step_load(topology, several, step, np.arange(len(several)))
    return load.links, load.loads


def groups_of(topology: Any, npus: int) -> list[Ints]:
    """All, every second, a block at the end, and one NPU of each node."""
    every, node = np.arange(npus), topology.node_size
    blocks = every.reshape(-1, node)
    found = [every, every[::2], every[npus // 2 :], every[::node], blocks[1:, :2].ravel()]
    return [group for group in found if len(group) > 1]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symmetry is used for the smallest groups too."""
    monkeypatch.setattr(flows, "_MANY", 2)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("name", topology_names())
def test_shipped_topologies(name: str) -> None:
    topology = topology_of(name)
    node = topology.node_size
    npus = min(node * max(2, (1024 if name == "spectrum-x-h100" else 128) // node), topology.npus)
    fitted = topology.fit(npus)
    used = [same_loads(fitted, group) for group in groups_of(fitted, npus)]
    assert used[0]
    if npus > node:
        assert same_loads(fitted, np.arange(npus).reshape(-1, node))


@pytest.mark.usefixtures("always")
@given(networks(), st.data())
def test_random_topologies(topology: Topology, data: st.DataObject) -> None:
    npus = min(topology.npus, 64)
    if npus < 2:
        return
    stride = data.draw(st.integers(1, max(1, npus // 2)))
    first = data.draw(st.integers(0, npus - 1))
    members = np.arange(first, npus, stride)
    if len(members) > 1:
        same_loads(topology, members)
    some = data.draw(st.lists(st.integers(0, npus - 1), min_size=2, max_size=20, unique=True))
    same_loads(topology, np.array(some))


@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize("name", topology_names())
def test_prices_are_the_same_to_the_picosecond(
    name: str, missing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = topology_of(name)
    npus = min(192, topology.npus)
    fitted, kind = topology.fit(npus), CollectiveKind.ALL_TO_ALL
    found = []
    for many in (2, 1 << 30):
        monkeypatch.setattr(flows, "_MANY", many)
        probe = probe_collective(fitted, kind, SIZES, range(npus - missing))
        found.append([(row.time_ps, row.latency_ps, row.algorithm) for row in probe.rows])
    assert found[0] == found[1]


def test_what_is_no_grid_is_priced_pair_by_pair() -> None:
    topology = topology_of("tpu-v4").fit(128)
    assert exchange_of(topology, np.array([0, 1, 4])) is None


def test_sixteen_thousand_ranks_are_no_matter() -> None:
    topology, kind = topology_of("hgx-h100").fit(16384), CollectiveKind.ALL_TO_ALL
    row = probe_collective(topology, kind, [1 << 20], range(16384)).rows[0]
    (busiest,) = (each.busiest_bytes for each in row.links if each.name == "fabric")
    assert busiest == pytest.approx((1 << 20) * 2047 / 2048)  # to all other nodes, by its own NIC
