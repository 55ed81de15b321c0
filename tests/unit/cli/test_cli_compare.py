"""The commands that compare, convert and explain: compare, convert, diff."""

import json
from pathlib import Path

import pytest
from helpers import Run
from unit.cli.test_cli import written

FOUR = ("--microbatches", "4")
EIGHT = ("--microbatches", "8")
REFUSAL = "schedule dualpipe-v: microbatches is 4: expected at least 8 (twice the ranks)"


def test_a_row_per_schedule_that_runs_and_a_reason_for_each_other(run: Run, moe: Path) -> None:
    names = ["1f1b", "dualpipe-v", "zb-h1", "interleaved:2"]
    code, out, err = run("compare", moe, *FOUR, "--schedules", ",".join(names))
    assert code == 0
    assert "assumed: no topology given: stepsim assumes hgx-h100" in err
    lines = out.splitlines()
    assert lines[0].startswith("moe_128.txt on 128 GPUs (hgx-h100)   tp 8  dp 4  pp 4  ep 4 inside")
    rows = [line.split() for line in lines[5:] if "%" in line]
    assert {row[0]: row[1] for row in rows} == {
        "1f1b": "blocking",
        "zb-h1": "overlap",
        "interleaved:2": "overlap",
    }
    steps = {row[0]: float(row[2]) for row in rows}
    assert [*steps.values()] == sorted(steps.values()), "the best first"
    assert rows[0][-1] == "best"
    assert lines[1].startswith(f"{rows[0][0]} is the fastest: {rows[0][2]} ms per step")
    assert [row[3] for row in rows] == ["ms"] * 3
    speedups = [float(row[4]) for row in rows]
    assert speedups == pytest.approx([steps["1f1b"] / step for step in steps.values()], rel=1e-3)
    assert f"\ndualpipe-v cannot run: {REFUSAL}\n" in out
    assert out.count("cannot run") == 1


SMALL_JOB = ("llama-3.2-1b", "--gpus", "16", "--global-batch", "64")


def test_a_model_without_degrees_is_compared_on_a_pipeline(run: Run) -> None:
    """Without one all schedules are alike, and `simulate` of this model takes none."""
    assert written(run, "simulate", *SMALL_JOB)["plan"]["pp"] == 1
    code, out, err = run("compare", *SMALL_JOB, "--schedule", "1f1b,interleaved:2")
    assert code == 0
    assert "  pp 2  " in out.splitlines()[0]
    assert "no degrees given: guessed --tp 1 --pp 2" in err


def test_one_stage_says_that_schedules_are_alike(run: Run) -> None:
    _, out, _ = run("compare", *SMALL_JOB, "--pp", "1", "--schedules", "1f1b,zb-h1", "-q")
    assert out.splitlines()[2].startswith("with one stage (pp 1) all schedules are alike")


def test_speed_ups_are_over_the_first_schedule_that_runs(run: Run, moe: Path) -> None:
    document = written(run, "compare", moe, *FOUR, "--schedules", "dualpipe-v,zb-h1,1f1b")
    refused, first, second = document["candidates"]
    assert refused == {"name": "dualpipe-v", "valid": False, "refusal": REFUSAL}
    assert first["speedup"] == 1
    ratio = first["step_time_ps"] / second["step_time_ps"]
    assert second["speedup"] == pytest.approx(ratio, rel=1e-12)


