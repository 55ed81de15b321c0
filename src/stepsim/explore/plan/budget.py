"""A plan against a budget: what a pull request may not make worse, without a GPU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepsim.base.errors import PlanError, UnitError
from stepsim.base.structs import Bytes, Document, Entry, Names, Noun, Picoseconds, Share
from stepsim.base.units import format_size_bytes, format_time_ps, parse_size_bytes, parse_time_ps
from stepsim.explain.memory import StepMemory
from stepsim.files.asked import read_inputs
from stepsim.files.models.launch import read_plan
from stepsim.step.prepared import prepare
from stepsim.workload.model.model import Model


class _PlanBudget(Noun):
    """Most of a step (ps), of a rank's memory (bytes) and of the bubble; None is no limit."""

    step_ps: int | None = None
    memory_bytes: int | None = None
    bubble: float | None = None


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


def parse_budget(
    *, step: str | None = None, memory: str | None = None, bubble: str | None = None
) -> _PlanBudget:
    """A budget of texts such as `12.5s`, `76GiB` and `8%`; raises PlanError naming the option."""
    if step is memory is bubble is None:
        raise PlanError("no budget: expected --max-step, --max-memory or --max-bubble")
    try:
        step_ps = None if step is None else parse_time_ps(step)
        memory_bytes = None if memory is None else parse_size_bytes(memory)
    except UnitError as error:
        raise PlanError(f"budget: {error}") from None
    return _PlanBudget(
        step_ps=step_ps,
        memory_bytes=memory_bytes,
        bubble=None if bubble is None else _share(bubble),
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


def check_plan_file(
    path: Path, budget: _PlanBudget, calibration: str | Path | None = None
) -> BudgetDocument:
    """Simulate the plan in a file and compare; raises the errors of the readers.

    A `calibration` replaces that of the plan.
    """
    file = read_plan(path)
    also = {} if calibration is None else {"calibration": calibration}
    job = read_inputs(file.model, file.topology, {**file.options, **also})
    if not isinstance(job.workload, Model):
        raise PlanError(f"{path}: model is {file.model!r}: expected a model, not a workload file")
    step = prepare(job.workload, job.topology, job.options, notes=job.notes).simulated()
    report, taken = step.report, _memory(path, step.memory)
    bubble = report.bubble_fraction
    return BudgetDocument(
        plan=path.name,
        step_time_ps=report.step_time_ps,
        memory_bytes=taken,
        bubble_fraction=bubble,
        lines=(
            _line("step", budget.step_ps, report.step_time_ps, format_time_ps),
            _line("memory", budget.memory_bytes, taken, format_size_bytes),
            _line("bubble", budget.bubble, bubble, "{:.2%}".format),
        ),
        warnings=report.said,
    )


def _memory(path: Path, memory: StepMemory | None) -> int:
    """Memory of the fullest rank (bytes) under the plan's schedule."""
    if memory is None:
        raise PlanError(f"{path}: the memory of its ranks is not known: expected a model")
    return memory.fullest.total


def _line(what: str, most: float | None, found: float, write: Callable[[Any], str]) -> BudgetLine:
    return BudgetLine(
        what=what,
        budget="" if most is None else write(most),
        predicted=write(found),
        holds=most is None or found <= most,
    )
