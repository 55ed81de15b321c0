"""`stepsim inspect`, `simulate` and `improve` of profiles."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from profiles import made_rows, write_rows
from traces import MadeRun
from unit.cli.test_cli_measured import call

import stepsim
from stepsim.base.errors import PlanError, TraceError
from stepsim.explain.path import critical_parts
from stepsim.explain.shares import rank_shares
from stepsim.files.measured import load_profile
from stepsim.measured.profile.pipeline import pipeline_waits
from stepsim.measured.summary import RunSummary

pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two stages, of which the second takes twice as long, and two replicas."""
    rows = made_rows(stages=2, replicas=2, microbatches=4, steps=2, slow=1)
    return write_rows(rows, tmp_path_factory.mktemp("job") / "job.parquet")


def test_inspect_names_the_slow_stage(job: Path) -> None:
    printed = call("inspect", job)
    assert "4 workers: 2 stages, 2 replicas" in printed
    assert "mean step of every rank" in printed
    document = json.loads(call("inspect", job, "--json", "-"))
    assert document["slowdown_by_stage"][1] > document["slowdown"] > 1
    path = sum(part["own_s"] + part["host_s"] for part in document["critical_path"])
    assert path == pytest.approx(document["steps"][0]["replayed_s"])
    assert [step["step"] for step in document["steps"]] == [10, 11]


def test_simulate_replays_every_step(job: Path) -> None:
    assert "put back in order, differ by 0.000% on average" in call("simulate", job)
    assert "kernel time of every kind, over all ranks" in call("simulate", job, "--full")
    document = json.loads(call("simulate", job, "--json", "-"))
    assert all(abs(step["error"]) < 1e-6 for step in document["steps"])
    for part in ("replayed_ranks", "replayed_kinds"):
        others = [each for each in document[part] if each["name"] != "send"]
        assert all(abs(each["largest"]) < 1e-6 for each in others), "sends do not wait here"
    assert [each["name"] for each in document["replayed_ranks"]] == ["0", "1", "100", "101"]
    assert {each["name"] for each in document["replayed_kinds"]} == {
        *("compute", "collective", "send", "recv"),
    }
    last = max(each["measured_s"] for each in document["replayed_ranks"])
    assert last == pytest.approx(document["steps"][0]["measured_s"])


def test_improve_ranks_changes_and_applies_one(job: Path, tmp_path: Path) -> None:
    """Even stages gain most, and the changed run has the step that was predicted."""
    other = tmp_path / "even.parquet"
    document = json.loads(
        call("improve", job, "--apply", "even-stages", "--output", other, "--json", "-")
    )
    gains = [change["gain"] for change in document["changes"]]
    assert gains == sorted(gains, reverse=True)
    best = document["changes"][0]
    assert best["name"] == "even-stages"
    assert best["gain"] < document["ceiling"] + 1e-9
    again = json.loads(call("simulate", other, "--json", "-"))
    assert again["steps"][0]["measured_s"] == pytest.approx(best["step_s"])
    assert again["steps"][0]["replayed_s"] == pytest.approx(best["step_s"])
    assert "even-stages" in call("improve", job)


def test_the_parts_of_a_step_add_up(job: Path) -> None:
    waits = pipeline_waits(stepsim.load_profile(job), posted=True)
    step_ps = int(waits.profile.step_times_ps().mean())
    for share in rank_shares(waits, [1] * len(waits.profile.ranks)):
        assert share.compute_ps + share.exposed_ps + share.idle_ps == step_ps
        assert share.exposed_ps <= share.communication_ps
    parts = critical_parts(waits)
    replayed = waits.steps_ps(waits.own_ps, waits.delay_ps)
    assert sum(part.own_ps + part.host_ps for part in parts) == int(np.mean(replayed))
    assert {parts[0].rank, parts[1].rank} <= {100, 101}, "the slow stage makes the step"


