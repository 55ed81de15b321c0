"""The job of the benchmarks: 1,024 NPUs, 16 stages, 16 microbatches."""

from pathlib import Path

from stepsim.files.asked import read_inputs
from stepsim.step.prepared import PreparedStep, prepare

GPT = Path(__file__).resolve().parents[1] / "workloads" / "gpt_1024.txt"
SMALL = GPT.with_name("gpt_tp4.txt")
TOPOLOGY = "hgx-h100"


def gpt(**options: object) -> PreparedStep:
    """The job, before it runs."""
    inputs = read_inputs(GPT, TOPOLOGY, options)
    return prepare(inputs)
