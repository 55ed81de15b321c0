"""Derivatives of the step time by what a job runs on.

They are differences of step times a tenth of a per cent to each side. Where the two sides differ,
another path takes over between them.
"""

from collections.abc import Iterator, Mapping
from math import isinf
from typing import Annotated

import numpy as np
from msgspec import Meta

from stepsim.base.structs import Document, Entry, Names, Noun, Picoseconds, replace
from stepsim.base.units import Quantity, format_bandwidth, format_time_ps
from stepsim.core.actions import host_times
from stepsim.explore.batch.evaluation import Batch, make_batch
from stepsim.explore.batch.scenarios import HOST, PHASES, BatchBase
from stepsim.files.asked import StepInputs
from stepsim.network.prices import Known
from stepsim.network.topology.dimension import LAUNCH_LATENCY, split_link
from stepsim.network.topology.nested import with_values
from stepsim.parallel.schedules import needs_times
from stepsim.step.job import held_degrees
from stepsim.step.prepared import prepare
from stepsim.workload.scaling import ComputeScale

_WORDS = {
    "compute": "compute, all phases",
    "compute_scale.forward": "forward compute",
    "compute_scale.input_grad": "input-gradient compute",
    "compute_scale.weight_grad": "weight-gradient compute",
    "launch_latency": "launch latency of collectives",
    "get_batch": "get_batch time",
}


_RELATIVE_STEP = 1e-3
_GAIN = 0.01
# Differences of both sides that agree so far are of one path: a rate is no straight line.
_AGREE = 1e-2


class Slope(Entry):
    """The step time's derivative by one parameter, whose value is bytes/s, ps, or a factor.

    `derivative` is in ps per unit, the mean of `below` and `above`: differences over a step of
    0.1 % to either side. With `one_sided` they differ: another path, or another link of a
    collective, takes over within that step, and `below` and `above` are what holds. `gain` is the
    share of the step time that one per cent more (of a bandwidth) or less (of a time) saves,
    evaluated, not extrapolated.
    """

    name: str
    value: Annotated[float, Meta(description="bytes/s, picoseconds, or a factor")]
    derivative: Annotated[float, Meta(description="picoseconds per unit of the value")]
    below: Annotated[float, Meta(description="picoseconds per unit, from 0.1 % below")]
    above: Annotated[float, Meta(description="picoseconds per unit, to 0.1 % above")]
    one_sided: bool
    gain: Annotated[float, Meta(description="share of the step that 1 % of the parameter saves")]
    elasticity: Annotated[float, Meta(description="% of the step per % of the parameter")] = 0.0

    @property
    def faster_is_more(self) -> bool:
        """Whether more of the parameter makes the step shorter."""
        return self.name.endswith(".bandwidth")


class Sensitivity(Document):
    """`simulate --sensitivity --json`: what each parameter is worth, those worth most first.

    `notes` say what could not be found, `job` says in a line what was simulated.
    """

    workload: str
    topology: str
    schedule: str
    step_time_ps: Picoseconds
    slopes: tuple[Slope, ...]
    notes: Names
    warnings: Names
    job: str = ""


class _Parameter(Noun):
    """A parameter, how far to each side differences go, and columns below, above and improved."""

    name: str
    value: float
    step: float
    around: list[dict[str, float]]


def find_sensitivity(job: StepInputs) -> Sensitivity:
    """How the step time of a job depends on its links and its compute.

    Parameters that are 0, or infinite, have no per cent and are left out. Where communication slows
    compute, every parameter is run by itself.
    Raises PlanError with contention, and the errors of `simulate`.
    """
    degrees, said = held_degrees(job)
    job = job.asking(*said, **degrees)
    options = job.options
    scale = None if options.overlap_cost else options.compute_scale  # `_rebuilt` scales that again
    batch = make_batch(job.asking(overlap_cost=None, compute_scale=scale))
    every = _parameters(batch.setting)
    linked = [each for each in every if not options.overlap_cost and batch.takes(each.around[0])]
    searched = needs_times(batch.job.graph.schedule.name)
    rebuilt = [] if searched else [each for each in every if each not in linked]
    rows = [row for parameter in linked for row in parameter.around]
    here, *times = batch.step_times([{}, *rows])
    slopes = [_slope(each, here, times[3 * i : 3 * i + 3]) for i, each in enumerate(linked)]
    known: Known = {}
    if options.overlap_cost:
        here = _rebuilt(job, {}, known)
    for parameter in rebuilt:
        several = [_rebuilt(job, each, known) for each in parameter.around]
        slopes.append(_slope(parameter, here, several))
    return Sensitivity(
        workload=batch.job.workload.source,
        topology=batch.setting.topology.name,
        schedule=batch.job.graph.schedule.label,
        step_time_ps=here,
        slopes=tuple(sorted(slopes, key=lambda slope: -slope.gain)),
        notes=tuple(_notes(batch)),
        warnings=batch.job.warnings,
        job=batch.job_words,
    )


