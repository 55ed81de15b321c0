"""Print docs/model_accuracy.md: predictions of published steps, and what constants were set on.

python benchmarks/accuracy_models.py ../shared > docs/model_accuracy.md
python benchmarks/accuracy_models.py ../shared --errors    write them into frameworks/*.toml
python benchmarks/accuracy_models.py steps.csv             the same tables of other runs
"""

import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from statistics import median

import tomli_w
from accuracy_memory import lines as memory_lines
from accuracy_order import bias, lines, most_npus, ordered_pairs

from stepsim.files.accelerators import (
    device_names,
    framework_names,
    read_device,
    read_framework,
)
from stepsim.files.model_steps import read_published_steps
from stepsim.files.shipped import shipped_folder
from stepsim.validation.published import (
    PublishedComparison,
    PublishedValidation,
    SourceErrors,
    validate_published,
)
from stepsim.workload.model.framework import Framework

GOALS: tuple[tuple[str, tuple[str, ...] | None, bool, float], ...] = (
    ("Korthikanti and SC21", ("korthikanti22", "sc21-megatron"), False, 0.03),
    ("SimuMax dense", ("simumax-b200",), False, 0.03),
    ("SimuMax with experts", ("simumax-b200",), True, 0.04),
    ("llm-foundry", ("llm-foundry",), False, 0.04),
    ("NeMo 24.07", ("nemo-24.07",), False, 0.05),
    ("vTrain", ("vtrain-multi",), False, 0.09),
    ("bigscience", ("bigscience",), False, 0.15),
    ("MLPerf", ("mlperf-gpt3",), False, 0.10),
    ("all dense, without nanotron", None, False, 0.09),
    ("all dense, without nanotron, calibrated", None, False, 0.05),
)
HEAD = """# Accuracy of models

Made by `python benchmarks/accuracy_models.py ../shared > docs/model_accuracy.md`. Steps of public
runs are predicted from the model's shape, the plan and the names of GPU and framework alone, by the
closed form (`stepsim validate steps.csv` does it for a table of your own, `--plot` draws it). A run
is used where its source states the whole layout. Errors are predicted over measured, minus 1; the
mean and the median are of their sizes. **Calibrated** is after one factor for each source, GPU and
precision. Memory is compared where a source reports it, with no factor.
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
## What each constant was set on

A constant belongs to a GPU or to a framework, never to a run or to a model. Rates and shapes of
kernels are from measured kernels; what they cannot tell was set on the runs of whole sources, the
same as in the table above. The table therefore shows how well one set of constants fits all of
them; runs of other models and machines tell how far it carries.
"""


def main() -> None:
    arguments = [each for each in sys.argv[1:] if not each.startswith("--")]
    given = Path(arguments[0])
    path = given if given.suffix == ".csv" else given / "reference" / "steps" / "dev.csv"
    steps, _ = read_published_steps(path)
    judged = [step for step in steps if step.plan.npus <= most_npus(step)]
    found = validate_published(judged)
    if "--errors" in sys.argv:
        write_errors(found)
        return
    clean = replace(found, rows=tuple(row for row in found.rows if row.step.source != "nanotron"))
    print(HEAD)
    print("\n".join(_sources(found, clean)))
    print(NANOTRON)
    print("## Goals\n")
    print("\n".join(_goals(clean)))
    print()
    print("## By GPU, framework and precision\n")
    print("\n".join(_machines(found)))
    print(ORDER)
    print("\n".join(lines(ordered_pairs(found.rows))))
    print("\n".join(_biases(found)))
    print(MEMORY)
    print("\n".join(memory_lines(found)))
    print(CONSTANTS)
    print("\n".join(_devices()))
    print()
    print("\n".join(_frameworks()))


def _sources(found: PublishedValidation, clean: PublishedValidation) -> Iterator[str]:
    yield "| source | runs | mean | median | largest | calibrated | largest | memory | largest |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for errors in found.errors():
        if not errors.source.startswith("all "):
            yield _line(errors, errors.source)
    for errors in clean.errors():
        if errors.source.startswith("all "):
            yield _line(errors, f"{errors.source}, without nanotron")


