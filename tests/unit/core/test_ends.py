"""When everything ends: closed forms, a plain reading of the rule, many cases, and circles."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from helpers import examples
from hypothesis import given, strategies as st

from stepsim.base.arrays import Ints, Lists
from stepsim.base.errors import SimulationError
from stepsim.base.structs import replace
from stepsim.core import ends as module
from stepsim.core.ends import ends, listed_waits, ordered_waits
from stepsim.run.spans import NodeWaits


@dataclass(frozen=True)
class Graph:
    """Nodes in an order that can run: what each waits for, and how long it takes in each case."""

    after: list[list[int]]
    durations: list[list[int]]

    @property
    def pairs(self) -> Ints:
        rows = [before << 32 | node for node, after in enumerate(self.after) for before in after]
        return np.array(rows, dtype=np.int64)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    count, cases = draw(st.integers(1, 12)), draw(st.integers(1, 3))
    after = [
        draw(st.lists(st.integers(0, node - 1), max_size=3, unique=True)) if node else []
        for node in range(count)
    ]
    times = st.lists(st.integers(0, 9), min_size=cases, max_size=cases)
    return Graph(after, draw(st.lists(times, min_size=count, max_size=count)))


def longest_path(after: Sequence[Sequence[int]], durations: Sequence[int], node: int) -> int:
    """The rule, read as it stands."""
    begin = max((longest_path(after, durations, before) for before in after[node]), default=0)
    return begin + durations[node]


@given(graphs())
@examples(100)
def test_every_way_gives_the_longest_paths(graph: Graph) -> None:
    durations = np.array(graph.durations, dtype=np.int64)
    expected = [
        [longest_path(graph.after, case, node) for case in durations.T.tolist()]
        for node in range(len(graph.after))
    ]
    listed = listed_waits(graph.after)
    place, waits = ordered_waits(lambda: graph.pairs, len(graph.after))
    by_place = np.argsort(place)
    assert np.stack(ends(listed, list(durations))).tolist() == expected
    assert ends(waits, durations[by_place])[place].tolist() == expected
    for case, column in enumerate(durations.T):
        wanted = [row[case] for row in expected]
        assert ends(listed, column).tolist() == wanted
        assert ends(waits, column[by_place])[place].tolist() == wanted


@given(graphs())
@examples(50)
def test_large_graphs_are_columns_and_say_the_same(graph: Graph) -> None:
    durations = np.array(graph.durations, dtype=np.int64)[:, 0]
    place, waits = ordered_waits(lambda: graph.pairs, len(graph.after))
    ordered = durations[np.argsort(place)]
    few = ends(waits, ordered)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "_FEW_NODES", 0)
        patched.setattr(module, "_NARROW", 0)
        assert ends(waits, ordered).tolist() == few.tolist()
        again, others = ordered_waits(lambda: graph.pairs, len(graph.after))
        assert ends(others, durations[np.argsort(again)])[again].tolist() == few[place].tolist()


def test_a_chain_ends_after_the_sum_and_a_fork_after_the_longest() -> None:
    times = np.array([3, 5, 2, 4], dtype=np.int64)
    assert ends(listed_waits([[], [0], [1], [2]]), times).tolist() == [3, 8, 10, 14]
    assert ends(listed_waits([[], [0], [0], [1, 2]]), times).tolist() == [3, 8, 5, 12]


def test_only_the_results_are_kept() -> None:
    waits = replace(listed_waits([[], [0], [0], [1, 2]]), results=(3, 0))
    vectors = [np.array([1, 10]), np.array([2]), np.array([3, 0]), np.array([0])]
    last, first = ends(waits, vectors)
    assert last.tolist() == [4, 12]
    assert first.tolist() == [1, 10]


def test_a_node_may_see_another_from_its_own_side() -> None:
    """Two ranks meet two others: the transfer of rank i waits for the ranks that it names."""
    after = Lists.of([[], [0]])

    def crossed(end: Ints) -> Ints:
        return end[::-1]

    waits = NodeWaits(after=after, views=((), (crossed,)))
    assert ends(waits, [np.array([5, 7]), np.array([1])])[1].tolist() == [8, 6]


def test_ends_may_take_the_place_of_durations() -> None:
    times = np.array([3, 5], dtype=np.int64)
    assert ends(listed_waits([[], [0]]), times, out=times) is times
    assert times.tolist() == [3, 8]


def test_nodes_in_a_circle_are_behind_the_last_level() -> None:
    pairs = np.array([0 << 32 | 1, 1 << 32 | 2, 2 << 32 | 1, 2 << 32 | 3], dtype=np.int64)
    place, waits = ordered_waits(pairs.copy, 4)
    assert waits.runnable == 1
    assert place[0] == 0


def test_levels_are_the_longest_chains_before_nodes() -> None:
    pairs = np.array([3 << 32 | 0, 0 << 32 | 1, 3 << 32 | 2, 2 << 32 | 1], dtype=np.int64)
    place, waits = ordered_waits(pairs.copy, 4)
    assert waits.levels is not None
    assert waits.levels.tolist() == [0, 1, 3, 4]
    assert place.tolist() == [1, 3, 2, 0]


def test_a_path_that_does_not_fit_is_refused() -> None:
    with pytest.raises(SimulationError, match="106 days"):
        ends(listed_waits([[], [0]]), np.full(2, 2**62, dtype=np.int64))
