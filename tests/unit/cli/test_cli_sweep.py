"""`stepsim sweep`: flags, sweep files, databases, outputs, refusals."""

import csv
import re
from pathlib import Path

import pytest
from helpers import Run
from sweeps import SMALL
from unit.cli.test_cli import written

AXES = ("--set", "fabric.bandwidth=100..400 Gbps:3", "--set", "schedule=1f1b,zb-h1,dualpipe-v")
JOB = ("--npus", "32", "--pp", "4", "-m", "4")

SWEEP_FILE = """
workload = "{workload}"

[options]
npus = 32
pp = 4
microbatches = 4
compute_scale = 1
quiet = true

[axes]
fabric.bandwidth = "100..400 Gbps:3"
schedule = ["1f1b", "zb-h1", "dualpipe-v"]

[output]
database = "file.sqlite"
export = ["file.csv"]

[run]
jobs = 1
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(SWEEP_FILE.format(workload=SMALL))
    return path


def test_a_sweep_prints_stores_exports_and_draws(run: Run, tmp_path: Path) -> None:
    database, table, figure = (tmp_path / n for n in ("a.sqlite", "a.csv", "a.png"))
    outputs = ("--db", database, "--export", table, "--plot", figure)
    code, out, err = run("sweep", SMALL, *AXES, *JOB, *outputs)
    assert code == 0
    assert "assumed: no topology given: stepsim assumes hgx-h100" in err
    assert "scenarios  9 of 9, 3 failed" in out
    assert re.search(r"fastest\n +step +scenario *\n.* ms +fabric.bandwidth=400 Gbps", out)
    assert "\nfirst failure, fabric.bandwidth=100 Gbps, schedule=dualpipe-v: schedule" in out
    header, *rows = table.read_text().splitlines()
    assert header == (
        "fabric.bandwidth_bytes_per_s,schedule,step_time_ps,pipeline_time_ps,bubble_fraction,"
        "total_bandwidth_bytes_per_s,tokens_per_s,mfu,memory_bytes,fits,error"
    )
    assert [row.split(",")[1] for row in rows] == ["1f1b"] * 3 + ["zb-h1"] * 3 + ["dualpipe-v"] * 3
    assert figure.read_bytes().startswith(b"\x89PNG")
    again = tmp_path / "again.csv"
    code, report, err = run("sweep", database, "--export", again)
    assert (code, err, report) == (0, "", out)
    assert again.read_bytes() == table.read_bytes()


def test_a_sweep_file_says_the_same_as_the_flags(run: Run, study: Path, tmp_path: Path) -> None:
    assert run("sweep", study)[::2] == (0, "")
    flags = ("--db", tmp_path / "flags.sqlite", "--export", tmp_path / "flags.csv", "--jobs", "1")
    assert run("sweep", SMALL, *AXES, *JOB, *flags, "-q")[0] == 0
    assert (tmp_path / "file.csv").read_bytes() == (tmp_path / "flags.csv").read_bytes()
    assert run("sweep", study, "-q", "--resume")[0] == 0
    assert run("sweep", study, "-q", "--resume", "--db", tmp_path / "flags.sqlite")[0] == 0


def test_flags_win_over_the_sweep_file(run: Run, study: Path, tmp_path: Path) -> None:
    other = ("--db", tmp_path / "b.sqlite", "--pp", "2", "--set", "schedule=gpipe")
    code, out, _ = run("sweep", study, *other, "-q")
    assert code == 0
    assert "scenarios  3 of 3, 0 failed" in out
    assert not (tmp_path / "file.sqlite").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[axes]", "[axis]"), "unknown key 'axis': expected one of"),
        (('"100..400 Gbps:3"', "[]"), "axes.fabric.bandwidth is []: expected a list of length"),
        (("npus = 32", "npu = 32"), "unknown option 'npu': expected quiet"),
        (("jobs = 1", "jobs = true"), "run.jobs is True: expected a whole number"),
        (("workload =", "workload"), "not valid TOML"),
        (("microbatches = 4", 'schedule = "1f1b"'), "schedule is an axis and an option"),
    ],
)
def test_wrong_sweep_files_are_refused(
    run: Run, study: Path, change: tuple[str, str], message: str
) -> None:
    study.write_text(study.read_text().replace(*change))
    code, out, err = run("sweep", study)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert not study.with_name("file.sqlite").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "a sweep needs at least one axis"),
        (
            ("--set", "pp=1..10000", "--set", "chunks=1..10000", "--set", "npus=1..10000"),
            "= 1000000000000 scenarios",
        ),
        (("--set", "chunks=1,2", "--chunks", "2"), "chunks is an axis and an option"),
        (("--set", "chunks=1,2", "--plot-axes", "chunks"), "name one with --plot"),
        (("--set", "chunks=1,2", "--plot", "x.gif"), "cannot draw .gif"),
        (("--set", "chunks=1,2", "--export", "x.txt"), "cannot write .txt"),
        (("--set", "chunks=1,2", "--db", "nowhere/a.sqlite"), "folder nowhere does not exist"),
        (("--set", "algorithm=ring,x"), "'x' is not a valid Algorithm"),
        ((*AXES, "--resume"), "--resume is about the database of a sweep: name it with --db"),
        ((*AXES, "--force"), "--force is about the database of a sweep: name it with --db"),
        (
            (*AXES, *JOB, "--plot", "a.png", "--plot-axes", "speed"),
            "--plot-axes: 'speed' is no axis of this sweep",
        ),
    ],
)
def test_bad_sweeps_are_one_error_before_any_work(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run("sweep", SMALL, *arguments, "-q")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_when_nothing_can_run_the_first_reason_is_the_error(run: Run, tmp_path: Path) -> None:
    database = tmp_path / "a.sqlite"
    code, out, err = run("sweep", SMALL, "--set", "pp=7,11", "--npus", "32", "--db", database, "-q")
    assert (code, out) == (2, "")
    assert err.startswith("error: none of 2 scenarios can run; the first: 32 NPUs")


def test_a_report_of_no_sweep_is_refused(run: Run, tmp_path: Path) -> None:
    code, _, err = run("sweep", tmp_path / "missing.sqlite")
    assert code == 2
    assert err == f"error: {tmp_path / 'missing.sqlite'}: cannot read the sweep: no such file\n"
    wrong = tmp_path / "wrong.sqlite"
    wrong.write_text(SMALL.read_text())
    code, _, err = run("sweep", wrong)
    assert code == 2
    assert "not a database of a sweep, or damaged" in err


@pytest.mark.parametrize(
    ("sets", "names"),
    [
        (("fabric.bandwidth=100..800 Gbps:4",), None),
        (("fabric.bandwidth=50..800 Gbps:5 log", "nvlink.bandwidth=300,450 GB/s"), None),
        (("compute_scale=0.5,1", "microbatches=2,4", "schedule=1f1b,gpipe"), None),
        (
            ("compute_scale=0.5,1", "schedule=1f1b,gpipe", "microbatches=2,4"),
            "microbatches,schedule",
        ),
        (("nvlink.bandwidth=450 GB/s,inf",), None),
        (("chunks=1",), None),
    ],
)
def test_figures_of_every_kind(
    run: Run, tmp_path: Path, sets: tuple[str, ...], names: str | None
) -> None:
    figure = tmp_path / "a.png"
    axes = [word for axis in sets for word in ("--set", axis)]
    chosen = ("--plot-axes", names) if names else ()
    common = (SMALL, *axes, "--npus", "16", "--pp", "2", "-q", "--jobs", "1", *chosen)
    if "schedule" not in str(sets) and "chunks" not in str(sets):
        common = (*common, "--schedule", "gpipe")
    assert run("sweep", *common, "--plot", figure)[0] == 0
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_a_second_sweep_in_a_folder_runs_and_nothing_is_left(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = run("sweep", SMALL, "--set", "microbatches=4,8", *JOB[:4], "--jobs", "1", "-q")
    second = run("sweep", SMALL, "--set", "schedule=1f1b,zb-h1", *JOB, "--jobs", "1", "-q")
    assert first[0] == second[0] == 0
    assert "database" not in first[1]
    assert "schedule=zb-h1" in second[1]
    assert list(tmp_path.iterdir()) == []


def test_what_has_run_takes_no_options_of_a_run(run: Run, tmp_path: Path) -> None:
    database = tmp_path / "a.sqlite"
    kept = ("--set", "microbatches=4,8", *JOB[:4], "--db", database, "--jobs", "1", "-q")
    assert run("sweep", SMALL, *kept)[0] == 0
    code, out, err = run("sweep", database, "--npus", "32", "--set", "pp=2,4", "-q")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "leave out --npus, --set" in err


def test_the_fastest_job_is_one_that_fits(run: Run, tmp_path: Path) -> None:
    job = ["llama-3-70b", "--gpus", "64", "--global-batch", "64", "--seq", "8192", "-t", "hgx-h100"]
    job += ["--vpp", "1", "--mbs", "1"]
    axes = ("--set", "tp=2,8", "--set", "pp=1,8")
    table = tmp_path / "plans.csv"
    code, out, _ = run("sweep", *job, *axes, "-q", "--export", table)
    rows = list(csv.DictReader(table.read_text().splitlines()))
    fitting = {row["fits"] for row in rows}
    assert (code, fitting) == (0, {"0", "1"})
    best = min((row for row in rows if row["fits"] == "1"), key=lambda r: int(r["step_time_ps"]))
    assert min(int(row["step_time_ps"]) for row in rows) < int(best["step_time_ps"])
    assert out.splitlines()[0].endswith(f"with tp={best['tp']}, pp={best['pp']}")
    _, out, _ = run("sweep", *job, "--set", "tp=2", "--set", "pp=1", "-q")
    assert "per step, if it fitted with tp=2, pp=1" in out.splitlines()[0]


def test_a_device_of_an_axis_runs_in_its_own_machine(run: Run) -> None:
    job = ("llama-3-8b", "--gpus", "16", "--tp", "4", "--global-batch", "32", "--seq", "4096")
    swept = written(run, "sweep", *job, "--set", "device=b200,a100-80gb")
    for scenario in swept["scenarios"]:
        alone = written(run, "simulate", *job, "--device", scenario["settings"]["device"])
        assert scenario["step_time_ps"] == alone["step_time_ps"]
