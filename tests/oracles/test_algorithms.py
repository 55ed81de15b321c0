"""Closed forms of the algorithms on their natural networks, to the ps, and who gets what."""

from fractions import Fraction
from itertools import product
from math import ceil, log2

import numpy as np
import pytest
from networks import load_between

from stepsim.base.axes import CollectiveKind
from stepsim.base.errors import PlanError
from stepsim.base.structs import replace
from stepsim.network.collectives import (
    Algorithm,
    AlgorithmChoice,
    FlowStep,
    candidates,
    collective_cost,
    collective_shape,
    flow_steps,
    parse_algorithm,
)
from stepsim.network.collectives.algorithms import able_algorithms, refusal
from stepsim.network.collectives.double_binary_tree import double_tree, tree_depth
from stepsim.network.collectives.flows import levels_of
from stepsim.network.topology import Dimension, DimensionKind, Layout, LinkClass, NestedTopology

RING, SWITCH = DimensionKind.RING, DimensionKind.SWITCH
RAIL, CONNECTED = DimensionKind.RAIL, DimensionKind.FULLY_CONNECTED
AR, AG = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER
RS, A2A = CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL
ROUNDS = {AR: 2, AG: 1, RS: 1}
NVLS = parse_algorithm("nvls")
RATE, HOP_PS, SIZE = 50e9, 500_000, 123_456_789


def network(
    *dimensions: tuple[DimensionKind, int], rates: tuple[float, ...] = ()
) -> NestedTopology:
    return NestedTopology(
        name="network",
        source="test",
        dimensions=tuple(
            Dimension(
                kind=kind,
                size=size,
                link=LinkClass(
                    name=f"d{i}", bandwidth=rates[i] if rates else RATE, latency_ps=HOP_PS
                ),
            )
            for i, (kind, size) in enumerate(dimensions)
        ),
    )


def time_ps(topology: NestedTopology, kind: CollectiveKind, name: str) -> int:
    members = np.arange(topology.npus)
    shape = collective_shape(topology, kind, members, parse_algorithm(name))
    return collective_cost(topology, shape, SIZE).time_ps


def step(hops: int, share: float) -> int:
    """One step of `share` of the size over the busiest link."""
    return round(hops * HOP_PS + share * SIZE / RATE * 1e12)


@pytest.mark.parametrize("kind", ROUNDS)
@pytest.mark.parametrize("ranks", [2, 3, 4, 7, 8])
def test_bidirectional_ring_halves_the_steps(kind: CollectiveKind, ranks: int) -> None:
    """Both directions carry S/n; the opposite block of an even ring comes half from each side.

    Two ranks have one cable, which carries both halves.
    """
    last = step(1, 1 / ranks / (1 if ranks == 2 else 2)) if ranks % 2 == 0 else 0
    expected = (ranks - 1) // 2 * step(1, 1 / ranks) + last
    assert time_ps(network((RING, ranks)), kind, "bidirectional_ring") == ROUNDS[kind] * expected


@pytest.mark.parametrize("kind", ROUNDS)
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_direct_on_fully_connected_takes_one_block(kind: CollectiveKind, ranks: int) -> None:
    expected = ROUNDS[kind] * step(1, 1 / ranks)
    assert time_ps(network((CONNECTED, ranks)), kind, "direct") == expected


@pytest.mark.parametrize("kind", ROUNDS)
@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_halving_doubling_on_a_switch(kind: CollectiveKind, ranks: int) -> None:
    halves = [step(2, 1 / 2 ** (k + 1)) for k in range(int(log2(ranks)))]
    assert time_ps(network((SWITCH, ranks)), kind, "halving_doubling") == ROUNDS[kind] * sum(halves)


def test_halving_doubling_of_five_and_six_ranks() -> None:
    """One pair of five hands over: all of it and back for an all-reduce; its partner serves two
    blocks in a reduce-scatter, and gives one back. Six: two pairs."""
    five = network((SWITCH, 5))
    core = step(2, 1 / 2) + step(2, 1 / 4)
    assert time_ps(five, AR, "halving_doubling") == 2 * (step(2, 1) + core)
    # blocks 2, 1, 1, 1 of the core: its first rank keeps blocks 0 and 2 of positions, sends 2
    exchanges = step(2, 3 / 5) + step(2, 2 / 5)
    scatter = step(2, 4 / 5) + exchanges + step(2, 1 / 5)
    assert time_ps(five, RS, "halving_doubling") == scatter
    assert time_ps(five, AG, "halving_doubling") == scatter
    six = network((SWITCH, 6))
    expected = step(2, 5 / 6) + step(2, 3 / 6) + step(2, 2 / 6) + step(2, 1 / 6)
    assert time_ps(six, RS, "halving_doubling") == expected


