"""The job of the benchmarks: 1,024 NPUs, 16 stages, 16 microbatches."""

from pathlib import Path

GPT = Path(__file__).resolve().parents[1] / "workloads" / "gpt_1024.txt"
TOPOLOGY = "hgx-h100"
