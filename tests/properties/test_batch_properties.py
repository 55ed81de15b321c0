"""A batch gives what the engine gives for each of its scenarios, to the picosecond."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from random import Random
from typing import Any

import numpy as np
import pytest
from helpers import examples
from hypothesis import given, strategies as st
from jobs import make_batch
from random_jobs import Job, flat, jobs, networks

from stepsim.base.axes import Phase, Stream
from stepsim.base.errors import PlanError
from stepsim.base.structs import replace
from stepsim.core import actions
from stepsim.core.actions import Task, TaskList, forward_tasks
from stepsim.explore.batch.scenarios import HOST
from stepsim.explore.noise.draws import NoiseModel
from stepsim.face.steps import noise, sensitivity, simulate
from stepsim.network.topology import Topology
from stepsim.network.topology.nested import followed, with_values
from stepsim.run.spans import TaskKind
from stepsim.workload.rows import Row
from stepsim.workload.scaling import ComputeScale

Values = dict[str, float]

BANDWIDTHS = st.sampled_from([1e9, 3.3e10, 4.5e11, float("inf")]) | st.floats(1e8, 1e12)
TIMES = st.sampled_from([0, 0, 700]) | st.integers(0, 3_000_000)
FACTORS = st.sampled_from([1.0, 0.5, 1e-9]) | st.floats(0.01, 3.0)


def columns_of(topology: Topology) -> dict[str, st.SearchStrategy[float]]:
    found: dict[str, st.SearchStrategy[float]] = {"launch_latency": TIMES}
    for link in set(followed(topology)):
        found[f"{link}.bandwidth"] = BANDWIDTHS
        found[f"{link}.latency"] = TIMES
        found[f"{link}.endpoint_latency"] = TIMES
        found[f"{link}.efficiency"] = st.floats(0.1, 1.0)
    return found


def of_tasks() -> dict[str, st.SearchStrategy[float]]:
    times: dict[str, st.SearchStrategy[float]] = dict.fromkeys(HOST, TIMES)
    return times | {f"compute_scale.{phase}": FACTORS for phase in Phase}


def options_of(values: Values) -> dict[str, Any]:
    """Arguments of `simulate` for the values of a scenario that are not the network's."""
    scale = ComputeScale(**{str(p): values.get(f"compute_scale.{p}", 1.0) for p in Phase})
    times: dict[str, Any] = {name: f"{values[name]} ps" for name in HOST if name in values}
    return times | {"compute_scale": scale}


@examples(80)
@given(job=jobs(), network=networks(), data=st.data())
@pytest.mark.parametrize("coalesce", [True, False])
def test_a_batch_equals_the_engine(
    coalesce: bool, job: Job, network: Topology, data: st.DataObject
) -> None:
    slow = data.draw(st.sampled_from([None, "0:1.3"]))
    options: dict[str, Any] = {**job.options(), "slow": slow}
    batch = make_batch(job.workload, network, coalesce=coalesce, **options)
    names = columns_of(network) | ({} if batch.fixed else of_tasks())
    chosen = data.draw(st.lists(st.sampled_from(sorted(names)), max_size=5, unique=True))
    count = data.draw(st.integers(1, 3))
    columns = {
        name: data.draw(st.lists(names[name], min_size=count, max_size=count)) for name in chosen
    }
    found, totals = batch.evaluate(columns, parts=True), batch.evaluate(columns)
    for name in ("step_time_ps", "pipeline_time_ps", "bubble_fraction"):
        assert np.array_equal(getattr(totals, name), getattr(found, name)), name
    lengths = batch.lengths(batch.scenarios(columns))
    times = batch.program.times(lengths, len(found.step_time_ps))
    ranks = batch.parts(lengths, *times)[batch.actors.actor_of]
    for i in range(len(found.step_time_ps)):
        values = {name: column[i] for name, column in columns.items()}
        step = simulate(job.workload, with_values(network, values), **options, **options_of(values))
        report = step.report
        assert found.step_time_ps[i] == report.step_time_ps
        assert found.pipeline_time_ps[i] == report.pipeline_time_ps
        assert found.bubble_fraction[i] == report.bubble_fraction
        assert found.parts_ps is not None
        assert found.parts_ps[i].tolist() == list(report.breakdown_ps.values())
        assert np.array_equal(ranks[:, :, i], step.ranks.breakdown[step.ranks.actor_of])


