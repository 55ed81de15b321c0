"""A simulated step as PyTorch's profiler would have written it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import stepsim
from stepsim.explain.as_profile import profile_of_step
from stepsim.explain.improve import improve_profile
from stepsim.explain.shares import device_shares
from stepsim.files.traces.chakra_write import write_chakra
from stepsim.files.traces.forms import read_profile
from stepsim.files.traces.kineto_write import write_kineto
from stepsim.measured.profile.events import Profile
from stepsim.tables.spans import TaskKind


@pytest.fixture(scope="module")
def profile() -> Profile:
    result = stepsim.simulate("workloads/gpt_1024.txt", "hgx-h100", npus=32, pp=2, microbatches=2)
    return profile_of_step(result.timeline, result.prices, source="gpt")


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
    write(profile_of_step(slow.timeline, slow.prices, source="slow"), tmp_path / "run")
    best = improve_profile(read_profile(tmp_path / "run")).changes[0]
    assert best.name == "replace-rank-13"
    assert best.step_ps == healthy.report.step_time_ps < slow.report.step_time_ps
