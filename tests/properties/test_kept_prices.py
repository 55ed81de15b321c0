"""What is kept of steps that have run changes no number of those that follow."""

from pathlib import Path
from typing import Any

import pytest
from helpers import examples, two_levels
from hypothesis import given
from hypothesis import strategies as st
from jobs import asked
from random_jobs import Job, circumstances, jobs, networks

from stepsim.base.structs import replace
from stepsim.explore.sweep.axes import parse_axis
from stepsim.explore.sweep.evaluate import ScenarioGroup, Simulation
from stepsim.explore.sweep.grid import Grid, ScenarioSpan
from stepsim.explore.sweep.study import Study
from stepsim.files.load import topology_of, workload_of
from stepsim.graph.build import TaskGraph, build_taskgraph
from stepsim.network.prices import Prices
from stepsim.network.topology import Topology
from stepsim.network.topology.nested import is_fixed, leaders, same_but_numbers, with_values
from stepsim.step.totals import ready_step, step_totals

BANDWIDTHS = st.sampled_from([1e9, 3e9, 5e10, 4.5e11, float("inf")])
LATENCIES = st.sampled_from([0, 500, 90_000])


@given(job=jobs(), network=networks(), data=st.data())
@examples(8)
def test_prices_of_other_numbers_change_none(
    job: Job, network: Topology, data: st.DataObject
) -> None:
    """Each step on a network of other numbers is what it is by itself."""
    chosen = data.draw(circumstances(job))
    chosen["contention"] = data.draw(st.sampled_from(["none", "siblings", "fair", "fair"]))
    options = asked(**job.options(), **chosen)
    names = [name for name in dict.fromkeys(leaders(network)) if not is_fixed(network, name)]
    known: list[Prices] = []
    like = ready_step(job.workload, network, options, known)
    for _ in range(3):
        values = {f"{name}.bandwidth": data.draw(BANDWIDTHS) for name in names}
        values |= {f"{name}.latency": data.draw(LATENCIES) for name in names}
        values["launch_latency"] = data.draw(LATENCIES)
        changed = with_values(network, values)
        alone = step_totals(job.workload, changed, options, breakdown=True, known=[])
        for same in (None, like):
            kept = step_totals(
                job.workload, changed, options, breakdown=True, known=known, like=same
            )
            assert kept == alone


def test_a_fair_step_keeps_who_shares_which_links(moe: Path) -> None:
    """One quotient serves all bandwidths at which the same algorithms are taken."""
    workload, topology = workload_of(moe), topology_of("hgx-h100")
    known: list[Prices] = []
    for bandwidth in (40e9, 50e9, 60e9):
        changed = with_values(topology, {"fabric.bandwidth": bandwidth})
        options = asked(contention="fair")
        step_totals(workload, changed, options, breakdown=False, known=known)
    assert all(each.quotients is known[0].quotients for each in known)
    assert len(known[0].quotients) == 1


def test_a_fair_sweep_writes_one_graph(moe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scenarios of links of other numbers are priced anew on it, with the results of each alone."""
    axes = tuple(map(parse_axis, ("fabric.bandwidth=40GB/s,50GB/s,inf", "fabric.latency=0ps,3us")))
    study = Study(
        workload=workload_of(moe),
        topology=topology_of("hgx-h100"),
        grid=Grid(axes=axes),
        options=asked(contention="fair"),
        breakdown=True,
    )
    columns = study.grid.columns(ScenarioSpan(0, study.grid.size))
    graphs = []

    def counted(*arguments: Any) -> TaskGraph:
        graphs.append(arguments)
        return build_taskgraph(*arguments)

    monkeypatch.setattr("stepsim.step.prepared.build_taskgraph", counted)
    shared = ScenarioGroup(study=study, settings={})
    found = Simulation().prepare(shared).evaluate(columns)
    assert len(graphs) == 1
    assert not found.errors
    for i in range(study.grid.size):
        alone = Simulation().prepare(shared).evaluate({k: v[i : i + 1] for k, v in columns.items()})
        assert alone.step_time_ps == found.step_time_ps[i]
        assert alone.parts_ps is not None
        assert found.parts_ps is not None
        assert (alone.parts_ps == found.parts_ps[i]).all()


@pytest.mark.parametrize("other", [{"nodes": 3}, {}])
def test_networks_that_differ_in_more_than_numbers_are_told_apart(other: dict[str, int]) -> None:
    one = two_levels()
    numbers = {"launch_latency": 7.0}
    numbers |= {f"{link.name}.bandwidth": 5e9 for link in one.link_classes}
    assert same_but_numbers(one, with_values(two_levels(**other), numbers)) == (not other)
    assert not same_but_numbers(one, replace(two_levels(), algorithms=("ring",)))
