"""A simulated step as PyTorch's profiler would have written it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepsim
from stepsim.base.structs import replace
from stepsim.explain.as_profile import profile_of_step
from stepsim.explain.shares import device_shares
from stepsim.files.traces.chakra_write import write_chakra
from stepsim.files.traces.forms import read_profile
from stepsim.files.traces.kineto_write import write_kineto
from stepsim.measured.profile.events import Events, Profile, RankPlace
from stepsim.run.spans import COMMUNICATIONS, UNKNOWN, TaskKind
from stepsim.runs.improve import improve_profile

US = 10**6


@pytest.fixture(scope="module")
def profile() -> Profile:
    result = stepsim.simulate("workloads/gpt_1024.txt", "hgx-h100", npus=32, pp=2, microbatches=2)
    return profile_of_step(result.timeline, source="gpt")


@pytest.fixture(scope="module")
def folder(profile: Profile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "kineto"
    assert len(write_kineto(profile, path)) == 32
    return path


def test_the_profile_is_read_again(profile: Profile, folder: Path) -> None:
    again = read_profile(folder)
    assert again.steps == (0,)
    assert again.step_times_ps().tolist() == profile.step_times_ps().tolist()
    assert device_shares(again) == device_shares(profile)
    met = again.events.of_kind(TaskKind.COLLECTIVE)
    assert int(met.sum()) == int(profile.events.of_kind(TaskKind.COLLECTIVE).sum())
    assert [each for each in again.warnings if "not on all" in each] == []


def test_kernels_say_what_they_carry(profile: Profile, folder: Path) -> None:
    trace = json.loads((folder / "stepsim.rank3.json").read_text())
    assert trace["distributedInfo"]["rank"] == 3
    gathers = [e for e in trace["traceEvents"] if "AllGather" in e["name"]]
    told = gathers[0]["args"]
    assert told["Out msg nelems"] == told["Group size"] * told["In msg nelems"]
    assert told["Process Group Ranks"] == "[0, 1, 2, 3, 4, 5, 6, 7]"
    launched = {
        e["args"]["correlation"] for e in trace["traceEvents"] if e["cat"] == "cuda_runtime"
    }
    assert launched == {
        e["args"]["correlation"] for e in trace["traceEvents"] if e["cat"] == "kernel"
    }


def _two_steps(start_ps: list[int], launch_ps: list[int]) -> Profile:
    """Two operations in each of two steps of one rank; every operation takes 40 us."""
    start = np.array(start_ps, dtype=np.int64) * US
    zeros = np.zeros(len(start), dtype=np.int64)
    columns = dict.fromkeys(("rank", "kind", "name", "stream"), zeros)
    return Profile(
        source="made",
        format="test",
        ranks=(RankPlace(rank=0),),
        steps=(3, 8),
        names=("gemm",),
        groups=(),
        events=Events.of(
            len(start),
            **columns,
            step=np.array([0, 0, 1, 1], dtype=np.int64),
            start_ps=start,
            end_ps=start + 40 * US,
            launch_ps=np.where(np.array(launch_ps) < 0, UNKNOWN, np.array(launch_ps) * US),
        ),
    )


def test_steps_that_count_from_their_own_begin_are_written_in_a_row(tmp_path: Path) -> None:
    profile = _two_steps([0, 50, 10, 70], [-1] * 4)
    write_kineto(profile, tmp_path / "run")
    again = read_profile(tmp_path / "run")
    assert again.steps == (3, 8)
    assert again.step_times_ps().tolist() == profile.step_times_ps().tolist() == [90 * US, 100 * US]
    assert again.events.step.tolist() == [0, 0, 1, 1]
    assert np.diff(again.events.start_ps[:2]).tolist() == [50 * US]
    assert (again.events.start_ps[2:] > again.events.end_ps[:2].max()).all()


def test_steps_that_run_into_each_other_keep_their_times(tmp_path: Path) -> None:
    profile = _two_steps([100, 150, 200, 250], [0, 10, 120, 130])
    write_kineto(profile, tmp_path / "run")
    again = read_profile(tmp_path / "run")
    assert again.warnings == ()
    assert again.events.step.tolist() == [0, 0, 1, 1]
    for column in ("start_ps", "end_ps"):
        told = getattr(profile.events, column) - 100 * US
        assert getattr(again.events, column).tolist() == told.tolist()


@pytest.mark.parametrize("name", ["hta_nccl_data.json.gz", "deepseek_train.json.gz"])
def test_what_was_recorded_is_written_whole(name: str, shared: Path, tmp_path: Path) -> None:
    profile = read_profile(shared / "reference" / "profiles" / "kineto" / name)
    write_kineto(profile, tmp_path / "run")
    again = read_profile(tmp_path / "run")
    assert len(again.events) == len(profile.events)
    assert again.steps == profile.steps
    assert again.step_times_ps().tolist() == profile.step_times_ps().tolist()


def test_messages_stay_messages(shared: Path, tmp_path: Path) -> None:
    job = shared / "reference" / "profiles" / "ndtimeline" / "trace-ST.parquet"
    profile = read_profile(job)
    write_kineto(profile, tmp_path / "run")
    again = read_profile(tmp_path / "run")
    for kind in COMMUNICATIONS:
        assert again.events.of_kind(kind).sum() == profile.events.of_kind(kind).sum()


@pytest.mark.filterwarnings("ignore")
def test_holistic_trace_analysis_finds_the_same_shares(profile: Profile, folder: Path) -> None:
    analysis = pytest.importorskip("hta.trace_analysis", reason="HolisticTraceAnalysis is missing")
    found = analysis.TraceAnalysis(trace_dir=str(folder)).get_temporal_breakdown(visualize=False)
    for row, ours in zip(found.to_dict("records"), device_shares(profile), strict=True):
        # it rounds times down to whole microseconds
        assert row["compute_time_pctg"] == pytest.approx(
            ours.compute_ps / ours.span_ps * 100, abs=0.2
        )
        assert row["idle_time_pctg"] == pytest.approx(ours.idle_ps / ours.span_ps * 100, abs=0.2)


OTHER_ORDERS = ("schedule-", "twice-the-microbatches")


@pytest.mark.parametrize("write", [write_kineto, write_chakra])
def test_replacing_the_slow_rank_gives_the_step_without_it(
    write: Callable[[Profile, Path], list[Path]], tmp_path: Path
) -> None:
    slow, healthy = (
        stepsim.simulate(
            "workloads/gpt_tp4.txt", "hgx-h100", npus=16, pp=4, microbatches=4, slow=ranks
        )
        for ranks in ("13:1.3", None)
    )
    write(profile_of_step(slow.timeline, source="slow"), tmp_path / "run")
    changes = improve_profile(read_profile(tmp_path / "run")).changes
    best = next(each for each in changes if not each.name.startswith(OTHER_ORDERS))
    assert best.name == "replace-rank-13"
    assert best.step_ps == healthy.report.step_time_ps < slow.report.step_time_ps


@pytest.mark.parametrize(
    ("ranks", "first"),
    [
        ("0:2", "replace-rank-0"),
        ("5:1.5", "replace-rank-5"),
        ("0:2,5:2", "replace-slow-ranks"),
        ("1:1.3,2:1.4", "replace-slow-ranks"),
    ],
)
def test_what_mends_slow_workers_of_a_model_is_first(
    ranks: str, first: str, tmp_path: Path
) -> None:
    """Optimizers wait for reductions, and these for the slow ranks: nothing of it is the host's."""
    job: dict[str, Any] = {"npus": 8, "tp": 1, "pp": 2, "microbatch_size": 1, "sequence": 4096}
    job |= {"global_batch": 64, "topology": "hgx-h100"}
    slow, healthy = (stepsim.simulate("llama-3-8b", **job, slow=each) for each in (ranks, None))
    write_kineto(profile_of_step(slow.timeline, source="slow"), tmp_path / "run")
    found = improve_profile(read_profile(tmp_path / "run"))
    assert found.replayed_ps == pytest.approx(slow.report.step_time_ps, rel=1e-5)
    gain = 1 - healthy.report.step_time_ps / slow.report.step_time_ps
    assert found.changes[0].name == first
    assert found.changes[0].gain == pytest.approx(gain, abs=0.02)


def test_a_rank_of_host_operations_alone_is_written(tmp_path: Path) -> None:
    profile = _two_steps([0, 50, 100, 150], [-1] * 4)
    host = np.full(4, TaskKind.HOST, dtype=np.int64)
    quoted = 'load "the\\batch"'
    (file,) = write_kineto(
        replace(profile, names=(quoted,), events=replace(profile.events, kind=host)),
        tmp_path / "run",
    )
    events = json.loads(file.read_text())["traceEvents"]
    operators = [event for event in events if event["cat"] == "cpu_op"]
    assert [event["name"] for event in operators] == [quoted] * 4
    assert [event["ts"] for event in operators] == [0, 50, 100, 150]
