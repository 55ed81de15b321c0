"""Logs with a line per step: Megatron-LM, torchtitan and DeepSpeed."""

from pathlib import Path

import pytest
from helpers import Run

from stepsim.base.errors import TraceError
from stepsim.files.step_table import read_step_table
from stepsim.files.traces.forms import has_step_lines
from stepsim.files.traces.step_lines import read_step_log

MEGATRON = (
    " [2025-03-01 10:00:{n:02}] iteration {n:8}/      50 | consumed samples: {n:12} | elapsed time "
    "per iteration (ms): {ms} | throughput per GPU (TFLOP/s/GPU): 401.3 | learning rate: 1.0E-05 | "
    "global batch size:   128 | lm loss: 1.1E+01 | number of nan iterations:   0 |\n"
)
TIMERS = (
    "(min, max) time across ranks (ms):\n"
    "    forward-backward ...............................: (4000.10, {busy})\n"
    "    optimizer ......................................: (20.00, 25.50)\n"
)
TITAN = (
    "[rank0]:[titan] 2025-03-01 10:00:{n:02},123 - root - INFO - \x1b[31mstep: {n:2}  "
    "\x1b[32mloss:  8.1234  \x1b[33mmemory: 47.51GiB(50.01%)  \x1b[34mtps: {tps}  \x1b[36mtflops: "
    "301.20  \x1b[35mmfu: 30.46%\x1b[39m\n"
)
DEEPSPEED = "steps: {n} loss: 8.1 iter time (s): {s} samples/sec: 25.9\n"


def log(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "train.log"
    path.write_text("loading\n" + text + "done\n")
    return path


def test_megatron_prints_milliseconds_and_timers(tmp_path: Path) -> None:
    lines = [
        MEGATRON.format(n=n, ms=ms) + TIMERS.format(busy=ms - 100)
        for n, ms in ((5, 90000.0), (10, 4200.5), (15, 4300.5), (20, 4100.5))
    ]
    path = log(tmp_path, "".join(lines))
    assert has_step_lines(path)
    found = read_step_log(path)
    assert (found.form, found.numbers) == ("Megatron-LM", (5, 10, 15, 20))
    assert found.step_ps() == 4_200_500_000_000
    assert found.timers["forward-backward"] == pytest.approx((89.9, 4.1005, 4.2005, 4.0005))
    assert list(found.timers["optimizer"]) == [0.0255] * 4


def test_torchtitan_prints_tokens_per_second_and_gpu(tmp_path: Path) -> None:
    lines = [TITAN.format(n=n, tps=tps) for n, tps in ((1, "203"), (2, "5,000"), (3, "5,100"))]
    found = read_step_log(log(tmp_path, "".join(lines)))
    assert list(found.tokens_per_s) == [203, 5000, 5100]
    assert found.step_ps(10_100) == 2_000_000_000_000
    with pytest.raises(TraceError, match="expected the npus, global_batch and sequence"):
        found.step_ps()


def test_deepspeed_prints_seconds(tmp_path: Path) -> None:
    lines = [DEEPSPEED.format(n=n, s=s) for n, s in ((10, 3.0), (20, 1.25), (30, 1.75))]
    found = read_step_log(log(tmp_path, "".join(lines)))
    assert (found.form, found.step_ps()) == ("DeepSpeed", 1_500_000_000_000)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nothing\n", "expected the step lines of Megatron-LM, .*, torchtitan, nanotron, Deep"),
        (DEEPSPEED.format(n=1, s="nan"), r"train\.log:2: step is 'nan': expected a number above 0"),
        (DEEPSPEED.format(n=1, s="-1"), "expected a number above 0"),
        (DEEPSPEED.format(n=5, s=1) + DEEPSPEED.format(n=5, s=1), "step 5 follows step 5"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(TraceError, match=why):
        read_step_log(log(tmp_path, text))


def test_inspect_prints_the_median_step(run: Run, tmp_path: Path) -> None:
    lines = [MEGATRON.format(n=n, ms=ms) for n, ms in ((1, 9000), (2, 4000), (3, 4100), (4, 4300))]
    code, out, _ = run("inspect", log(tmp_path, "".join(lines) + TIMERS.format(busy=3900)))
    assert code == 0
    assert "step          4.1 s, the median" in out
    assert "spread        4 s to 4.3 s" in out
    assert "forward-backward    3.9 s" in out
    code, _, err = run("inspect", tmp_path / "train.log", "--json", "-")
    assert (code, err.count("\n")) == (2, 1)


def test_a_table_may_name_a_log_instead_of_seconds(tmp_path: Path) -> None:
    log(tmp_path, "".join(DEEPSPEED.format(n=n, s=s) for n, s in ((1, 9), (2, 1.5))))
    titan = "".join(TITAN.format(n=n, tps=tps) for n, tps in ((1, 10), (2, 4096)))
    (tmp_path / "titan.log").write_text(titan)
    table = tmp_path / "steps.csv"
    table.write_text(
        "workload,npus,global_batch,sequence,measured_s,measured_log\n"
        "w.txt,,,,2.5,\nw.txt,,,,,train.log\nw.txt,8,16,8192,,titan.log\n"
    )
    assert [step.measured_ps for step in read_step_table(table)] == [
        2_500_000_000_000,
        1_500_000_000_000,
        4_000_000_000_000,
    ]


@pytest.mark.parametrize("cells", [",", "2.5,train.log"])
def test_a_row_has_seconds_or_a_log(tmp_path: Path, cells: str) -> None:
    table = tmp_path / "steps.csv"
    table.write_text(f"workload,measured_s,measured_log\nw.txt,{cells}\n")
    with pytest.raises(TraceError, match="expected one of measured_s and measured_log"):
        read_step_table(table)


def test_rates_of_tokens_need_the_size_of_the_step(tmp_path: Path) -> None:
    (tmp_path / "titan.log").write_text(TITAN.format(n=1, tps=4096))
    table = tmp_path / "steps.csv"
    table.write_text("workload,npus,measured_log\nw.txt,8,titan.log\n")
    with pytest.raises(TraceError, match="prints tokens per second: expected the npus"):
        read_step_table(table)
