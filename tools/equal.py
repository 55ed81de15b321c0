"""Hold the program against the one before the house: equal integers but for what is allowed.

Usage: equal.py [--quick] [--only FILE]. The oracle is the commit that `tests/house.toml` names,
with `tools/oracle/*.patch` (bugs mended since) on top. `probe_old.py` asks it the cases of
`tests/equal`, `probe_new.py` asks this checkout. A probe prints case, quantity and integer, between
tabs: times in ps, sizes in bytes, shares in 1e-9; what is refused is 1 at `refused`. A difference
is allowed where a line of `tests/equal/allowed.csv` has a pattern of its case and quantity, a row
of what was decided to go, and a bound: a share of the old value, or `gone` for what one of the two
does not say. What else differs is printed, and the exit code is 1.
"""

import argparse
import csv
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import warnings
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("STEPSIM_SHARED", ROOT.parent / "shared"))
LEFT_OUT = {"error", "error_runs", "priced_s", "fewer", "low_error", "high_error", "runs"}
"""What validation says of the program, and what only its wording needs."""
Answers = dict[str, int]


def numbers(value: object, name: str) -> Iterator[tuple[str, int]]:
    """Numbers of a document by where they stand; an entry of a list has its name, if any, beside.

    Texts are nothing but their place, a verdict excepted.
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in LEFT_OUT:
                yield from numbers(inner, f"{name}.{key}")
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            known = inner.get("name") if isinstance(inner, dict) else None
            yield from numbers(inner, f"{name}.{i}{f'={known}' if known else ''}")
    elif isinstance(value, str):
        yield name, zlib.crc32(value.encode()) if name == "verdict" else 0
    elif isinstance(value, int):
        yield name, int(value)
    elif isinstance(value, float):
        yield name, round(value * (1e12 if name.endswith("_s") else 1e9))


def sums(ranks: list[dict[str, Any]]) -> Iterator[tuple[str, int]]:
    """Parts and bubbles of all ranks, each times the rank's number from 1: where it lies counts."""
    total: Counter[str] = Counter()
    for rank in ranks:
        for name, ps in {**rank["breakdown_ps"], **(rank["bubble_ps"] or {})}.items():
            total[name] += (rank["rank"] + 1) * ps
    yield from ((f"ranks.{name}", ps) for name, ps in sorted(total.items()))


def print_answers(
    answers: Callable[[dict[str, Any], Path], Iterator[tuple[str, int]]], refused: type[Exception]
) -> None:
    """What a probe does: arguments are a folder for traces, one case of how many, and a file."""
    folder, every, only = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    warnings.simplefilter("ignore")
    for file in sorted((ROOT / "tests" / "equal").glob(f"{only or '*'}.json")):
        for number, case in enumerate(json.loads(file.read_text("utf-8"))):
            if number % every == 0:
                try:
                    found = list(answers(case, folder))
                except refused:
                    found = [("refused", 1)]
                for quantity, integer in found:
                    print(file.stem, number, quantity, integer, sep="\t")


def oracle(folder: Path) -> Path:
    """The sources of the oracle, laid out in a folder, with its patches."""
    commit = tomllib.loads((ROOT / "tests" / "house.toml").read_text("utf-8"))["oracle"]
    packed = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
        files.extractall(folder, filter="data")
    for patch in sorted((ROOT / "tools" / "oracle").glob("*.patch")):
        subprocess.run(["patch", "-p1", "-s", "-i", str(patch)], cwd=folder, check=True)
    return folder / "src"


def ask(probe: str, source: Path, made: Path, rest: list[str]) -> Answers:
    """Integers by case and quantity; those of one that does not end are an error."""
    command = [sys.executable, str(ROOT / "tools" / probe), str(made), *rest]
    environment = os.environ | {"PYTHONPATH": str(source)}
    ran = subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    lines = (line.rsplit("\t", 1) for line in ran.stdout.decode().splitlines())
    return {place: int(value) for place, value in lines}


def allowed() -> list[tuple[re.Pattern[str], str, str]]:
    """Patterns of differences that were decided, their rows, and how far they go."""
    with (ROOT / "tests" / "equal" / "allowed.csv").open(encoding="utf-8") as file:
        return [
            (re.compile(row["pattern"]), row["row"], row["bound"]) for row in csv.DictReader(file)
        ]


def is_within(one: int | None, other: int | None, bound: str) -> bool:
    """Whether the other value differs by no more than a bound, is `less`, or one may be `gone`."""
    if one is None or other is None or bound == "gone":
        return bound == "gone"
    return other <= one if bound == "less" else abs(other - one) <= float(bound) * max(abs(one), 1)


def compare(old: Answers, new: Answers) -> tuple[dict[str, int], list[str]]:
    """How many differences each row allows, and lines about those that none allows."""
    rules, found, wrong = allowed(), defaultdict[str, int](int), []
    for place in sorted(old.keys() | new.keys()):
        one, other = old.get(place), new.get(place)
        if one == other:
            continue
        for pattern, row, bound in rules:
            if pattern.search(place) and is_within(one, other, bound):
                found[row] += 1
                break
        else:
            wrong.append(f"{place}\t{one}\t{other}")
    return found, wrong


def main() -> None:
    """Compare, and exit with 1 if anything differs that nobody decided."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a choice of two minutes")
    parser.add_argument("--only", default="", help="cases of one file, by its name")
    asked = parser.parse_args()
    rest = ["15" if asked.quick else "1", asked.only]
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "made")
        made.mkdir()
        old = ask("probe_old.py", oracle(Path(folder)), made, rest)
        new = ask("probe_new.py", ROOT / "src", made, rest)
    found, wrong = compare(old, new)
    print(*wrong[:200], sep="\n")
    print(
        f"{len(old):,} integers, {len(wrong):,} differ",
        *(f"{row}: {n}" for row, n in found.items()),
    )
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
