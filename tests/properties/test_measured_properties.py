"""Runs made by the simulator are understood: schedule, clocks, host and message times, replay."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from helpers import examples
from hypothesis import given, strategies as st
from traces import MadeRun, ps

from stepsim.base.structs import replace
from stepsim.base.units import PS_PER_S
from stepsim.files.traces.megatron_trace import read_megatron_trace
from stepsim.measured.calibration.calibration import (
    Fitted,
    FittedTime,
    LeafOverhead,
)
from stepsim.measured.calibration.runs import calibrate_traces
from stepsim.measured.layers import Durations
from stepsim.measured.ready import infer_hidden, ready_run
from stepsim.measured.run import OpKind
from stepsim.measured.step_log import LeafLog, LeafStage
from stepsim.measured.summary import RunSummary, summarise
from stepsim.runs.leaf import fit_overhead, simulate_leaves
from stepsim.runs.replay import replay, simulated
from stepsim.runs.validate import validate_run
from stepsim.runs.what_if import change_run
from stepsim.workload.plan import Plan

MILLISECONDS = st.floats(min_value=1, max_value=50).map(lambda x: round(x, 3))


@st.composite
def made_runs(draw: st.DrawFn) -> MadeRun:
    stages = draw(st.integers(2, 5))
    times = st.lists(MILLISECONDS, min_size=stages, max_size=stages)
    return MadeRun(
        forward=draw(times),
        backward=draw(times),
        microbatches=draw(st.integers(2, 9)),
        host_ms=round(draw(st.floats(0.05, 1)), 3),
        hop_ms=round(draw(st.floats(0.05, 1)), 3),
        schedule=draw(st.sampled_from(("1f1b", "gpipe"))),
    )


def written(run: MadeRun, clocks: tuple[int, ...] = ()) -> RunSummary:
    with tempfile.TemporaryDirectory() as name:
        return summarise(read_megatron_trace(run.write(Path(name) / "run", clocks)))


@examples(25)
@given(made_runs())
def test_a_replay_with_what_was_calibrated_is_the_run(run: MadeRun) -> None:
    summary = written(run)
    result, schedule = run.simulate()
    assert summary.schedule is not None
    if run.schedule != schedule.name or run.microbatches >= len(run.forward):
        assert summary.schedule.tokens() == schedule.tokens()
    ready = ready_run(summary)
    assert ready.host_overhead_ps == pytest.approx(ps(run.host_ms), rel=1e-3)
    for durations in Durations:
        again = replay(ready, durations).report.pipeline_time_ps
        assert again == pytest.approx(result.report.pipeline_time_ps, rel=1e-4)


@examples(25)
@given(made_runs(), st.integers(0, 10**6))
def test_clocks_of_nodes_are_aligned(run: MadeRun, shift: int) -> None:
    clocks = tuple(1000 + i * (10**6 + shift) for i in range(len(run.forward)))
    summary, together = written(run, clocks), written(run)
    assert summary.clocks.residual_ps <= ps(0.00001)
    apart, plain = (each.run.events.start_ps for each in (summary, together))
    assert np.abs(apart - plain).max() <= ps(0.00001)
    assert np.abs(summary.transfers.duration_ps - ps(run.hop_ms)).max() <= ps(0.00001)


@examples(25)
@given(made_runs())
def test_bubbles_and_errors_of_an_exact_replay_are_small(run: MadeRun) -> None:
    summary = written(run)
    found = validate_run(summary, calibrate_traces([summary]))
    assert found.calibrated_on_itself
    assert found.finalize == (), "a calibration on the run itself predicts nothing"
    before = ps(run.host_ms) / summary.pipeline_ps  # host time before the first operation
    assert abs(found.pipeline.error) < before + 1e-4
    assert found.worst_bubble_points < 1.5 * 100 * ps(run.host_ms) / summary.pipeline_ps + 0.01


@examples(25)
@given(MILLISECONDS, st.floats(1.05, 2), st.integers(2, 5), st.integers(8, 16), st.booleans())
def test_hidden_stages_are_inferred(
    middle: float, last: float, stages: int, microbatches: int, slow_end: bool
) -> None:
    middle += 5
    ends = round(middle * last, 3) if slow_end else middle
    forward = [round(middle * 0.9, 3), *[middle] * (stages - 2), ends]
    run = MadeRun(
        forward=forward,
        backward=[2 * each for each in forward],
        microbatches=microbatches,
        host_ms=0.2,
        hop_ms=0.3,
    )
    with tempfile.TemporaryDirectory() as name:
        folder = run.write(Path(name) / "run")
        alone = summarise(read_megatron_trace(folder / f"pp{stages}_tp1_rank0.txt"))
    found = infer_hidden(alone)
    for stage, known in zip(found.stages, forward, strict=True):
        assert stage.work[OpKind.FORWARD].median_ps == pytest.approx(ps(known), rel=0.05)
    ready = ready_run(alone)
    result = replay(ready).report
    assert result.pipeline_time_ps == pytest.approx(alone.pipeline_ps, rel=0.02)


@examples(25)
@given(made_runs())
def test_an_empty_change_changes_nothing(run: MadeRun) -> None:
    summary = written(run)
    ready = ready_run(summary)
    found = change_run(ready)
    assert found.base.report.step_time_ps == found.changed.report.step_time_ps
    plain = replay(ready).report.step_time_ps
    assert found.base.report.step_time_ps == pytest.approx(plain, abs=1000)


@examples(15)
@given(made_runs())
def test_slower_messages_are_never_faster(run: MadeRun) -> None:
    summary = written(run)
    ready = ready_run(summary)
    links = (replace(link, latency_ps=link.latency_ps + ps(1)) for link in ready.links)
    slower = replace(ready, links=tuple(links)).work()
    assert simulated(slower).report.step_time_ps >= simulated(ready.work()).report.step_time_ps


@examples(10)
@given(st.floats(1, 20), st.floats(1.2, 3), st.sampled_from([(4, 4, 4, 4), (9, 3), (2, 8, 5)]))
def test_overheads_that_made_a_step_are_found_again(
    host_ms: float, factor: float, layers_ms: tuple[float, ...]
) -> None:
    """Two logs, one of stages whose layers take 30 ms: there the layers weigh, host time not."""
    overhead = LeafOverhead(
        action=FittedTime(value=ps(host_ms), residual=0.0, samples=2),
        layer_factor=Fitted(value=factor, residual=0.0, samples=2),
    )
    runs = []
    for times in (layers_ms, (30, 30)):
        run = leaf_run([ps(time) for time in times])
        step = simulate_leaves(run, overhead).report.pipeline_time_ps
        runs.append(replace(run, values=(step / PS_PER_S,)))
    found = fit_overhead(runs)
    assert found is not None
    assert found.action.value == pytest.approx(ps(host_ms), rel=1e-3)
    assert found.layer_factor.value == pytest.approx(factor, rel=1e-3)
    missing: list[tuple[str, str]] = []
    assert fit_overhead(runs[:1] * 2, missing) is None
    assert "cannot be told apart" in missing[0][1]


def leaf_run(layers_ps: list[int]) -> LeafLog:
    """A log whose steps do not vary; the last stage has a head of 5 ms."""
    stages = tuple(
        LeafStage(
            stage=stage,
            layers_ps=time,
            ends_ps=ps(5) if stage == len(layers_ps) - 1 else 0,
            layers=1.0,
            samples=1,
        )
        for stage, time in enumerate(layers_ps)
    )
    return LeafLog(
        source="made",
        plan=Plan(pp=len(stages), microbatches=8),
        stages=stages,
        form="made",
        numbers=(1,),
        values=(1.0,),
    )
