"""A plan against a budget: what a pull request may not make worse, without a GPU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepsim.base.errors import PlanError, UnitError
from stepsim.base.structs import Bytes, Document, Entry, Names, Picoseconds, Share
from stepsim.base.units import format_size_bytes, format_time_ps, parse_size_bytes, parse_time_ps
from stepsim.files.asked import read_inputs
from stepsim.files.models.launch import read_plan
from stepsim.step.prepared import prepare
from stepsim.workload.model.model import Model


class BudgetLine(Entry):
    """A number of a plan: what it may be (empty: anything) and what it is, as texts."""

    what: str
    budget: str
    predicted: str
    holds: bool


class BudgetDocument(Document):
    """`stepsim plan --check --json`: a plan against a budget."""

    plan: str
    step_time_ps: Picoseconds
    memory_bytes: Bytes
    bubble_fraction: Share
    lines: tuple[BudgetLine, ...]
    warnings: Names

    @property
    def holds(self) -> bool:
        """Whether the plan stays within its whole budget."""
        return all(line.holds for line in self.lines)


def check_plan_file(
    path: Path,
    *,
    step: str | None = None,
    memory: str | None = None,
    bubble: str | None = None,
    calibration: str | Path | None = None,
) -> BudgetDocument:
    """Simulate the plan in a file and compare it with a budget of texts; None is no limit.

    They are such as `12.5s`, `76GiB` and `8%`. A `calibration` replaces that of the plan. Raises
    PlanError naming the option, and the errors of the readers.
    """
    if step is memory is bubble is None:
        raise PlanError("no budget: expected --max-step, --max-memory or --max-bubble")
    try:
        most_ps = None if step is None else parse_time_ps(step)
        most_bytes = None if memory is None else parse_size_bytes(memory)
    except UnitError as error:
        raise PlanError(f"budget: {error}") from None
    most_bubble = None if bubble is None else _share(bubble)
    file = read_plan(path)
    also = {} if calibration is None else {"calibration": calibration}
    job = read_inputs(file.model, file.topology, {**file.options, **also})
    if not isinstance(job.workload, Model):
        raise PlanError(f"{path}: model is {file.model!r}: expected a model, not a workload file")
    found = prepare(job.workload, job.topology, job.options, notes=job.notes).simulated()
    assert found.memory is not None
    report, taken = found.report, found.memory.fullest.total
    return BudgetDocument(
        plan=path.name,
        step_time_ps=report.step_time_ps,
        memory_bytes=taken,
        bubble_fraction=report.bubble_fraction,
        lines=(
            _line("step", most_ps, report.step_time_ps, format_time_ps),
            _line("memory", most_bytes, taken, format_size_bytes),
            _line("bubble", most_bubble, report.bubble_fraction, "{:.2%}".format),
        ),
        warnings=report.said,
    )


def _share(text: str) -> float:
    """`8%` or 0.08."""
    number, percent = text.removesuffix("%"), text.endswith("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise PlanError(f"max_bubble is {text!r}: expected a share such as 8% or 0.08")
    return value


def _line(what: str, most: float | None, found: float, write: Callable[[Any], str]) -> BudgetLine:
    return BudgetLine(
        what=what,
        budget="" if most is None else write(most),
        predicted=write(found),
        holds=most is None or found <= most,
    )
