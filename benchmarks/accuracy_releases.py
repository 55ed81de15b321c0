"""Whether what a release of a framework gained on other models tells what it gains on one.

    python benchmarks/accuracy_releases.py ../shared/reference/steps/releases.csv

The table has steps of the same printed plan under one release after the other. Prints by how much a
step changes from a release to the next, on average over plans and releases, and by how much one is
off that is predicted by the median change of the plans of all other models.
"""

import csv
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise
from math import expm1, log
from pathlib import Path
from statistics import fmean, median

_PLAN = ("model", "gpu", "n_gpus", "precision", "gbs", "mbs", "seq", "plan")

Changes = Mapping[tuple[str, str], float]
"""Logarithms of a step over that of the release before, by both releases."""


def changes_by_model(path: Path) -> dict[str, list[Changes]]:
    """Changes of each plan, by its model."""
    steps: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            steps[tuple(row[name] for name in _PLAN)][row["release"]] = float(row["step_s"])
    found: dict[str, list[Changes]] = defaultdict(list)
    for plan, by_release in steps.items():
        consecutive = pairwise(sorted(by_release.items()))
        changed = {(a, b): log(after / before) for (a, before), (b, after) in consecutive}
        found[plan[0]].append(changed)
    return found


def median_changes(plans: Iterable[Changes]) -> Changes:
    """The median change between two releases."""
    found = defaultdict(list)
    for changes in plans:
        for releases, change in changes.items():
            found[releases].append(change)
    return {releases: median(each) for releases, each in found.items()}


def main() -> None:
    path = Path(next(each for each in sys.argv[1:] if not each.startswith("--")))
    by_model = changes_by_model(path)
    as_before, as_others = [], []
    for model, plans in by_model.items():
        others = (plan for name, each in by_model.items() if name != model for plan in each)
        expected = median_changes(others)
        for changes in plans:
            as_before += [abs(change) for change in changes.values()]
            as_others += [abs(each - expected.get(of, 0.0)) for of, each in changes.items()]
    print("| predicted by | changes | mean error | median |\n|---|---|---|---|")
    for name, errors in (("the release before", as_before), ("other models", as_others)):
        mean, middle = expm1(fmean(errors)), expm1(median(errors))
        print(f"| {name} | {len(errors)} | {mean:.1%} | {middle:.1%} |")


if __name__ == "__main__":
    main()
