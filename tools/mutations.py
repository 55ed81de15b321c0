"""Changes an operator or a constant of the core, and asks whether a test notices.

    python tools/mutations.py [--seed 28] [--count 60] [--rooms core,network] [--only 3,17]
        [--seconds 3600]

Mutations are drawn with a seed over the rooms of the core. Each is made in a copy of the checkout,
where the tests of its room run without the reference data of others (`STEPSIM_SHARED` leads
nowhere). Printed are those that no test noticed; exit code 1 where there are any.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
COPIED = (
    *("src", "tests", "tools", "benchmarks", "workloads", "models", "devices", "frameworks"),
    *("topologies", "pyproject.toml", "docs", "notebooks"),
)


class Room(NamedTuple):
    """Folders of the package, of which some exist, and the tests that hold them, quickest first."""

    folders: Sequence[str]
    tests: Sequence[str]

    def files(self) -> list[Path]:
        """The modules of the room; raises ValueError where folders or tests have other names."""
        here = [ROOT / "src/stepsim" / folder for folder in self.folders]
        absent = [test for test in self.tests if not (ROOT / "tests" / test).exists()]
        if absent or not any(map(Path.is_dir, here)):
            names = " ".join(absent or self.folders)
            raise ValueError(f"ROOMS of tools/mutations.py: nothing is called {names} any more")
        return sorted(path for folder in here for path in folder.rglob("*.py"))


ROOMS: Mapping[str, Room] = MappingProxyType(
    {
        "model": Room(
            ("workload/model", "model"),
            ("unit/workload/model", "golden", "unit/workload", "unit/step"),
        ),
        "network": Room(
            ("network",),
            (
                *("unit/network", "oracles/test_algorithms.py", "oracles/test_collectives.py"),
                *(
                    "oracles/test_nccl_tables.py",
                    "oracles/test_chunks.py",
                    "golden",
                    "properties/test_folding.py",
                ),
                "properties/test_exchange_properties.py",
            ),
        ),
        "schedules": Room(
            ("parallel/schedules", "pipeline/schedules"),
            (
                *("unit/parallel", "oracles/test_schedules.py", "oracles/test_auto_zb.py"),
                *("properties/test_schedule_properties.py", "golden"),
            ),
        ),
        "core": Room(
            ("core", "run"),
            (
                *("unit/core", "unit/run", "golden", "oracles/test_pipeline.py"),
                *("properties/test_plain_step.py", "oracles/test_chunks.py"),
                "properties/test_folding.py",
            ),
        ),
    }
)
"""Rooms of the core by what they are about; a folder that moves is named beside the old one."""

EQUIVALENT: Mapping[str, str] = MappingProxyType(
    {
        "_FEW_NODES = (1 + 1) << 15": (
            "up to how many nodes one way of two is taken that find the same times"
        ),
        "wakings = [((0 + 1), 0)]": (
            "a rank that wakes 1 ps later starts when it is free and has its input: at 0"
        ),
        "fabric = fabric or Fabric(capacity=np.zeros((0 + 1)))": (
            "a link that no transfer uses, where no links are shared"
        ),
        "rows = topology.canonical(npus[groups].reshape(len(these), -(1 + 1)))": (
            "numpy takes any negative length for the one that it finds out"
        ),
        "links = int(link.max(initial=(0 + 1))) + 1": (
            "owner and link are digits of one number, put in and taken out with the same base"
        ),
        "forecast: int = (0 + 1)": "forecasts of a flight are counted, from whatever number on",
        "same = np.full(len(here), where * len(GROUPS) - group)": (
            "a number for each pair: groups are fewer than the factor"
        ),
        "few = len(waits) < _NARROW * len(waits.levels)": (
            "up to how many nodes of a level one way of two is taken that find the same times"
        ),
        "_KEPT = (256 + 1)": "how many results are kept; one that is made again is the same",
        "distance[root] = (0 + 1)": (
            "ways through switches are a hop longer, beside direct ones that have fewer anyhow"
        ),
        "rows: int = (1 + 1)": "a row of a table that nobody names stays empty",
        "width = max(1, int(count.max(initial=(0 + 1))))": "it is at least 1 anyhow",
        "branches: int = (0 + 1)": "branches are kept from one place later on",
        "ahead = ends >> 1 <= placement.stages * self.schedule.microbatches": (
            "the first stage sends no gradients, so that nothing has the number in between"
        ),
        "if len(missing) < _FEW_NODES:": (
            "up to how many nodes one way of two is taken that find the same times"
        ),
        "if int(count.sum()) <= 2 * len(count) - size:": (
            "up to how many steps one way of two is taken that find the same loads"
        ),
        "if mlp.groups >= 1:": (
            "where there is one group, a token takes experts of it, and all nodes can be reached"
        ),
    }
)
"""Lines of source that a mutation made and that say the same, and why."""

TWINS: Mapping[type, tuple[str, str]] = MappingProxyType(
    {
        ast.Add: ("+", "-"),
        ast.Sub: ("-", "+"),
        ast.Mult: ("*", "/"),
        ast.Div: ("/", "*"),
        ast.FloorDiv: ("//", "*"),
        ast.Mod: ("%", "//"),
        ast.Lt: ("<", "<="),
        ast.LtE: ("<=", "<"),
        ast.Gt: (">", ">="),
        ast.GtE: (">=", ">"),
        ast.Eq: ("==", "!="),
        ast.NotEq: ("!=", "=="),
        ast.Is: ("is", "is not"),
        ast.IsNot: ("is not", "is"),
        ast.And: ("and", "or"),
        ast.Or: ("or", "and"),
    }
)
"""Operators, and what takes their place."""

LONGEST_S = 240


class Mutation(NamedTuple):
    """A place in a file, of bytes from `start` to `end`, and what is written there.

    `made` is the line that becomes of it.
    """

    room: str
    file: str
    line: int
    start: int
    end: int
    old: str
    new: str
    made: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.old} -> {self.new}"


def mutations_of(path: Path, room: str) -> Iterator[Mutation]:
    """Everything in a file that can be changed: operators between operands, and numbers."""
    source = path.read_bytes()
    starts = [0]
    for text in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(text))

    def at(line: int, column: int) -> int:
        return starts[line - 1] + column

    def made(line: int, start: int, end: int, new: str) -> Mutation:
        before, after = source[starts[line - 1] : start], source[end : starts[line]]
        changed = (before + new.encode() + after).decode().strip()
        file, old = path.relative_to(ROOT).as_posix(), source[start:end].decode()
        return Mutation(room, file, line, start, end, old, new, changed)

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            start = at(node.lineno, node.col_offset)
            end = at(node.end_lineno or 0, node.end_col_offset or 0)
            yield made(node.lineno, start, end, f"({source[start:end].decode()} + 1)")
        for left, operator, right in _joined(node):
            if type(operator) in TWINS:
                old, new = TWINS[type(operator)]
                first = at(left.end_lineno or 0, left.end_col_offset or 0)
                start = source.find(old.encode(), first, at(right.lineno, right.col_offset))
                if start >= 0:
                    line = source.count(b"\n", 0, start) + 1
                    yield made(line, start, start + len(old), new)


def _joined(node: ast.AST) -> Iterator[tuple[ast.expr, ast.AST, ast.expr]]:
    """Operands of a node with the operator between them; no types such as `int | None`."""
    if isinstance(node, ast.BinOp):
        yield node.left, node.op, node.right
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield node.left, node.ops[0], node.comparators[0]
    elif isinstance(node, ast.BoolOp):
        for left, right in zip(node.values, node.values[1:], strict=False):
            yield left, node.op, right


def drawn(seed: int, count: int, rooms: Sequence[str]) -> list[Mutation]:
    """So many mutations, as many of each room; the same for a seed and a state of the code."""
    chance, chosen = random.Random(seed), list[Mutation]()
    for number, name in enumerate(rooms):
        paths = ROOMS[name].files()
        every = [mutation for path in paths for mutation in mutations_of(path, name)]
        share = count // len(rooms) + (number < count % len(rooms))
        chosen += chance.sample(every, share)
    chance.shuffle(chosen)
    return chosen


def survives(mutation: Mutation, copy: Path) -> bool:
    """Whether all tests of the room pass in a copy of the checkout with a mutation."""
    path = copy / mutation.file
    source = path.read_bytes()
    path.write_bytes(
        source[: mutation.start] + mutation.new.encode() + source[mutation.end :]
    )  # fmt: skip
    try:
        return passes(mutation.room, copy)
    finally:
        path.write_bytes(source)


def passes(room: str, copy: Path) -> bool:
    """Whether all tests of a room pass in a copy of the checkout, in time."""
    tests = [f"tests/{test}" for test in ROOMS[room].tests]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{copy / 'src'}",
        "STEPSIM_SHARED": f"{copy / 'no reference data'}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "CI": "true",
    }
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, check=False, timeout=LONGEST_S
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def main() -> int:
    """Try the mutations that were asked for, within the time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=28)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--rooms", default=",".join(ROOMS), help="rooms to draw from")
    parser.add_argument("--only", default="", help="numbers of mutations, from 0")
    parser.add_argument("--seconds", type=float, default=3600.0)
    asked = parser.parse_args()
    every = list(enumerate(drawn(asked.seed, asked.count, asked.rooms.split(","))))
    if asked.only:
        chosen = set(map(int, asked.only.split(",")))
        every = [(number, mutation) for number, mutation in every if number in chosen]
    end, left = time.monotonic() + asked.seconds, list[Mutation]()
    tried = 0
    with tempfile.TemporaryDirectory(prefix="stepsim-mutations-") as folder:
        copy = Path(folder)
        for name in COPIED:
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, copy / name)
        for room in {mutation.room: None for _, mutation in every}:
            if not passes(room, copy):
                raise SystemExit(f"tests of {room} fail, or take too long, without a mutation")
        for number, mutation in every:
            if time.monotonic() > end:
                break
            began, alive = time.monotonic(), survives(mutation, copy)
            tried += 1
            word = "SURVIVES" if alive else "killed"
            if alive and mutation.made in EQUIVALENT:
                word = f"equivalent: {EQUIVALENT[mutation.made]}"
            elif alive:
                left.append(mutation)
            print(f"{number:3} {time.monotonic() - began:5.0f} s  {word:9} {mutation}", flush=True)
    print(f"{tried} of {len(every)} tried, {len(left)} not noticed")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
