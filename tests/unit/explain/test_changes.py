"""Changes of a profiled run: other orders against jobs made so, links, experts, buckets, pages."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import profiles
import pytest
from click.testing import CliRunner
from helpers import answers_of
from profiles import made_rows, write_rows

import stepsim
from stepsim import cli
from stepsim.base.errors import PlanError, TraceError
from stepsim.explain.as_profile import profile_of_step
from stepsim.explain.changes.computes import compute_changes
from stepsim.explain.changes.lengths import told_works
from stepsim.explain.changes.made import Improvement, ProfileChange, UntoldChange
from stepsim.explain.changes.transfers import transfer_changes
from stepsim.files.measured import load_profile
from stepsim.files.traces.chakra_write import write_chakra
from stepsim.files.traces.kineto_write import write_kineto
from stepsim.measured.profile.events import Events, ProcessGroup, Profile, RankPlace, counted
from stepsim.measured.profile.pipeline import pipeline_waits
from stepsim.measured.profile.waits import Waits
from stepsim.run.spans import UNKNOWN, TaskKind
from stepsim.runs.improve import change_profile, changes_of, improve_profile
from stepsim.runs.orders import order_changes, told_stages

pytest.importorskip("pyarrow")

Shape = dict[str, Any]
STAGES, MICROBATCHES = 4, 8
ORDERS = ("schedule-zb-h1", "schedule-interleaved-2", "twice-the-microbatches")


def made(folder: Path, **more: Any) -> Profile:
    shape: Shape = {"stages": STAGES, "replicas": 2, "microbatches": MICROBATCHES} | more
    path = folder / f"{len(list(folder.iterdir()))}.parquet"
    return load_profile(write_rows(made_rows(**shape), path))


def applied(source: Path | str, change: str, target: Path) -> Profile:
    """What the command writes of a changed run, read again."""
    command = ["improve", str(source), "-q", "--apply", change, "-o", str(target)]
    result = CliRunner().invoke(cli.make_app(), command)
    assert result.exit_code == 0, result.exception
    return load_profile(target)


def steps_of(change: ProfileChange) -> Any:
    """Every step once a change is made, in ps."""
    return change.waits.steps_ps(change.own_ps, change.delay_ps)


def gains_of(profile: Profile) -> dict[str, float]:
    return {each.name: each.gain for each in improve_profile(profile).changes}


@pytest.mark.parametrize(
    ("ran", "change", "wanted"),
    [
        ({"schedule": "gpipe"}, "schedule-1f1b", {"schedule": "1f1b"}),
        ({}, "schedule-interleaved-2", {"schedule": "interleaved", "chunks": 2, "share": 0.5}),
        ({"schedule": "interleaved", "chunks": 2}, "schedule-1f1b", {"share": 2}),
        ({"slow": 2}, "twice-the-microbatches", {"microbatches": 16, "share": 0.5, "slow": 2}),
        (
            {"slow": 2},
            "schedule-interleaved-2",
            {"schedule": "interleaved", "chunks": 2, "share": 0.5, "slow": 2},
        ),
    ],
)
def test_another_order_is_the_job_made_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ran: Shape, change: str, wanted: Shape
) -> None:
    """What is predicted from one order is what the same job takes under the other, within 1.5 %."""
    monkeypatch.setattr(profiles, "HOP", 0.01)
    profile, other = made(tmp_path, **ran), made(tmp_path, **wanted)
    found = next(
        each for each in order_changes(profile, told_stages(profile)) if each.name == change
    )
    assert isinstance(found, Improvement)
    step_ps = profile.step_times_ps()[0] * (1 - found.gain)
    assert step_ps == pytest.approx(other.step_times_ps()[0], rel=0.015)


def test_replicas_that_differ_tell_no_other_order(tmp_path: Path) -> None:
    """A stage that is slow on one replica, and another on the other: no mean stage is so slow."""
    slow = [made_rows(stages=2, replicas=2, microbatches=4, slow=stage) for stage in range(2)]
    rows = [row for replica in range(2) for row in slow[replica] if row["dp_rank"] == replica]
    profile = load_profile(write_rows(rows, tmp_path / "a.parquet"))
    (told,) = order_changes(profile, told_stages(profile))
    assert told.name == "other-schedules"
    assert isinstance(told, UntoldChange)
    assert "ranks of a stage differ" in told.why


def test_every_change_is_applied_as_predicted(tmp_path: Path) -> None:
    """Written and read again, a changed run has the step that `improve` names."""
    profile = made(tmp_path, stages=2, microbatches=4, steps=2, slow=1)
    found = improve_profile(profile)
    names = {each.name for each in found.changes}
    assert set(ORDERS) <= names
    for change in found.changes:
        assert change.low <= change.gain <= change.high
        assert change.gain <= change.ceiling
        if change.name not in ORDERS:
            again = applied(profile.source, change.name, tmp_path / f"{change.name}.parquet")
            assert again.step_times_ps().mean() == pytest.approx(change.step_ps, rel=1e-6)


def test_another_order_is_not_applied(tmp_path: Path) -> None:
    """It is not what was recorded with other times: `what-if` shows it."""
    with pytest.raises(PlanError, match="stepsim what-if runs other orders"):
        change_profile(made(tmp_path), "schedule-zb-h1")


@pytest.mark.parametrize("name", ["pp2_tp1_exp8*", "pp4_tp1_exp2*"])
def test_traces_of_kernels_are_judged_as_the_run_they_are_of(
    name: str, shared: Path, tmp_path: Path
) -> None:
    """Stages and microbatches are told by marks: other schedules are judged by them."""
    (path,) = (shared / "reference/measured/megatron_moe_16gpu").glob(name)
    written = ["simulate", str(path), "--kineto", str(tmp_path / "kineto"), "-q"]
    assert CliRunner().invoke(cli.make_app(), written).exit_code == 0
    kernels = load_profile(tmp_path / "kineto")
    expected, found = gains_of(load_profile(path)), improve_profile(kernels)
    gains = {each.name: each.gain for each in found.changes}
    for change in ORDERS:
        assert gains[change] == pytest.approx(expected[change], abs=0.02), change
    told = next(each for each in found.changes if each.name == "schedule-zb-h1")
    assert "the program marked every action" in told.assumed
    assert not {each.name for each in found.untold} & {"even-stages", "other-schedules"}


def test_a_change_that_the_run_tells_is_judged_once(shared: Path, tmp_path: Path) -> None:
    """A Chakra trace tells stages and microbatches, but not the order of a schedule."""
    recorded = load_profile(shared / "reference/profiles/ndtimeline/trace-ST.parquet")
    write_chakra(recorded, tmp_path / "run")
    found = improve_profile(load_profile(tmp_path / "run"))
    names = [change.name for change in found.changes] + [*found.without_gain]
    names += [change.name for change in found.untold]
    assert "schedule-zb-h1" in names
    assert len(names) == len(set(names))


def test_one_rank_tells_no_other_schedule(shared: Path) -> None:
    kernels = load_profile(shared / "reference/profiles/kineto/deepseek_train.json.gz")
    untold = {each.name: each.why for each in improve_profile(kernels).untold}
    assert "does not name its stages" in untold["other-schedules"]


@pytest.mark.parametrize("change", ["even-stages", "twice-the-network"])
def test_a_changed_trace_is_replayed_as_it_was_written(
    change: str, shared: Path, tmp_path: Path
) -> None:
    """Collectives of unknown ranks too."""
    profile = load_profile(shared / "reference/profiles/ndtimeline/trace-ST.parquet")
    changed, path = change_profile(profile, change), tmp_path / "changed"
    write_chakra(changed, path)
    waits = pipeline_waits(load_profile(path))
    replayed = waits.steps_ps(waits.own_ps, waits.delay_ps)
    assert replayed == pytest.approx(changed.step_times_ps(), rel=1e-4)


@pytest.mark.parametrize("degrees", [{"tp": 2, "pp": 2}, {"tp": 1, "pp": 1, "cp": 4}])
def test_what_ranks_of_one_layer_reduce_is_no_bucket_of_gradients(
    degrees: Shape, tmp_path: Path
) -> None:
    job = stepsim.simulate("llama-2-7b", npus=4, microbatches=4, dp_overlap=False, **degrees)
    write_kineto(profile_of_step(job.timeline, source="job", kernels=True), tmp_path / "kineto")
    untold = improve_profile(load_profile(tmp_path / "kineto")).untold
    assert {"larger-buckets", "smaller-buckets"} <= {each.name for each in untold}


def test_even_stages_share_what_one_stage_alone_runs(tmp_path: Path) -> None:
    """The head is on the last stage: kernels and tasks of one step tell the same gain of it."""
    job = stepsim.simulate("llama-2-7b", npus=4, tp=1, pp=4, microbatches=8, schedule="1f1b")
    write_kineto(profile_of_step(job.timeline, source="job", kernels=True), tmp_path / "kineto")
    write_chakra(profile_of_step(job.timeline, source="job"), tmp_path / "chakra")
    found = []
    for folder in ("kineto", "chakra"):
        changes = improve_profile(load_profile(tmp_path / folder)).changes
        found += [each for each in changes if each.name == "even-stages"]
    one, other = found
    assert one.gain == pytest.approx(other.gain, rel=0.03)
    assert one.gain > 0.02
    assert all("stage 3 is the slowest" in each.what for each in found)


@pytest.mark.parametrize("change", ["no-host-gaps", "even-stages"])
def test_a_changed_trace_has_the_delays_of_its_change(
    change: str, shared: Path, tmp_path: Path
) -> None:
    """What a receive waits for its sender is not read again as a delay of the host."""
    profile = load_profile(shared / "reference/profiles/ndtimeline/trace-ST.parquet")
    write_chakra(change_profile(profile, change), tmp_path / "changed")
    before, again = gains_of(profile), gains_of(load_profile(tmp_path / "changed"))
    expected = 0.0 if change == "no-host-gaps" else before["no-host-gaps"]
    assert again.get("no-host-gaps", 0.0) == pytest.approx(expected, abs=0.01)
    assert again["schedule-zb-h1"] == pytest.approx(before["schedule-zb-h1"], abs=0.015)


def test_steps_of_a_changed_trace_lie_side_by_side(tmp_path: Path) -> None:
    """Where names are not NDTimeline's, Chakra traces hold all steps, with their numbers."""
    profile = made(tmp_path, steps=2, slow=1)
    again = applied(profile.source, "even-stages", tmp_path / "changed")
    wanted = change_profile(profile, "even-stages")
    assert again.steps == (10, 11)
    assert again.step_times_ps().tolist() == wanted.step_times_ps().tolist()
    assert [each.stage for each in again.ranks] == [each.stage for each in profile.ranks]


