"""The command line: options, outputs, exit codes."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer import Typer

from stepsim import cli
from stepsim.analysis import Part

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str | Path) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of one command."""
        monkeypatch.setattr("sys.argv", ["stepsim", *map(str, arguments)])
        code: Any = 0
        try:
            cli.main()
        except SystemExit as exit_:
            code = exit_.code
        out, err = capsys.readouterr()
        return code or 0, out, err

    return call


@pytest.fixture
def moe(workloads: Path) -> Path:
    return workloads / "moe_128.txt"


PLAN_OPTIONS = {
    "--compute-scale",
    "--global-batch",
    "--microbatch-size",
    "--microbatches",
    "--npus",
    "--pp",
    "--quiet",
    "--strict",
    "--topology",
}


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("inspect", PLAN_OPTIONS),
        (
            "simulate",
            PLAN_OPTIONS
            | {
                "--chunks",
                "--csv",
                "--fold",
                "--host-overhead",
                "--json",
                "--p2p",
                "--plot",
                "--schedule",
                "--stage-rows",
                "--tp-overlap",
            },
        ),
    ],
)
def test_options_are_frozen(command: str, options: set[str]) -> None:
    app: Typer = cli.app
    found = typer.main.get_command(app).commands[command].params  # type: ignore[attr-defined]
    names = {p.opts[0] for p in found if p.opts[0].startswith("--")}
    assert names == options


def test_version(run: Run) -> None:
    assert run("--version") == (0, "stepsim 0.1.0\n", "")


def test_report_on_stdout_and_warnings_on_stderr(run: Run, moe: Path) -> None:
    code, out, err = run("simulate", moe)
    assert code == 0
    assert "step time  171.4 ms" in out
    assert "warning" not in out
    assert "no topology given: hgx-h100 assumed" in err
    assert run("simulate", moe, "--quiet")[2] == ""


def test_json_on_stdout_is_all_there_is(run: Run, moe: Path) -> None:
    code, out, _ = run("simulate", moe, "--json", "-")
    document = json.loads(out, parse_constant=pytest.fail)
    assert code == 0
    assert document["schema_version"] == 1
    assert document["npus"] == len(document["ranks"]) == 128
    parts = {part.name.lower() for part in Part}
    for entry in (document, *document["ranks"], *document["stages"]):
        assert entry["breakdown_ps"].keys() == parts
        assert sum(entry["breakdown_ps"].values()) == document["step_time_ps"]
    assert document["step_time_s"] == document["step_time_ps"] / 1e12
    assert {"schedule": "1f1b", "p2p": "blocking", "microbatches": 2}.items() <= document.items()
    assert all(math.isfinite(link["utilisation"]) for link in document["links"])
    assert any("vpp 8" in warning for warning in document["warnings"])


