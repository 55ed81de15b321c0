"""Runs in which no two transfers meet on a link need no events."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import asked

from stepsim.engine import nodes, run
from stepsim.engine.lay_out import lay_out
from stepsim.files.load import topology_of, workload_of
from stepsim.network.contention import find_contention
from stepsim.network.flights import Fabric, Transfer, TransferPhase
from stepsim.network.prices import Prices
from stepsim.network.topology.nested import with_values
from stepsim.step.prepared import prepare
from stepsim.step.totals import step_totals


def transfer(*phases: tuple[int, int, int], level: float = 1e9) -> Transfer:
    """Phases of a latency and of bytes on a link, in ps."""
    return Transfer(
        phases=tuple(
            TransferPhase(
                latency_ps=latency_ps,
                alone_ps=alone_ps,
                link=np.array([link]),
                load=np.ones(1),
                own_level=level,
                level=level,
            )
            for latency_ps, alone_ps, link in phases
        )
    )


@pytest.mark.parametrize(
    ("transfers", "starts", "meet"),
    [
        pytest.param([transfer((0, 10, 0))] * 2, [0, 10], False, id="one after the other"),
        pytest.param([transfer((0, 10, 0))] * 2, [9, 0], True, id="one during the other"),
        pytest.param([transfer((0, 10, 0))] * 2, [0, 0], True, id="at the same time"),
        pytest.param([transfer((0, 10, 0)), transfer((0, 10, 1))], [0, 0], False, id="other link"),
        pytest.param([transfer((0, 10, 0)), transfer((10, 5, 0))], [0, 0], False, id="latency"),
        pytest.param(
            [transfer((0, 10, 1), (5, 10, 0)), transfer((0, 15, 0))], [0, 0], False, id="phases"
        ),
        pytest.param(
            [transfer((0, 10, 1), (5, 10, 0)), transfer((0, 16, 0))], [0, 0], True, id="phase"
        ),
        pytest.param([transfer((0, 10, 0)), transfer((0, 0, 0))], [0, 5], True, id="no time"),
        pytest.param([transfer((0, 10, 0)), transfer((0, 0, 0))], [0, 10], False, id="no time end"),
    ],
)
def test_transfers_meet_where_both_have_bytes_on_a_link(
    transfers: list[Transfer], starts: list[int], meet: bool
) -> None:
    flights = nodes._Flights(np.arange(len(starts)), np.array(starts))
    assert nodes._meet(transfers, flights) is meet


def test_whether_flights_meet_is_told_case_by_case() -> None:
    """Two on link 4 and one on link 7: the second begins at 10, 9 and 0, where the first ends."""
    begin = np.array([[0, 0, 10], [10, 9, 0], [5, 5, 5]])
    end = begin + 10
    assert nodes.any_meet(np.array([4, 4, 7]), begin, end).tolist() == [False, True, False]
    levels = np.array([[1.0, 1.0, np.inf], [2.0, 1.0 + 1e-12, np.inf]])
    assert nodes.any_near(levels).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("factor", "near"), [(1, False), (1 + 1e-12, True), (1 + 1e-10, False), (np.inf, False)]
)
def test_levels_that_rounding_may_join_are_left_to_the_events(factor: float, near: bool) -> None:
    several = [transfer((0, 10, 0), level=level) for level in (1e9, 1e9 * factor)]
    assert nodes._are_near(several) is near


@pytest.mark.parametrize(
    ("name", "more", "is_apart"),
    [
        ("gpt_tp4", {"pp": 4, "microbatches": 8}, True),
        ("moe_128", {"p2p": "blocking"}, True),
        ("moe_128", {"p2p": "eager"}, False),
        ("moe_128", {"dp_overlap": True}, False),
    ],
)
def test_times_are_those_of_the_events(name: str, more: dict[str, object], is_apart: bool) -> None:
    workload = workload_of(Path(__file__).parents[3] / "workloads" / f"{name}.txt")
    ready = prepare(workload, topology_of("hgx-h100"), asked(contention="fair", **more))
    links = find_contention(
        ready.prices, ready.graph.uses, ready.graph.streams(), None, fold_ranks=True
    )
    actors, plan = links.quotient.actors, ready.graph.plan
    runnable = lay_out(ready.graph, actors, ready.prices, contention=links)
    found = nodes.run_apart(runnable, actors, plan)
    assert (found is not None) is is_apart
    if found:
        starts, ends = run.run(runnable, actors, plan, Fabric(capacity=links.capacity))
        times = found.of_tasks()
        for mine, theirs in zip((*times[0], *times[1]), (*starts, *ends), strict=True):
            assert (mine == np.asarray(theirs)).all()


@pytest.mark.parametrize(("p2p", "tries"), [("eager", 1), ("blocking", 3)])
def test_a_sweep_whose_transfers_meet_is_not_tried_again(
    p2p: str, tries: int, moe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, tried, find = list[Prices](), list[bool](), nodes.run_apart

    def counted(*given: Any) -> object:
        found = find(*given)
        tried.append(found is not None)
        return found

    monkeypatch.setattr(nodes, "run_apart", counted)
    workload, topology = workload_of(moe), topology_of("hgx-h100")
    for bandwidth in (40e9, 50e9, 60e9):
        changed = with_values(topology, {"fabric.bandwidth": bandwidth})
        options = asked(contention="fair", p2p=p2p)
        found = step_totals(workload, changed, options, breakdown=True, known=known)
        events = asked(contention="fair", p2p=p2p, engine="simpy")
        assert found == step_totals(workload, changed, events, breakdown=True, known=[])
    assert tried == [p2p == "blocking"] * tries
