"""Seconds of what people wait for, beside what they were and what they should be; paired ratios.

Usage: python benchmarks/ratios.py [--fill]

Each line of the first table is the first answer of a fresh process with one thread, in processor
time but where two processes work; beside it stands the import of the libraries, measured just
before. Ratios are the medians of pairs measured in turn. Large commands follow, with seconds and
peak memory.

Beside each figure stands the one of docs/performance.md; `--fill` puts the new ones there.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from sizes import sized

from stepsim.base.axes import CollectiveKind
from stepsim.base.process import paused
from stepsim.core.timeline import run_graph
from stepsim.explain.as_profile import profile_of_step
from stepsim.files.asked import StepInputs
from stepsim.files.load import topology_of, workload_of
from stepsim.files.simai.text import read_simai_document
from stepsim.network.one_collective import probe_collective
from stepsim.options import StepOptions
from stepsim.parallel.modes import Engine
from stepsim.runs.improve import improve_profile
from stepsim.serve.explorer import Explorer
from stepsim.serve.library import NamedNouns
from stepsim.step.prepared import prepare

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "performance.md"
WORKLOADS = ROOT / "workloads"
WORKLOAD = WORKLOADS / sized("gpt_1024.txt", "gpt_tp4.txt")
STEPSIM = [sys.executable, "-c", "from stepsim.cli import main; main()"]
BARE = [sys.executable, "-c", "import numpy, simpy, msgspec"]
RUNS = sized(7, 1)
FIRST = sized(1, 0)
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
    topology = topology_of("hgx-h100").fit(npus)
    kind = CollectiveKind.ALL_TO_ALL
    return lambda: probe_collective(topology, kind, [1 << 20], range(npus))


def collective(npus: int) -> list[str]:
    """The command that prices it."""
    words = "collective -t hgx-h100 --kind all_to_all --size 1MiB --ranks"
    return [*STEPSIM, *words.split(), f"0-{npus - 1}"]


def step(npus: int | None = None) -> Callable[[], object]:
    """A step of a workload, read before."""
    workload, topology = workload_of(WORKLOAD), topology_of("hgx-h100")
    return lambda: prepare(StepInputs(workload, topology, StepOptions(npus=npus))).simulated()


PLANS = tuple(
    StepOptions(pp=pp, microbatches=microbatches, schedule=schedule)
    for pp in sized((4, 8, 16), (2,))
    for microbatches in sized((16, 32, 48, 64), (4,))
    for schedule in sized(
        (
            *("1f1b", "gpipe", "interleaved:2", "interleaved:4", "looped-bfs:2", "zb-h1"),
            *("interleaved-zb:2", "zb-v", "v-half", "v-min", "looped-bfs:4", "interleaved-zb:4"),
        ),
        ("1f1b", "gpipe"),
    )
)
"""Plans whose graphs differ: in stages, microbatches or schedule."""
LARGE = StepOptions(pp=sized(64, 2), microbatches=sized(1024, 4), schedule="interleaved:4")


def large(engine: Engine) -> Callable[[], object]:
    """A run of a graph of many segments by an engine."""
    workload, topology = workload_of(WORKLOAD), topology_of("hgx-h100")
    ready = prepare(StepInputs(workload, topology, LARGE))
    return lambda: run_graph(ready.graph, ready.prices, engine=engine)


def split() -> list[list[str]]:
    """The words of every line: what no reader can do without."""
    return [line.split() for line in WORKLOAD.read_text().splitlines()]


def spent(function: Callable[[], object]) -> float:
    """Processor seconds of a function that is called once, as a command calls it."""
    with paused():
        return call(function)()


def exact_plans() -> str:
    """Plans a second to their totals; each has another graph, and is asked for once."""
    workload, topology, known = workload_of(WORKLOAD), topology_of("hgx-h100"), dict[Any, Any]()

    def ask() -> None:
        for plan in PLANS:
            prepare(StepInputs(workload, topology, plan), known=known, quick=True).step_time_ps()

    return f"{len(PLANS) / spent(ask):.0f}"


SEARCH = [*STEPSIM, "plan", *sized(("gpt3-175b", "--gpus", "512"), ("gpt2", "--gpus", "8"))]
SEARCH += ["-t", "hgx-a100", "--json", "-"]


def searched_plans() -> str:
    """Plans a second that a search simulates, with all else that the command does."""
    before = time.process_time() + sum(os.times()[2:4])
    told = subprocess.run(SEARCH, capture_output=True, check=True).stdout
    seconds = time.process_time() + sum(os.times()[2:4]) - before
    return f"{json.loads(told)['simulated'] / seconds:.0f}"


def two_jobs() -> str:
    """How much sooner two processes search, by the clock, and how much more they compute."""
    costs = []
    for jobs in ("1", "2"):
        began, before = time.perf_counter(), sum(os.times()[2:4])
        subprocess.run([*SEARCH, "--jobs", jobs], capture_output=True, check=True)
        costs.append((time.perf_counter() - began, sum(os.times()[2:4]) - before))
    one, two = costs
    return f"{one[0] / two[0]:.2f} x, {two[1] / one[1] - 1:+.0%}"


def structural() -> str:
    """Milliseconds and kB of what the explorer's page asks when a slider of structure was moved."""
    library = NamedNouns()
    library.open(WORKLOAD)
    answers = Explorer(library=library)
    state = {"workload": WORKLOAD.name, "topology": "hgx-h100"}
    moved = {"microbatches": "32", "pp": sized("8", "2"), "schedule": "gpipe"}
    for kind in ("shown", "varies"):
        answers.answer({"kind": kind, "state": state})
    times, sizes = [], []
    for name, value in moved.items():
        question = {"kind": "shown", "state": {**state, name: value}}
        told: list[str] = []
        times.append(spent(lambda: told.append(json.dumps(answers.answer(question)))))  # noqa: B023
        sizes.append(len(told[0]))
    return f"{min(times) * 1e3:.0f} to {max(times) * 1e3:.0f} ms, {max(sizes) / 1e3:.0f} kB"