def _goals(found: PublishedValidation) -> Iterator[str]:
    """Mean errors that were agreed on, dense and with experts, beside what they are."""
    yield "| goal | at most | runs | mean | median | largest | holds |"
    yield "|---|---|---|---|---|---|---|"
    for name, sources, sparse, limit in GOALS:
        errors = found.errors_of(name, sources, sparse=sparse)
        numbers = (errors.mean, errors.median, errors.largest)
        if name.endswith("calibrated"):
            calibrated = [abs(row.calibrated_error) for row in found.rows if not _sparse(row)]
            numbers = (errors.calibrated_mean, median(calibrated), errors.calibrated_largest)
        cells = [name, f"{limit:.0%}", str(errors.count)]
        if errors.count:
            holds = "yes" if numbers[0] <= limit else "no"
            cells += [*(f"{each:.1%}" for each in numbers), holds]
        else:
            cells += ["", "", "", "no such run here"]
        yield f"| {' | '.join(cells)} |"


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


def _sparse(row: PublishedComparison) -> bool:
    return row.step.architecture.is_sparse


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


def error_tables(found: PublishedValidation) -> dict[str, list[dict[str, object]]]:
    """What published runs say of each framework's predictions, as `[[error]]` tables."""
    groups: dict[tuple[str, str, bool], list[PublishedComparison]] = {}
    for row in found.rows:
        step = row.step
        names = read_framework(step.framework).name, read_device(step.device).name
        groups.setdefault((*names, step.architecture.is_sparse), []).append(row)
    tables: dict[str, list[dict[str, object]]] = {}
    for (framework, device, sparse), rows in groups.items():
        table = {
            "device": device,
            "experts": sparse,
            "mean": round(sum(abs(row.error) for row in rows) / len(rows), 3),
            "runs": len(rows),
            "source": ", ".join(dict.fromkeys(row.step.source for row in rows)),
        }
        tables.setdefault(framework, []).append(table)
    return tables


def write_errors(found: PublishedValidation) -> None:
    """Replace the `[[error]]` tables at the end of each framework file."""
    for framework, tables in error_tables(found).items():
        path = shipped_folder("frameworks") / f"{framework}.toml"
        kept = path.read_text().split("[[error]]")[0].rstrip()
        written = "\n".join(f"[[error]]\n{tomli_w.dumps(table)}" for table in tables)
        path.write_text(f"{kept}\n\n{written}")


def _devices() -> Iterator[str]:
    yield "| GPU | sustained share | set on | attention | rates |"
    yield "|---|---|---|---|---|"
    said: dict[str, str] = {}  # who has said it first
    for name in device_names():
        device = read_device(name)
        texts = [device.sources[name] for name in ("sustained", "attention", "rate")]
        cells = [f"as {said[text]}" if text in said else text for text in texts]
        said = dict.fromkeys(texts, device.name) | said
        yield f"| {device.name} | {device.sustained} | {' | '.join(cells)} |"


def _frameworks() -> Iterator[str]:
    yield "| framework | constant | value | set on |"
    yield "|---|---|---|---|"
    known = {each.name for each in fields(Framework)}
    said: set[tuple[str, str]] = set()  # what frameworks of one family share stands once
    for name in framework_names():
        framework = read_framework(name)
        for constant, source in framework.sources.items():
            if (constant, source) in said:
                continue
            said.add((constant, source))
            names = (constant, f"{constant}_ps", f"{constant}_bytes")
            value = getattr(framework, next(each for each in names if each in known))
            yield f"| {framework.name} | {constant} | {_shown(constant, value)} | {source} |"


def _shown(constant: str, value: object) -> str:
    if constant.startswith("host") and isinstance(value, int):
        return f"{value / 1e9:g} ms"
    return "per GPU" if constant == "attention" else str(value)


if __name__ == "__main__":
    main()