def changed(waits: Waits) -> dict[str, ProfileChange | UntoldChange]:
    return {change.name: change for change in transfer_changes(waits)}


def test_nics_and_links_of_nodes(tmp_path: Path) -> None:
    """Stages on nodes of their own: messages leave them, reductions over replicas do not."""
    profile = made(tmp_path).on_nodes(100)
    waits = pipeline_waits(profile, posted=True)
    found, every = changed(waits), profile.named("optimizer-clip-main-grad")
    messages = profile.events.of_kind(TaskKind.SEND, TaskKind.RECV)
    collectives = profile.events.of_kind(TaskKind.COLLECTIVE)
    for name, which in (
        ("twice-the-nics", messages | every),
        ("twice-nvlink", collectives & ~every),
    ):
        change = found[name]
        assert isinstance(change, ProfileChange)
        assert np.array_equal(change.own_ps < waits.own_ps, which & (waits.own_ps > 0))
        assert change.best_own_ps is not None
        best_ps = waits.steps_ps(change.best_own_ps, change.delay_ps)
        assert (best_ps <= steps_of(change)).all()
    for unknown in (changed(pipeline_waits(made(tmp_path), posted=True)), found):
        assert isinstance(unknown["larger-buckets"], UntoldChange)
    lacking = changed(pipeline_waits(made(tmp_path)))["twice-the-nics"]
    assert isinstance(lacking, UntoldChange)
    assert lacking.why.endswith("give --node-size")