@pytest.mark.parametrize("ranks", [4, 7, 8, 16, 31])
def test_double_binary_tree_moves_the_size_twice_and_fills_twice_its_depth(ranks: int) -> None:
    """Sanders, Speck, Traeff: a rank passes on half of the data in one tree, up and down: 2S."""
    depth = max(tree_depth(parents) for parents in double_tree(ranks))
    cost = time_ps(network((SWITCH, ranks)), AR, "double_binary_tree")
    assert cost == (2 * depth - 1) * step(2, 0) + step(2, 2.0)
    assert depth <= ceil(log2(ranks)) + 1


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8, 9, 16, 33])
def test_two_trees_span_all_nodes_and_pass_on_in_one_only(ranks: int) -> None:
    trees = double_tree(ranks)
    for parents in trees:
        assert np.count_nonzero(parents < 0) == 1
        assert tree_depth(parents) <= ceil(log2(ranks)) + 1
    children = np.stack([np.bincount(p[p >= 0], minlength=ranks) for p in trees])
    assert children.max() <= 2
    inner_twice = np.count_nonzero((children > 0).all(axis=0))
    assert inner_twice <= 2, "only roots, with one child each"


@pytest.mark.parametrize("name", ["ring", "double_binary_tree"])
@pytest.mark.parametrize("kind", [CollectiveKind.BROADCAST, CollectiveKind.REDUCE])
def test_pipelined_broadcasts_move_the_size_once(kind: CollectiveKind, name: str) -> None:
    ranks = 9
    stages = ranks - 1 if name == "ring" else 1 + tree_depth(double_tree(ranks - 1)[0])
    expected = (stages - 1) * step(2, 0) + step(2, 1.0)
    assert time_ps(network((SWITCH, ranks)), kind, name) == expected


def test_a_chain_over_nodes_pays_each_hop_its_latency() -> None:
    """The longest of eight chains over two nodes: 13 hops inside, two from node to node.

    It leaves the first node after the root and comes back for its other ranks.
    """
    topology = network((SWITCH, 8), (RAIL, 2))
    cost = collective_cost(
        topology,
        collective_shape(
            topology, CollectiveKind.BROADCAST, np.arange(16), parse_algorithm("ring")
        ),
        SIZE,
    )
    assert cost.latency_ps == (13 * 2 + 2 * 4) * HOP_PS


@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 8])
@pytest.mark.parametrize("kind", [CollectiveKind.SCATTER, CollectiveKind.GATHER])
def test_scatter_and_gather(kind: CollectiveKind, ranks: int) -> None:
    """Direct: the root's port carries all other blocks; tree: the steps' largest shares."""
    topology = network((SWITCH, ranks))
    assert time_ps(topology, kind, "direct") == step(2, (ranks - 1) / ranks)
    distances = [1 << k for k in reversed(range((ranks - 1).bit_length()))]
    shares = [min(d, ranks - d) / ranks for d in distances]
    assert time_ps(topology, kind, "tree") == sum(step(2, share) for share in shares)


def test_ring_all_to_all_forwards_shrinking_buffers() -> None:
    expected = sum(step(1, left / 5) for left in range(1, 5))
    assert time_ps(network((RING, 5)), A2A, "ring") == expected


def reducing(layout: Layout, *, inside: bool) -> Layout:
    return Layout(
        coordinates=layout.coordinates,
        kinds=layout.kinds,
        orders=layout.orders,
        reduces=not inside,
        reduces_inside=inside,
    )


def port_shares(topology: NestedTopology, steps: list[FlowStep]) -> dict[str, float]:
    """Largest load of a link of each class, of all steps together, in sizes."""
    loads: dict[int, float] = {}
    for each in (step.listed for step in steps):
        count = len(each.edges[0])
        weights = np.broadcast_to(each.fraction, (count,)).astype(np.float64)
        load = load_between(topology, each.edges[0], each.edges[1], weights)
        for number, share in zip(load.links.tolist(), load.loads.tolist(), strict=True):
            loads[number] = loads.get(number, 0.0) + share * each.repeat
    most: dict[str, float] = {}
    for number, share in loads.items():
        name = topology.link_classes[int(topology.link_class(np.array([number]))[0])].name
        most[name] = max(most.get(name, 0.0), share)
    return most


