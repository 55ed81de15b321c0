"""Logs with a line per step: a sample of every form, and what is refused."""

import tomllib
from pathlib import Path

import pytest
from helpers import Run

from stepsim.base.errors import TraceError
from stepsim.files.step_table import read_step_table
from stepsim.files.traces import step_lines
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
    assert found.median_ps() == 4_200_500_000_000
    assert found.timers["forward-backward"] == pytest.approx((89.9, 4.1005, 4.2005, 4.0005))
    assert list(found.timers["optimizer"]) == [0.0255] * 4


def test_what_is_printed_as_zero_or_not_at_all_is_left_out(tmp_path: Path) -> None:
    short = "    params-all-gather ..............................: (0.00, 0.00)\n"
    text = MEGATRON.format(n=5, ms="1,200.5").replace("401.3", "0.0") + TIMERS.format(busy=1)
    found = read_step_log(log(tmp_path, text + short + "max allocated: 1.2.3\nmemory: .GiB\n"))
    assert (found.values, found.tflops, found.memory) == ((1.2005,), (), round(1.2 * 2**20))
    assert "params-all-gather" not in found.timers
    with pytest.raises(TraceError, match="a step of 1e-15 s: expected at least 1 us"):
        read_step_log(log(tmp_path, DEEPSPEED.format(n=1, s="1e-15"))).median_ps()


def test_torchtitan_prints_tokens_per_second_and_gpu(tmp_path: Path) -> None:
    lines = [TITAN.format(n=n, tps=tps) for n, tps in ((1, "203"), (2, "5,000"), (3, "5,100"))]
    found = read_step_log(log(tmp_path, "".join(lines)))
    assert list(found.values) == [203, 5000, 5100]
    assert found.median_ps(10_100) == 2_000_000_000_000
    with pytest.raises(TraceError, match="expected the npus, global_batch and sequence"):
        found.median_ps()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nothing\n", "expected the step lines of Megatron-LM, .*, torchtitan, nanotron, Deep"),
        (DEEPSPEED.format(n=1, s="nan"), r"train\.log:2: step is 'nan': expected a number above 0"),
        (DEEPSPEED.format(n=5, s=1) + DEEPSPEED.format(n=4, s=1), "step 4 follows step 5"),
        (DEEPSPEED.format(n=1, s="15.088,2"), "step is '15.088,2'"),
        (DEEPSPEED.format(n=1, s="15088,2"), "step is '15088,2'"),
        (DEEPSPEED.format(n="9" * 5000, s=1), "expected a number of at least 0, below 1e15"),
        ("global_step: 1.2.3 | train_step_timing in s: 2.0\n", r"step is '1\.2\.3'"),
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
    with pytest.raises(TraceError, match="prints a rate per second: expected the npus"):
        read_step_table(table)


