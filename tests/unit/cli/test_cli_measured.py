"""Commands on measured runs, and the files they read and write."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from traces import MadeRun

from stepsim import cli
from stepsim.base.errors import CalibrationError, OutputError, PlanError, TraceError
from stepsim.base.structs import replace
from stepsim.cli import measured
from stepsim.cli.options import SimulateOptions
from stepsim.files.calibrations import read_calibration
from stepsim.files.step_table import read_step_table
from stepsim.files.traces.forms import is_measured
from stepsim.files.traces.optimus_log import read_optimus_log
from stepsim.measured.calibration.calibration import Calibration, Fitted, FittedTime, LeafOverhead
from stepsim.runs.measured import validate_table

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


@pytest.fixture
def other(tmp_path: Path) -> Path:
    run = MadeRun(forward=(11, 10), backward=(20, 22), microbatches=8)
    return run.write(tmp_path / "other")


def write_log(path: Path, *milliseconds: int, text: str = LOG) -> Path:
    """A log whose steps take so long."""
    steps = enumerate(milliseconds, 1)
    path.write_text("".join(text.format(step=step, ms=ms) for step, ms in steps))
    return path


def call(*arguments: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(cli.make_app(), list(map(str, arguments)))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return str(result.stdout)


def test_calibrate_then_validate(run: Path, other: Path, tmp_path: Path) -> None:
    file = tmp_path / "calibration.toml"
    assert "host time per action" in call("calibrate", run, "-o", file)
    assert read_calibration(file).sources == (str(run),)
    printed = call("validate", other, "--calibration", file, "--max-error", "1%")
    assert "times of 1 other run" in printed
    call("validate", other, "--calibration", file, "--max-error", "0.0001%", code=1)


def test_validation_as_json_and_figure(run: Path, other: Path, tmp_path: Path) -> None:
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
    line = call("simulate", run, "--schedule", "gpipe", "-m", "12", "--set", "node.bandwidth=1MB/s")
    assert line.splitlines()[1] in printed


@pytest.mark.parametrize(
    ("command", "option", "value", "message"),
    [
        ("what-if", "--p2p", "x", "p2p is 'x': expected one of eager, blocking, overlap"),
        ("what-if", "--balance", "1,x", "balance is '1,x'"),
        ("what-if", "--bandwidth", "rack=1GB/s", "bandwidth is 'rack': expected one of intra_node"),
        ("validate", "--max-error", "-1%", "max-error"),
    ],
)
def test_wrong_options(run: Path, command: str, option: str, value: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        call(command, run, option, value)


def test_outputs_are_checked(run: Path, tmp_path: Path) -> None:
    with pytest.raises(OutputError):
        call("calibrate", run, "-o", tmp_path / "absent" / "file.toml")
    with pytest.raises(OutputError, match=r"cannot draw \.txt: expected \.png"):
        call("validate", run, "--plot", tmp_path / "figure.txt")


def test_what_is_measured(run: Path, tmp_path: Path, workloads: Path) -> None:
    assert is_measured(run)
    assert is_measured(write_log(tmp_path / "optimus.txt", 100))
    assert not is_measured(workloads / "moe_128.txt")


def test_a_sweep_of_a_run_says_what_another_order_assumes(run: Path) -> None:
    words = f"sweep {run} --schedule zb-h1 --set host_overhead=0,1us --jobs 1"
    said = CliRunner().invoke(cli.make_app(), words.split()).stderr
    assert "weight gradient taken as 40% of a backward" in said


def test_optimus_log(tmp_path: Path) -> None:
    log = write_log(tmp_path / "optimus.txt", 900, 100, 110)
    found = read_optimus_log(log)
    assert (found.plan.pp, found.plan.microbatches, len(found.kept)) == (2, 4, 2)
    assert found.step_ps == 105 * 10**9
    assert [stage.layers_ps + stage.ends_ps for stage in found.stages] == [10 * 10**9, 12 * 10**9]
    assert [stage.layers for stage in found.stages] == [1, 1]
    printed = call("inspect", log)
    assert "105 ms per step, the median of 2 steps" in printed
    assert "explained by leaf modules: 166% of the measured step" in printed


def test_an_optimus_log_is_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = write_log(tmp_path / "optimus.txt", 900, 200)
    spans, figure = tmp_path / "spans.csv", tmp_path / "step.svg"
    measured.simulate_measured(log, SimulateOptions(plot=figure, csv=spans, full=True))
    printed = capsys.readouterr().out
    assert "174 ms explained by leaf modules: 87% of the measured step of 200 ms" in printed, (
        "12 + 24 for each of 4, and 10 + 20 of the first stage"
    )
    assert "step time" not in printed
    assert spans.read_text().startswith("rank,")
    assert "<svg" in figure.read_text()
    measured.simulate_measured(log, SimulateOptions(json="-"))
    assert json.loads(capsys.readouterr().out)["pipeline_time_ps"] == 174 * 10**9
    with pytest.raises(PlanError, match="leave out --times"):
        measured.simulate_measured(log, SimulateOptions(times="mean"))
    with pytest.raises(TraceError, match="a log of leaf modules holds no stage times"):
        call("what-if", log)


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
    log = write_log(tmp_path / "optimus.txt", 9, 9, text=LOG.replace(old, new))
    with pytest.raises(TraceError, match=message):
        read_optimus_log(log)


UNEQUAL = """[[collective]]
machine = ""
source = ""
kind = "all_reduce"
ranks = 2
nodes = 1
sizes = [1, 2]
times = ["1 us"]