def recorded(group: str, rows: list[tuple[int, str, TaskKind, int, int, int, int]]) -> Profile:
    """Operations of two ranks: rank, name, kind, stream, start, end, bytes."""
    rank, name, kind, stream, start, end, size = map(np.array, zip(*rows, strict=True))
    names, number = np.unique(name, return_inverse=True)
    joined = np.char.startswith(name, "nccl")
    events = Events.of(
        len(rank),
        step=np.zeros_like(rank),
        rank=rank,
        name=number,
        kind=kind,
        stream=stream,
        start_ps=start,
        end_ps=end,
        size_bytes=size,
        group=np.where(joined, 0, UNKNOWN),
        meeting=np.where(joined, counted(rank, number) * 10 + number, UNKNOWN),
    )
    return Profile(
        source="made",
        format="test",
        ranks=(RankPlace(rank=0), RankPlace(rank=1)),
        steps=(1,),
        names=tuple(names.tolist()),
        groups=(ProcessGroup(name=group, ranks=(0, 1)),),
        events=events,
    )


def exchanged(group: str) -> Profile:
    """Rank 0 computes 10 of its experts between two exchanges, rank 1 30; both 5 after them."""
    compute, exchange = TaskKind.COMPUTE, TaskKind.COLLECTIVE
    rows = []
    for rank, took in ((0, 10), (1, 30)):
        rows += [
            (rank, "nccl all_to_all", exchange, 2, 0, 4, 64),
            (rank, "grouped gemm", compute, 1, 4, 4 + took, UNKNOWN),
            (rank, "nccl all_to_all", exchange, 2, 4 + took, 38, 64),
            (rank, "gemm", compute, 1, 38, 43, UNKNOWN),
        ]
    return recorded(group, rows)


