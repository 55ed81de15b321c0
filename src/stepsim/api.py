"""The Python interface: the words of the command line, as functions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec

import numpy as np

from stepsim import collector
from stepsim.collectives import (
    Algorithm,
    AlgorithmChoice,
    collective_shape,
    collective_time_ps,
    parse_algorithm,
)
from stepsim.errors import PlanError
from stepsim.figure_style import FigureStyle
from stepsim.job import Job, prepare, run_graph
from stepsim.loading import load_topology
from stepsim.pricing import Prices
from stepsim.report import Report, make_report
from stepsim.settings import changed_settings
from stepsim.timeline import Timeline
from stepsim.topology import Topology
from stepsim.units import PS_PER_S, format_time_ps
from stepsim.workload import CollectiveKind

if TYPE_CHECKING:
    from stepsim.trace.processes import TracedRun

Arguments = ParamSpec("Arguments")


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """What a simulation found."""

    report: Report
    timeline: Timeline
    prices: Prices

    def __repr__(self) -> str:
        """One line, for notebooks and shells: the report and its spans are long."""
        report = self.report
        return (
            f"<Result {report.workload} on {report.topology}, {report.plan.npus} NPUs, "
            f"{report.schedule}: step {format_time_ps(report.step_time_ps)}, "
            f"bubble {report.bubble_fraction:.1%}>"
        )

    @property
    def step_time_s(self) -> float:
        """Step time in seconds."""
        return self.report.step_time_s

    def to_json(self) -> str:
        """The report as a JSON document, see `stepsim.formats.result_json`."""
        from stepsim.formats.result_json import report_json

        return str(report_json(self.report), "utf-8")

    def write_json(self, path: str | Path) -> None:
        """Write the report as JSON; raises OutputError when the file cannot be written."""
        from stepsim.formats.outputs import write_whole

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
        from stepsim.plots import plot_timelines

        runs = [(self.timeline, self.report)]
        plot_timelines(runs, Path(path), messages=messages, style=style)

    def write_csv(self, path: str | Path) -> None:
        """Write the spans of one rank per class of ranks; raises OutputError."""
        from stepsim.formats.spans_csv import write_spans

        write_spans(self.timeline, Path(path))

    def write_trace(
        self, path: str | Path, *, ranks: Sequence[int] | None = None, command: str = ""
    ) -> None:
        """Write a trace for Perfetto (.json, .json.gz): every class of ranks, or those of `ranks`.

        `command` is kept in it. Raises PlanError for ranks the job does not have, OutputError.
        """
        from stepsim.formats.perfetto import write_trace

        write_trace([self.traced(ranks)], Path(path), command)

    def traced(self, ranks: Sequence[int] | None = None, name: str = "") -> "TracedRun":
        """The run as part of a trace; raises PlanError for ranks the job does not have."""
        from stepsim.trace.processes import TracedRun

        return TracedRun(
            timeline=self.timeline,
            prices=self.prices,
            report=self.report,
            ranks=None if ranks is None else tuple(ranks),
            name=name,
        )


def run_job(job: Job, settings: Mapping[str, str]) -> Result:
    """Run a job and analyse what happened; the report records the `settings` that made it."""
    timeline = run_graph(
        job.graph,
        job.prices,
        fold_ranks=job.fold_ranks,
        slow=job.slow,
        sharing=job.sharing,
        progress=job.progress,
    )
    report = make_report(
        timeline,
        job.prices,
        workload=job.workload.source,
        schedule=job.schedule,
        p2p=job.options.p2p,
        contention=job.sharing,
        activation_bytes=job.activation_bytes,
        settings=settings,
        warnings=job.warnings,
    )
    return Result(report=report, timeline=timeline, prices=job.prices)


def _running(prepare: Callable[Arguments, Job]) -> Callable[Arguments, Result]:
    """The function that also runs what a function prepares."""
    defaults = {each.name: each.default for each in signature(prepare).parameters.values()}

    @wraps(prepare)
    def simulate(*args: Arguments.args, **options: Arguments.kwargs) -> Result:
        with collector.paused():
            return run_job(prepare(*args, **options), changed_settings(options, defaults))

    simulate.__name__ = simulate.__qualname__ = "simulate"
    return simulate


simulate = _running(prepare)


def collective_time(
    topology: str | Path | Topology,
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
    if isinstance(topology, str | Path):
        topology = load_topology(topology, npus=max(ranks, default=0) + 1)
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