"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema_version = 1", "schema_version = 2", "schema_version is 2"),
        ("[host_overhead]", "[hosts]", "unknown key 'hosts': expected one of"),
        (
            "samples = ",
            "samples = -",
            r"host_overhead.samples is -\d+: expected a whole number >= 1",
        ),
        ("sources", "sources = 1\nsources", "not valid TOML"),
        ("schema_version = 1", "[[rate]]", "of predictions: expected one of traced runs"),
        ("[host_overhead]", f"{UNEQUAL}[host_overhead]", "expected as many sizes as times"),
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


def write_logs(folder: Path) -> list[Path]:
    """Two logs whose stages hold 1 and 4 layers, and a third of the first kind."""
    wide = LOG.replace("ops=32", "ops=128")
    return [
        write_log(folder / f"{ms}.txt", 900, ms, text=text)
        for text, ms in ((LOG, 400), (wide, 300), (LOG, 410))
    ]


def test_leaf_logs_are_calibrated_and_validated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = LeafOverhead(
        action=FittedTime(value=5_000_000_000, residual=0.02, samples=2),
        layer_factor=Fitted(value=1.5, residual=0.02, samples=2),
    )
    logs, file = write_logs(tmp_path), tmp_path / "calibration.toml"
    monkeypatch.setattr("stepsim.runs.measured.fit_overhead", lambda runs, missing: known)
    printed = call("calibrate", *logs, "-o", file)
    assert "layers over their leaf modules" in printed
    found = read_calibration(file)
    assert found.leaf_overhead == known
    assert found.host_overhead is None
    assert len(set(found.traces)) == 3
    words = f"simulate {logs[0]} --calibration {file}"
    said = CliRunner().invoke(cli.make_app(), words.split()).stderr
    assert "host time 5 ms per action, layers 1.50 times their leaf modules" in said
    document = json.loads(call("validate", *logs, "--calibration", file, "--json", "-"))
    assert [row["source"] for row in document["rows"]] == ["fit"] * 3
    assert all("fitted on this log too" in text for text in document["warnings"][-3:])
    assert document["errors"]["step (fit)"]["count"] == 3
    other = json.loads(call("validate", *logs, "--json", "-"))
    assert other["rows"][0]["simulated_s"] < document["rows"][0]["simulated_s"]
    assert "leaf modules alone" in other["warnings"][-1]
    assert list(other["errors"]) == ["step (explained)"]


def test_logs_that_tell_nothing_apart_are_not_calibrated(tmp_path: Path) -> None:
    logs, file = write_logs(tmp_path), tmp_path / "calibration.toml"
    printed = call("calibrate", logs[0], logs[2], "-o", file)
    assert "not identified: leaf_overhead: host time and what layers do" in printed
    assert read_calibration(file).leaf_overhead is None
    assert "1 log for two numbers" in call("calibrate", logs[0], "-o", file)
    with pytest.raises(CalibrationError, match="2 logs of leaf modules: expected at least 3"):
        call("validate", *logs[:2], "--leave-one-out")
    with pytest.raises(PlanError, match="leave out --calibration"):
        call("validate", *logs, "--leave-one-out", "--calibration", file)


def test_inspection_as_json(run: Path) -> None:
    document = json.loads(call("inspect", run, "--json", "-"))
    assert document["degrees"]["microbatches"] == 6
    assert document["schedule"] == "1f1b"
    forward = document["stages"][1]["operations"][0]
    assert forward["kind"] == "forward"
    assert forward["median_s"] == pytest.approx(0.012)
    assert len(forward["by_microbatch_s"]) == 6
    assert document["ranks"][0]["pipeline_s"] == document["pipeline_s"]


def test_options_of_runs_and_of_workloads_do_not_mix(
    run: Path, workloads: Path, tmp_path: Path
) -> None:
    figure, workload = tmp_path / "figure.png", workloads / "moe_128.txt"
    for arguments, option in (
        (("inspect", run, "--plot", figure), "--plot"),
        (("simulate", workload, "--times", "mean"), "--times"),
        (("inspect", "hgx-h100", "--node-size", "4"), "--node-size"),
    ):
        with pytest.raises(PlanError, match=f"leave out {option}"):
            call(*arguments)


