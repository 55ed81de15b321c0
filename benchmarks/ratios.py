"""Processor time of what people wait for, each over a yardstick of the same run: paired ratios.

Usage: python benchmarks/ratios.py

A ratio says more than seconds of a machine that others use too: both sides are measured in turn,
and the median of the pairs is told.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from sizes import sized

from stepsim.engine.prices import Prices
from stepsim.files.load import load_topology, load_workload
from stepsim.files.simai.text import read_simai_document
from stepsim.network.one_collective import probe_collective
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.parallel.modes import Engine
from stepsim.step.simulate import prepare, run_graph, simulate_step, step_totals
from stepsim.workload.rows import CollectiveKind, Workload

WORKLOADS = Path(__file__).resolve().parents[1] / "workloads"
WORKLOAD = WORKLOADS / sized("gpt_1024.txt", "gpt_tp4.txt")
STEPSIM = [sys.executable, "-c", "from stepsim.cli import main; main()"]
BARE = [sys.executable, "-c", "import numpy, simpy, msgspec"]
RUNS = sized(7, 1)
FEW, MANY = sized((1024, 16384), (64, 128))
Timed = Callable[[], float]


def command(*words: str) -> Timed:
    """Processor seconds of a command."""

    def timed() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return timed


def call(function: Callable[[], object], several: int = 1) -> Timed:
    """Processor seconds of a function, called several times."""

    def timed() -> float:
        began = time.process_time()
        for _ in range(several):
            function()
        return (time.process_time() - began) / several

    return timed


def exchange(npus: int) -> Callable[[], object]:
    """Pricing an all-to-all of all NPUs."""
    topology = load_topology("hgx-h100").fit(npus)
    kind = CollectiveKind.ALL_TO_ALL
    return lambda: probe_collective(topology, kind, [1 << 20], range(npus))


def collective(npus: int) -> list[str]:
    """The command that prices it."""
    words = "collective -t hgx-h100 --kind all_to_all --size 1MiB --ranks"
    return [*STEPSIM, *words.split(), f"0-{npus - 1}"]


def step(npus: int | None = None) -> Callable[[], object]:
    """A step of a workload, read before."""
    workload, topology = load_workload(WORKLOAD), load_topology("hgx-h100")
    return lambda: simulate_step(workload, topology, StepOptions(npus=npus))


PLANS = tuple(
    StepOptions(pp=pp, microbatches=microbatches, schedule=schedule)
    for pp in sized((4, 8, 16), (2,))
    for microbatches in sized((16, 32, 48, 64), (4,))
    for schedule in ("1f1b", "interleaved:2", "gpipe")
)
"""Plans that differ in degrees, microbatches and schedule."""
LARGE = StepOptions(pp=sized(64, 2), microbatches=sized(1024, 4), schedule="interleaved:4")


def plans(run: Callable[[Workload, Topology, StepOptions], object]) -> Callable[[], object]:
    """Every plan of a workload that is read before."""
    workload, topology = load_workload(WORKLOAD), load_topology("hgx-h100")
    return lambda: [run(workload, topology, plan) for plan in PLANS]


def report(workload: Workload, topology: Topology, options: StepOptions) -> object:
    """A step with its report."""
    return simulate_step(workload, topology, options)


def totals() -> Callable[[Workload, Topology, StepOptions], object]:
    """A step's totals alone, as sweeps ask for them."""
    known: list[Prices] = []
    return lambda *asked: step_totals(*asked, breakdown=False, known=known)


def large(engine: Engine) -> Callable[[], object]:
    """A run of a graph of many segments by an engine."""
    workload, topology = load_workload(WORKLOAD), load_topology("hgx-h100")
    ready = prepare(workload, topology, LARGE)
    return lambda: run_graph(ready.graph, ready.prices, engine=engine)


def split() -> list[list[str]]:
    """The words of every line: what no reader can do without."""
    return [line.split() for line in WORKLOAD.read_text().splitlines()]


def ratio(one: Timed, other: Timed) -> float:
    """The median of one over the other, measured in turn; each is warm."""
    one(), other()
    return median(one() / other() for _ in range(RUNS))


def main() -> None:
    """Print the table."""
    simulate = [*STEPSIM, "simulate", "-q", "-t", "hgx-h100"]
    shape = f"--pp {LARGE.pp} --microbatches {LARGE.microbatches} --schedule {LARGE.schedule}"
    rows = {
        f"simulate {WORKLOAD.stem} over the import of numpy, simpy, msgspec": (
            command(*simulate, str(WORKLOAD)),
            command(*BARE),
        ),
        "simulate moe_128 over the same": (
            command(*simulate, str(WORKLOADS / "moe_128.txt")),
            command(*BARE),
        ),
        "stepsim --help over the same": (command(*STEPSIM, "--help"), command(*BARE)),
        f"reading {WORKLOAD.stem} over str.split of its lines": (
            call(lambda: read_simai_document(WORKLOAD), 20),
            call(split, 20),
        ),
        f"all-to-all of {MANY} ranks over {FEW}, the commands": (
            command(*collective(MANY)),
            command(*collective(FEW)),
        ),
        f"all-to-all of {MANY} ranks over {FEW}, the pricing alone": (
            call(exchange(MANY)),
            call(exchange(FEW)),
        ),
        f"a step of {sized(131072, 256)} NPUs over the workload's own": (
            call(step(sized(131072, 256))),
            call(step()),
        ),
        f"simulate with {shape} over the same": (
            command(*simulate, str(WORKLOAD), *shape.split()),
            command(*BARE),
        ),
        "the same run by events over level by level": (
            call(large(Engine.SIMPY)),
            call(large(Engine.LEVELS)),
        ),
        f"{len(PLANS)} plans with their reports over their totals": (
            call(plans(report)),
            call(plans(totals())),
        ),
    }
    print("| processor time | ratio |\n|---|---|")
    for name, (one, other) in rows.items():
        print(f"| {name} | {ratio(one, other):.2f} |")
    seconds = call(plans(totals()), 3)()
    print(f"\n{len(PLANS) / seconds:.0f} distinct plans to totals per second and core")


if __name__ == "__main__":
    main()
