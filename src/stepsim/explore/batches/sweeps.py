"""Drawn steps over axes: packers, lengths and numbers of their law, beside those of every sweep."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import asdict

from stepsim.base.errors import PlanError
from stepsim.base.option import Option
from stepsim.base.structs import Document, Entry, Picoseconds, Values
from stepsim.base.units import Quantity
from stepsim.explore.batches.draws import BatchSteps, DrawnBatches, simulate_batches
from stepsim.explore.sampled_sweep import sample_sweep
from stepsim.explore.sweep.study import Study
from stepsim.files.asked import StepInputs
from stepsim.files.axes import (
    LENGTHS,
    PACKER,
    Axis,
    Grid,
    axis_of_option,
    parse_axis,
)
from stepsim.files.lengths import read_lengths
from stepsim.parallel.packers import packer_of

_OF_LAW = f"{LENGTHS}."


def parse_drawn_axis(text: str) -> Axis:
    """The axis of a text such as `packer=padded,first-fit` or `lengths.sigma=0.5,1,2`.

    `lengths` are laws or files with semicolons between them. Raises SweepError, as `parse_axis`.
    """
    name, _, values = (part.strip() for part in text.partition("="))
    if name == PACKER:
        option = Option(quantity=Quantity.NAME, read=packer_of)
    elif name == LENGTHS:
        option = Option(quantity=Quantity.NAME, read=read_lengths)
        values = f"{values};"  # laws have commas
    elif name.startswith(_OF_LAW):
        option = Option(quantity=Quantity.FACTOR)
    else:
        return parse_axis(text)
    return axis_of_option(name, option, values)


def sweep_batches(
    job: StepInputs,
    *,
    axes: Sequence[Axis],
    lengths: str,
    steps: int,
    seed: int,
    progress: Callable[[int, int, int], None] | None,
) -> "BatchSweepDocument":
    """Drawn steps of every combination of some axes, all from one seed.

    `lengths` are a law or a file where they are no axis, and `packer` is among the axes. Raises
    PlanError without lengths, SweepError for an axis that cannot be, and the error of the first
    scenario where none can run.
    """
    if not lengths and not any(axis.name == LENGTHS for axis in axes):
        raise PlanError("a sweep of packers needs lengths of documents: give --lengths")
    grid = Grid(axes=tuple(axes))
    study = Study(**asdict(job), grid=grid)
    packers = next(axis for axis in grid.placed if axis.name == PACKER)

    @cache  # 50 steps of llama-3-8b under four packers take 1.9 s so, and 6.0 without
    def packed(scenario: int) -> dict[str, BatchSteps]:
        """Steps of a scenario under each packer."""
        texts, values = grid.values(scenario), grid.parsed(scenario)
        of_law = (name for name in values if name.startswith(_OF_LAW))
        numbers = {name.removeprefix(_OF_LAW): float(values[name]) for name in of_law}
        law = read_lengths(texts.get(LENGTHS, lengths), numbers)
        drawn = DrawnBatches(lengths=law, packers=packers.texts, steps=steps, seed=seed)
        return {one.packer: one for one in simulate_batches(study.job(values), drawn).packed}

    def find(scenario: int) -> Values:
        first = scenario - packers.positions(scenario) * packers.stride
        one = packed(first)[packers.text(scenario)]
        return {**one.numbers, "tokens_per_s": one.tokens_per_s, "fullest": one.fullest}

    return BatchSweepDocument(
        workload=job.workload.source,
        topology=job.topology.name,
        seed=seed,
        steps=steps,
        scenarios=sample_sweep(grid, _ScenarioSteps, find, progress),
    )


class _ScenarioSteps(Entry):
    """A scenario's steps, or why it failed; parts add up to the mean."""

    settings: dict[str, str]
    mean_ps: Picoseconds | UnsetType = UNSET
    p50_ps: Picoseconds | UnsetType = UNSET
    p90_ps: Picoseconds | UnsetType = UNSET
    p99_ps: Picoseconds | UnsetType = UNSET
    work_ps: int | UnsetType = UNSET
    padding_ps: int | UnsetType = UNSET
    waiting_ps: int | UnsetType = UNSET
    tokens_per_s: Annotated[float, Meta(description="net of padding, of all ranks")] | UnsetType = (
        UNSET
    )
    fullest: float | UnsetType = UNSET
    error: str | UnsetType = UNSET


class BatchSweepDocument(Document):
    """`stepsim sweep --lengths --json`: drawn steps of every scenario."""

    workload: str
    topology: str
    seed: int
    steps: int
    scenarios: tuple[_ScenarioSteps, ...]