def _parameters(setting: BatchBase) -> list[_Parameter]:
    """What the job has: links, launch and host times that are not 0, compute."""
    base = setting.base()
    names = [name for name in base if _is_rate_or_time(name)]
    found = {n: base[n] for n in (*names, LAUNCH_LATENCY.name, *HOST)}
    known = [_parameter(n, each) for n, each in found.items() if each and not isinf(each)]
    phases = {f"compute_scale.{phase}": base[f"compute_scale.{phase}"] for phase in PHASES}
    whole = _parameter("compute", 1.0, phases)
    return [*known, whole, *(_parameter(name, value) for name, value in phases.items())]


def _parameter(name: str, value: float, columns: Mapping[str, float] = {}) -> _Parameter:
    """A parameter, which moves a column of its name, or others in proportion to their values.

    Differences of times go over whole picoseconds, and one per cent less of them is whole, too.
    """
    more = name.endswith(".bandwidth")
    step, better = value * _RELATIVE_STEP, value * (1 + _GAIN if more else 1 - _GAIN)
    if more or name.startswith("compute"):
        step = step or value
    else:
        step, better = float(np.rint(step)) or 1.0, float(np.floor(better))
    moved = (value - step, value + step, better)
    around = [{n: own * at / value for n, own in columns.items()} or {name: at} for at in moved]
    return _Parameter(name=name, value=value, step=step, around=around)


def _is_rate_or_time(name: str) -> bool:
    """Whether it is a bandwidth or latency of links; efficiency does what a bandwidth does."""
    field = split_link(name)[1]
    return field is not None and field.quantity is not Quantity.FACTOR


def _rebuilt(job: StepInputs, values: dict[str, float], known: Known) -> int:
    """Step time with other compute or another network, where that is another graph.

    `known` are prices found before: a network of the same numbers has them too.
    """
    scale = job.options.compute_scale or ComputeScale()
    phases = {
        str(phase): getattr(scale, phase) * values.get(f"compute_scale.{phase}", 1.0)
        for phase in PHASES
    }
    whole = {name: round(values[name]) for name in HOST if name in values}
    changed = job.asking(compute_scale=ComputeScale(**phases), **whole)
    changed = replace(changed, topology=with_values(job.topology, values))
    return prepare(changed, known=known, quick=True).step_time_ps()


def _slope(parameter: _Parameter, here: int, around: list[int]) -> Slope:
    """Slope from the step times below, above and improved."""
    below, above, better = around
    sides = (here - below) / parameter.step, (above - here) / parameter.step
    derivative = sum(sides) / 2
    return Slope(
        name=parameter.name,
        value=parameter.value,
        derivative=derivative,
        below=sides[0],
        above=sides[1],
        one_sided=abs(sides[0] - sides[1]) > _AGREE * max(abs(derivative), 2 / parameter.step),
        gain=(here - better) / here if here else 0.0,
        elasticity=derivative * parameter.value / here if here else 0.0,
    )


def _notes(batch: Batch) -> Iterator[str]:
    options = batch.job.graph.options
    if batch.fixed and any(host_times(options)):
        yield f"host times are left out: {batch.fixed}"
    name = batch.job.graph.schedule.name
    if needs_times(name):
        yield f"the order that {name} found for the job is kept, and compute is left out"


def describe(slope: Slope) -> str:
    """What is changed, e.g. `1 % more fabric bandwidth`."""
    link, _, field = slope.name.rpartition(".")
    named = _WORDS.get(slope.name) or f"{link} {field.replace('_', ' ')}".strip()
    return f"1 % {'more' if slope.faster_is_more else 'less'} {named}"


def show_value(slope: Slope) -> str:
    """The value with its unit."""
    if slope.faster_is_more:
        return format_bandwidth(slope.value)
    return f"x{slope.value:g}" if slope.name.startswith("compute") else format_time_ps(slope.value)
