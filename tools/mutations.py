"""Changes an operator or a constant of the core, and asks whether a test notices.

    python tools/mutations.py [--seed 28] [--count 60] [--only 3,17] [--seconds 3600]

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
ROOMS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "workload/model": ("unit/workload/model", "golden", "unit/workload", "unit/step"),
        "network/collectives": (
            *("unit/network", "oracles/test_algorithms.py", "oracles/test_collectives.py"),
            *("oracles/test_nccl_tables.py", "unit/engine/test_siblings.py", "golden"),
        ),
        "parallel/schedules": (
            *("unit/parallel", "oracles/test_schedules.py", "oracles/test_auto_zb.py"),
            *("properties/test_schedule_properties.py", "golden"),
        ),
        "graph": ("unit/graph", "golden", "oracles/test_pipeline.py", "oracles/test_chunks.py"),
        "engine": (
            "unit/engine",
            "golden",
            "oracles/test_pipeline.py",
            "properties/test_folding.py",
            "properties/test_orbits.py",
        ),
    }
)
"""Rooms of the core, and the tests that hold them, the quickest first."""

EQUIVALENT: Mapping[str, str] = MappingProxyType(
    {
        "src/stepsim/engine/nodes.py:27: 1 -> (1 + 1)": (
            "up to how many nodes one way of two is taken that find the same times"
        ),
        "src/stepsim/parallel/schedules/auto_zb.py:332: 0 -> (0 + 1)": (
            "a rank that wakes 1 ps later starts when it is free and has its input: at 0"
        ),
        "src/stepsim/engine/run.py:60: 0 -> (0 + 1)": (
            "a link that no transfer uses, where no links are shared"
        ),
    }
)
"""Mutations that change nothing, as they are printed, and why."""

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
    """A place in a file, of bytes from `start` to `end`, and what is written there."""

    file: str
    line: int
    start: int
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.old} -> {self.new}"

    @property
    def room(self) -> str:
        """The room of the file."""
        return next(room for room in ROOMS if self.file.startswith(f"src/stepsim/{room}/"))


def mutations_of(path: Path) -> Iterator[Mutation]:
    """Everything in a file that can be changed: operators between operands, and numbers."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    file = path.relative_to(ROOT).as_posix()

    def at(line: int, column: int) -> int:
        return starts[line - 1] + column

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            start = at(node.lineno, node.col_offset)
            end = at(node.end_lineno or 0, node.end_col_offset or 0)
            old = source[start:end].decode()
            yield Mutation(file, node.lineno, start, end, old, f"({old} + 1)")
        for left, operator, right in _joined(node):
            if type(operator) in TWINS:
                old, new = TWINS[type(operator)]
                first = at(left.end_lineno or 0, left.end_col_offset or 0)
                last = at(right.lineno, right.col_offset)
                place = source.find(old.encode(), first, last)
                if place >= 0:
                    yield Mutation(file, right.lineno, place, place + len(old), old, new)


def _joined(node: ast.AST) -> Iterator[tuple[ast.expr, ast.AST, ast.expr]]:
    """Operands of a node with the operator between them; no types such as `int | None`."""
    if isinstance(node, ast.BinOp):
        yield node.left, node.op, node.right
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield node.left, node.ops[0], node.comparators[0]
    elif isinstance(node, ast.BoolOp):
        for left, right in zip(node.values, node.values[1:], strict=False):
            yield left, node.op, right


def drawn(seed: int, count: int) -> list[Mutation]:
    """So many mutations, as many of each room; the same for a seed and a state of the code."""
    chance, found = random.Random(seed), list[Mutation]()
    rooms = list(ROOMS)
    for place, room in enumerate(rooms):
        files = sorted((ROOT / "src/stepsim" / room).rglob("*.py"))
        every = [mutation for path in files for mutation in mutations_of(path)]
        share = count // len(rooms) + (place < count % len(rooms))
        found += chance.sample(every, share)
    chance.shuffle(found)
    return found


def survives(mutation: Mutation, copy: Path) -> bool:
    """Whether all tests of the room pass in a copy of the checkout with a mutation."""
    path = copy / mutation.file
    source = path.read_bytes()
    path.write_bytes(
        source[: mutation.start] + mutation.new.encode() + source[mutation.end :]
    )  # fmt: skip
    tests = [f"tests/{each}" for each in ROOMS[mutation.room]]
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
        return done.returncode == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        path.write_bytes(source)


def main() -> int:
    """Try the mutations that were asked for, within the time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=28)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--only", default="", help="numbers of mutations, from 0")
    parser.add_argument("--seconds", type=float, default=3600.0)
    asked = parser.parse_args()
    every = list(enumerate(drawn(asked.seed, asked.count)))
    if asked.only:
        chosen = set(map(int, asked.only.split(",")))
        every = [(number, mutation) for number, mutation in every if number in chosen]
    end, left = time.monotonic() + asked.seconds, list[Mutation]()
    tried = 0
    with tempfile.TemporaryDirectory(prefix="stepsim-mutations-") as folder:
        copy = Path(folder)
        for name in COPIED:
            (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, copy / name)
        for number, mutation in every:
            if time.monotonic() > end:
                break
            began, alive = time.monotonic(), survives(mutation, copy)
            tried += 1
            word = "SURVIVES" if alive else "killed"
            if alive and str(mutation) in EQUIVALENT:
                word = f"equivalent: {EQUIVALENT[str(mutation)]}"
            elif alive:
                left.append(mutation)
            print(f"{number:3} {time.monotonic() - began:5.0f} s  {word:9} {mutation}", flush=True)
    print(f"{tried} of {len(every)} tried, {len(left)} not noticed")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
