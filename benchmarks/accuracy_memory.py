"""How far predicted memory is from what runs report, and whether runs that ran out were refused.

    python benchmarks/accuracy_memory.py ../shared/reference/steps/dev.csv

Memory is that of the fullest rank. Prints errors by source, before and after one factor, and how
many runs are predicted to fit.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from sizes import sized

from stepsim.files.model_steps import read_published_steps
from stepsim.validation.published import (
    PublishedComparison,
    PublishedValidation,
    validate_published,
)


def contradictory(rows: Iterable[PublishedComparison]) -> list[PublishedComparison]:
    """Runs that report more memory than the same plan with larger microbatches, by over 5 %.

    A larger microbatch keeps more of everything that comes and goes: one of the two is wrong.
    """
    known = [row for row in rows if row.step.memory_gib]
    return [row for row in known if any(_is_above(row, other) for other in known)]


def _is_above(row: PublishedComparison, other: PublishedComparison) -> bool:
    small, large = row.step, other.step
    same = (small.source, small.architecture, small.device, small.framework) == (
        *(large.source, large.architecture, large.device, large.framework),
    )
    plans = small.plan, large.plan
    if not same or plans[0].microbatch_size >= plans[1].microbatch_size:
        return False
    assert small.memory_gib is not None
    assert large.memory_gib is not None
    first, second = (replace(each, microbatch_size=1) for each in plans)
    return first == second and small.memory_gib > 1.05 * large.memory_gib


def lines(found: PublishedValidation) -> Iterator[str]:
    """Markdown tables: errors of what sources report, then runs that fit."""
    yield "| source | runs | mean | largest | after one factor |"
    yield "|---|---|---|---|---|"
    wrong = contradictory(found.rows)
    reported = [row for row in found.rows if row.step.memory_gib]
    for source in dict.fromkeys(row.step.source for row in reported):
        rows = [row for row in reported if row.step.source == source]
        yield _line(source, rows)
        kept = [row for row in rows if row not in wrong]
        if len(kept) < len(rows):
            yield _line(f"{source}, without runs that contradict others", kept)
    yield ""
    yield "| source | runs | predicted to fit | ran out of memory | predicted not to fit |"
    yield "|---|---|---|---|---|"
    for source in dict.fromkeys(row.step.source for row in found.rows):
        ran = [row.memory.fits for row in found.rows if row.step.source == source]
        out = [not each.fits for each in found.ran_out if each.step.source == source]
        counts = f"{len(out)} | {sum(out)}" if out else " | "
        yield f"| {source} | {len(ran)} | {sum(ran)} | {counts} |"


def _line(name: str, rows: Sequence[PublishedComparison]) -> str:
    errors = PublishedValidation(rows=tuple(rows)).errors_of(name, sparse=False)
    shares = errors.memory_mean, errors.memory_largest, errors.memory_calibrated
    cells = ["" if each is None else f"{each:.1%}" for each in shares]
    return f"| {name} | {len(rows)} | {' | '.join(cells)} |"


def main() -> None:
    """Print the tables."""
    steps, _ = read_published_steps(Path(sys.argv[-1]))
    left_out = sized((), ("nanotron",))  # two runs of three
    print("\n".join(lines(validate_published(steps, leave_out=left_out))))


if __name__ == "__main__":
    main()
