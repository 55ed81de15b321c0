"""Clocks, schedules and calibrations of made runs, and what cannot be told from them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from traces import MadeRun, ps

from stepsim.base.axes import CollectiveKind, Group, ParallelAxis, Part
from stepsim.base.errors import CalibrationError, PlanError, ScheduleError, TraceError
from stepsim.base.structs import replace
from stepsim.face.runs import simulate_run
from stepsim.face.steps import simulate
from stepsim.files.measured import load_trace
from stepsim.files.traces.megatron_trace import read_megatron_trace
from stepsim.measured.calibration.applied import with_calibration
from stepsim.measured.calibration.calibration import (
    Calibration,
    Fitted,
    FittedTime,
    LinkFit,
    message_topology,
)
from stepsim.measured.calibration.gradients import Samples, launch_and_rate
from stepsim.measured.calibration.runs import calibrate_traces, fastest
from stepsim.measured.clocks import NodePlacement, align
from stepsim.measured.layers import Durations, stage_costs
from stepsim.measured.ready import infer_hidden, ready_run
from stepsim.measured.run import Degrees, OpKind, gradient_groups, groups_on
from stepsim.measured.summary import RunSummary, summarise
from stepsim.network.measured_times import CommTable, MeasuredCurve
from stepsim.network.prices import Prices, Use
from stepsim.options import StepOptions
from stepsim.parallel.p2p import P2PMode
from stepsim.run.spans import TaskKind
from stepsim.runs.replay import replay
from stepsim.runs.validate import validate_run, validate_runs
from stepsim.runs.what_if import WhatIf, change_run
from stepsim.workload.plan import Plan
from stepsim.workload.rows import CommOp

RUN = MadeRun(forward=(10, 8, 8, 12), backward=(20, 16, 16, 21), microbatches=8)


def summary_of(run: MadeRun, folder: Path) -> RunSummary:
    return summarise(read_megatron_trace(run.write(folder / "run")))


@pytest.fixture
def found(tmp_path: Path) -> RunSummary:
    return summary_of(RUN, tmp_path)


@pytest.fixture
def change(found: RunSummary) -> Callable[..., WhatIf]:
    """Changes the run."""
    ready = ready_run(found)
    return lambda **options: change_run(ready, **options)


def tell_layers(folder: Path, name: str = "l8_") -> RunSummary:
    """The run in this folder, whose files' names tell its shape."""
    for path in list(folder.iterdir()):
        path.rename(path.with_name(name + path.name))
    return load_trace(folder)


def test_stage_times(found: RunSummary) -> None:
    assert [stage.work[OpKind.FORWARD].median_ps for stage in found.stages] == [
        ps(each) for each in RUN.forward
    ]
    assert found.schedule is not None
    assert found.schedule.name == "1f1b"
    assert found.step_ops == ()
    assert found.imbalance is None


def test_messages_find_their_ends_where_a_first_rank_is_missing(tmp_path: Path) -> None:
    """Two pipelines of which one ran late; without rank 2 the others must not be mixed up."""
    folder, late = RUN.write(tmp_path / "pp4"), replace(RUN, hop_ms=3).write(tmp_path / "late")
    wide = tmp_path / "wide"
    wide.mkdir()
    for rank in (0, 1, 3, 4, 5, 6, 7):
        stage = rank // 2
        text = ((folder, late)[rank % 2] / f"pp4_tp1_rank{stage}.txt").read_text()
        (wide / f"wd8_pp4_{rank}.txt").write_text(text.replace(f"rank:{stage}:", f"rank:{rank}:"))
    run = read_megatron_trace(wide)
    ranks = run.column_of_ranks("rank")
    _, _, (sent, received) = align(run)
    assert set((ranks[received] - ranks[sent]).tolist()) == {-2, 2}


def test_one_stage_only(tmp_path: Path) -> None:
    run = MadeRun(forward=(10,), backward=(20,), microbatches=3)
    found = summary_of(run, tmp_path)
    ready = ready_run(found)
    assert replay(ready).report.pipeline_time_ps == pytest.approx(
        found.pipeline_ps + ps(run.host_ms), rel=1e-6
    )


def test_an_unknown_order_is_not_replayed(tmp_path: Path) -> None:
    folder = RUN.write(tmp_path / "run")
    for path in folder.iterdir():
        text = path.read_text()
        swapped = text.replace("batch_id=0", "batch_id=x").replace("batch_id=1,", "batch_id=0,")
        path.write_text(swapped.replace("batch_id=x", "batch_id=1"))
    found = load_trace(folder)
    assert found.schedule is None
    with pytest.raises(TraceError, match="that of no schedule known here"):
        replay(ready_run(found))


