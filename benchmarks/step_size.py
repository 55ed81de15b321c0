"""What large steps cost, and what stepsim estimates of them before it runs one.

    python benchmarks/step_size.py [--small]

Each step runs in a process of its own. Printed are its tasks, the processor seconds and the memory
that it took beyond those of a small step, and the estimate of all three. The constants of
`stepsim.step.size` are set on these numbers.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from stepsim.core import timeline
from stepsim.files.asked import StepInputs, read_inputs
from stepsim.step.job import job_of
from stepsim.step.prepared import prepare
from stepsim.step.size import size_of

WORKLOADS = Path(__file__).parents[1] / "workloads"
STEPS: tuple[tuple[str, dict[str, object]], ...] = (
    ("gpt_tp4.txt", {"microbatches": 40_000}),
    ("gpt_tp4.txt", {"microbatches": 10_000, "schedule": "gpipe"}),
    ("gpt_tp4.txt", {"microbatches": 300, "contention": "fair"}),
    ("moe_128.txt", {"microbatches": 5_000}),
    ("moe_128.txt", {"microbatches": 2_000, "schedule": "interleaved:4"}),
    ("moe_128.txt", {"microbatches": 20, "contention": "fair"}),
    ("moe_128.txt", {"microbatches": 2_000, "schedule": "zb-v"}),
    ("moe_128.txt", {"microbatches": 400, "schedule": "auto-zb"}),
    ("llama-3-8b", {"npus": 512, "pp": 8, "microbatches": 10_000, "tp": 2}),
    ("llama-3-8b", {"npus": 64, "pp": 8, "microbatches": 32, "tp": 2, "contention": "fair"}),
)


def inputs(work: str, asked: dict[str, object]) -> StepInputs:
    """What is asked of a step."""
    path = WORKLOADS / work
    return read_inputs(path if path.exists() else work, "hgx-h100", asked)


def measure(work: str, asked: dict[str, object]) -> dict[str, float]:
    """Tasks, processor seconds and bytes of a step, in this process."""
    counted: dict[str, int] = {}

    def count(_: str, text: str, *values: object) -> None:
        if "tasks laid out" in text:
            counted["tasks"] = int(str(values[0]))

    # the log alone says how many tasks were laid out; the process ends after this one step
    timeline.said = count  # type: ignore[assignment, attr-defined]
    prepare(inputs("gpt_tp4.txt", {})).simulated()
    job = inputs(work, asked)
    began, held = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    prepare(job).simulated(weigh=True)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held
    return {**counted, "seconds": time.process_time() - began, "bytes": grown * 1024}


def measured(work: str, asked: dict[str, object]) -> dict[str, float]:
    """Tasks, processor seconds and bytes of a step, in a process of its own."""
    command = [sys.executable, __file__, "--one", work, json.dumps(asked)]
    found: dict[str, float] = json.loads(subprocess.check_output(command, text=True))
    return found


def main(small: bool) -> None:
    print(f"{'tasks':>22} {'seconds':>15} {'MB':>15}  step (measured, estimated)")
    for work, asked in STEPS[2:3] if small else STEPS:
        found, job = measured(work, asked), inputs(work, asked)
        said = size_of(job_of(job))
        print(
            f"{found['tasks']:10,.0f} {said.tasks:11,} {found['seconds']:7.2f}"
            f" {found['bytes'] / 1e6:7.0f} {said.size_bytes / 1e6:7.0f}  {work} {asked}"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(sys.argv[2], json.loads(sys.argv[3]))))
    else:
        main("--small" in sys.argv)
