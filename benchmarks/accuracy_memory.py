"""How far predicted memory is from what runs report, and whether runs that ran out were refused.

    python benchmarks/accuracy_memory.py ../shared/reference/steps/{dev,cards_dev}.csv

Memory is that of the fullest rank. Prints errors by source, before and after one factor, how many
runs are predicted to fit, and what the errors were if a source had set no constant.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from msgspec.structs import fields
from sizes import arguments, sized

from stepsim.base.structs import replace
from stepsim.files.model_steps import PublishedStep, read_published_steps
from stepsim.runs.published import (
    PublishedRun,
    PublishedValidation,
    errors_of,
    model_of,
    published_memory,
    validate_published,
)
from stepsim.workload.model.framework import Framework


def contradictory(rows: Iterable[PublishedRun]) -> list[PublishedRun]:
    """Runs that report more memory than the same plan with larger microbatches, by over 5 %.

    A larger microbatch keeps more of everything that comes and goes: one of the two is wrong.
    """
    known = [row for row in rows if row.step.memory_gib]
    return [row for row in known if any(_is_above(row, other) for other in known)]


def _is_above(row: PublishedRun, other: PublishedRun) -> bool:
    small, large = row.step, other.step
    same = (small.source, small.architecture, small.device, small.framework) == (
        *(large.source, large.architecture, large.device, large.framework),
    )
    plans = small.plan, large.plan
    if not same or plans[0].microbatch_size >= plans[1].microbatch_size:
        return False
    assert small.memory_gib is not None
    assert large.memory_gib is not None
    first, second = (
        replace(each, microbatch_size=1, microbatches=each.microbatches * each.microbatch_size)
        for each in plans
    )
    return first == second and small.memory_gib > 1.05 * large.memory_gib


def lines(found: PublishedValidation) -> Iterator[str]:
    """Markdown tables: errors of what sources report, then runs that fit."""
    yield "| source | runs | mean | bias | largest | after one factor |"
    yield "|---|---|---|---|---|---|"
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
        ran = [row.fits for row in found.rows if row.step.source == source]
        out = [not each.fits for each in found.ran_out if each.step.source == source]
        counts = f"{len(out)} | {sum(out)}" if out else " | "
        yield f"| {source} | {len(ran)} | {sum(ran)} | {counts} |"


def without_fits(steps: Sequence[PublishedStep]) -> Iterator[str]:
    """A table of sources that a constant was fitted on: errors with it, and as if they were new.

    Without its source a constant is what it is in a framework that says nothing of it.
    """
    yield "| source | constants fitted on it | mean | bias | mean without them | bias |"
    yield "|---|---|---|---|---|---|"
    for source in dict.fromkeys(step.source for step in steps if step.memory_gib):
        rows = [step for step in steps if step.source == source and step.memory_gib]
        models = [model_of(step) for step in rows]
        names = {name for model in models for name in _fitted(model.framework, source)}
        if not names:
            continue
        errors = [
            published_memory(step, each).predicted_gib / (step.memory_gib or 1.0) - 1
            for step, model in zip(rows, models, strict=True)
            for each in (model, replace(model, framework=_without(model.framework, source)))
        ]
        cells = [cell for each in (errors[::2], errors[1::2]) for cell in _mean_and_bias(each)]
        yield f"| {source} | {', '.join(sorted(names))} | {' | '.join(cells)} |"


def _fitted(framework: Framework, source: str) -> list[str]:
    """Fields of a framework that were fitted on a source, by what it says of them."""
    named = Framework.__struct_fields__
    found = [name for name, text in framework.sources.items() if f"fitted on {source}" in text]
    return [name if name in named else f"{name}_bytes" for name in found]


def _without(framework: Framework, source: str) -> Framework:
    defaults: dict[str, Any] = {each.name: each.default for each in fields(Framework)}
    return replace(framework, **{name: defaults[name] for name in _fitted(framework, source)})


def _mean_and_bias(errors: Sequence[float]) -> tuple[str, str]:
    return f"{fmean(map(abs, errors)):.1%}", f"{fmean(errors):+.1%}"


def total(found: PublishedValidation) -> str:
    """How many of all complete runs that ran are predicted not to fit."""
    too_large = [row for row in found.rows if not row.fits]
    share = len(too_large) / len(found.rows) if found.rows else 0.0
    return f"{len(too_large)} of {len(found.rows)} runs that ran do not fit: {share:.1%}"


def _line(name: str, rows: Sequence[PublishedRun]) -> str:
    errors = errors_of(name, rows)
    shares = errors.memory_mean, errors.memory_largest, errors.memory_calibrated
    cells = ["" if each is None else f"{each:.1%}" for each in shares]
    known = [row.memory_error for row in rows if row.memory_error is not None]
    cells.insert(1, f"{fmean(known):+.1%}")
    return f"| {name} | {len(rows)} | {' | '.join(cells)} |"


def main() -> None:
    """Print the tables."""
    paths = [Path(each) for each in arguments()]
    steps = [step for path in paths for step in read_published_steps(path)[0]]
    left_out = sized((), ("nanotron",))  # two runs of three
    steps = [step for step in steps if step.source not in left_out]
    found = validate_published(steps)
    print("\n".join(lines(found)))
    print()
    print(total(found))
    print()
    print("\n".join(without_fits([row.step for row in found.rows])))


if __name__ == "__main__":
    main()