def test_calibration_names_what_is_missing(found: RunSummary) -> None:
    calibration = calibrate_traces([found])
    names = dict(calibration.unidentified)
    assert set(names) == {
        "point_to_point intra_node latency",
        "point_to_point inter_node",
        "gradient_scaling",
        "optimizer",
        "expert_imbalance",
    }
    (link,) = calibration.point_to_point
    assert link.time_ps(link.sizes[0]) == pytest.approx(ps(RUN.hop_ms), rel=1e-4)


def curve(times_ps: dict[int, int], **of: Any) -> MeasuredCurve:
    """Times by size."""
    usual = {"machine": "m", "source": "a", "kind": CollectiveKind.ALL_REDUCE}
    return MeasuredCurve(
        **usual | of, ranks=2, nodes=1, sizes=tuple(times_ps), times_ps=tuple(times_ps.values())
    )


def test_a_table_gives_the_shape_of_message_times(found: RunSummary) -> None:
    times = {size: 10_000_000 + size * 100 for size in (1 << 10, 1 << 20, 1 << 30)}
    table = CommTable(source="t", curves=(curve(times, kind=CollectiveKind.SEND_RECV),))
    (link,) = calibrate_traces([found], table).point_to_point
    assert link.latency_ps * link.bandwidth / 1e12 == pytest.approx(10_000_000 / 100, rel=1e-3)
    assert link.time_ps(link.sizes[0]) == pytest.approx(ps(RUN.hop_ms), rel=1e-4)


def test_the_fastest_of_repeated_measurements_counts() -> None:
    first, second = curve({1024: 10, 2048: 40}), curve({1024: 20, 2048: 30}, source="b")
    table = CommTable(source="t", curves=(first, second))
    (merged,) = fastest(table).curves
    assert merged.times_ps == (10, 30)
    several = CommTable(source="t", curves=(first, replace(first, machine="n")))
    with pytest.raises(CalibrationError, match="measured on m, n: expected one machine"):
        fastest(several)


