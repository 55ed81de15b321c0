"""Derivatives of the step time by what a job runs on.

Along the critical path of one run the step time is a sum of smooth functions, so its derivative is
exact as long as the path stays the same. A step to each side tells whether it does: where another
path takes over, the derivatives to both sides are given instead.
"""

from collections.abc import Iterator, Sequence
from math import isinf
from typing import Annotated

import numpy as np
from msgspec import Meta, Struct

from stepsim.base.arrays import Floats
from stepsim.base.errors import SimulationError
from stepsim.base.structs import Document, Entry, Names, Picoseconds, replace
from stepsim.base.units import Quantity
from stepsim.engine.lay_out import Times
from stepsim.explore.batch.communications import MeasuredLength
from stepsim.explore.batch.evaluation import Batch, make_batch
from stepsim.explore.batch.gradients import CriticalPath, critical_paths, slopes
from stepsim.explore.batch.scenarios import HOST, PHASES, BatchBase
from stepsim.graph.actions import HostTimes
from stepsim.network.prices import Prices
from stepsim.network.topology import Topology
from stepsim.network.topology.dimension import LAUNCH_LATENCY, split_link
from stepsim.network.topology.nested import with_values
from stepsim.options import StepOptions
from stepsim.parallel.schedules import needs_times
from stepsim.step.inputs import WorkSource, held_degrees
from stepsim.step.totals import step_totals
from stepsim.workload.scaling import ComputeScale

_RELATIVE_STEP = 1e-3
_GAIN = 0.01
_AT_ONCE = 8
_AGREE = 1e-3
_DEFAULTS = StepOptions()
_SMS = "comm_sms"