def test_what_a_profile_cannot_do_is_refused(job: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="leave out --times, --node-size"):
        call("simulate", job, "--times", "mean", "--node-size", "8")
    with pytest.raises(PlanError, match="leave out --pp"):
        call("inspect", job, "--pp", "2")
    with pytest.raises(PlanError, match="expected --apply NAME and --output FILE together"):
        call("improve", job, "--apply", "even-stages")
    with pytest.raises(PlanError, match="change is 'magic': expected one of even-microbatches"):
        call("improve", job, "--apply", "magic", "--output", tmp_path / "x.parquet")
    assert not (tmp_path / "x.parquet").exists()
    text = tmp_path / "run.txt"
    text.write_text("nothing")
    with pytest.raises(TraceError, match="not a profile: expected NDTimeline parquet"):
        call("improve", text)
    with pytest.raises(TraceError, match="no such file or folder"):
        call("improve", tmp_path / "none")


def test_traces_of_all_ranks_are_a_profile(tmp_path: Path) -> None:
    """Three stages of 10, 12 and 11 ms a forward; the replay is the run, even stages help."""
    made = MadeRun(forward=(10, 12, 11), backward=(20, 24, 22), microbatches=6)
    folder = made.write(tmp_path / "run")
    run, profile = stepsim.load_run(folder), stepsim.load_profile(folder)
    assert isinstance(run, RunSummary)
    waits = pipeline_waits(profile, posted=True)
    step = waits.steps_ps(waits.own_ps, waits.delay_ps)
    assert step[0] == pytest.approx(profile.step_times_ps()[0], rel=1e-3)
    assert step[0] == pytest.approx(run.step_ps, rel=0.02)
    names = [change.name for change in stepsim.improve(folder).changes]
    assert "even-stages" in names
    first = sorted(folder.iterdir())[0]
    with pytest.raises(TraceError, match="only rank 0 was traced: expected all ranks"):
        stepsim.load_profile(first)


@pytest.mark.parametrize("stages", [2, 4])
def test_measured_runs_are_replayed_as_profiles(shared: Path, stages: int) -> None:
    """All 16 ranks of a Megatron run: the recorded step to the picosecond's rounding."""
    folder = shared / "reference/measured/megatron_moe_16gpu"
    for path in sorted(folder.glob(f"pp{stages}*")):
        found = stepsim.improve(path)
        assert found.replayed_ps == pytest.approx(found.measured_ps, rel=1e-5)
        assert found.changes[0].gain < 0.1


def test_a_changed_step_is_written_as_chakra(tmp_path: Path) -> None:
    workload = Path(__file__).parents[3] / "workloads" / "gpt_tp4.txt"
    step, changed, name = tmp_path / "step", tmp_path / "faster", "twice-the-network"
    call("simulate", workload, "-t", "hgx-h100", "-q", "--chakra", step)
    found = json.loads(call("improve", step, "--apply", name, "-o", changed, "--json", "-"))
    best = next(each for each in found["changes"] if each["name"] == name)
    (again,) = json.loads(call("inspect", changed, "--json", "-"))["steps"]
    assert again["replayed_s"] == best["step_s"]


def test_rows_and_a_trace_hold_what_was_recorded(job: Path, tmp_path: Path) -> None:
    rows, trace = tmp_path / "rows.csv", tmp_path / "trace.json"
    assert call("simulate", job, "--csv", rows, "--trace", trace) == call("simulate", job)
    recorded = load_profile(job)
    with rows.open(newline="") as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(recorded.events)
    begin = recorded.events.start_ps.min()
    starts, ends = recorded.events.start_ps - begin, recorded.events.end_ps - begin
    assert [int(row["start_ps"]) for row in table] == starts.tolist()
    assert [int(row["end_ps"]) for row in table] == ends.tolist()
    assert {row["kind"] for row in table} == {"compute", "collective", "send", "recv"}
    events = json.loads(trace.read_text())["traceEvents"]
    assert sum(event["ph"] == "B" for event in events) == len(recorded.events)


def test_a_trace_of_a_profile_shows_ranks_and_a_window(job: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    call("simulate", job, "--trace", trace, "--ranks", "100")
    names = [
        event["args"]["name"]
        for event in json.loads(trace.read_text())["traceEvents"]
        if event.get("name") == "process_name"
    ]
    assert names == ["rank 100, stage 1"]
    with pytest.raises(PlanError, match=r"has no rank 7: expected one of 0, 1, 100, 101"):
        call("simulate", job, "--trace", trace, "--ranks", "7")
    with pytest.raises(PlanError, match=r"window is 1000 s..2000 s: .* takes "):
        call("simulate", job, "--trace", trace, "--window", "1000s..2000s")