@pytest.mark.parametrize(
    ("name", "magic"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")]
)
def test_plots_have_their_format_and_are_reproducible(
    run: Run, moe: Path, tmp_path: Path, name: str, magic: bytes
) -> None:
    first, second = tmp_path / name, tmp_path / f"again-{name}"
    assert run("simulate", moe, "--plot", first)[0] == 0
    assert run("simulate", moe, "--plot", second)[0] == 0
    assert first.read_bytes().startswith(magic)
    assert first.read_bytes() == second.read_bytes()


def test_csv_holds_every_span_of_a_rank_per_class(run: Run, moe: Path, tmp_path: Path) -> None:
    target = tmp_path / "spans.csv"
    assert run("simulate", moe, "--csv", target)[0] == 0
    lines = target.read_text().splitlines()
    assert lines[0].split(",")[:4] == ["rank", "stage", "stream", "kind"]
    ranks = {int(line.split(",")[0]) for line in lines[1:]}
    assert ranks == {0, 32, 64, 96}
    ends = [int(line.rsplit(",", 1)[1]) for line in lines[1:]]
    code, out, _ = run("simulate", moe, "--json", "-")
    assert max(ends) == json.loads(out)["step_time_ps"]
    assert code == 0


@pytest.mark.parametrize("option", ["--json", "--plot", "--csv"])
def test_unwritable_output_is_refused_before_anything_is_written(
    run: Run, moe: Path, tmp_path: Path, option: str
) -> None:
    other = tmp_path / "other.json"
    target = tmp_path / "missing" / "result.png"
    arguments = ["--json", other] if option != "--json" else []
    code, out, err = run("simulate", moe, option, target, *arguments)
    assert code == 2
    assert out == ""
    assert f"error: {target}: cannot write: folder" in err
    assert list(tmp_path.iterdir()) == []


def test_output_that_is_a_folder_or_no_figure_is_refused(
    run: Run, moe: Path, tmp_path: Path
) -> None:
    assert "it is a folder" in run("simulate", moe, "--json", tmp_path)[2]
    code, _, err = run("simulate", moe, "--plot", tmp_path / "a.gif")
    assert code == 2
    assert "expected .png, .svg, .pdf" in err
    same = tmp_path / "a.png"
    assert "same file" in run("simulate", moe, "--plot", same, "--csv", same)[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--npus", "100"], "100 NPUs (npus asked for): not divisible by tp*pp = 8*4 = 32"),
        (["--npus", "0"], "npus is 0: expected 1 to"),
        (["--pp", "3"], "not divisible by tp*pp"),
        (["--pp", "64", "--npus", "512"], "pp is 64: the model has"),
        (["--microbatches", "0"], "microbatches is 0"),
        (["--global-batch", "3"], "expected a multiple of dp * microbatch_size"),
        (["--global-batch", "8", "--microbatches", "2"], "contradict"),
        (["--schedule", "2f2b"], "schedule is '2f2b': expected one of 1f1b"),
        (["--chunks", "2"], "holds one chunk per rank"),
        (["--p2p", "magic"], "p2p is 'magic': expected one of eager, blocking"),
        (["--stage-rows", "all"], "stage_rows is 'all': expected one of ends, every"),
        (["--compute-scale", "fast"], "compute scale is 'fast': expected a factor"),
        (["--compute-scale", "-1"], "compute scale is '-1': expected a factor"),
        (["--host-overhead", "5"], "'5' has no unit"),
        (["--topology", "nowhere"], "no topology named 'nowhere': expected a file or one of"),
        (["--strict"], "refused by --strict"),
    ],
)
def test_contradictions_exit_with_2_and_one_message(
    run: Run, moe: Path, arguments: list[str], message: str
) -> None:
    code, out, err = run("simulate", moe, *arguments)
    assert code == 2
    assert out == ""
    assert message in err
    assert len(err.splitlines()) == 1
    assert err.startswith("error: ")


def test_a_topology_smaller_than_the_job_is_refused(run: Run, moe: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.toml"
    small.write_text(
        'name = "small"\nsource = "test"\n[[dimension]]\nname = "r"\nkind = "ring"\n'
        'size = 8\nbandwidth = "1 GB/s"\nlatency = "1 ns"\n'
    )
    code, _, err = run("simulate", moe, "--topology", small)
    assert code == 2
    assert "topology small has 8 NPUs: the job needs 128" in err


def test_missing_file_names_it(run: Run, tmp_path: Path) -> None:
    missing = tmp_path / "none.txt"
    code, _, err = run("simulate", missing)
    assert code == 2
    assert err == f"error: {missing}: cannot read the workload: No such file or directory\n"


def test_inspect_prints_what_was_understood(run: Run, workloads: Path) -> None:
    code, out, err = run("inspect", workloads / "gpt_1024.txt")
    assert code == 0
    for line in (
        "job            1024 NPUs: tp 8, dp 8, pp 16, ep 1; microbatches 16",
        "layers         8 per stage",
        "to next stage  16 MiB per microbatch",
    ):
        assert line in out
    assert "the file names no pp_comm: 16777216 bytes" in err
