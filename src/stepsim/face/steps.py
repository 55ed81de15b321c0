"""The Python interface: the words of the command line, as functions."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stepsim.base.errors import PlanError
from stepsim.base.units import PS_PER_S, format_time_ps
from stepsim.engine.run import OnProgress
from stepsim.explore.noise.draws import NoiseModel, NoiseResult, simulate_noise
from stepsim.explore.sensitivity import Sensitivity, find_sensitivity
from stepsim.files.asked import read_inputs, read_schedules
from stepsim.files.load import load_topology
from stepsim.network.collectives import (
    Algorithm,
    AlgorithmChoice,
    collective_shape,
    collective_time_ps,
    parse_algorithm,
)
from stepsim.parallel.schedules import Schedule
from stepsim.show.figures.style import FigureStyle
from stepsim.step.compare import ComparedSchedules, compare_schedules
from stepsim.step.simulate import SimulatedStep, simulate_step
from stepsim.workload.model.model import Model
from stepsim.workload.rows import CollectiveKind, Workload

if TYPE_CHECKING:
    from stepsim.network.topology.network import TopologyLike


@dataclass(frozen=True, kw_only=True, repr=False)
class Result(SimulatedStep):
    """What a simulation found, and the ways to see it."""

    def __repr__(self) -> str:
        """One line, for notebooks and shells: the report and its spans are long."""
        report = self.report
        return (
            f"<Result {report.workload} on {report.topology}, {report.plan.npus} NPUs, "
            f"{report.schedule}: step {format_time_ps(report.step_time_ps)}, "
            f"bubble {report.bubble_fraction:.1%}>"
        )

    def to_json(self) -> str:
        """The report as a JSON document, see `stepsim.results.document`."""
        from stepsim.results.document import ResultDocument

        return ResultDocument.of(self.report).to_json().decode()

    def write_json(self, path: str | Path) -> None:
        """Write the report as JSON; raises OutputError when the file cannot be written."""
        from stepsim.files.writing import write_whole

        write_whole(Path(path), self.to_json().encode())

    def plot(
        self,
        path: str | Path,
        *,
        messages: bool = False,
        style: FigureStyle | str = FigureStyle.SCREEN,
    ) -> None:
        """Draw the pipeline timeline into a .png, .svg or .pdf file, `messages` as arrows.

        `style` is `screen`, or a paper's `column` or `page`. Raises OutputError when the file
        cannot be written.
        """
        from stepsim.show.figures.timelines import plot_timelines

        runs = [(self.timeline, self.report)]
        plot_timelines(runs, Path(path), messages=messages, style=style)

    def write_csv(self, path: str | Path) -> None:
        """Write the spans of one rank per class of ranks; raises OutputError."""
        from stepsim.files.spans_csv import write_spans

        write_spans(self.timeline, Path(path))

    def write_trace(
        self, path: str | Path, *, ranks: Sequence[int] | None = None, command: str = ""
    ) -> None:
        """Write a trace for Perfetto (.json, .json.gz): every class of ranks, or those of `ranks`.

        `command` is kept in it. Raises PlanError for ranks the job does not have, OutputError.
        """
        from stepsim.show.trace.perfetto import write_trace
        from stepsim.show.trace.processes import traced

        write_trace([traced(self, ranks)], Path(path), command)


class Comparison(ComparedSchedules):
    """Candidates in the order asked for, and the ways to see them."""

    def plot(
        self,
        path: str | Path,
        *,
        messages: bool = False,
        style: FigureStyle | str = FigureStyle.SCREEN,
    ) -> None:
        """Draw all timelines on one time axis, `messages` as arrows; raises OutputError."""
        from stepsim.show.figures.timelines import plot_timelines

        runs = [(step.timeline, step.report) for _, step in self.valid]
        plot_timelines(runs, Path(path), messages=messages, style=style)


def simulate(
    workload: Workload | Model | str | Path,
    topology: "TopologyLike | None" = None,
    *,
    progress: OnProgress | None = None,
    **options: object,
) -> Result:
    """Simulate one training step.

    Without `topology` it is hgx-h100. `options` are those of `stepsim.options.StepOptions`, as
    people type them: `host_overhead="250 us"` (or 0.00025, seconds), `dp_bucket="25 MB"`,
    `slow="12:1.3,40-47:1.1"`, `compute_scale=0.5`, a schedule's name, .csv file or noun. Raises
    the errors of `stepsim.base.errors` when the input is wrong or contradictory.
    """
    job = read_inputs(workload, topology, options)
    step = simulate_step(
        job.workload, job.topology, job.options, notes=job.notes, weigh=True, progress=progress
    )
    return Result(report=step.report, timeline=step.timeline, prices=step.prices)


def compare(
    workload: Workload | Model | str | Path,
    schedules: Sequence[str | Path | Schedule],
    topology: "TopologyLike | None" = None,
    *,
    progress: OnProgress | None = None,
    **options: object,
) -> Comparison:
    """Simulate a workload under each schedule; `options` are those of `simulate`.

    A schedule that cannot run the job is kept with its reason. Raises ScheduleError when none can,
    and every other error of `simulate`.
    """
    job = read_inputs(workload, topology, options)
    named = read_schedules(schedules)
    found = compare_schedules(
        job.workload, job.topology, named, job.options, notes=job.notes, progress=progress
    )
    return Comparison(candidates=found.candidates)


def sensitivity(
    workload: Workload | Model | str | Path,
    topology: "TopologyLike | None" = None,
    **options: object,
) -> Sensitivity:
    """How the step time depends on links and compute; `options` are those of `simulate`.

    Raises PlanError with contention, under which times are no sums, and the errors of `simulate`.
    """
    job = read_inputs(workload, topology, options)
    return find_sensitivity(job.workload, job.topology, job.options, notes=job.notes)


def noise(
    workload: Workload | Model | str | Path,
    topology: "TopologyLike | None" = None,
    *,
    model: NoiseModel,
    samples: int = 1000,
    seed: int = 0,
    **options: object,
) -> NoiseResult:
    """How the step time is distributed when tasks take longer or shorter.

    `options` are those of `simulate`; equal arguments give equal samples. Raises PlanError with
    contention, and the errors of `simulate`.
    """
    job = read_inputs(workload, topology, options)
    return simulate_noise(
        job.workload,
        job.topology,
        job.options,
        model=model,
        samples=samples,
        seed=seed,
        notes=job.notes,
    )


def collective_time(
    topology: "TopologyLike",
    kind: CollectiveKind | str,
    size_bytes: int,
    ranks: Sequence[int],
    algorithm: AlgorithmChoice | str = Algorithm.AUTO,
) -> float:
    """Seconds of one collective over these NPUs, the network to itself.

    `size_bytes` is the full (gathered) tensor; for all_to_all what each rank sends, its own share
    included. `algorithm` may name levels, e.g. `hierarchical:ring,direct`. Raises PlanError for
    unknown kinds, algorithms or ranks.
    """
    named = isinstance(topology, str | Path)
    topology = load_topology(topology, npus=max(ranks, default=0) + 1 if named else None)
    try:
        kind = CollectiveKind(kind)
    except ValueError as error:
        raise PlanError(f"{error}: expected {', '.join(CollectiveKind)}") from None
    if isinstance(algorithm, str):
        algorithm = parse_algorithm(algorithm)
    members = np.array(ranks, dtype=np.int64)
    if len(set(ranks)) != len(ranks) or not all(0 <= r < topology.npus for r in ranks):
        raise PlanError(f"ranks: expected distinct numbers from 0 to {topology.npus - 1}")
    if size_bytes < 0:
        raise PlanError(f"size_bytes is {size_bytes}: it cannot be negative")
    shape = collective_shape(topology, kind, members, algorithm)
    return collective_time_ps(topology, shape, size_bytes) / PS_PER_S
