"""A plan against a budget, and what would do where no plan does.

A budget is what a pull request may not make worse, without a GPU. Where none fits, the same
question is asked with one thing changed.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from math import inf, prod
from pathlib import Path
from typing import Any

from stepsim.base.errors import PlanError, StepsimError, errors_at
from stepsim.base.structs import (
    Bytes,
    Document,
    Entry,
    File,
    Names,
    Numbers,
    Picoseconds,
    Share,
    replace,
)
from stepsim.base.units import (
    format_size_bytes,
    format_time_ps,
    parse_share,
    parse_size_bytes,
    parse_time_ps,
)
from stepsim.files.asked import read_inputs
from stepsim.files.models.launch import read_plan
from stepsim.step.plans import MOST_NPUS, SHORT_NAMES, PlanSpace, plan_words
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
    calibration: File | None = None,
) -> BudgetDocument:
    """Simulate the plan in a file and compare it with a budget of texts; None is no limit.

    They are such as `12.5s`, `76GiB` and `8%`. A `calibration` replaces that of the plan. Raises
    PlanError naming the option, and the errors of the readers.
    """
    if step is memory is bubble is None:
        raise PlanError("no budget: expected --max-step, --max-memory or --max-bubble")
    with errors_at("budget", PlanError):
        most_ps = None if step is None else parse_time_ps(step)
        most_bytes = None if memory is None else parse_size_bytes(memory)
    most_bubble = None if bubble is None else parse_share("max_bubble", bubble)
    file = read_plan(path)
    also = {} if calibration is None else {"calibration": calibration}
    job = read_inputs(file.model, file.topology, {**file.options, **also})
    if not isinstance(job.workload, Model):
        raise PlanError(f"{path}: model is {file.model!r}: expected a model, not a workload file")
    found = prepare(job).simulated()
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


def _line(what: str, most: float | None, found: float, write: Callable[[Any], str]) -> BudgetLine:
    return BudgetLine(
        what=what,
        budget="" if most is None else write(most),
        predicted=write(found),
        holds=most is None or found <= most,
    )


_MOST_DOUBLINGS = 12
_DEGREES = ("tp", "cp", "pp")


def what_would_do(space: PlanSpace, limit: float) -> str:
    """What would do, of each kind the first: an option given up, other GPUs, another batch.

    Plans take at most `limit` of the device's capacity. Each starts with a semicolon.
    """
    found = []
    for changes in (_without(space), _other_sizes(space), _other_jobs(space)):
        for what, changed in changes:
            with suppress(StepsimError):
                found.append(f"; {what}: {_smallest(changed, limit)}")
                break
    return "".join(found) or "; no other size, batch or option alone would do"


def _smallest(space: PlanSpace, limit: float) -> str:
    """The plan of a space that takes least, in words; raises StepsimError where none does."""
    space.asked.topology.fit(max(space.npus))
    plans, capacity = list(space.plans()), space.setup.device.memory_bytes
    taken = space.setup.memory(plans).total.tolist()
    least = min(taken, default=inf)
    if not plans or least > limit * capacity:
        raise PlanError(f"none of {len(plans)} plans fits")
    fits = "" if least <= capacity else ", which does not fit"
    return f"{plan_words(plans[taken.index(least)])} takes {least / 2**30:.1f} GiB{fits}"


def _without(space: PlanSpace) -> Iterator[tuple[str, PlanSpace]]:
    for name, values in space.fixed.items():
        rest = {other: each for other, each in space.fixed.items() if other != name}
        given = ",".join(map(str, values))
        yield f"without {SHORT_NAMES.get(name, name)}={given}", replace(space, fixed=rest)
    for name, most in space.most.items():
        rest_of = {other: each for other, each in space.most.items() if other != name}
        yield f"with {name} above {most}", replace(space, most=rest_of)


def _other_sizes(space: PlanSpace) -> Iterator[tuple[str, PlanSpace]]:
    """Multiples of the degrees that are given, the nearest first, then twice as many and so on."""
    npus, multiple = max(space.npus), _given(space)
    power = 1 << npus.bit_length()
    near = {npus // multiple * multiple, -(-npus // multiple) * multiple, power // 2, power}
    doubled = ((power if npus & (npus - 1) else npus) << i for i in range(1, _MOST_DOUBLINGS))
    nearest = sorted(near - {npus}, key=lambda count: (abs(count - npus), count))
    for count in (*nearest, *doubled):
        if count not in space.npus and 0 < count <= MOST_NPUS:
            yield f"on {count:,} GPUs", replace(space, npus=(count,))


def _given(space: PlanSpace) -> int:
    """The smallest product of the degrees that are given."""
    return prod(min(_asked(space, name)) for name in _DEGREES)


def _asked(space: PlanSpace, name: str) -> Numbers:
    """Values of an option that are given; 1 where none is."""
    return space.fixed.get(name, (1,))


def _other_jobs(space: PlanSpace) -> Iterator[tuple[str, PlanSpace]]:
    """The next batch that more replicas and larger microbatches divide, the next length."""
    samples, stages = (min(_asked(space, name)) for name in ("microbatch_size", "pp"))
    batch, sequence = space.base.global_batch, space.base.sequence
    assert batch
    assert sequence
    replicas = max(max(space.npus) // _given(space), 1)
    for of in sorted({samples, stages * samples, replicas * samples, replicas * stages * samples}):
        more = -(-batch // of) * of
        if more != batch:
            base = replace(space.base, global_batch=more)
            yield f"with a global batch of {more:,}", replace(space, base=base)
    if longer := -sequence % (2 * max(_asked(space, "cp"))):
        base = replace(space.base, sequence=sequence + longer)
        yield f"with sequences of {base.sequence:,} tokens", replace(space, base=base)
