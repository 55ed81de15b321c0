"""Print docs/model_accuracy.md: predictions of published steps, and what constants were set on.

python benchmarks/accuracy_models.py ../shared > docs/model_accuracy.md
python benchmarks/accuracy_models.py steps.csv             the same tables of other runs
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from accuracy_memory import lines as memory_lines
from accuracy_order import bias, lines, most_npus, ordered_pairs

from stepsim.base.structs import replace
from stepsim.files.accelerators import framework_names, read_device, read_framework
from stepsim.files.model_steps import read_published_steps
from stepsim.runs.published import PublishedValidation, SourceErrors, validate_published

HEAD = """# Accuracy of models

Made by `python benchmarks/accuracy_models.py ../shared > docs/model_accuracy.md`. Steps of public
runs are predicted from the model's shape, the plan and the names of GPU and framework alone. A run
is used where its source states the whole layout. Errors are predicted over measured, minus 1.

## Errors that stepsim prints

Each source is left out: `python benchmarks/model_constants.py ../shared --errors` sets the
constants again without it, simulates its runs on the machine's own network, and writes the table
into the files of the frameworks. Where a framework or a GPU has no other source, it has the numbers
of its family or generation. [Model cards](card_accuracy.md).
"""
FITTED = """
## How well one set of constants fits

The constants that are shipped were set on these runs, so these errors say how well one set of them
fits all, not how far off the next run will be. They are of the closed form, as
`stepsim validate` prints them; mean and median are of their sizes.
**Calibrated** is after one factor for each source, GPU and precision. Memory is compared where a
source reports it, with no factor.
"""
NANOTRON = """
Runs of nanotron on more than 16 GPUs are left out: many are 3 to 100 times slower than others of
the same plan, cluster faults as their source says. Some on 16 GPUs are as well, which the largest
error shows. Two releases of one container differ by up to 63 % in steps with experts
(megatron-bridge), so no prediction of both can be better than half of that.
"""
ORDER = """
## Order of alternatives

Whether the faster of two plans is predicted to be the faster one: pairs of different plans of one
source with the same model, GPUs, batch, sequence and precision, measured more than 3 % apart
(`benchmarks/accuracy_order.py`).
"""
MEMORY = """
## Memory

Of the fullest rank, as each framework reports it: what its allocator reserved, or all that
nvidia-smi shows (bigscience). The one factor of a source is the median of measured over predicted.
A run contradicts others where it reports more than the same plan with larger microbatches
(`benchmarks/accuracy_memory.py`). What a source does not print of recomputation and offloading is
what the framework's public recipe of the model says (`[[recipe]]` in its file), or none.
"""
CONSTANTS = """
## What each constant rests on

`stepsim inspect h100` and `stepsim inspect nanotron` print every number of a GPU or a framework
with the kind of its evidence and its source. A constant belongs to a GPU, its generation or a
framework, never to a run or to a model.
"""


def main() -> None:
    arguments = [each for each in sys.argv[1:] if not each.startswith("--")]
    given = Path(arguments[0])
    path = given if given.suffix == ".csv" else given / "reference" / "steps" / "dev.csv"
    steps, _ = read_published_steps(path)
    judged = [step for step in steps if step.plan.npus <= most_npus(step)]
    found = validate_published(judged)
    clean = replace(found, rows=tuple(row for row in found.rows if row.step.source != "nanotron"))
    print(HEAD)
    print("\n".join(_left_out()))
    print(FITTED)
    print("\n".join(_sources(found, clean)))
    print(NANOTRON)
    print("## By GPU, framework and precision\n")
    print("\n".join(_machines(found)))
    print(ORDER)
    print("\n".join(lines(ordered_pairs(found.rows))))
    print("\n".join(_biases(found)))
    print(MEMORY)
    print("\n".join(memory_lines(found)))
    print(CONSTANTS)


def _sources(found: PublishedValidation, clean: PublishedValidation) -> Iterator[str]:
    yield "| source | runs | mean | median | largest | calibrated | largest | memory | largest |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for errors in found.sources:
        if not errors.source.startswith("all "):
            yield _line(errors, errors.source)
    for errors in clean.sources:
        if errors.source.startswith("all "):
            yield _line(errors, f"{errors.source}, without nanotron")


def _left_out() -> Iterator[str]:
    """The errors that the files of frameworks state, and the ranges."""
    columns = "mean | median | 90 % within | range | sources"
    yield f"| framework | GPU | models | runs | {columns} |"
    yield "|---|---|---|---|---|---|---|---|---|"
    alike: dict[tuple[str, ...], list[str]] = {}
    for name in framework_names():
        for band in (each for each in read_framework(name).errors if each.runs):
            kind = "hybrid" if band.mixes else "experts" if band.sparse else "dense"
            errors = [f"{each:.1%}" for each in (band.error, band.median, band.ninety)]
            reach = f"{band.low:.3f}-{band.high:.3f}" if band.others else ""
            cells = (band.device, kind, str(band.runs), *errors, reach, band.source)
            alike.setdefault(cells, []).append(name)
    for cells, names in alike.items():
        yield f"| {', '.join(names)} | {' | '.join(cells)} |"
    yield ""
    yield "Of measured steps 80 % lie between these factors of their prediction (*range*): those of"
    yield "frameworks of one kin on a generation of GPUs, where three families of models"
    yield "or more ran there and agree, else of all on it, else of the kin. What is left out in"
    yield "turn is a family of models of a source. A range is wider beyond the largest job, the"
    yield "longest sequence and the largest cp of its runs."


def _biases(found: PublishedValidation) -> Iterator[str]:
    """How two sources of one framework and GPU contradict each other."""
    sources = ("vtrain-multi", "bigscience")
    if not {row.step.source for row in found.rows}.issuperset(sources):
        return
    yield ""
    yield "Mean errors at tensor degrees 4 and 8 contradict each other on one GPU with one"
    yield "framework ([why that matters](decisions/0036-memory-of-frameworks.md)):"
    yield ""
    for source in sources:
        four, eight = (bias(found.rows, source, degree) for degree in (4, 8))
        yield f"- {source}: {four:+.1%} and {eight:+.1%}"


def _line(errors: SourceErrors, name: str) -> str:
    shares = (
        *(errors.mean, errors.median, errors.largest, errors.calibrated_mean),
        *(errors.calibrated_largest, errors.memory_mean, errors.memory_largest),
    )
    cells = [name, str(errors.count), *("" if each is None else f"{each:.1%}" for each in shares)]
    return f"| {' | '.join(cells)} |"


def _machines(found: PublishedValidation) -> Iterator[str]:
    """Predicted over measured of each machine, dense and with experts."""
    yield "| GPU | framework | precision | model | runs | mean error | predicted / measured |"
    yield "|---|---|---|---|---|---|---|"
    groups: dict[tuple[str, ...], list[float]] = {}
    for row in found.rows:
        step = row.step
        kind = "experts" if step.architecture.is_sparse else "dense"
        framework = read_framework(step.framework).name
        device = read_device(step.device).name
        machine = (device, framework, step.plan.precision.value, kind)
        groups.setdefault(machine, []).append(1 + row.error)
    for key, ratios in sorted(groups.items()):
        mean = sum(abs(each - 1) for each in ratios) / len(ratios)
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        yield f"| {' | '.join(key)} | {len(ratios)} | {mean:.1%} | {spread} |"


if __name__ == "__main__":
    main()
