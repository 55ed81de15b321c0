"""A batch gives what the engine gives for each of its scenarios, to the picosecond."""

from typing import Any

import numpy as np
import pytest
from helpers import examples
from hypothesis import given
from hypothesis import strategies as st
from jobs import make_batch
from random_jobs import Job, jobs, networks

from stepsim.explore.batch.scenarios import HOST
from stepsim.face import simulate
from stepsim.graph import actions
from stepsim.graph.actions import Task
from stepsim.network.topology import Topology
from stepsim.network.topology.nested import leaders, with_values
from stepsim.workload.rows import Phase
from stepsim.workload.scaling import ComputeScale

Values = dict[str, float]

BANDWIDTHS = st.sampled_from([1e9, 3.3e10, 4.5e11, float("inf")]) | st.floats(1e8, 1e12)
TIMES = st.sampled_from([0, 0, 700]) | st.integers(0, 3_000_000)
FACTORS = st.sampled_from([1.0, 0.5, 1e-9]) | st.floats(0.01, 3.0)


def columns_of(topology: Topology) -> dict[str, st.SearchStrategy[float]]:
    found: dict[str, st.SearchStrategy[float]] = {"launch_latency": TIMES}
    for link in set(leaders(topology)):
        found[f"{link}.bandwidth"] = BANDWIDTHS
        found[f"{link}.latency"] = TIMES
        found[f"{link}.endpoint_latency"] = TIMES
        found[f"{link}.efficiency"] = st.floats(0.1, 1.0)
    return found


def of_tasks() -> dict[str, st.SearchStrategy[float]]:
    times: dict[str, st.SearchStrategy[float]] = dict.fromkeys(
        ("host_overhead", "get_batch", "loss_time"), TIMES
    )
    return times | {f"compute_scale.{phase}": FACTORS for phase in Phase}


def options_of(values: Values) -> dict[str, Any]:
    """Arguments of `simulate` for the values of a scenario that are not the network's."""
    scale = ComputeScale(**{str(p): values.get(f"compute_scale.{p}", 1.0) for p in Phase})
    times: dict[str, Any] = {
        name: f"{values[name]} ps"
        for name in ("host_overhead", "get_batch", "loss_time")
        if name in values
    }
    return times | {"compute_scale": scale}


@examples(80)
@given(job=jobs(), network=networks(), data=st.data())
@pytest.mark.parametrize("coalesce", [True, False])
def test_a_batch_equals_the_engine(
    coalesce: bool, job: Job, network: Topology, data: st.DataObject
) -> None:
    slow = data.draw(st.sampled_from([None, "0:1.3"]))
    folds = data.draw(st.booleans())
    options: dict[str, Any] = {**job.options(), "slow": slow}
    batch = make_batch(job.workload, network, fold_ranks=folds, coalesce=coalesce, **options)
    names = columns_of(network) | ({} if batch.fixed else of_tasks())
    chosen = data.draw(st.lists(st.sampled_from(sorted(names)), max_size=5, unique=True))
    count = data.draw(st.integers(1, 3))
    columns = {
        name: data.draw(st.lists(names[name], min_size=count, max_size=count)) for name in chosen
    }
    found, totals = batch.evaluate(columns, parts=True), batch.evaluate(columns)
    for name in ("step_time_ps", "pipeline_time_ps", "bubble_fraction"):
        assert np.array_equal(getattr(totals, name), getattr(found, name)), name
    ranks = batch.parts(batch.scenarios(columns))[batch.actors.actor_of]
    for i in range(len(found.step_time_ps)):
        values = {name: column[i] for name, column in columns.items()}
        report = simulate(
            job.workload, with_values(network, values), **options, **options_of(values)
        ).report
        assert found.step_time_ps[i] == report.step_time_ps
        assert found.pipeline_time_ps[i] == report.pipeline_time_ps
        assert found.bubble_fraction[i] == report.bubble_fraction
        assert found.parts_ps is not None
        assert found.parts_ps[i].tolist() == list(report.mean_breakdown_ps().values())
        assert np.array_equal(ranks[:, :, i], report.breakdown[report.actor_of])


@examples(30)
@given(job=jobs(), network=networks(), label=st.sampled_from(["loss", "host", "get_batch", "any"]))
def test_no_time_depends_on_a_label(job: Job, network: Topology, label: str) -> None:
    """Tasks of all kinds bear the name of host times, and their times are what they were."""
    options = job.options()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(actions, "Task", lambda **fields: Task(**{**fields, "label": label}))
        batch = make_batch(job.workload, network, **options)
        times = {} if batch.fixed else dict(zip(HOST, ([500], [1500], [2500]), strict=True))
        found = batch.evaluate(times)
    host: dict[str, Any] = {name: f"{ps} ps" for name, (ps,) in times.items()}
    report = simulate(job.workload, network, **options, **host).report
    assert found.step_time_ps[0] == report.step_time_ps