BAR = "{title}{share:3}%|####   | {n}/{total} [00:{n:02}<10:00,  {rate}]\r"
SAMPLES: dict[str, tuple[str, float]] = {
    "Megatron-LM": (MEGATRON.format(n=5, ms=4000.0) + MEGATRON.format(n=6, ms=4200.0), 4.2),
    "Megatron-DeepSpeed of Argonne": (
        "x - iteration=       7/  100 | consumed_samples=  512 | "
        "elapsed_time_per_iteration_ms=1600.5 | learning_rate=0.1 | TFLOPs=160.07 |\n"
        "steps: micro_step=3/global_step=7, RunningAvgSamplesPerSec=9, CurrSamplesPerSec=74.6\n",
        1.6005,
    ),
    "Megatron-Bridge": ("Step Time : 4.65s GPU utilization: 512.3MODEL_TFLOP/s/GPU\n", 4.65),
    "NeMo": (
        "Epoch 0: 50%| | 999/2000 [1:00<1:00, global_step=999.0, train_step_timing in s=68.80]\n"
        "Epoch 0: 50%| | 1240/2000 [1:00<1:00, global_step=1.24e+3, train_step_timing in s=60.5]\n",
        60.5,
    ),
    "torchtitan": (TITAN.format(n=3, tps="1,000").replace("tps", "wps"), 1000),
    "nanotron": (
        "iteration: 3 / 50 | consumed: 2M | time_per_iteration_ms: 27.1 | lr: 1\n",
        0.0271,
    ),
    "DeepSpeed": (DEEPSPEED.format(n=1, s=2.5), 2.5),
    "DeepSpeed without its pipeline engine": (
        "micro_step=3/global_step=3, RunningAvgSamplesPerSec=7.1, CurrSamplesPerSec=6.8\n",
        6.8,
    ),
    "MaxText": ("completed step: 4, seconds: 4.029, TFLOP/s/device: 401.1, loss: 9.9\n", 4.029),
    "NeMo Automodel": (
        "step 4 | epoch 0 | loss 3.1 | tps 20000.0(2500.0/gpu) | mem 30 GiB\n",
        2500,
    ),
    "prime-rl": (
        BAR.format(title="Generating rollouts: ", share=100, n=8, total=8, rate="24.5it/s")
        + "16:43:08 SUCCESS Step 5 | Time: 5.25s | Reward: 0.3\n",
        5.25,
    ),
    "verl (update_actor, the phase that trains)": (
        "step:7 - actor/entropy:0.31 - timing_s/gen:698.8 - timing_s/update_actor:327.5\n",
        327.5,
    ),
    "litgpt": ("Epoch 1 | iter 8 step 2: loss 1.1, iter time: 663.5 ms\n", 0.6635),
    "litgpt, by iterations": (
        "".join(
            f"Epoch 1 | iter {n} step {n // 2} | loss train: 10.9 | iter time: {ms} ms\n"
            for n, ms in ((1, 900.0), (2, 600.0), (3, 300.0), (4, 350.0))
        ),
        0.65,
    ),
    "llm.c": ("step    2/32 | loss 10.5 (+nanz)| lr 1e-06 | 2747.5 ms | 47.4% bf16 MFU\n", 2.7475),
    "nanoGPT": ("iter 10: loss 5.1, time 562.5ms, mfu 30.1%\n", 0.5625),
    "Composer": ("\t Train throughput/batches_per_sec: 0.5\n", 2.0),
    "Composer, by tokens": ("\t Train throughput/device/tokens_per_sec: 7785.5\n", 7785.5),
    "PaddleNLP": ("global step 95 / 220, loss: 1.7, avg_batch_cost: 0.675 sec, ips: 94.9\n", 0.675),
    "TensorFlow's estimators": ("INFO:global step 37: loss = 38.0 (22.5 sec/step)\n", 22.5),
    "OLMo-core": ("    throughput/device/TPS=45,326\n", 45326),
    "ms-swift": (
        "{'loss': 1.4, 'global_step/max_steps': '80/94', 'train_speed(iter/s)': 0.5}\n",
        2.0,
    ),
    "Hugging Face Trainer": (
        BAR.format(title="Loading checkpoint shards: ", share=100, n=4, total=4, rate="3.29s/it")
        + BAR.format(title="", share=10, n=3, total=30, rate="2.00s/it")
        + BAR.format(title="", share=99, n=9, total=9, rate="20.0it/s")
        + BAR.format(title="", share=20, n=6, total=30, rate="2.50s/it"),
        2.5,
    ),
    "Hugging Face Trainer's summary": (
        "{'eval_steps_per_second': '4.9'}\n{'train_steps_per_second': '0.25', 'epoch': 2}\n"
        "TrainOutput(global_step=9, metrics={'train_steps_per_second': 0.25})\n",
        4.0,
    ),
}
"""Lines of a log by the name of their form, and what its last step says: seconds, or a rate."""


@pytest.mark.parametrize("name", SAMPLES)
def test_every_form_has_a_sample(tmp_path: Path, name: str) -> None:
    text, value = SAMPLES[name]
    path = log(tmp_path, text)
    found = read_step_log(path)
    assert has_step_lines(path)
    assert found.form == name
    assert found.values[-1] == pytest.approx(value)


def test_no_form_lacks_a_sample() -> None:
    table = Path(step_lines.__file__).with_name("log_forms.toml")
    assert [form["name"] for form in tomllib.loads(table.read_text("utf-8"))["form"]] == list(
        SAMPLES
    )


def test_a_step_is_all_of_its_iterations(tmp_path: Path) -> None:
    lines = "".join(f"iter {n} step {n // 8} | iter time: 30 ms\n" for n in (2, 16))
    with pytest.raises(
        TraceError, match=r"train\.log:3: iteration 16 follows 2: expected a line of"
    ):
        read_step_log(log(tmp_path, lines))


def test_inspect_says_that_a_log_has_no_step_that_is_known(run: Run, tmp_path: Path) -> None:
    status, _, err = run("inspect", str(log(tmp_path, "step one took long, loss: 3.2\n")))
    assert status == 2
    assert "this looks like a log without a line per step that is known: say how" in err


def test_an_own_line_with_iterations_alone_counts_its_lines(tmp_path: Path) -> None:
    path = log(tmp_path, "iter 3 took 2.5 s\niter 7 took 2.0 s\n")
    found = read_step_log(path, r"iter (?P<iter>\d+) took (?P<s>[\d.]+) s")
    assert (found.numbers, found.values) == ((1, 2), (2.5, 2.0))