class Slope(Entry, frozen=True, kw_only=True):
    """The step time's derivative by one parameter, whose value is bytes/s, ps, or a factor.

    `derivative` is in ps per unit, exact on the critical path; `below` and `above` are differences
    over a step of 0.1 % to either side. With `one_sided` another path, or another link of a
    collective, takes over within that step: then `derivative` is the one of this run's path, and
    `below` and `above` are what holds. `gain` is the share of the step time that one per cent more
    (of a bandwidth) or less (of a time) saves, evaluated, not extrapolated; of SMs one less.
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


class Sensitivity(Document, frozen=True, kw_only=True):
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

    def __post_init__(self) -> None:
        if self.step_time_ps < 0:
            raise SimulationError(f"the step time is {self.step_time_ps} ps: expected at least 0")


class _Parameter(Struct, frozen=True, kw_only=True):
    """A parameter: the columns it moves, in proportion to their values at the job."""

    name: str
    value: float
    columns: dict[str, float]

    @property
    def step(self) -> float:
        """How far to each side differences go: whole picoseconds for times."""
        step = self.value * _RELATIVE_STEP
        return step if self.real else max(1.0, float(np.rint(step)))

    @property
    def real(self) -> bool:
        """Whether the value need not be whole."""
        return self.name.endswith(".bandwidth") or self.name.startswith("compute")

    @property
    def better(self) -> float:
        """One per cent to the side that makes the step shorter; whole picoseconds for times."""
        value = self.value * (1 + _GAIN if self.name.endswith(".bandwidth") else 1 - _GAIN)
        return value if self.real else float(np.floor(value))

    def around(self) -> list[dict[str, float]]:
        """Columns below, above and improved."""
        return [self.at(v) for v in (self.value - self.step, self.value + self.step, self.better)]

    def at(self, value: float) -> dict[str, float]:
        """Values of the columns."""
        if list(self.columns) == [self.name]:
            return {self.name: value}
        return {name: each * value / self.value for name, each in self.columns.items()}


def find_sensitivity(
    workload: WorkSource,
    topology: Topology,
    options: StepOptions = _DEFAULTS,
    *,
    notes: Sequence[str] = (),
) -> Sensitivity:
    """How the step time of a job depends on its links and its compute.

    Parameters that are 0, or infinite, have no per cent and are left out. Where communication slows
    compute, every parameter is run by itself, the SMs of communication (`comm_sms`) among them.
    Raises PlanError with contention, and the errors of `simulate`.
    """
    degrees, said = held_degrees(workload, topology, options)
    options = replace(options, **degrees)
    plain = replace(options, overlap_cost=False, comm_sms=None)
    batch = make_batch(workload, topology, plain, notes=[*notes, *said])
    every = [*_parameters(batch.setting), *_sms(options)]
    linked = [each for each in every if not options.overlap_cost and batch.takes(each.columns)]
    rebuilt = [] if _searched(batch) else [each for each in every if each not in linked]
    times, paths = _runs(batch, linked)
    found = slopes(batch, paths[0], batch.scenarios({}))
    here = int(times[0])
    stretched = any(isinstance(length, MeasuredLength) for length in batch.table.lengths)
    rows = []
    for i, parameter in enumerate(linked):
        part = slice(1 + 3 * i, 4 + 3 * i)
        same = paths[0] == paths[part][0] == paths[part][1]
        several = times[part].tolist()
        rows.append(_slope(parameter, found, here, several, same_path=None if stretched else same))
    known: list[Prices] = []
    if options.overlap_cost:
        here = _rebuilt(workload, topology, options, {}, known)
    for parameter in rebuilt:
        several = [
            _rebuilt(workload, topology, options, each, known) for each in parameter.around()
        ]
        exact = {} if options.overlap_cost else found
        rows.append(_slope(parameter, exact, here, several))
    return Sensitivity(
        workload=batch.job.workload.source,
        topology=batch.setting.topology.name,
        schedule=batch.job.graph.schedule.label,
        step_time_ps=here,
        slopes=tuple(sorted(rows, key=lambda slope: -slope.gain)),
        notes=tuple(_notes(batch)),
        warnings=batch.job.warnings,
        job=batch.job_words,
    )


def _parameters(setting: BatchBase) -> list[_Parameter]:
    """What the job has: links, launch and host times that are not 0, compute."""
    base = setting.base()
    names = [name for name in base if _is_rate_or_time(name)]
    found = [
        _Parameter(name=name, value=base[name], columns={name: base[name]})
        for name in (*names, LAUNCH_LATENCY.name, *HOST)
        if base[name] and not isinf(base[name])
    ]
    phases = {f"compute_scale.{phase}": base[f"compute_scale.{phase}"] for phase in PHASES}
    found.append(_Parameter(name="compute", value=1.0, columns=phases))
    return found + [
        _Parameter(name=name, value=value, columns={name: value}) for name, value in phases.items()
    ]


def _sms(options: StepOptions) -> list[_Parameter]:
    """The SMs that each communication holds, where they cost something and are said."""
    sms = options.comm_sms if options.overlap_cost else None
    return [_Parameter(name=_SMS, value=sms, columns={_SMS: sms})] if sms else []


def _is_rate_or_time(name: str) -> bool:
    """Whether it is a bandwidth or latency of links; efficiency does what a bandwidth does."""
    field = split_link(name)[1]
    return field is not None and field.quantity is not Quantity.FACTOR


def _runs(batch: Batch, parameters: list[_Parameter]) -> tuple[Times, list[CriticalPath]]:
    """Step times and paths of the job, then of each parameter below, above and improved."""
    rows = [{}, *(row for parameter in parameters for row in parameter.around())]
    base = batch.setting.base()
    names = sorted({name for row in rows for name in row})
    columns: dict[str, Floats] = {
        name: np.array([row.get(name, base[name]) for row in rows]) for name in names
    }
    found = [critical_paths(batch, some) for _, some in batch.scenarios(columns).chunks(_AT_ONCE)]
    times = np.concatenate([times for times, _ in found])
    return times, [path for _, paths in found for path in paths]


def _rebuilt(
    workload: WorkSource,
    topology: Topology,
    options: StepOptions,
    values: dict[str, float],
    known: list[Prices],
) -> int:
    """Step time with other compute or another network, where that is another graph.

    `known` are prices found before: a network of the same numbers has them too.
    """
    scale = options.compute_scale or ComputeScale()
    phases = {
        str(phase): getattr(scale, phase) * values.get(f"compute_scale.{phase}", 1.0)
        for phase in PHASES
    }
    whole = {name: round(values[name]) for name in (*HOST, _SMS) if name in values}
    changed = replace(options, compute_scale=ComputeScale(**phases), **whole)
    network = with_values(topology, values)
    return step_totals(workload, network, changed, breakdown=False, known=known).step_time_ps


def _slope(
    parameter: _Parameter,
    found: dict[str, float],
    here: int,
    around: list[int],
    *,
    same_path: bool | None = None,
) -> Slope:
    """Slope from the derivatives by column and the step times below, above and improved.

    Where it is not known whether the path is the same there, it is if the differences say so. With
    nothing `found` the derivative is the mean of both differences.
    """
    below, above, better = around
    sides = (here - below) / parameter.step, (above - here) / parameter.step
    share = [each / parameter.value for each in parameter.columns.values()]
    exact = sum(found[n] * s for n, s in zip(parameter.columns, share, strict=True) if found)
    if not found:
        exact = sum(sides) / 2
    if same_path is None:
        same_path = all(abs(side - exact) <= _AGREE * abs(exact) for side in sides)
    return Slope(
        name=parameter.name,
        value=parameter.value,
        derivative=float(exact),
        below=sides[0],
        above=sides[1],
        one_sided=not same_path,
        gain=(here - better) / here if here else 0.0,
        elasticity=float(exact) * parameter.value / here if here else 0.0,
    )


def _searched(batch: Batch) -> bool:
    return needs_times(batch.job.graph.schedule.name)


def _notes(batch: Batch) -> Iterator[str]:
    options = batch.job.options
    if batch.fixed and any(HostTimes.of(options).by_part):
        yield f"host times are left out: {batch.fixed}"
    if _searched(batch):
        name = batch.job.graph.schedule.name
        yield f"the order that {name} found for the job is kept, and compute is left out"
