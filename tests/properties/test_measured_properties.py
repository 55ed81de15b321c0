"""Runs made by the simulator are understood: schedule, clocks, host and message times, replay."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import MadeRun, ps

from stepsim.calibration.document import message_topology
from stepsim.calibration.runs import calibrate
from stepsim.formats.calibration_toml import calibration_toml, read_calibration
from stepsim.formats.megatron_trace import read_megatron_trace
from stepsim.measured.run import OpKind
from stepsim.measured.summary import RunSummary, summarise
from stepsim.validation.hidden import infer_hidden
from stepsim.validation.load import with_runtime
from stepsim.validation.replay import Durations, replay
from stepsim.validation.validate import validate_run
from stepsim.validation.whatif import Change, change_run

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


@settings(max_examples=25)
@given(made_runs())
def test_a_replay_with_what_was_calibrated_is_the_run(run: MadeRun) -> None:
    summary = written(run)
    result, schedule = run.simulate()
    assert summary.schedule is not None
    if run.schedule != schedule.name or run.microbatches >= len(run.forward):
        assert summary.schedule.tokens() == schedule.tokens()
    ready = with_runtime(summary)
    assert ready.runtime.host_overhead_ps == pytest.approx(ps(run.host_ms), rel=1e-3)
    for durations in Durations:
        again = replay(ready.summary, ready.runtime, durations).report.pipeline_time_ps
        assert again == pytest.approx(result.report.pipeline_time_ps, rel=1e-4)


@settings(max_examples=25)
@given(made_runs(), st.integers(0, 10**6))
def test_clocks_of_nodes_are_aligned(run: MadeRun, shift: int) -> None:
    clocks = tuple(1000 + i * (10**6 + shift) for i in range(len(run.forward)))
    summary, together = written(run, clocks), written(run)
    assert summary.clocks.residual_ps <= ps(0.00001)
    starts = summary.clocks.offset_ps + [int(t.start_ps[0]) for t in summary.run.ranks]
    plain = together.clocks.offset_ps + [int(t.start_ps[0]) for t in together.run.ranks]
    assert np.abs(starts - plain).max() <= ps(0.00001)
    assert np.abs(summary.transfers.duration_ps - ps(run.hop_ms)).max() <= ps(0.00001)


@settings(max_examples=25)
@given(made_runs())
def test_bubbles_and_errors_of_an_exact_replay_are_small(run: MadeRun) -> None:
    summary = written(run)
    found = validate_run(summary, calibrate([summary]))
    assert found.calibrated_on_itself
    assert found.finalize == (), "a calibration on the run itself predicts nothing"
    before = ps(run.host_ms) / summary.pipeline_ps  # host time before the first operation
    assert abs(found.pipeline.error) < before + 1e-4
    assert found.worst_bubble_points < 1.5 * 100 * ps(run.host_ms) / summary.pipeline_ps + 0.01


@settings(max_examples=25)
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
    for stage, known in zip(found.summary.stages, forward, strict=True):
        assert stage.work[OpKind.FORWARD].median == pytest.approx(ps(known), rel=0.05)
    ready = with_runtime(alone)
    result = replay(ready.summary, ready.runtime).report
    assert result.pipeline_time_ps == pytest.approx(alone.pipeline_ps, rel=0.02)


@settings(max_examples=25)
@given(made_runs())
def test_a_calibration_is_read_as_it_was_written(run: MadeRun) -> None:
    calibration = calibrate([written(run)])
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "calibration.toml"
        path.write_text(calibration_toml(calibration))
        again = read_calibration(path)
    assert calibration_toml(again) == calibration_toml(calibration)
    assert again.unidentified == calibration.unidentified


@settings(max_examples=25)
@given(made_runs())
def test_an_empty_change_changes_nothing(run: MadeRun) -> None:
    summary = written(run)
    ready = with_runtime(summary)
    found = change_run(ready.summary, ready.runtime, Change())
    assert found.base.report.step_time_ps == found.changed.report.step_time_ps
    plain = replay(ready.summary, ready.runtime).report.step_time_ps
    assert found.base.report.step_time_ps == pytest.approx(plain, abs=1000)


@settings(max_examples=15)
@given(made_runs())
def test_slower_messages_are_never_faster(run: MadeRun) -> None:
    summary = written(run)
    ready = with_runtime(summary)
    slower = message_topology(
        [
            type(link)(
                placement=link.placement,
                latency_ps=link.latency_ps + ps(1),
                bandwidth=link.bandwidth,
                residual=0.0,
                samples=1,
                sizes=(),
            )
            for link in ready.links
        ],
        8,
    )
    found = change_run(ready.summary, ready.runtime, Change(topology=slower))
    assert found.changed.report.step_time_ps >= found.base.report.step_time_ps
