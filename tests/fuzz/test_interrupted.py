"""A run that is stopped, or killed while it writes, leaves whole files or none."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from fuzz import seeds

ROOT = Path(__file__).resolve().parents[2]
WORKLOAD = ROOT / "workloads" / "gpt_1024.txt"
COMMAND = [sys.executable, "-c", "from stepsim.cli import main; main()"]
KILLED = [
    sys.executable,
    "-c",
    "import os, signal, sys\n"
    "def replace(*names): os.kill(os.getpid(), signal.SIGKILL)\n"
    "os.replace = replace\n"
    "from stepsim.cli import main\n"
    "main()",
]
OLD = b"what was there before"

LONG = {
    "simulate": ("simulate", WORKLOAD, "--no-fold", "--microbatches", "64"),
    "compare": ("compare", WORKLOAD, "--schedules", "1f1b,gpipe,interleaved:2", "--npus", "65536"),
    "noise": ("noise", WORKLOAD, "--samples", "20000"),
}


def wait_until_running(process: "subprocess.Popen[str]") -> None:
    """Wait until the command computes: it has used half a second of the processor."""
    tick = os.sysconf("SC_CLK_TCK")
    while process.poll() is None:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        if (int(fields[11]) + int(fields[12])) / tick > 0.8:
            return
        time.sleep(0.05)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("name", LONG)
def test_interrupt(name: str, tmp_path: Path) -> None:
    json = tmp_path / "out.json"
    json.write_bytes(OLD)
    with subprocess.Popen(
        [*COMMAND, *map(str, LONG[name]), "-q", "--json", str(json)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_until_running(process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 130, err
    assert out == ""
    assert "Traceback" not in err
    assert os.listdir(tmp_path) == ["out.json"]
    assert json.read_bytes() == OLD


def test_interrupted_sweep_goes_on(tmp_path: Path) -> None:
    database = tmp_path / "sweep.sqlite"
    command = [*COMMAND, "sweep", str(ROOT / "workloads" / "gpt_tp4.txt"), "--db", str(database)]
    command += ["--set", "microbatches=1..20", "--set", "npus=16,32,64", "--contention", "fair"]
    command += ["-q", "--jobs", "1"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        while process.poll() is None and not database.exists():
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "--resume continues" in err
    again = run([*command, "--resume"], tmp_path)
    assert again.returncode == 0, again.stderr


SWEEP = "sweep W --set microbatches=1,2 -q --jobs 1 --db DB"
WRITERS = {
    "result.json": "simulate W -q --json OUT",
    "step.png": "simulate W -q --plot OUT",
    "step.svg": "simulate W -q --plot OUT",
    "spans.csv": "simulate W -q --csv OUT",
    "compare.json": "compare W --schedules 1f1b,gpipe -q --json OUT",
    "schedule.csv": "convert gpipe OUT --pp 2 --microbatches 2",
    "probe.pdf": "collective --kind all_reduce --size 1..1MiB --plot OUT",
    "sweep.csv": f"{SWEEP} --export OUT",
    "sweep.png": f"{SWEEP} --plot OUT",
    "topology.json": "inspect ring --json OUT",
    "fit.json": "calibrate nccl TABLE --json OUT",
}


@pytest.mark.parametrize("name", WRITERS)
def test_killed_while_writing(name: str, tmp_path: Path) -> None:
    files = {"W": "w.txt", "TABLE": "nccl.csv", "DB": "sweep.sqlite", "OUT": name}
    (tmp_path / "w.txt").write_text(seeds.SMALL_WORKLOAD)
    (tmp_path / "nccl.csv").write_text(seeds.COMM_TABLE)
    arguments = [files.get(word, word) for word in WRITERS[name].split(" ")]
    target = tmp_path / name
    target.write_bytes(OLD)
    killed = run([*KILLED, *arguments], tmp_path)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert target.read_bytes() == OLD
    (tmp_path / "sweep.sqlite").unlink(missing_ok=True)
    whole = run([*COMMAND, *arguments], tmp_path)
    assert whole.returncode == 0, whole.stderr
    assert target.read_bytes() != OLD


def run(command: Sequence[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder)