@pytest.mark.parametrize(("kind", "share", "stages"), [(AR, 1 + 1 / 8, 2), (AG, 1, 1), (RS, 1, 1)])
def test_nvls_in_one_switch(kind: CollectiveKind, share: float, stages: int) -> None:
    topology = network((SWITCH, 8))
    steps = flow_steps(kind, reducing(topology.layout(np.arange(8)), inside=False), NVLS)
    assert sum(each.repeat for each in steps) == stages
    assert port_shares(topology, steps) == {"d0": pytest.approx(share)}


def test_nvls_tree_over_four_nodes() -> None:
    """Each NVLink port 1 + 1/8; a rail port carries an eighth, up and down, at most twice."""
    topology = network((SWITCH, 8), (RAIL, 4))
    layout = reducing(topology.layout(np.arange(32)), inside=True)
    assert NVLS.algorithm in able_algorithms(AR, layout)
    assert "only all-reduce" in refusal(AG, layout, NVLS.algorithm)
    steps = flow_steps(AR, layout, NVLS)
    shares = port_shares(topology, steps)
    assert shares["d0"] == pytest.approx(1 + 1 / 8)
    assert shares["d1"] == pytest.approx(2 / 8)
    depth = max(tree_depth(parents) for parents in double_tree(4))
    assert sum(each.repeat for each in steps) == 2 + 2 * depth


def test_trees_over_nodes_use_every_rail_and_chains_inside() -> None:
    """Eight channels of S/8: a chain hop carries one up and down, so does a tree over two nodes."""
    topology = network((SWITCH, 8), (RAIL, 2))
    steps = flow_steps(AR, topology.layout(np.arange(16)), parse_algorithm("double_binary_tree"))
    shares = port_shares(topology, steps)
    assert shares["d1"] == pytest.approx(1 / 8)
    assert shares["d0"] <= 2
    # chain of 7 hops and one tree level, up and down
    assert sum(each.repeat for each in steps) == 2 * (7 + 1)


LEVELS = ["ring", "bidirectional_ring", "direct", "halving_doubling"]


@pytest.mark.parametrize("kind", ROUNDS)
@pytest.mark.parametrize(("inner", "outer"), list(product(LEVELS, LEVELS)))
def test_hierarchical_is_its_levels_on_what_is_left(
    kind: CollectiveKind, inner: str, outer: str
) -> None:
    """4 x 4: the outer level works on a quarter. Each level is priced as a network of its own."""
    whole = time_ps(network((CONNECTED, 4), (RAIL, 4)), kind, f"hierarchical:{inner},{outer}")
    alone = network((CONNECTED, 4)), network((RAIL, 4), rates=(4 * RATE,))
    parts = time_ps(alone[0], kind, inner) + time_ps(alone[1], kind, outer)
    assert whole == pytest.approx(parts, abs=32)


def test_all_to_all_first_inside_then_on_the_rails() -> None:
    topology = network((SWITCH, 4), (RAIL, 3))
    expected = step(2, 3 / 4) + step(2, 2 / 3)
    assert time_ps(topology, A2A, "hierarchical:direct,direct") == expected


def test_per_dimension_moves_everything_everywhere() -> None:
    topology = network((RING, 4), (RAIL, 3))
    expected = 6 * step(1, 1 / 4) + 4 * step(2, 1 / 3)
    assert time_ps(topology, AR, "per_dimension:ring,ring") == expected


def test_levels_of_regular_and_irregular_groups() -> None:
    topology = network((SWITCH, 4), (RAIL, 3), (RAIL, 2))
    levels = levels_of(topology.layout(np.array([0, 1, 6, 7, 12, 13, 18, 19])))
    assert levels is not None
    assert levels.sizes == (2, 2, 2), "other places inside each node are as good"
    assert levels.groups(0).tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert levels.groups(2).tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert levels_of(topology.layout(np.array([0, 1, 4]))) is None
    layout = topology.layout(np.array([0, 1, 4]))
    with pytest.raises(PlanError, match="no regular grid: nodes hold different numbers"):
        candidates(AR, layout, parse_algorithm("hierarchical"))
    assert "hierarchical" not in {str(c.algorithm) for c in candidates(AR, layout)}


def test_switches_reduce_inside_a_group_only_where_it_has_ranks_on_one() -> None:
    topology = network((SWITCH, 4), (RAIL, 3))
    for members, inside in (([0, 1, 4, 5], True), ([0, 4, 8], False)):
        levels = levels_of(reducing(topology.layout(np.array(members)), inside=True))
        assert levels is not None
        assert levels.reduces_inside == inside


