"""`simulate --against`: what it prints, writes and refuses."""

import csv
import json
from pathlib import Path

import pytest
from helpers import Run, answers_of

import stepsim
from stepsim.explain.as_profile import profile_of_step
from stepsim.files.traces.kineto_write import write_kineto

JOB = ("llama-2-7b", "--npus", "8", "--tp", "1", "--pp", "1", "--global-batch", "8")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks of a job whose attention is unfused."""
    path = tmp_path_factory.mktemp("traces") / "recorded"
    with pytest.warns(stepsim.StepsimWarning):
        step = stepsim.simulate(
            "llama-2-7b", npus=8, tp=1, pp=1, global_batch=8, attention="unfused"
        )
    profile = profile_of_step(step.timeline, source="job", ranks=[0, 5], kernels=True)
    write_kineto(profile, path)
    return path


def test_the_answer_stands_on_fifteen_lines(run: Run, trace: Path) -> None:
    code, out, err = run("simulate", *JOB, "--against", trace)
    assert code == 0
    assert len(out.splitlines()) <= 15
    assert len(err.splitlines()) <= 3
    assert "per step predicted" in out
    assert "1. attention" in out
    whole = run("simulate", *JOB, "--against", trace, "--full")[1]
    assert whole.startswith(out.rstrip("\n"))
    assert "every row" in whole


def test_rows_are_written_as_csv_and_json(run: Run, trace: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    code, out, _ = run("simulate", *JOB, "--against", trace, "--json", "-", "--csv", rows)
    assert code == 0
    document = json.loads(out)
    assert document["ranks"] == [0, 5]
    with rows.open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(document["rows"])
    for name in ("predicted", "measured"):
        total = sum(int(line[f"{name}_ps"]) for line in lines)
        assert total == document[f"{name}_step_ps"]


def test_a_figure_and_a_page_show_both(run: Run, trace: Path, tmp_path: Path) -> None:
    figure, page = tmp_path / "both.svg", tmp_path / "both.html"
    code, _, err = run(
        "simulate", *JOB, "--against", trace, "--plot", figure, "--report", page, "-q"
    )
    assert (code, err) == (0, "")
    assert "PyTorch profiler" in figure.read_text()
    shown = answers_of(page.read_bytes())["shown"]
    (measured,) = shown["others"]
    assert (shown["title"], measured["title"]) == ("Predicted", "Measured")
    assert measured["lanes"]["rows"] == ["rank 0", "rank 5"]
    assert "the trace runs the unfused kernels" in " ".join(shown["warnings"])


def test_what_does_nothing_is_refused(run: Run, trace: Path, tmp_path: Path) -> None:
    code, _, err = run("simulate", *JOB, "--against", trace, "--trace", tmp_path / "t.json")
    assert code == 2
    assert "--against: these options do nothing: leave out --trace" in err
    code, _, err = run("simulate", trace, "--against", trace)
    assert code == 2
    assert "stepsim diff compares two recordings" in err
    missing = tmp_path / "none.json"
    code, _, err = run("simulate", *JOB, "--against", missing)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "no such file" in err