def improved() -> str:
    """Microseconds for each operation of a profile, until every change is ranked."""
    workload, topology = workload_of(WORKLOAD), topology_of("hgx-h100")
    step = prepare(StepInputs(workload, topology, StepOptions(npus=sized(128, 16)))).simulated()
    profile = profile_of_step(step.timeline, source=WORKLOAD.name)
    return f"{spent(lambda: improve_profile(profile)) / len(profile.events) * 1e6:.1f} us"


def asked(*words: str) -> Callable[[], str]:
    """Processor seconds of a command of stepsim."""
    return lambda: f"{command(*STEPSIM, *words)():.2f} s"


def written(*words: str) -> Callable[[], str]:
    """Processor seconds of a command that writes a folder, which its last word asks for."""

    def measured() -> str:
        with tempfile.TemporaryDirectory() as folder:
            return asked(*words, str(Path(folder) / "traces"))()

    return measured


SIMULATE = ("simulate", "-q", "-t", "hgx-h100", str(WORKLOAD))
NOISE = ("noise", str(WORKLOAD), "-t", "hgx-h100", "--samples", sized("1000", "2"))
DEEP = ("--pp", sized("32", "2"), "--microbatches", sized("512", "4"), "--schedule", "auto-zb")


class Line(NamedTuple):
    """What people wait for: its figure when issue 35 was written, the goal, how it is measured."""

    before: str
    goal: str
    figure: Callable[[], str]


LINES = {
    f"exact plans a second, {len(PLANS)} graphs that differ": Line("31 to 36", "100", exact_plans),
    f"plans a second in `plan {' '.join(SEARCH[4:7])}`": Line("17", "100", searched_plans),
    f"simulate {WORKLOAD.stem}": Line("0.37 to 0.48 s", "0.25 s", asked(*SIMULATE)),
    "simulate moe_128": Line(
        "0.37 to 0.48 s", "0.25 s", asked(*SIMULATE[:-1], str(WORKLOADS / "moe_128.txt"))
    ),
    "stepsim --help": Line("0.19 s", "0.10 s", asked("--help")),
    f"noise of {WORKLOAD.stem}, {NOISE[-1]} samples": Line("54 s", "5 s", asked(*NOISE)),
    "explorer: microbatches, pp, schedule": Line(
        "92 to 282 ms, 828 kB", "50 ms, 100 kB", structural
    ),
    f"--kineto of {sized('1,024', '16')} NPUs": Line("67 s", "6 s", written(*SIMULATE, "--kineto")),
    f"--chakra of {sized('512', '16')} NPUs": Line(
        "58 s", "6 s", written(*SIMULATE, "--npus", sized("512", "16"), "--chakra")
    ),
    "improve, of an operation": Line("6.6 us", "2 us", improved),
    "simulate with 256 microbatches, 23,500 tasks": Line(
        "0.81 s", "0.5 s", asked(*SIMULATE, "--microbatches", sized("256", "4"))
    ),
    f"simulate {' '.join(DEEP)}": Line("4.2 s", "1 s", asked(*SIMULATE, *DEEP)),
    "`plan --jobs 2`: by the clock, and more computed": Line("1.2 x, +36%", "1.7 x, +5%", two_jobs),
}
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}


def first_answers() -> None:
    """Print the lines, each measured in a process of its own."""
    print("| what people wait for | now | before | goal | import beside it | on the page |")
    print("|---|---|---|---|---|---|")
    small = [word for word in sys.argv if word == "--small"]
    for name, line in LINES.items():
        beside = command(*BARE)()
        words = [sys.executable, __file__, "--line", name, *small]
        told = subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True).stdout
        tell(name, told.strip(), line.before, line.goal, f"{beside:.2f} s")


def ratio(one: Timed, other: Timed) -> float:
    """The median of one over the other, measured in turn; each is warm, but where it is small."""
    for _ in range(FIRST):
        one(), other()
    return median(one() / other() for _ in range(RUNS))