@examples(60)
@given(job=jobs(), network=networks(), data=st.data())
def test_scenarios_of_shared_links_are_those_of_events(
    job: Job, network: Topology, data: st.DataObject
) -> None:
    """Those in which the same links are crossed: all others are refused."""
    slow = data.draw(st.sampled_from([None, "0:1.3"]))
    options: dict[str, Any] = {**job.options(), "slow": slow, "contention": "fair"}
    batch = make_batch(job.workload, network, shared=True, **options)
    names = columns_of(network) | ({} if batch.fixed else of_tasks())
    chosen = data.draw(st.lists(st.sampled_from(sorted(names)), max_size=3, unique=True))
    for _ in range(3):
        values = {name: data.draw(names[name]) for name in chosen}
        found = None
        with suppress(PlanError):
            found = batch.evaluate({name: [each] for name, each in values.items()}, parts=True)
        if found is None:
            continue
        other = with_values(network, values)
        report = simulate(job.workload, other, **options, **options_of(values)).report
        assert found.step_time_ps[0] == report.step_time_ps
        assert found.pipeline_time_ps[0] == report.pipeline_time_ps
        assert found.bubble_fraction[0] == report.bubble_fraction
        assert found.parts_ps is not None
        assert found.parts_ps[0].tolist() == list(report.breakdown_ps.values())


TAKEN = ("loss", "host", "get_batch", "attention", "forward", "gradients", "send", "")
"""Names that tasks have already, or none."""
HOST_TIMES = {name: 500 + 1_000 * i for i, name in enumerate(HOST)}
INSERTED_PS = 7_700


@contextmanager
def renamed(seed: int, *, inserted: bool) -> Iterator[None]:
    """Graphs are made whose tasks bear any names, perhaps with host time of nobody's option."""
    chance = Random(seed)

    def named(*values: Any, **more: Any) -> Task:
        task = Task(*values, **more)
        is_work = task.duration_ps or task.comm >= 0
        return replace(task, label=chance.choice(TAKEN)) if is_work else task

    def longer(rows: Sequence[Row], *given: Any) -> TaskList:
        made = forward_tasks(rows, *given)
        if not rows:  # these lists are kept for other jobs
            return made
        awaited = {before for task in made.tasks for before in task.after}
        host = named(
            kind=TaskKind.HOST,
            label="",
            stream=Stream.COMPUTE,
            phase=Phase.FORWARD,
            duration_ps=INSERTED_PS,
            after=tuple(i for i in range(len(made.tasks)) if i not in awaited),
        )
        return TaskList(tasks=(*made.tasks, host))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(actions, "Task", named)
        if inserted:
            patch.setattr(actions, "forward_tasks", longer)
        yield


def step_times(job: Job, network: Topology, **host: int) -> dict[str, int]:
    """The step in ps as everything that evaluates one says, each with a graph of its own."""
    times = {name: f"{ps} ps" for name, ps in host.items()}
    options: dict[str, Any] = job.options() | times
    batch = make_batch(deepcopy(job.workload), network, **job.options())
    varied = {} if batch.fixed else {name: [ps] for name, ps in host.items()}
    if batch.fixed:
        batch = make_batch(deepcopy(job.workload), network, **options)
    events, levels = (
        simulate(deepcopy(job.workload), network, engine=engine, **options)
        for engine in ("simpy", "levels")
    )
    slopes = sensitivity(deepcopy(job.workload), network, **options)
    draws = noise(deepcopy(job.workload), network, samples=1, model=NoiseModel(), **options)
    return {
        "events": events.report.step_time_ps,
        "levels": levels.report.step_time_ps,
        "batch": int(batch.evaluate(varied).step_time_ps[0]),
        "sensitivity": slopes.step_time_ps,
        "noise": draws.planned_ps,
    }


@examples(60)
@given(job=jobs(), network=flat(), seed=st.integers(0, 2**32), timed=st.booleans())
def test_no_time_depends_on_a_label(job: Job, network: Topology, seed: int, timed: bool) -> None:
    """Labels at random, and host tasks with names that are taken: every evaluator agrees."""
    host = HOST_TIMES if timed else {}
    asked = job.options() | {name: f"{ps} ps" for name, ps in host.items()}
    plain = simulate(deepcopy(job.workload), network, **asked).report
    with renamed(seed, inserted=False):
        assert set(step_times(job, network, **host).values()) == {plain.step_time_ps}
    with renamed(seed, inserted=True):
        found = step_times(job, network, **host)
    assert set(found.values()) == {found["events"]}, found
    # fused halves may take other turns
    assert "dualpipe" in job.schedule or found["events"] > plain.step_time_ps
