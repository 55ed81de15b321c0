"""Speed and memory of the batch evaluator, in processor time of one core: docs/performance.md.

Usage: python benchmarks/performance.py
"""

import resource
import sys
import time
from collections.abc import Callable

import numpy as np
from gpt import GPT, SMALL, TOPOLOGY
from sizes import sized

from stepsim.explore.batch.evaluation import Batch, make_batch
from stepsim.explore.noise.draws import NoiseModel
from stepsim.face.steps import noise, sensitivity, simulate
from stepsim.files.asked import read_inputs
from stepsim.files.load import workload_of

ROUNDS = sized(5, 1)


def best(run: Callable[[], object]) -> float:
    """Seconds of processor time of the fastest of a few runs."""
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return min(times)


def columns(count: int) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Bandwidths and latencies of both link classes."""
    rng = np.random.default_rng(0)
    return {
        "fabric.bandwidth": rng.uniform(1e10, 1e11, count),
        "nvlink.bandwidth": rng.uniform(1e11, 1e12, count),
        "fabric.latency": rng.uniform(0, 1e6, count).round(),
        "nvlink.latency": rng.uniform(0, 1e6, count).round(),
    }


def rate(batch: Batch, count: int, *, parts: bool) -> float:
    """Scenarios per second."""
    given = columns(count)
    return count / best(lambda: batch.evaluate(given, parts=parts))


def row(name: str, value: str) -> None:
    print(f"| {name} | {value} |")


def main() -> None:
    """Print the table."""
    workload = workload_of(sized(GPT, SMALL))
    job = read_inputs(workload, TOPOLOGY, {})
    batch = make_batch(job)
    engine = best(lambda: simulate(workload, TOPOLOGY))
    totals, parts = (
        rate(batch, sized(count, 1000), parts=parts)
        for count, parts in ((100_000, False), (20_000, True))
    )
    print("| gpt_1024, 1,024 NPUs | |\n|---|---|")
    row("one `simulate`", f"{engine * 1e3:.0f} ms")
    row("compiling the batch", f"{best(lambda: make_batch(job)) * 1e3:.0f} ms")
    row("scenarios/s, step time and bubble", f"{totals:,.0f}")
    row("scenarios/s, with the breakdown", f"{parts:,.0f}")
    row(
        "over `simulate`, scenario by scenario",
        f"{totals * engine:,.0f} x, {parts * engine:,.0f} x",
    )
    began = time.process_time()
    batch.evaluate(columns(sized(1_000_000, 1000)), parts=True)
    row("1,000,000 scenarios with the breakdown", f"{time.process_time() - began:.0f} s")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    row("peak memory until here", f"{peak:.0f} MB")
    row(
        "`sensitivity`, 11 parameters",
        f"{best(lambda: sensitivity(workload, TOPOLOGY)) * 1e3:.0f} ms",
    )
    model = NoiseModel(task=0.05, straggler_probability=0.01, straggler_factor=1.2)
    noisy = best(lambda: noise(workload, TOPOLOGY, model=model, samples=sized(1024, 2)))
    row("`noise`, 1,024 samples, a draw per rank", f"{noisy:.1f} s")
    print(f"\nPython {sys.version.split()[0]}, numpy {np.__version__}.", file=sys.stderr)


if __name__ == "__main__":
    main()