def test_even_experts_compute_equally_long() -> None:
    profile = exchanged("7 EXPERT_MODEL_PARALLEL_GROUP")
    waits = pipeline_waits(profile, posted=True)
    found = {each.name: each for each in compute_changes(waits)}
    change = found["even-experts"]
    assert isinstance(change, ProfileChange)
    assert change.own_ps[profile.named("grouped gemm")].tolist() == [20, 20]
    assert change.own_ps[profile.named("gemm")].tolist() == [5, 5]
    assert steps_of(change).tolist() == [33], "the step without the wait for rank 1"
    other = exchanged("7 default_pg")
    plain = compute_changes(pipeline_waits(other, posted=True))
    named = {each.name: each for each in plain}
    assert isinstance(named["even-experts"], UntoldChange)


def test_buckets_of_gradients() -> None:
    """Two buckets of 2 + 1 per byte each: as one they take 2 less, halved they begin earlier."""
    compute, reduction = TaskKind.COMPUTE, TaskKind.COLLECTIVE
    rows = []
    for rank in (0, 1):
        rows += [
            (rank, "backward", compute, 1, 0, 100, UNKNOWN),
            (rank, "backward", compute, 1, 100, 200, UNKNOWN),
            (rank, "backward", compute, 1, 200, 300, UNKNOWN),
            (rank, "nccl allreduce", reduction, 2, 100, 142, 40),
            (rank, "nccl allreduce", reduction, 2, 200, 282, 80),
            (rank, "nccl allreduce", reduction, 2, 300, 382, 80),
        ]
    profile = recorded("0", rows)
    waits = pipeline_waits(profile, posted=True)
    found, reduced = changed(waits), profile.named("nccl allreduce")
    larger, smaller = found["larger-buckets"], found["smaller-buckets"]
    assert isinstance(larger, ProfileChange)
    assert isinstance(smaller, ProfileChange)
    assert waits.own_ps[reduced].tolist() == [42, 82, 82] * 2
    assert larger.own_ps[reduced].tolist() == [0, 122, 82] * 2
    assert smaller.own_ps[reduced].tolist() == [42, 42, 42] * 2
    assert steps_of(smaller).tolist() == [342]


def test_what_cannot_be_told_says_why(tmp_path: Path) -> None:
    profile = made(tmp_path, stages=1, replicas=1)
    untold = {
        each.name: each.why
        for each in changes_of(pipeline_waits(profile, posted=True), told_works(profile))
        if isinstance(each, UntoldChange)
    }
    assert untold["even-stages"] == "the run has one stage"
    (other,) = order_changes(profile, told_stages(profile))
    assert isinstance(other, UntoldChange)
    assert other.why.startswith("the run has one stage")
    assert untold["even-replicas"] == "one rank was traced"
    assert "one rank was traced" in untold["twice-the-nics"]
    assert "replace-rank-0" in untold
    with pytest.raises(PlanError, match="even-stages cannot be judged: the run has one stage"):
        change_profile(profile, "even-stages")


def test_a_page_shows_all_of_it(tmp_path: Path) -> None:
    profile = made(tmp_path, slow=1)
    pages = []
    for place in (tmp_path / "a.html", tmp_path / "b.html"):
        command = ["improve", profile.source, "-q", "--report", str(place), "--json", "-"]
        result = CliRunner().invoke(cli.make_app(), command)
        assert result.exit_code == 0, result.exception
        pages.append(answers_of(place.read_bytes())["shown"])
    document, words = json.loads(result.stdout), json.dumps(pages[0])
    for each in (*document["changes"], *document["untold"]):
        assert each["name"] in words
    assert "give --node-size" in words
    assert pages[0] == pages[1]
    assert len(pages[0]["lanes"]["rows"]) == len(profile.ranks)
    stepsim.improve(profile, node_size=2).write_report(tmp_path / "c.html")
    assert "twice-nvlink" in json.dumps(answers_of((tmp_path / "c.html").read_bytes()))
    with pytest.raises(TraceError, match="node_size is 0"):
        stepsim.improve(profile, node_size=0)
