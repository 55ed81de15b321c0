"""Compiled passes give what columns give, on any graph."""

import sys
from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepsim.base.arrays import Lists
from stepsim.engine import compiled, nodes
from stepsim.engine.compiled import CompiledPasses, compiled_passes

_Graph = tuple[Lists, list[int]]


@st.composite
def _graphs(draw: st.DrawFn) -> _Graph:
    """What each of some nodes waits for, and how long it takes; in some graphs not all can run."""
    count = draw(st.integers(1, 12))
    most = draw(st.sampled_from(["earlier", "any"]))
    after = [
        draw(
            st.lists(
                st.integers(0, (i if most == "earlier" else count) - 1), max_size=3, unique=True
            )
        )
        if i or most == "any"
        else []
        for i in range(count)
    ]
    return Lists.of(after), draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))


def _columns(after: Lists) -> tuple[list[set[int]], list[int]]:
    order, levels = nodes._levels(after.counts, after.turned(len(after)))
    bounds = [*levels.tolist(), len(after)]
    return [set(order[a:b].tolist()) for a, b in pairwise(bounds)], bounds


def _check(graph: _Graph, passes: CompiledPasses) -> None:
    after, durations = graph
    followers = after.turned(len(after))
    order, levels = passes.levels(after.counts, followers.starts, followers.values)
    bounds = [*levels.tolist(), len(after)]
    found = [set(order[a:b].tolist()) for a, b in pairwise(bounds)]
    assert (found, bounds) == _columns(after)
    if levels[-1] < len(after):
        return
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    sorted_after = Lists.of([[int(place[i]) for i in after[node]] for node in order.tolist()])
    made = nodes.NodeGraph(node_of=(), after=sorted_after, levels=levels)
    ends, times = np.tile(np.array(durations, dtype=np.int64)[order], (2, 1))
    passes.longest_path(sorted_after.starts, sorted_after.values, ends)
    nodes._by_levels(made, times)
    assert ends.tolist() == times.tolist()


@given(_graphs())
def test_the_loops_that_are_compiled_say_what_columns_say(graph: _Graph) -> None:
    _check(graph, CompiledPasses(compiled._node_levels, compiled._longest_ends))


@pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed")
@settings(deadline=None, max_examples=50)
@given(_graphs())
def test_machine_code_says_what_columns_say(graph: _Graph) -> None:
    passes = compiled_passes(1 << 60)
    assert passes is not None
    _check(graph, passes)


@pytest.mark.parametrize("edges", [0, 10])
def test_small_graphs_are_columns(edges: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh: Callable[[], None] = compiled._passes.cache_clear
    fresh()
    assert compiled_passes(edges) is None
    monkeypatch.setitem(sys.modules, "numba", None)  # it cannot be imported, here or at all
    for found in (None, object()):
        monkeypatch.setattr(compiled, "find_spec", lambda name, found=found: found)
        assert compiled_passes(1 << 60) is None
        fresh()
