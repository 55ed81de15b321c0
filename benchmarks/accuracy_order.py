"""Whether the faster of two measured plans is predicted to be the faster one.

    python benchmarks/accuracy_order.py ../shared/reference/steps/dev.csv

Pairs are runs of different plans, of one source with the same model, GPUs, batch, sequence and
precision, whose measured steps differ by more than 3 %. Prints the share of pairs in the right
order, by source.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from pathlib import Path
from statistics import fmean

from stepsim.files.model_steps import PublishedStep, read_published_steps
from stepsim.runs.published import PublishedRun, validate_published

_LEAST_DIFFERENCE = 0.03
MOST_NPUS = {"nanotron": 16}  # larger runs met cluster faults, as their source says


def most_npus(step: PublishedStep) -> int:
    """NPUs up to which runs of a step's source are compared."""
    return MOST_NPUS.get(step.source, step.plan.npus)


def ordered_pairs(rows: Iterable[PublishedRun]) -> dict[str, tuple[int, int]]:
    """Pairs in the right order, and all pairs, of each source."""
    groups: dict[tuple[object, ...], list[PublishedRun]] = defaultdict(list)
    for row in rows:
        step, plan = row.step, row.step.plan
        if plan.npus > most_npus(step):
            continue
        job = plan.npus, plan.global_batch, plan.sequence, plan.precision
        groups[step.source, step.architecture, step.device, *job].append(row)
    found: dict[str, tuple[int, int]] = {}
    for (source, *_), alike in groups.items():
        for first, second in combinations(alike, 2):
            fast, slow = sorted((first, second), key=lambda row: row.measured_s)
            other = fast.step.plan != slow.step.plan
            if other and slow.measured_s > fast.measured_s * (1 + _LEAST_DIFFERENCE):
                right, pairs = found.get(str(source), (0, 0))
                found[str(source)] = right + (fast.predicted_s < slow.predicted_s), pairs + 1
    return found


def bias(rows: Iterable[PublishedRun], source: str, degree: int) -> float:
    """Mean of predicted over measured, minus 1, of a source's runs with a tensor degree."""
    return fmean(
        row.error for row in rows if row.step.source == source and row.step.plan.tp == degree
    )


def order_of(path: Path) -> dict[str, tuple[int, int]]:
    """Pairs in the right order, and all pairs, of each source of a table of measured steps."""
    steps, _ = read_published_steps(path)
    judged = [each for each in steps if each.plan.npus <= most_npus(each)]
    return ordered_pairs(validate_published(judged).rows)


def lines(found: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    """A Markdown table."""
    yield "| source | pairs | right one first |"
    yield "|---|---|---|"
    for source, (right, pairs) in found.items():
        yield f"| {source} | {pairs} | {right / pairs:.1%} |"


def main() -> None:
    """Print the table."""
    print("\n".join(lines(order_of(Path(sys.argv[-1])))))


if __name__ == "__main__":
    main()