def test_options_go_to_the_schedules_that_have_them(run: Run, moe: Path) -> None:
    job = (*EIGHT, "--schedules", "1f1b,interleaved:2")
    plain, asked = (
        written(run, "compare", moe, *job, *more) for more in ([], ["--group-size", "8"])
    )
    assert plain["candidates"][0] == asked["candidates"][0]
    peaks = [each["candidates"][1]["peak_activations"] for each in (plain, asked)]
    assert peaks[0] < peaks[1]


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (
            ["--schedules", "dualpipe-v,interleaved:2"],
            ["expected at least 8", "at least 4 (ranks)"],
        ),
        (["--schedules", "2f2b"], ["schedule is '2f2b': expected one of 1f1b"]),
        (["--schedules", "1f1b,"], ["schedule is '': expected one of 1f1b"]),
        (["--schedules", "1f1b,none.csv"], ["none.csv: cannot read the schedule"]),
    ],
)
def test_all_schedules_refused(
    run: Run, moe: Path, arguments: list[str], messages: list[str]
) -> None:
    code, out, err = run("compare", moe, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1
    for message in messages:
        assert err.count(message) == 1


@pytest.mark.parametrize("name", ["interleaved:2", "zb-v", "dualpipe", "1f1b"])
def test_a_written_schedule_runs_like_its_name(
    run: Run, moe: Path, tmp_path: Path, name: str
) -> None:
    target = tmp_path / "out.csv"
    assert run("inspect", name, "--csv", target, "--pp", "4", "-m", "8") == (0, "", "")
    assert len(target.read_text().splitlines()) == 4
    job = (moe, *EIGHT, "--p2p", "eager")
    named, read = (written(run, "simulate", *job, "--schedule", each) for each in (name, target))
    assert read["step_time_ps"] == named["step_time_ps"]
    assert read["stages"] == named["stages"]
    assert read["schedule"].startswith("out.csv")


@pytest.mark.parametrize(
    ("name", "ranks", "message"),
    [
        ("dualpipe", "3", "schedule dualpipe: ranks is 3: expected an even number"),
        ("1f1b:x", "2", "expected a number of chunks after the colon"),
    ],
)
def test_a_schedule_that_cannot_be_is_not_written(
    run: Run, tmp_path: Path, name: str, ranks: str, message: str
) -> None:
    target = tmp_path / "out.csv"
    code, out, err = run("inspect", name, "--csv", target, "--pp", ranks, "-m", "8")
    assert (code, out) == (2, "")
    assert message in err
    assert not target.exists()


def test_a_file_of_another_shape_is_refused(run: Run, moe: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    assert run("inspect", "1f1b", "--csv", target, "--pp", "4", "-m", "8")[0] == 0
    code, _, err = run("simulate", moe, *FOUR, "--schedule", target)
    assert code == 2
    expected = "holds 4 ranks and 8 microbatches: the job has pp 4 and 4"
    assert f"error: {target.name}: {expected}" in err


def test_diff_explains_two_results(run: Run, moe: Path, tmp_path: Path) -> None:
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    assert run("simulate", moe, *EIGHT, "--json", a)[0] == 0
    assert run("simulate", moe, *EIGHT, "--schedule", "interleaved:2", "--json", b)[0] == 0
    code, out, err = run("diff", a, b)
    assert (code, err) == (0, "")
    before, after = (json.loads(path.read_text())["step_time_ps"] / 1e9 for path in (a, b))
    assert f"{before:.4g} ms" in out
    assert f"{after:.4g} ms" in out
    assert f"-{before - after:.4g} ms" in out
    assert "1f1b" in out
    assert "interleaved:2" in out
    assert "idle, steady" in out
    assert "identical" in run("diff", a, a)[1]


def test_spaces_between_names_are_fine(run: Run, moe: Path) -> None:
    assert run("compare", moe, "--schedules", "1f1b, zb-h1")[0] == 0


def test_schedule_files_set_their_own_chunks(run: Run, moe: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    assert run("inspect", "interleaved:2", "--csv", target, "--pp", "4", "-m", "8")[0] == 0
    code, _, err = run("simulate", moe, "-m", "8", "--schedule", target, "--chunks", "2")
    assert code == 2
    assert "sets chunks itself" in err
    shape = ("--pp", "2", "-m", "2")
    assert "written as .csv" in run("inspect", "1f1b", "--csv", tmp_path / "a.txt", *shape)[2]
