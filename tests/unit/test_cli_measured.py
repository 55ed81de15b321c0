"""Commands on measured runs, and the files they read and write."""

import json
from pathlib import Path

import pytest
import typer
from traces import MadeRun
from typer.testing import CliRunner

from stepsim import cli
from stepsim.calibration.document import Calibration, Fitted
from stepsim.cli import measured
from stepsim.cli.calibrate import RunsByDefault, runs
from stepsim.errors import CalibrationError, OutputError, PlanError, TraceError
from stepsim.formats.calibration_toml import read_calibration
from stepsim.formats.optimus_log import is_optimus_log, read_optimus_log
from stepsim.formats.step_table import read_step_table
from stepsim.validation.load import is_measured, load_run
from stepsim.validation.table import validate_table

RUN = MadeRun(forward=(10, 12), backward=(20, 21), microbatches=6)
LOG = """> GBS: 8
> MBS: 2
> TP: 1
> DP: 1
> PP: 2
[rank:1 stage:1] transformer-block(module) forward time (no send/recv) - step {step}
  layer[1]: total=40.0ms, ops=32, avg/op=1.25ms
  layer[lm_head]: total=8.0ms, ops=4, avg/op=2ms
[rank:0 stage:0] transformer-block(module) forward time (no send/recv) - step {step}
  layer[0]: total=40.0ms, ops=32, avg/op=1.25ms
| epoch   1 |     {step}/  323 batches | lr 0.00 | ms/batch {ms} | loss 12.42 | ppl 1.0
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return RUN.write(tmp_path / "run")


def call(*arguments: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(cli.app, list(map(str, arguments)))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return str(result.stdout)


def test_calibrate_then_validate(run: Path, tmp_path: Path) -> None:
    other = MadeRun(forward=(11, 10), backward=(20, 22), microbatches=8).write(tmp_path / "other")
    file = tmp_path / "calibration.toml"
    assert "host time per action" in call("calibrate", run, "-o", file)
    assert read_calibration(file).sources == (str(run),)
    printed = call("validate", other, "--calibration", file, "--max-error", "1%")
    assert "times of 1 other run" in printed
    call("validate", other, "--calibration", file, "--max-error", "0.0001%", code=1)


def test_validation_as_json_and_figure(run: Path, tmp_path: Path) -> None:
    other = MadeRun(forward=(11, 10), backward=(20, 22), microbatches=8).write(tmp_path / "other")
    figure = tmp_path / "figure.png"
    text = call("validate", run, other, "--leave-one-out", "--json", "-", "--plot", figure)
    document = json.loads(text)
    assert [each["name"] for each in document["runs"]] == ["run", "other"]
    assert {each["pipeline"]["source"] for each in document["runs"]} == {"replay"}
    assert not any(each["calibrated_on_itself"] for each in document["runs"])
    assert document["errors"]["pipeline (replay)"]["count"] == 2
    assert figure.stat().st_size > 10_000


def test_what_if(run: Path) -> None:
    printed = call(
        "what-if", run, "--schedule", "gpipe", "-m", "12", "--bandwidth", "intra_node=1MB/s"
    )
    assert "gpipe, blocking" in printed
    assert "keep their measured time" in printed


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--balance", "1,x", "balance is '1,x'"),
        ("--bandwidth", "rack=1GB/s", "bandwidth is 'rack=1GB/s'"),
    ],
)
def test_wrong_options(run: Path, option: str, value: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        call("what-if", run, option, value)


@pytest.mark.parametrize(("option", "value"), [("--max-error", "-1%"), ("--times", "mode")])
def test_wrong_options_of_validate(run: Path, option: str, value: str) -> None:
    with pytest.raises(PlanError, match=option.strip("-")):
        call("validate", run, option, value)


def test_outputs_are_checked(run: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputError):
        call("calibrate", run, "-o", tmp_path / "absent" / "file.toml")
    with pytest.raises(OutputError, match=r"cannot draw \.txt: expected \.png"):
        call("validate", run, "--plot", tmp_path / "figure.txt")


def test_simulate_and_inspect(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figure, spans = tmp_path / "run.svg", tmp_path / "run.csv"
    measured.simulate_measured(run, plot=figure, csv=spans, times="microbatch")
    measured.inspect_measured(run)
    printed = capsys.readouterr().out
    assert "measured" in printed
    assert "schedule by its order: 1f1b" in printed
    assert "simulated" in figure.read_text()
    assert spans.read_text().startswith("rank,")


def test_runs_may_be_left_out(run: Path, tmp_path: Path) -> None:
    group = typer.Typer(cls=RunsByDefault)
    group.command("runs")(runs)
    group.command("nccl")(lambda: None)
    for name in (["runs"], []):
        file = tmp_path / f"{len(name)}.toml"
        result = CliRunner().invoke(group, [*name, str(run), "-o", str(file)])
        assert result.exit_code == 0, result.output
        assert file.exists()
    assert CliRunner().invoke(group, ["nccl"]).exit_code == 0


def test_what_is_measured(run: Path, tmp_path: Path, workloads: Path) -> None:
    log = tmp_path / "optimus.txt"
    log.write_text(LOG.format(step=1, ms=100))
    assert is_measured(run)
    assert is_measured(log)
    assert is_optimus_log(log)
    assert not is_measured(workloads / "moe_128.txt")
    with pytest.raises(TraceError, match="no such file"):
        load_run(tmp_path / "absent")


def test_optimus_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "optimus.txt"
    log.write_text("".join(LOG.format(step=s, ms=m) for s, m in ((1, 900), (2, 100), (3, 110))))
    found = read_optimus_log(log)
    assert (found.pp, found.microbatches, found.steps) == (2, 4, 2)
    assert found.step_ps == 105 * 10**9
    assert [stage.forward_ps for stage in found.stages] == [10 * 10**9, 12 * 10**9]
    assert [stage.layers for stage in found.stages] == [1, 1]
    measured.inspect_measured(log)
    assert "unexplained" in capsys.readouterr().out


def test_an_optimus_log_is_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, spans, figure = (tmp_path / name for name in ("optimus.txt", "spans.csv", "step.svg"))
    log.write_text("".join(LOG.format(step=s, ms=m) for s, m in ((1, 900), (2, 200))))
    measured.simulate_measured(log, csv=spans, plot=figure)
    printed = capsys.readouterr().out
    assert "pipeline   174 ms" in printed, "12 + 24 for each of 4, and 10 + 20 of the first stage"
    assert "explain 87% of the step" in printed
    assert spans.read_text().startswith("rank,")
    assert "<svg" in figure.read_text()
    measured.simulate_measured(log, json="-")
    assert json.loads(capsys.readouterr().out)["pipeline_time_ps"] == 174 * 10**9
    with pytest.raises(PlanError, match="leave out --calibration and --times"):
        measured.simulate_measured(log, times="mean")
    with pytest.raises(TraceError, match="a log of leaf modules holds no stage times"):
        call("validate", log)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("> MBS: 2\n", "", "MBS is None"),
        ("> GBS: 8", "> GBS: 9", "GBS is 9: expected a multiple"),
        ("stage:1]", "stage:3]", "no forward times of stage 1"),
        ("ms/batch", "ms", "no 'ms/batch' after the first step"),
    ],
)
def test_wrong_optimus_logs(tmp_path: Path, old: str, new: str, message: str) -> None:
    log = tmp_path / "optimus.txt"
    log.write_text((LOG.format(step=1, ms=9) + LOG.format(step=2, ms=9)).replace(old, new))
    with pytest.raises(TraceError, match=message):
        read_optimus_log(log)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema_version = 1", "schema_version = 2", "schema_version is 2"),
        ("[host_overhead]", "[hosts]", "unknown field `hosts`"),
        ('placement = "intra_node"', 'placement = "rack"', "placement is 'rack'"),
        ('latency = "0.000 us"', 'latency = "1 parsec"', "unknown unit 'parsec'"),
        ("samples = ", "samples = -", "samples is -"),
        ("sources", "sources = 1\nsources", "not valid TOML"),
    ],
)
def test_wrong_calibrations(run: Path, tmp_path: Path, old: str, new: str, message: str) -> None:
    file = tmp_path / "calibration.toml"
    call("calibrate", run, "-o", file)
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(CalibrationError, match=message) as caught:
        read_calibration(file)
    assert str(file) in str(caught.value)


def test_a_table_of_measured_steps(workloads: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    workload = workloads / "moe_128.txt"
    table.write_text(
        "workload,topology,schedule,p2p,measured_s\n"
        f"{workload},hgx-h100,1f1b,,0.5\n"
        f"{workload},hgx-h100,gpipe,eager,0.5\n"
    )
    rows = validate_table(read_step_table(table))
    assert [row.source for row in rows] == ["prediction", "prediction"]
    assert rows[0].simulated_ps != rows[1].simulated_ps
    other = tmp_path / "table.toml"
    other.write_text(
        f'[[run]]\nworkload = "{workload}"\ntopology = "hgx-h100"\nmeasured_s = 0.5\n'
        "tp_overlap = true\n"
    )
    assert validate_table(read_step_table(other))[0].simulated_ps == rows[0].simulated_ps
    assert "step (prediction)" in call("validate", table)


def test_options_of_a_table(workloads: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text(
        "workload,measured_s,compute_scale,expert_skew,dp_overlap,contention,host_overhead\n"
        f"{workloads / 'moe_128.txt'},0.5,,,,,\n"
        f"{workloads / 'moe_128.txt'},0.5,2,,,,\n"
        f"{workloads / 'moe_128.txt'},0.5,,1.5,,,\n"
        f"{workloads / 'moe_128.txt'},0.5,,,true,fair,\n"
        f"{workloads / 'moe_128.txt'},0.5,,,,,9ms\n"
    )
    steps = read_step_table(table)
    plain, slower, skewed, overlapped, own = validate_table(steps)
    assert len({each.simulated_ps for each in (plain, slower, skewed, overlapped)}) == 4
    assert slower.name == "moe_128.txt, 1f1b, hgx-h100, compute_scale 2"
    assert any("table.csv:2: no topology given" in note for note in plain.notes)
    host = Fitted(value=5e9, residual=0, samples=1)
    calibrated = validate_table(steps, Calibration(sources=(), host_overhead=host))
    assert calibrated[0].simulated_ps > plain.simulated_ps
    assert calibrated[4].simulated_ps == own.simulated_ps, "the row's own host time counts"


def test_options_that_do_nothing_are_refused(run: Path, workloads: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text(f"workload,measured_s\n{workloads / 'moe_128.txt'},0.5\n")
    with pytest.raises(PlanError, match="leave out --leave-one-out"):
        call("validate", table, "--leave-one-out")
    with pytest.raises(PlanError, match="leave out --times"):
        call("validate", table, "--times", "mean")
    with pytest.raises(PlanError, match="--nccl: expected --leave-one-out"):
        call("validate", run, "--nccl", tmp_path / "nccl.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workload,measured_s\n", "no rows"),
        ("workload,measured_s\nx.txt\n", "table.csv:2: expected 2 cells"),
        ("workload,measured_s\nx.txt,0\n", "table.csv:2: measured_s is '0'"),
        ("workload,measured_s\nx.txt,nan\n", "table.csv:2: measured_s is 'nan'"),
        ("workload,speed\nx.txt,1\n", "table.csv:2: column is 'speed'"),
        ("workload,measured_s,npus\nx.txt,1,two\n", "npus is 'two': expected a whole number"),
        ("workload,topology\nx.txt,1\n", "measured_s is missing"),
    ],
)
def test_wrong_tables(tmp_path: Path, text: str, message: str) -> None:
    table = tmp_path / "table.csv"
    table.write_text(text)
    with pytest.raises(TraceError, match=message):
        read_step_table(table)


def test_a_row_that_cannot_run_is_named(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("workload,measured_s\nabsent.txt,1\n")
    with pytest.raises(TraceError, match=r"table.csv:2: .*absent.txt"):
        validate_table(read_step_table(table))
