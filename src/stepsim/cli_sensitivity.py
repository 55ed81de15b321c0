"""The commands `stepsim sensitivity` and `stepsim noise`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepsim.cli_options import RunOptions, takes
from stepsim.errors import OutputError

if TYPE_CHECKING:
    from rich.console import Console

WorkloadArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="Workload text of SimAI, AICB or ASTRA-sim.")
]


@dataclass(frozen=True, kw_only=True)
class StudyOptions(RunOptions):
    """A run that is looked at from several sides."""

    schedule: Annotated[
        str, typer.Option("--schedule", help="Schedule, e.g. interleaved:4, or torch's CSV.")
    ] = "1f1b"
    chunks: Annotated[int | None, typer.Option("--chunks", help="Virtual stages of each rank.")] = (
        None
    )
    json: Annotated[
        str | None, typer.Option("--json", help="Write the result as JSON; - is stdout.")
    ] = None
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the result: .png, .svg or .pdf.")
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of `stepsim.simulate`."""
        return super().arguments() | {"schedule": self.schedule, "chunks": self.chunks}


@takes(StudyOptions)
def sensitivity(file: WorkloadArgument, options: StudyOptions) -> None:
    """Print what one per cent of each bandwidth, latency and compute time of FILE is worth."""
    from stepsim.api import load_workload
    from stepsim.sensitivity import sensitivity as run
    from stepsim.sensitivity.figures import plot_sensitivity
    from stepsim.sensitivity.output import print_sensitivity, sensitivity_json

    _check_outputs(file, options)
    workload = load_workload(file, strict=options.strict)
    found = run(workload, **options.arguments())
    _warn(found.warnings, options)
    if options.plot:
        plot_sensitivity(found, options.plot)
    _show(options, lambda: sensitivity_json(found), lambda c: print_sensitivity(c, found))


@takes(StudyOptions)
def noise(
    file: WorkloadArgument,
    options: StudyOptions,
    task: Annotated[
        float, typer.Option("--task", help="Coefficient of variation of every compute task.")
    ] = 0.02,
    communication: Annotated[
        float, typer.Option("--communication", help="Coefficient of variation of transfers.")
    ] = 0.0,
    rank: Annotated[
        float, typer.Option("--rank", help="Coefficient of variation between ranks.")
    ] = 0.0,
    stragglers: Annotated[
        float, typer.Option("--stragglers", help="Probability that a rank straggles in a step.")
    ] = 0.0,
    straggler_factor: Annotated[
        float, typer.Option("--straggler-factor", help="Factor on a straggler's compute.")
    ] = 1.3,
    samples: Annotated[int, typer.Option("--samples", help="Steps to draw.")] = 1000,
    seed: Annotated[int, typer.Option("--seed", help="Equal seeds give equal samples.")] = 0,
) -> None:
    """Print how the step time of FILE is distributed when tasks take longer or shorter."""
    from stepsim.api import load_workload
    from stepsim.batch import NoiseModel, simulate_noise
    from stepsim.sensitivity.figures import plot_noise
    from stepsim.sensitivity.output import noise_json, print_noise

    _check_outputs(file, options)
    model = NoiseModel(
        task=task,
        communication=communication,
        rank=rank,
        straggler_probability=stragglers,
        straggler_factor=straggler_factor,
    )
    workload = load_workload(file, strict=options.strict)
    found = simulate_noise(workload, model=model, samples=samples, seed=seed, **options.arguments())
    _warn(found.warnings, options)
    if options.plot:
        plot_noise(found, options.plot)
    _show(options, lambda: noise_json(found), lambda console: print_noise(console, found))


def _check_outputs(file: Path, options: StudyOptions) -> None:
    """Refuse outputs that cannot be written before the run, not after it."""
    from stepsim.formats.outputs import check_writable
    from stepsim.plots import check_figure_path

    json = Path(options.json) if options.json and options.json != "-" else None
    paths = [path for path in (json, options.plot) if path]
    for path in paths:
        check_writable(path)
    if len({path.resolve() for path in (file, *paths)}) <= len(paths):
        raise OutputError("an output would replace the input or the other output")
    if options.plot:
        check_figure_path(options.plot)


def _warn(warnings: Iterable[str], options: RunOptions) -> None:
    for warning in () if options.quiet else warnings:
        typer.echo(f"warning: {warning}", err=True)


def _show(
    options: StudyOptions, json: Callable[[], bytes], table: Callable[["Console"], None]
) -> None:
    """Write the JSON where it is asked for; print the table unless that is stdout."""
    from rich.console import Console

    from stepsim.formats.outputs import write_whole

    if options.json == "-":
        typer.echo(json().decode(), nl=False)
        return
    if options.json:
        write_whole(Path(options.json), json())
    table(Console(highlight=False, markup=False))
