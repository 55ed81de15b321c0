"""Profiles as stage times: marked, unmarked, of all ranks or of a few."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepsim
from stepsim.base.errors import PlanError, TraceError
from stepsim.base.structs import replace
from stepsim.explain.as_profile import profile_of_step
from stepsim.files.accelerators import read_device
from stepsim.files.traces.kineto_write import write_kineto
from stepsim.measured.profile.events import Profile
from stepsim.measured.profile.marks import MarkForm, read_mark
from stepsim.measured.run import OpKind
from stepsim.measured.summary import RunSummary
from stepsim.run.spans import TaskKind, TaskPhase
from stepsim.runs.learned import calibrate_profiles, recorded_collectives
from stepsim.runs.measured import replay_measured
from stepsim.workload.model.choices import Precision

RUNS = (
    "pp2_tp1_exp4_expn8_dp8_nl8_hs4096_sl1024",
    "pp2_tp1_exp8_expn8_dp8_nl8_hs4096_sl4096",
    "pp4_tp1_exp2_expn8_dp4_nl8_hs4096_sl1024",
    "pp4_tp1_exp4_expn16_dp4_nl8_hs4096_sl4096",
)
SCHEDULES = ("1f1b", "interleaved:2", "zb-h1")
MODELS = (
    *("llama-3.1-8b", "llama-3.1-70b", "llama-2-7b", "mixtral-8x7b", "mistral-7b"),
    *("qwen3-8b", "qwen3-30b-a3b", "qwen2.5-7b", "gpt3-175b", "deepseek-v3"),
)


def simulated(
    model: str, schedule: str, pp: int = 4, batch: int = 8
) -> tuple[stepsim.Result, Profile]:
    result = stepsim.simulate(
        model,
        npus=8,
        pp=pp,
        tp=1,
        microbatch_size=1,
        global_batch=batch,
        sequence=512,
        topology="hgx-h100",
        schedule=schedule,
    )
    return result, profile_of_step(result.timeline, source=model)


def recorded(profile: Profile, folder: Path, *, marked: bool = True) -> Path:
    """The traces of a profile, with or without the ranges that name its actions."""
    files = write_kineto(profile, folder)
    for file in files if not marked else ():
        trace = json.loads(file.read_text())
        events = [e for e in trace["traceEvents"] if not e["name"].startswith("PP:")]
        file.write_text(json.dumps(trace | {"traceEvents": events}))
    return folder


def replayed(run: Path) -> Profile:
    step = replay_measured(stepsim.load_run(run))
    return profile_of_step(step.timeline, source=str(run))


def summary(path: Path) -> RunSummary:
    found = stepsim.load_run(path)
    assert isinstance(found, RunSummary)
    return found


def spans_of_actions(profile: Profile, stage: int, kind: OpKind) -> list[int]:
    """Time from the first to the last operation of each action, host and messages aside."""
    phases = {
        OpKind.FORWARD: [TaskPhase.FORWARD],
        OpKind.BACKWARD: [TaskPhase.BACKWARD, TaskPhase.INPUT_GRAD],
        OpKind.WEIGHT_GRAD: [TaskPhase.WEIGHT_GRAD],
    }[kind]
    events = profile.events
    computes = events.of_kind(TaskKind.COMPUTE) & (events.microbatch >= 0)
    inner = np.array([not group.name.startswith("dp") for group in profile.groups] + [False])
    computes |= events.of_kind(TaskKind.COLLECTIVE) & inner[events.group]
    chosen = computes & np.isin(events.phase, phases)
    chosen &= profile.column_of_ranks("stage") == stage
    keys = np.stack([events.rank, events.chunk, events.microbatch])[:, chosen]
    return [
        int(events.end_ps[chosen][same].max() - events.start_ps[chosen][same].min())
        for key in np.unique(keys, axis=1).T
        for same in ((keys == key[:, None]).all(axis=0),)
    ]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("model", MODELS)
def test_stage_times_of_own_traces_are_those_simulated(
    model: str, schedule: str, tmp_path: Path
) -> None:
    result, profile = simulated(model, schedule)
    found = summary(recorded(profile, tmp_path / "traces"))
    assert found.schedule is not None
    assert found.schedule.label == schedule
    assert found.degrees.pp == 4
    for stage in found.stages:
        for kind, sample in stage.work.items():
            expected = spans_of_actions(profile, stage.stage, kind)
            assert sample.samples == len(expected)
            assert sample.mean_ps == pytest.approx(np.mean(expected), abs=1)
    # means of stages do not hold that a first forward waits for its parameters
    again = stepsim.what_if(found).base.report
    assert again.step_time_ps == pytest.approx(result.report.step_time_ps, rel=0.05)


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("write", [stepsim.load_profile, replayed])
def test_a_trace_written_from_a_run_gives_its_what_if(
    name: str, write: Callable[[Path], Profile], shared: Path, tmp_path: Path
) -> None:
    run = shared / "reference/measured/megatron_moe_16gpu" / name
    measured, found = summary(run), summary(recorded(write(run), tmp_path / "traces"))
    changes: tuple[dict[str, Any], ...] = (
        {"schedule": "gpipe"},
        {"schedule": "interleaved:2", "layers": 8},
        {"microbatches": 32},
        {"bandwidth": {"inter_node": "100Gbps"}},
        *([{"dp": 16}] if write is stepsim.load_profile else []),
    )
    for change in changes:
        one, other = (stepsim.what_if(each, **change) for each in (measured, found))
        for a, b in ((one.base, other.base), (one.changed, other.changed)):
            assert b.report.step_time_ps == pytest.approx(a.report.step_time_ps, rel=1e-3)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("pp", [2, 4])
def test_the_order_of_messages_tells_what_nothing_marks(
    schedule: str, pp: int, tmp_path: Path
) -> None:
    _, profile = simulated("llama-3.1-8b", schedule, pp)
    marked = summary(recorded(profile, tmp_path / "marked"))
    plain = summary(recorded(profile, tmp_path / "plain", marked=False))
    assert "low confidence" in plain.run.warnings[-1]
    assert plain.schedule == marked.schedule
    one, other = (stepsim.what_if(each).base.report.step_time_ps for each in (marked, plain))
    assert other == pytest.approx(one, rel=0.01)


@pytest.mark.parametrize("schedule", ["interleaved:2", "zb-v", "v-half", "interleaved-zb"])
def test_a_trace_of_several_chunks_is_improved(schedule: str, tmp_path: Path) -> None:
    result, profile = simulated("llama-2-7b", schedule)
    improved = stepsim.improve(recorded(profile, tmp_path / "traces"))
    assert improved.replayed_ps == pytest.approx(result.report.step_time_ps, rel=1e-6)


@pytest.mark.parametrize("schedule", ["zb-h1", "zb-v", "interleaved-zb"])
def test_an_order_that_cannot_block_is_changed_to_one_that_does(
    schedule: str, tmp_path: Path
) -> None:
    _, profile = simulated("llama-2-7b", schedule)
    found = stepsim.what_if(recorded(profile, tmp_path / "traces"), schedule="1f1b")
    assert found.changed.report.p2p == "blocking"
    assert found.messages is None


@pytest.mark.parametrize("times", ["microbatch", "mean"])
@pytest.mark.parametrize("schedule", ["zb-h1", "interleaved:2", "zb-v", "interleaved-zb"])
def test_a_trace_of_chunks_or_weight_gradients_is_replayed(
    schedule: str, times: str, tmp_path: Path
) -> None:
    result, profile = simulated("llama-2-7b", schedule)
    found = summary(recorded(profile, tmp_path / "traces"))
    (entry,) = stepsim.validate(found, times=times).runs
    assert entry.step.simulated_ps == pytest.approx(result.report.step_time_ps, rel=0.05)
    for wait in entry.waits:  # what runs beside an action is not waited for
        assert abs(wait.simulated_ps - wait.measured_ps) < 0.05 * found.pipeline_ps
    assert entry.worst_bubble_points < 5


def test_chunks_that_nothing_marks_are_refused(tmp_path: Path) -> None:
    _, profile = simulated("llama-3.1-8b", "interleaved:2")
    with pytest.raises(TraceError, match="several chunks, and no range"):
        stepsim.load_run(recorded(profile, tmp_path / "traces", marked=False))


def test_actions_that_run_as_one_are_refused(tmp_path: Path) -> None:
    _, profile = simulated("llama-3.1-8b", "dualpipe-v", batch=16)
    with pytest.raises(TraceError, match="forwards in the step: expected"):
        stepsim.load_run(recorded(profile, tmp_path / "traces"))


def test_one_rank_of_each_stage_is_enough(tmp_path: Path) -> None:
    _, profile = simulated("llama-3.1-8b", "1f1b")
    whole = recorded(profile, tmp_path / "all")
    few = tmp_path / "few"
    few.mkdir()
    for rank in (0, 2, 4, 6):
        name = f"stepsim.rank{rank}.json"
        (few / name).write_bytes((whole / name).read_bytes())
    one, other = (stepsim.what_if(path, schedule="gpipe") for path in (whole, few))
    assert other.changed.report.step_time_ps == one.changed.report.step_time_ps


def test_stages_after_the_last_that_was_recorded_are_missed(tmp_path: Path) -> None:
    _, profile = simulated("llama-3.1-8b", "1f1b")
    whole = recorded(profile, tmp_path / "traces")
    for rank in (6, 7):
        (whole / f"stepsim.rank{rank}.json").unlink()
    with pytest.raises(TraceError, match="stage 2 sends forwards on, but no rank of the stage"):
        stepsim.load_run(whole)


@pytest.mark.parametrize(("schedule", "batch"), [("gpipe", 16), ("1f1b", 8)])
def test_one_rank_without_a_steady_state_tells_no_stages(
    schedule: str, batch: int, tmp_path: Path
) -> None:
    _, profile = simulated("llama-3.1-8b", schedule, batch=batch)
    whole = recorded(profile, tmp_path / "traces")
    with pytest.raises(TraceError, match="does not tell how many stages there are"):
        stepsim.load_run(whole / "stepsim.rank0.json")


@pytest.mark.parametrize("marked", [True, False])
def test_one_rank_says_what_it_cannot_know(marked: bool, tmp_path: Path) -> None:
    _, profile = simulated("llama-3.1-8b", "1f1b", batch=16)
    whole = recorded(profile, tmp_path / "all", marked=marked)
    found = stepsim.what_if(whole / "stepsim.rank0.json", schedule="gpipe")
    assert found.notes[0].startswith("no trace of stages 1, 2, 3: times are inferred")
    everything = stepsim.what_if(whole).base.report.step_time_ps
    assert found.base.report.step_time_ps == pytest.approx(everything, rel=0.05)
    with pytest.raises(TraceError, match=r"one rank of stage 0|was not recorded"):
        stepsim.what_if(whole / "stepsim.rank4.json", schedule="gpipe")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("kineto/deepseek_train.json.gz", ""),
        ("kineto/hta_nccl_data.json.gz", ""),
        ("kineto/hta_sampled_rank-0.json.gz", ""),
        ("kineto/param_dlrm_8ranks.tar.gz", ""),
        ("ndtimeline/trace-ST.parquet", ""),
        ("nsys/mfu_2gpu_before.sqlite", "the recording has no ranges of forwards and backwards"),
        ("chakra/chakra_feeder_tests.tar.gz", "the recording has no ranges of forwards"),
    ],
)
def test_every_profile_has_a_what_if_or_a_reason(path: str, reason: str, shared: Path) -> None:
    profile = shared / "reference/profiles" / path
    if reason:
        with pytest.raises(TraceError, match=reason):
            stepsim.what_if(profile, overlap_gradients=True)
        return
    found = stepsim.what_if(profile, overlap_gradients=True)
    assert found.changed.report.step_time_ps <= found.base.report.step_time_ps


def test_a_job_of_one_stage_has_no_schedule(shared: Path) -> None:
    run = summary(shared / "reference/profiles/kineto/hta_nccl_data.json.gz")
    with pytest.raises(PlanError, match="one stage and no message of a pipeline"):
        stepsim.what_if(run, schedule="gpipe")
    same = stepsim.what_if(run, dp=run.degrees.dp)
    assert same.changed.report.step_time_ps == same.base.report.step_time_ps
    assert (
        stepsim.what_if(run, dp=64).speedup
        < 1
        < stepsim.what_if(run, overlap_gradients=True).speedup
    )
    with pytest.raises(PlanError, match="dp is 0: expected at least 1"):
        stepsim.what_if(run, dp=0)


def test_a_profile_without_bytes_has_no_bandwidth(shared: Path) -> None:
    run = summary(shared / "reference/profiles/ndtimeline/trace-ST.parquet")
    base = stepsim.what_if(run).base.report
    assert base.step_time_ps == pytest.approx(run.step_ps, rel=0.01)
    with pytest.raises(PlanError, match="no message of known bytes was timed"):
        stepsim.what_if(run, bandwidth={"inter_node": "100Gbps"})


@pytest.mark.parametrize(
    ("name", "form", "phase", "stage", "microbatch"),
    [
        ("PP:2F0", MarkForm.ACTION, TaskPhase.FORWARD, 2, 0),
        ("PP:1SEND_B3", MarkForm.ACTION, TaskPhase.BACKWARD, 1, 3),
        ("PP:0W11", MarkForm.ACTION, TaskPhase.WEIGHT_GRAD, 0, 11),
        ("Forward 4", MarkForm.NUMBERED, TaskPhase.FORWARD, -1, 4),
        ("## backward ##", MarkForm.PHASE, TaskPhase.BACKWARD, -1, -1),
        ("forward_step", MarkForm.PHASE, TaskPhase.FORWARD, -1, -1),
        ("DeepSpeedEngine.backward", MarkForm.PHASE, TaskPhase.BACKWARD, -1, -1),
        ("Optimizer.step#Adam.step", MarkForm.PHASE, TaskPhase.UPDATE, -1, -1),
    ],
)
def test_names_of_ranges(
    name: str, form: MarkForm, phase: TaskPhase, stage: int, microbatch: int
) -> None:
    mark = read_mark(name)
    assert mark is not None
    assert (mark.form, mark.phase, mark.stage, mark.microbatch) == (form, phase, stage, microbatch)


@pytest.mark.parametrize("name", ["ProfilerStep#3", "nccl:all_reduce", "attn(F)", "forwarded mail"])
def test_other_ranges_say_nothing(name: str) -> None:
    assert read_mark(name) is None


def test_profiles_tell_the_times_of_collectives(tmp_path: Path) -> None:
    profiles = []
    for schedule in ("1f1b", "gpipe"):
        _, profile = simulated("llama-3.1-8b", schedule, 2)
        folder = recorded(profile, tmp_path / schedule)
        profiles.append(stepsim.load_profile(folder))
    alone, notes = calibrate_profiles(profiles[:1])
    assert "nothing was left out to hold the numbers against" in notes[-1]
    assert alone.collectives is not None
    for curve in alone.collectives.curves:
        chosen = profiles[0].events
        chosen = chosen.taken(np.flatnonzero(chosen.of_kind(TaskKind.COLLECTIVE)))
        assert {*curve.size_bytes.tolist()} <= {*chosen.size_bytes.tolist()}
        assert curve.time_ps.max() <= chosen.duration_ps.max()
    both, notes = calibrate_profiles(profiles)
    assert "the steps of 2 are" in notes[-1]
    assert both.point_to_point
    assert both.host_overhead is not None


def test_collectives_of_a_part_of_the_ranks_hold_waits(shared: Path) -> None:
    profile = stepsim.load_profile(shared / "reference/profiles/kineto/hta_nccl_data.json.gz")
    assert recorded_collectives(profile) == ()
    found, _ = calibrate_profiles([profile])
    assert ("collectives", "none was recorded on all ranks of its group, with bytes") in (
        found.unidentified
    )


@pytest.mark.parametrize(
    ("model", "rate", "start_ps"),
    [
        ("llama-3.1-8b", 400e12, 9_000_000),
        ("llama-3.1-8b", 900e12, 2_800_000),
        ("qwen3-8b", 500e12, 5_000_000),
    ],
)
def test_profiles_tell_the_rate_of_products(
    tmp_path: Path, model: str, rate: float, start_ps: int
) -> None:
    usual = read_device("h100")
    own = replace(usual.rate_of(Precision.BF16), rate=rate, start_ps=start_ps)
    device = replace(usual, rates={**usual.rates, Precision.BF16: own})
    job: dict[str, Any] = {"topology": "hgx-h100", "npus": 8, "tp": 2, "pp": 2, "global_batch": 8}
    traced = stepsim.simulate(model, device=device, **job)
    profile = profile_of_step(traced.timeline, source=model, kernels=True)
    folder = recorded(profile, tmp_path / "trace")
    found, _ = calibrate_profiles([stepsim.load_profile(folder)], device=usual)
    assert [each.device for each in found.rates] == ["H100"]
    assert found.rates[0].rate == pytest.approx(rate, rel=0.02)
    assert found.rates[0].start_ps == pytest.approx(start_ps, rel=0.2)
    file = tmp_path / "machine.toml"
    stepsim.write_calibration(found, file)
    calibrated = stepsim.simulate(model, calibration=file, **job)
    assert calibrated.report.step_time_ps == pytest.approx(traced.report.step_time_ps, rel=0.02)
    before = stepsim.simulate(model, **job)
    assert before.report.step_time_ps != pytest.approx(traced.report.step_time_ps, rel=0.05)


def test_a_rate_of_products_needs_shapes() -> None:
    _, plain = simulated("llama-3.1-8b", "1f1b", 2)
    found, _ = calibrate_profiles([plain], device=read_device("h100"))
    assert ("rate of products", "0 shapes: expected at least 3") in found.unidentified