def overlap_rows() -> dict[str, tuple[Timed, Timed]]:
    """Steps and sweeps in which communication slows compute, over the same without."""
    job, gpus = sized(("llama-3.1-405b", 1024), ("llama-3-8b", 8))
    large = [*STEPSIM, "simulate", "-q", "-t", "hgx-h100", job, "--gpus", str(gpus)]
    axes = [f"fabric.bandwidth=100..800 Gbps:{sized(16, 2)}", "schedule=1f1b,zb-h1"]
    sweep = [*STEPSIM, "sweep", "-q", "-t", "hgx-h100", str(WORKLOAD)]
    sweep += [word for axis in axes for word in ("--set", axis)]
    slowed = ["--overlap-cost", "on"]
    return {
        f"simulate {job} --overlap-cost over the same without": (
            command(*large, *slowed),
            command(*large),
        ),
        f"sweep {WORKLOAD.stem} --overlap-cost over the same without": (
            command(*sweep, *slowed),
            command(*sweep),
        ),
    }


def large_commands(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """What the largest questions are, and the commands that ask them."""
    simulate = [*STEPSIM, "simulate", "-q", "-t", "hgx-h100", str(WORKLOAD)]
    shapes = sized(
        ("--pp 64 --microbatches 1024", "--pp 128 --microbatches 4096"),
        ("--pp 2 --microbatches 4", "--pp 4 --microbatches 8"),
    )
    for shape in shapes:
        words = f"{shape} --schedule interleaved:4"
        yield words, [*simulate, *words.split()]
    words = f"--npus {sized(1048576, 256)}"
    yield words, [*simulate, *words.split()]
    words = f"--npus {sized(131072, 256)} --contention fair"
    yield words, [*simulate, *words.split()]
    several = sized(1000, 3)
    axes = [f"fabric.bandwidth=50..800 Gbps:{several}", f"nvlink.bandwidth=100..900 GB/s:{several}"]
    sweep = [
        *STEPSIM,
        "sweep",
        "-q",
        str(WORKLOAD),
        "-t",
        "hgx-h100",
        "--db",
        str(folder / "all.db"),
    ]
    words = f"sweep of {several**2:,} bandwidths to a database"
    yield words, [*sweep, *(word for axis in axes for word in ("--set", axis))]


_MEASURED = """
import os, sys
silent = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
process = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=silent)
_, status, used = os.wait4(process, 0)
print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)
sys.exit(status != 0)
"""
"""A small process that runs a command: a child begins with the peak memory of its parent."""


def cost(words: list[str]) -> tuple[float, float]:
    """Processor seconds and peak MB of a command."""
    told_by = [sys.executable, "-c", _MEASURED, *words]
    told = subprocess.run(told_by, stdout=subprocess.PIPE, check=True, text=True).stdout
    seconds, peak = map(float, told.split())
    return seconds, peak


def tell(name: str, *figures: str) -> None:
    """Print a row beside that of the page, or put it there."""
    lines = PAGE.read_text().splitlines()
    begin = f"| {name} | "
    places = [i for i, line in enumerate(lines) if line.startswith(begin)]
    known = [lines[i].removeprefix(begin).removesuffix(" |") for i in places]
    print(f"{begin}{' | '.join(figures)} | {', '.join(known).replace(' | ', ', ')} |")
    if "--fill" in sys.argv and sized(True, False):
        for i in places:
            lines[i] = f"{begin}{' | '.join(figures)} |"
        PAGE.write_text("\n".join([*lines, ""]))


def main() -> None:
    """Print the tables."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled once, as for people
    os.environ.update(ONE_THREAD)
    if "--line" in sys.argv:
        print(LINES[sys.argv[sys.argv.index("--line") + 1]].figure())
        return
    first_answers()
    simulate = [*STEPSIM, "simulate", "-q", "-t", "hgx-h100"]
    shape = f"--pp {LARGE.pp} --microbatches {LARGE.microbatches} --schedule {LARGE.schedule}"
    rows = {
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
        f"simulate on {sized(1048576, 256):,} NPUs over the workload's own": (
            command(*simulate, str(WORKLOAD), "--npus", str(sized(1048576, 256))),
            command(*simulate, str(WORKLOAD)),
        ),
        "its step alone over the workload's own": (
            call(step(sized(1048576, 256))),
            call(step()),
        ),
        f"a run with {shape} by events over level by level": (
            call(large(Engine.SIMPY)),
            call(large(Engine.LEVELS)),
        ),
    }
    rows |= overlap_rows()
    print("\n| processor time | ratio | on the page |\n|---|---|---|")
    for name, (one, other) in rows.items():
        tell(name, f"{ratio(one, other):.2f}")
    print("\n| command | seconds | peak MB | on the page |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, words in large_commands(Path(folder)):
            seconds, peak = cost(words)
            tell(name, f"{seconds:.2f}", f"{peak:.0f}")


if __name__ == "__main__":
    main()