def test_exchanges_of_all_pairs_are_priced_up_to_362_ranks() -> None:
    for ranks, priced in ((362, True), (363, False)):
        layout = network((SWITCH, ranks)).layout(np.arange(ranks))
        found = {choice.algorithm for choice in candidates(AR, layout)}
        assert (Algorithm.DIRECT in found) is priced


def test_levels_must_be_named_for_every_dimension() -> None:
    layout = network((SWITCH, 4), (RAIL, 3)).layout(np.arange(12))
    with pytest.raises(PlanError, match="2 dimensions: name an algorithm for each"):
        candidates(AR, layout, parse_algorithm("hierarchical:ring"))
    with pytest.raises(PlanError, match=r"level 0 \(reduce_scatter\) cannot use double_binary"):
        candidates(AR, layout, parse_algorithm("hierarchical:double_binary_tree,ring"))
    assert str(parse_algorithm(" hierarchical: ring ,direct")) == "hierarchical:ring,direct"


# --- who has what, step by step ------------------------------------------------------------------

SHAPES = {
    "flat": network((SWITCH, 8)),
    "odd": network((SWITCH, 7)),
    "six": network((RING, 6)),
    "rails": network((SWITCH, 4), (RAIL, 3)),
    "grid": network((RING, 2), (RING, 4), (CONNECTED, 2)),
}
Unit = tuple[int, int]
PIECES = 2


def deliveries(steps: list[FlowStep], held: list[set[Unit]], parts: int) -> list[set[Unit]]:
    """Carry units of 1/parts of the size: a flow takes what its receiver lacks, oldest news first.

    A flow must be filled to the last unit, so nothing is sent in vain.
    """
    arrived = [dict.fromkeys(units, 0) for units in held]
    clock = 0
    for each in (step.listed for step in steps):
        fractions = np.broadcast_to(each.fraction, each.edges[0].shape)
        for _ in range(each.repeat):
            clock += 1
            sent = [dict(units) for units in arrived]
            for a, b, fraction in zip(
                each.edges[0].tolist(), each.edges[1].tolist(), fractions.tolist(), strict=True
            ):
                room = Fraction(fraction).limit_denominator(10**6) * parts
                assert room.denominator == 1, "units are too coarse"
                lacking = [unit for unit in sent[a] if unit not in arrived[b]]
                lacking.sort(key=lambda unit: (-sent[a][unit], unit))
                assert len(lacking) >= room, f"{a} has nothing left for {b}"
                arrived[b] |= dict.fromkeys(lacking[: int(room)], clock)
    return [set(units) for units in arrived]


def gathering(shape: str) -> list[AlgorithmChoice]:
    topology = SHAPES[shape]
    return list(candidates(AG, topology.layout(np.arange(topology.npus))))


CASES = [(shape, choice) for shape in SHAPES for choice in gathering(shape)]


@pytest.mark.parametrize(("shape", "choice"), CASES, ids=[f"{s}-{c}" for s, c in CASES])
def test_every_rank_gathers_every_block(shape: str, choice: AlgorithmChoice) -> None:
    """And backwards, a reduce-scatter brings every rank's part of every block to its owner.

    An algorithm may carry out the one and not the other.
    """
    topology = SHAPES[shape]
    layout = topology.layout(np.arange(topology.npus))
    ranks = layout.ranks
    held = [{(rank, piece) for piece in range(PIECES)} for rank in range(ranks)]
    for order in layout.orders:  # a ring each, with its share of the size
        alone = replace(layout, orders=(order,))
        after = deliveries(flow_steps(AG, alone, choice), held, ranks * PIECES)
        assert all(len(units) == ranks * PIECES for units in after)
    if refusal(RS, layout, choice.algorithm, choice.levels):
        return
    scatter, gather = flow_steps(RS, layout, choice), flow_steps(AG, layout, choice)
    assert moved(scatter) == moved(gather)[::-1] or symmetric(scatter, gather)


def moved(steps: list[FlowStep]) -> list[list[tuple[int, int, float]]]:
    """Pairs and shares of each single step, in order, whatever their direction."""
    return [
        sorted(
            (
                (min(a, b), max(a, b), round(f, 9))
                for a, b, f in zip(
                    each.edges[0].tolist(),
                    each.edges[1].tolist(),
                    np.broadcast_to(each.fraction, each.edges[0].shape).tolist(),
                    strict=True,
                )
            ),
        )
        for each in (step.listed for step in steps)
        for _ in range(each.repeat)
    ]


def symmetric(scatter: list[FlowStep], gather: list[FlowStep]) -> bool:
    """Bidirectional rings begin with their whole blocks in either case."""
    return sorted(moved(scatter)) == sorted(moved(gather))
