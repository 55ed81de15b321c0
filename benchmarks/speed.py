"""Time and memory of whole commands, start-up included: the median of five runs.

Usage: python benchmarks/speed.py
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from sizes import sized

WORKLOADS = Path(__file__).resolve().parents[1] / "workloads"
STEPSIM = [sys.executable, "-c", "from stepsim.cli import main; main()"]
IMPORTS = [sys.executable, "-c", "import simpy, numpy, msgspec, click"]
RUNS = sized(5, 1)
LARGEST = str(WORKLOADS / sized("gpt_1024.txt", "gpt_tp4.txt"))

COMMANDS = {
    "import of the libraries alone": IMPORTS,
    "stepsim --help": [*STEPSIM, "--help"],
    "gpt_tp4, 16 NPUs": [*STEPSIM, "simulate", "-q", str(WORKLOADS / "gpt_tp4.txt")],
    "moe_128, 128 NPUs": [*STEPSIM, "simulate", "-q", str(WORKLOADS / "moe_128.txt")],
    "gpt_1024, 1024 NPUs": [*STEPSIM, "simulate", "-q", LARGEST],
    "gpt_1024, 131072 NPUs": [
        *STEPSIM,
        *("simulate", "-q", "--npus", sized("131072", "2048"), LARGEST),
    ],
}


def measure(command: list[str]) -> tuple[float, float]:
    """Seconds and peak MB of one run."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)}: exit code {process.returncode}")
    return time.perf_counter() - began, usage.ru_maxrss / 1024


def main() -> None:
    """Print the table."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled once, as for people
    print("| command | seconds | peak MB |\n|---|---|---|")
    for name, command in COMMANDS.items():
        runs = [measure(command) for _ in range(RUNS)]
        seconds = statistics.median(seconds for seconds, _ in runs)
        print(f"| {name} | {seconds:.2f} | {max(peak for _, peak in runs):.0f} |")


if __name__ == "__main__":
    main()
