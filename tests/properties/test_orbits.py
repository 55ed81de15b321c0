"""Ranks and links that no number tells apart: one of each orbit says what all would say."""

import json
from typing import Any

import numpy as np
import pytest
from helpers import examples
from hypothesis import given, strategies as st
from msgspec.structs import asdict
from random_jobs import Job, jobs

import stepsim
from stepsim.files.load import topology_of
from stepsim.network.groups import turns_of_ranks
from stepsim.network.topology import Dimension, DimensionKind, LinkClass, NestedTopology
from stepsim.network.topology.placed import Turn
from stepsim.network.topology.wirings import Ports, TreeShape
from stepsim.parallel.modes import RankOrder
from stepsim.parallel.ranks import ParallelPlan
from stepsim.workload.rows import Group


class Rigid(NestedTopology, frozen=True):
    """A network of which nobody knows that it turns."""

    def turns(self, turn: Turn) -> bool:
        """No digit does."""
        return False


def rigid(network: NestedTopology) -> NestedTopology:
    """The same network, looked at rank by rank and link by link."""
    return Rigid(**asdict(network))


def dimension(kind: str, size: int, name: str, **options: Any) -> Dimension:
    link = LinkClass(name=name, bandwidth=4e9 if name == "inner" else 1e9, latency_ps=500)
    return Dimension(kind=DimensionKind(kind), size=size, link=link, **options)


@st.composite
def networks(draw: st.DrawFn, npus: int) -> NestedTopology:
    """Two dimensions of all kinds, with room for so many NPUs."""
    inside = draw(st.sampled_from([1, 2, 3, 4, 8]))
    kinds = ["switch", "rail", "ring", "line", "fully_connected", "fat_tree", "cables"]
    inner, outer = draw(st.sampled_from(kinds)), draw(st.sampled_from(kinds))
    blocks = -(-npus // inside) + draw(st.integers(0, 1))
    ports: dict[str, Any] = {}
    if outer == "switch" and draw(st.booleans()):
        ports["ports"] = Ports(npus_per_nic=inside)
    elif outer == "rail" and draw(st.booleans()):
        ports["ports"] = Ports(nics=2)
    elif outer == "fat_tree":
        ports["rails"] = draw(st.booleans())
        leaf = draw(st.sampled_from([2, 4]))
        blocks = -(-blocks // leaf) * leaf
        ports["tree"] = TreeShape(down=(leaf if ports["rails"] else leaf * inside, 2), up=(1, 1))
        blocks = -(-blocks // (2 * leaf)) * 2 * leaf
    return NestedTopology(
        name="net",
        source="test",
        dimensions=(dimension(inner, inside, "inner"), dimension(outer, blocks, "outer", **ports)),
    )


@given(job=jobs(), data=st.data())
@examples(30)
def test_orbits_change_no_number(job: Job, data: st.DataObject) -> None:
    """All that is said of a step is the same on a network that nobody knows to turn."""
    network = data.draw(networks(job.workload.made_for.npus or 1))
    asked: dict[str, Any] = {
        "contention": data.draw(st.sampled_from(["none", "siblings", "siblings", "fair"])),
        "rank_order": data.draw(st.sampled_from([str(order) for order in RankOrder])),
    }
    one, other = (
        json.loads(stepsim.simulate(job.workload, each, **job.options(), **asked).to_json())
        for each in (network, rigid(network))
    )
    assert same(one, other)


def same(one: Any, other: Any) -> bool:
    """Whether two documents say the same, but for the order in which floats were added up."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == (pytest.approx(other, rel=1e-12) if isinstance(one, float) else other))


@pytest.mark.parametrize("name", ["hgx-h100", "tpu-v4", "spectrum-x-h100", "rail-only-h100"])
@pytest.mark.parametrize("order", RankOrder)
def test_a_turned_network_is_itself(name: str, order: RankOrder) -> None:
    """Flows between NPUs moved by a turn cross the links moved by it."""
    plan = ParallelPlan(tp=8, dp=8, pp=16, rank_order=order)
    network = topology_of(name).fit(plan.npus)
    random = np.random.default_rng(1)
    starts, ends = random.integers(0, plan.npus, (2, 200))
    load = network.load(starts, ends, np.ones(200))
    for turn in turns_of_ranks(plan, [Group.TP, Group.DP], network):
        low, high = plan.npu_digit(*turn)
        assert network.turns((low, high))
        if not network.moves_links((low, high)):
            continue

        def turned(npus: Any, low: int = low, high: int = high) -> Any:
            return npus + ((npus // low + 1) % (high // low) - npus % high // low) * low

        moved = network.load(turned(starts), turned(ends), np.ones(200))
        links = network.moved(load.links, turned(network.place_of(load.links)))
        order_of = np.argsort(links)
        assert np.array_equal(links[order_of], moved.links)
        assert np.array_equal(load.loads[order_of], moved.loads)


def test_ranks_of_a_stage_turn_where_nodes_are_alike() -> None:
    """With tp 8 in a node of 8 and dp over nodes that are all alike, a stage's ranks are one."""
    plan = ParallelPlan(tp=8, dp=8192, pp=16)
    network = topology_of("hgx-h100").fit(plan.npus)
    turns = turns_of_ranks(plan, [Group.TP, Group.DP], network)
    assert turns == ((1, 8), (8, 65536))


def test_groups_that_are_not_nested_have_no_orbits() -> None:
    """Six replicas in shards of two and experts of three: neither span holds the other."""
    plan = ParallelPlan(tp=1, dp=6, ep=3, fsdp=2)
    network = topology_of("ideal").fit(6)
    assert turns_of_ranks(plan, [Group.EP, Group.FSDP], network) == ()
    assert turns_of_ranks(plan, [Group.EP], network) == ((1, 3), (3, 6))