def test_gradient_groups() -> None:
    degrees = Degrees(pp=2, microbatches=1, npus=16, tp=2, dp=4, ep=2)
    assert gradient_groups(degrees, OpKind.DP_ALLREDUCE, 1) == [(8, 10, 12, 14), (9, 11, 13, 15)]
    assert gradient_groups(degrees, OpKind.EP_DP_ALLREDUCE, 0) == [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert gradient_groups(degrees, OpKind.OPTIMIZER, 0) == []


def test_expert_groups() -> None:
    """They do not depend on which ranks were traced, and pass over ranks of one tp group."""
    degrees = Degrees(pp=2, microbatches=1, npus=16, tp=2, dp=4, ep=2)
    assert groups_on(degrees, Group.EP, 1) == [(8, 10), (9, 11), (12, 14), (13, 15)]
    alone = replace(degrees, tp=1, dp=8)
    assert groups_on(alone, Group.EP, 0) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert groups_on(replace(degrees, ep=None), Group.EP, 0) == []
    assert groups_on(replace(degrees, npus=None), Group.EP, 0) == []


def gradient_samples(*noise: float, launch: float = 80e6) -> Samples:
    """Operations of 0.3, 1 and 5 GB at 1 TB/s; noise is relative to the whole operation."""
    sizes = np.array([3e8, 1e9, 5e9])
    beside = launch + sizes
    whole = beside + 10 * sizes
    return np.stack([sizes, beside + np.array(noise) * whole, whole, [4, 4, 2]], axis=1)


def test_launch_and_scaling_of_gradients() -> None:
    both = launch_and_rate(gradient_samples(0, 0, 0))
    assert both is not None
    assert both[0].value == pytest.approx(80e6, rel=1e-6)
    assert both[1].value == pytest.approx(1e12, rel=1e-6)


def test_a_launch_must_be_clear() -> None:
    assert launch_and_rate(gradient_samples(0.01, -0.01, 0.01)) is None
    assert launch_and_rate(gradient_samples(0, 0, 0, launch=-80e6)) is None
    twice = np.concatenate([gradient_samples(0, 0, 0)[:2]] * 4)
    assert launch_and_rate(twice) is None, "two kinds of operation, however often"


def test_message_topology_prices_messages_as_calibrated() -> None:
    links = [
        LinkFit(
            placement=placement,
            latency_ps=latency,
            bandwidth=1e9,
            residual=0.0,
            samples=1,
            sizes=(),
        )
        for placement, latency in (
            (NodePlacement.INTRA_NODE, 1000),
            (NodePlacement.INTER_NODE, 5000),
        )
    ]
    plan = Plan(pp=4, dp=4)
    op = CommOp(
        kind=CollectiveKind.SEND_RECV, group=Group.PP, axis=ParallelAxis.PP, size_bytes=1000
    )
    prices = Prices(plan=plan, topology=message_topology(links, 8).fit(16), comms=(op,))
    sends = [Use(comm=0, stage=s, peer_stage=s + 1, sends=True) for s in range(3)]
    times = [prices.duration_ps(use, 4 * use.stage) for use in sends]
    assert times == [1_001_000, 1_005_000, 1_001_000]


def test_leave_one_out_needs_two_runs(found: RunSummary) -> None:
    with pytest.raises(CalibrationError, match="at least two runs"):
        validate_runs([found], leave_one_out=True)


def test_a_run_is_known_by_its_content(tmp_path: Path) -> None:
    """A renamed run is still the same one; another in a folder of the same name is not."""
    found = load_trace(RUN.write(tmp_path / "run"))
    renamed = load_trace((tmp_path / "run").rename(tmp_path / "renamed"))
    (tmp_path / "other").mkdir()
    other = load_trace(replace(RUN, host_ms=0.4).write(tmp_path / "other" / "run"))
    calibration = calibrate_traces([found])
    assert validate_run(renamed, calibration).calibrated_on_itself
    assert not validate_run(other, calibration).calibrated_on_itself


def test_an_empty_calibration_is_said_to_be_empty(found: RunSummary) -> None:
    validated = validate_run(found, Calibration(sources=("other",)))
    assert not validated.calibrated_on_itself
    assert any("no host_overhead" in note for note in validated.notes)
    assert any("messages are free" in note for note in validated.notes)
    assert validated.pipeline.error < 0


def test_host_time_for_workload_files(workloads: Path) -> None:
    host = FittedTime(value=250_000_000, residual=0, samples=1)
    plain, known = StepOptions(), Calibration(sources=(), host_overhead=host)
    assert with_calibration(plain, known) == StepOptions(host_overhead_ps=250_000_000)
    assert with_calibration(plain, Calibration(sources=())) == plain
    asked = StepOptions(host_overhead_ps=1)
    assert with_calibration(asked, known) == asked
    report = simulate(workloads / "moe_128.txt", "hgx-h100", host_overhead="250 us").report
    assert report.breakdown_ps[Part.HOST.key] > 0


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_fitted_numbers_are_checked(value: float) -> None:
    with pytest.raises(CalibrationError):
        Fitted(value=value, residual=0, samples=1)


def test_hidden_stages_need_the_first_stage(tmp_path: Path) -> None:
    folder = RUN.write(tmp_path / "run")
    with pytest.raises(TraceError, match="from one rank of stage 0"):
        infer_hidden(load_trace(folder / "pp4_tp1_rank1.txt"))


def test_one_rank_is_simulated_in_every_way(tmp_path: Path) -> None:
    folder = RUN.write(tmp_path / "run")
    found = [simulate_run(folder / "pp4_tp1_rank0.txt", times=each) for each in Durations]
    assert len({each.report.step_time_ps for each in found}) == 1
    assert any("inferred" in text for text in found[0].report.warnings)


def test_a_calibration_does_not_change_what_was_inferred(tmp_path: Path) -> None:
    rank = RUN.write(tmp_path / "run") / "pp4_tp1_rank0.txt"
    slow = calibrate_traces(
        [load_trace(replace(RUN, hop_ms=3, host_ms=2).write(tmp_path / "slow"))]
    )
    own, other = simulate_run(rank), simulate_run(rank, calibration=slow)
    assert own.report.step_time_ps == other.report.step_time_ps
    assert any("not the calibration's" in text for text in other.report.warnings)
    assert validate_run(load_trace(rank), slow).inferred == (1, 2, 3)


def test_one_microbatch_is_too_few_to_infer(tmp_path: Path) -> None:
    run = MadeRun(forward=(10, 10), backward=(20, 20), microbatches=1)
    folder = run.write(tmp_path / "pp2_run")
    with pytest.raises(TraceError, match="too few to see the steady state"):
        infer_hidden(load_trace(folder / "pp2_tp1_rank0.txt"))


def test_moving_layers_changes_two_stages(tmp_path: Path) -> None:
    found = tell_layers(RUN.write(tmp_path / "nl8_hs1_run"))
    costs, _ = stage_costs(found)
    assert [cost.layers for cost in costs] == [2, 2, 2, 2]
    assert costs[0].forward_ps == ps(4)
    assert costs[3].end_forward_ps == ps(4)
    ready = ready_run(found)
    moved = change_run(ready, balance=(2, 2, 3, 1))
    first, last = (report.stages for report in (moved.base.report, moved.changed.report))
    assert last[3].forward_ps == first[3].forward_ps - ps(4)
    assert last[2].forward_ps == first[2].forward_ps + ps(4)
    assert moved.changed.report.pipeline_time_ps != moved.base.report.pipeline_time_ps


@pytest.mark.parametrize("balance", [(4, 4), (2, 2, 2, 3), (9, -1, 0, 0)])
def test_a_wrong_balance_is_refused(
    change: Callable[..., WhatIf], balance: tuple[int, ...]
) -> None:
    with pytest.raises(PlanError, match="balance is"):
        change(balance=balance)


def test_the_gain_of_messages_is_told_apart(change: Callable[..., WhatIf]) -> None:
    changed = change(schedule="zb-h1", microbatches=12)
    asked = change(p2p=P2PMode.OVERLAP)
    assert changed.base.report.p2p == P2PMode.BLOCKING
    assert changed.messages is not None
    assert changed.messages.report == asked.changed.report
    assert changed.speedup_of_messages == asked.speedup
    product = changed.speedup_of_messages * changed.speedup_of_rest
    assert changed.speedup == pytest.approx(product, rel=1e-12)


def test_messages_that_stay_as_they_are_have_no_share(change: Callable[..., WhatIf]) -> None:
    kept = change(schedule="gpipe")
    assert kept.messages is None
    assert (kept.speedup_of_messages, kept.speedup_of_rest) == (1, kept.speedup)
    with pytest.raises(ScheduleError, match="zb-h1 does not define p2p blocking"):
        change(schedule="zb-h1", p2p=P2PMode.BLOCKING)


def test_layers_may_be_told(change: Callable[..., WhatIf]) -> None:
    told = change(schedule="interleaved:2", layers=8).changed.report.step_time_ps
    assert change(schedule="interleaved:2").changed.report.step_time_ps == pytest.approx(told)
    with pytest.raises(PlanError, match="layers is 6: expected a multiple of 4"):
        change(layers=6)
    with pytest.raises(PlanError, match="3 chunks: stage 0 has 2 layers"):
        change(schedule="interleaved:3", layers=8)


def test_a_run_of_the_same_shape_is_predicted(tmp_path: Path) -> None:
    """Four layers of 4 and 8 ms, the last stage's head 4 and 5 ms, on other numbers of stages."""
    shape = "hs64_sl128_l4_"
    runs = (
        MadeRun(forward=(4, 4, 4, 8), backward=(8, 8, 8, 13), microbatches=8),
        MadeRun(forward=(8, 12), backward=(16, 21), microbatches=12),
    )
    summaries = [
        tell_layers(run.write(tmp_path / f"run{number}"), shape) for number, run in enumerate(runs)
    ]
    found = validate_run(summaries[1], calibrate_traces(summaries[:1]))
    assert [each.name for each in found.predicted] == ["pipeline", "step"]
    assert all(abs(each.error) < 0.005 for each in found.predicted)
    other = validate_run(summaries[1], Calibration(sources=("other",)))
    assert other.predicted == ()
    assert any("no calibrated run has this one's shape" in note for note in other.notes)


def test_a_run_says_of_its_profile_what_its_stages_take(found: RunSummary) -> None:
    """Statistics of a run are those of the columns of its profile."""
    events = found.run.events
    stage = found.run.column_of_ranks("stage")
    for times in found.stages:
        forward = (stage == times.stage) & (events.name == OpKind.FORWARD)
        assert times.work[OpKind.FORWARD].mean_ps == round(events.duration_ps[forward].mean())
    messages = events.of_kind(TaskKind.SEND, TaskKind.RECV)
    assert (events.peer[messages] >= 0).all()


def test_peers_that_were_not_traced_are_not_known(tmp_path: Path) -> None:
    folder = RUN.write(tmp_path / "run")
    alone = load_trace(sorted(folder.iterdir())[0])
    events = alone.run.events
    assert (events.peer == -1).all()
    meetings = events.meeting[events.meeting >= 0].tolist()
    assert len(set(meetings)) == len(meetings), "no two operations of one rank meet"
