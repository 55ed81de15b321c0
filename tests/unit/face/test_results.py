"""Results of the Python interface as data, tables, figures and pages."""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Run, uniform_workload

import stepsim
from stepsim.base.errors import StepsimError, SweepError

WORK = uniform_workload(forward=10**9, backward=2 * 10**9, pp=2, microbatches=4)
AXES = {"schedule": ["1f1b", "gpipe"], "host_overhead": [0.001, "2 ms"]}


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    """One of each kind that a workload gives."""
    return {
        "simulate": stepsim.simulate(WORK, "ring"),
        "compare": stepsim.compare(WORK, "1f1b, gpipe", "ring"),
        "sensitivity": stepsim.sensitivity(WORK, "ring"),
        "noise": stepsim.noise(WORK, "ring", samples=5),
        "sweep": stepsim.sweep(WORK, "ring", axes=AXES, breakdown=True),
    }


KINDS = ("simulate", "compare", "sensitivity", "noise", "sweep")


@pytest.mark.parametrize("kind", KINDS)
def test_every_result_is_data_a_frame_and_html(
    results: dict[str, Any], kind: str, tmp_path: Path
) -> None:
    found = results[kind]
    assert found.to_dict() == json.loads(found.to_json())
    assert found.to_dict()["schema_version"] == 1
    for name in found.tables:
        frame = found.to_frame(name)
        found.write_csv(tmp_path / "table.csv", name)
        rows = list(csv.reader((tmp_path / "table.csv").read_text().splitlines()))
        assert rows[0] == list(frame.columns)
        assert len(rows) - 1 == len(frame)
    found.write_json(tmp_path / "all.json")
    assert json.loads((tmp_path / "all.json").read_bytes()) == found.to_dict()
    assert found._repr_html_().endswith("</pre>")


def test_tables_hold_what_the_report_says(results: dict[str, Any]) -> None:
    step = results["simulate"]
    stages, links = step.to_frame("stages"), step.to_frame("links")
    assert stages["breakdown_ps.compute"].tolist() == [
        stage.breakdown_ps["compute"] for stage in step.report.stages
    ]
    assert set(links["name"]) == {link.name for link in step.report.links}
    assert step.to_frame("spans")["end_ps"].max() == step.report.step_time_ps
    assert step.to_frame("ranks")["rank"].tolist() == [0, 1]
    assert list(step.to_frame("communications").columns)[:2] == ["group", "kind"]


def test_unknown_tables_are_named(results: dict[str, Any]) -> None:
    with pytest.raises(StepsimError, match="table is 'stage': expected one of spans, stages"):
        results["simulate"].to_frame("stage")


def test_without_pandas_a_frame_is_its_columns(
    results: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    frame = results["sweep"].to_frame()
    assert isinstance(frame, dict)
    assert frame["host_overhead_ps"].tolist() == [10**9, 2 * 10**9] * 2
    assert all(isinstance(each, np.ndarray) for each in frame.values())


@pytest.mark.parametrize("kind", KINDS)
def test_figures_are_returned_shown_and_written(
    results: dict[str, Any], kind: str, tmp_path: Path
) -> None:
    figure = results[kind].plot(tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").read_text().startswith("<?xml")
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_a_named_database_lasts_and_is_continued_or_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "kept.sqlite"
    first = stepsim.sweep(WORK, "ring", axes=AXES, database=path)
    with pytest.raises(SweepError, match=r"--resume \(resume=True\) .* --force \(force=True\)"):
        stepsim.sweep(WORK, "ring", axes=AXES, database=path)
    again = stepsim.sweep(WORK, "ring", axes=AXES, database=path, resume=True)
    assert again.to_json() == first.to_json() == stepsim.load_sweep(path).to_json()
    other = stepsim.sweep(WORK, "ring", axes={"schedule": "gpipe"}, database=path, force=True)
    assert len(other.to_frame()) == 1


def test_force_spares_what_is_no_sweep(tmp_path: Path) -> None:
    path = tmp_path / "letter.sqlite"
    path.write_text("dear reader")
    with pytest.raises(SweepError, match="not a database of a sweep"):
        stepsim.sweep(WORK, "ring", axes=AXES, database=path, force=True)
    assert path.read_text() == "dear reader"


def test_python_and_the_command_line_give_the_same(run: Run, workloads: Path) -> None:
    file = workloads / "gpt_tp4.txt"
    asked = ("--npus", "64", "--host-overhead", "250us", "--compute-scale", "0.5", "--quiet")
    for view, call in ((), stepsim.simulate), (("--sensitivity",), stepsim.sensitivity):
        code, out, _ = run("simulate", file, *view, *asked, "--json", "-")
        assert code == 0
        found: Any = call(file, npus=64, host_overhead=0.00025, compute_scale=0.5)
        theirs, ours = json.loads(out), found.to_dict()
        assert {**theirs, "warnings": 0} == {**ours, "warnings": 0}


def test_a_schedule_of_ones_own_is_an_argument() -> None:
    orders = [[f"{stage}{kind}{i}" for kind in "FB" for i in range(4)] for stage in range(2)]
    own = stepsim.make_schedule("mine", orders)
    found = stepsim.compare(WORK, ["gpipe", own, "1f1b"], "ring").to_frame()
    assert found["name"].tolist() == ["gpipe", "mine", "1f1b"]
    assert own.tokens() == orders
    times = found["step_time_ps"].tolist()
    assert times[0] == stepsim.simulate(WORK, "ring", schedule="gpipe").report.step_time_ps
    assert times[1] == stepsim.simulate(WORK, "ring", schedule=own).report.step_time_ps


@pytest.mark.parametrize(
    ("orders", "message"),
    [
        ([["0F0"]], "orders of mine:1: column 1: token is '0F0'"),
        ([["0B0", "0F0"]], "it after"),
        ([], "no actions"),
        ([["nonsense"]], "tokens such as 0F1"),
    ],
)
def test_wrong_orders_name_the_token(orders: list[list[str]], message: str) -> None:
    with pytest.raises(StepsimError, match=message):
        stepsim.make_schedule("mine", orders)