def test_quiet_runs(run: Path) -> None:
    (run / "README.txt").write_text("Measured on a Monday.\n")
    for arguments in (
        ("inspect", run, "--node-size", "4"),
        ("validate", run),
        ("what-if", run),
    ):
        words = list(map(str, arguments))
        loud, quiet = (CliRunner().invoke(cli.make_app(), [*words, *q]) for q in ([], ["-q"]))
        assert "README.txt: left out, no line is an operation" in loud.stderr
        assert quiet.stderr == ""
        assert quiet.stdout == loud.stdout


def test_a_calibration_sets_host_time_and_messages_of_a_workload(
    run: Path, workloads: Path, tmp_path: Path
) -> None:
    file, workload = tmp_path / "calibration.toml", workloads / "gpt_tp4.txt"
    slow = replace(RUN, hop_ms=30).write(tmp_path / "slow")
    call("calibrate", slow, "-o", file)
    size = ("--npus", "8", "--pp", "2", "-t", "hgx-h100", "--json", "-")
    plain = json.loads(call("simulate", workload, *size))
    used = json.loads(call("simulate", workload, *size, "--calibration", file))
    own = ("--host-overhead", "0.3ms")
    host = json.loads(call("simulate", workload, *size, *own))
    assert used["step_time_ps"] > host["step_time_ps"] > plain["step_time_ps"]
    sent = [each for each in used["comms"] if each["kind"] == "send_recv"]
    assert {name for each in sent for name in each["algorithms"]} == {"measured"}
    compared = json.loads(
        call("compare", workload, *size, "--schedules", "1f1b", "--calibration", file)
    )
    assert compared["candidates"][0]["step_time_s"] == used["step_time_s"]


def test_a_table_of_measured_steps(workloads: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    workload = workloads / "moe_128.txt"
    table.write_text(
        "workload,topology,schedule,p2p,microbatches,measured_s\n"
        f"{workload},hgx-h100,1f1b,,8,0.5\n"
        f"{workload},hgx-h100,gpipe,eager,8,0.5\n"
    )
    (plain, eager), _ = validate_table(read_step_table(table))
    assert {plain.source, eager.source} == {"prediction"}
    assert plain.simulated_ps != eager.simulated_ps
    other = tmp_path / "table.toml"
    other.write_text(
        f'[[run]]\nworkload = "{workload}"\ntopology = "hgx-h100"\nmeasured_s = 0.5\n'
        "microbatches = 8\n"
    )
    assert validate_table(read_step_table(other))[0][0].simulated_ps == plain.simulated_ps
    assert "step (prediction)" in call("validate", table)


def test_options_of_a_table(workloads: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text(
        "workload,measured_s,compute_scale,expert_load,dp_overlap,contention,host_overhead\n"
        f"{workloads / 'moe_128.txt'},0.5,,,,,\n"
        f"{workloads / 'moe_128.txt'},0.5,2,,,,\n"
        f"{workloads / 'moe_128.txt'},0.5,,skew:1.5,,,\n"
        f"{workloads / 'moe_128.txt'},0.5,,,true,fair,\n"
        f"{workloads / 'moe_128.txt'},0.5,,,,,9ms\n"
    )
    steps = read_step_table(table)
    (plain, slower, skewed, overlapped, own), notes = validate_table(steps)
    assert len({each.simulated_ps for each in (plain, slower, skewed, overlapped)}) == 4
    assert slower.name == "moe_128.txt, 1f1b, hgx-h100, compute_scale 2"
    assert "table.csv:2: no topology given" in "".join(notes)
    host = FittedTime(value=5_000_000_000, residual=0, samples=1)
    calibrated, _ = validate_table(steps, Calibration(sources=(), host_overhead=host))
    assert calibrated[0].simulated_ps > plain.simulated_ps
    assert calibrated[4].simulated_ps == own.simulated_ps, "the row's own host time counts"


def test_options_that_do_nothing_are_refused(run: Path, workloads: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text(f"workload,measured_s\n{workloads / 'moe_128.txt'},0.5\n")
    with pytest.raises(PlanError, match="leave out --leave-one-out"):
        call("validate", table, "--leave-one-out")
    with pytest.raises(PlanError, match="leave out --times"):
        call("validate", table, "--times", "mean")
    nccl = tmp_path / "nccl.csv"
    nccl.write_text("kind,ranks,nodes,bytes,time_us\nall_reduce,8,1,1024,20\n")
    with pytest.raises(PlanError, match="--nccl: expected --leave-one-out"):
        call("validate", run, "--nccl", nccl)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workload,measured_s\n", "no rows"),
        ("workload,measured_s\nx.txt\n", "table.csv:2: expected 2 cells"),
        ("workload,pp,pp\n", "table.csv:1: column pp stands twice: expected it once"),
        ("workload,measured_s\nx.txt,0\n", "table.csv:2: measured_s is '0'"),
        ("workload,speed\nx.txt,1\n", "table.csv:2: unknown key 'speed': expected"),
        ("workload,measured_s,npus\nx.txt,1,two\n", "npus is 'two': expected a whole number"),
        ("workload,topology\nx.txt,1\n", "expected one of measured_s and measured_log"),
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
