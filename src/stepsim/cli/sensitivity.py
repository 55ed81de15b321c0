"""The commands `stepsim sensitivity` and `stepsim noise`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from stepsim.cli.options import ChunksOption, RunOptions, ScheduleOption, takes
from stepsim.cli.terminal import JsonOption, WorkloadArgument, check_outputs, show, warn


@dataclass(frozen=True, kw_only=True)
class StudyOptions(RunOptions):
    """A run that is looked at from several sides."""

    schedule: ScheduleOption = "1f1b"
    chunks: ChunksOption = None
    json: JsonOption = None
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the result: .png, .svg or .pdf.")
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of `stepsim.simulate`."""
        return super().arguments() | {"schedule": self.schedule, "chunks": self.chunks}


@takes(StudyOptions)
def sensitivity(file: WorkloadArgument, options: StudyOptions) -> None:
    """Print what one per cent of each bandwidth, latency and compute time of FILE is worth."""
    from stepsim.loading import load_workload
    from stepsim.progress import working
    from stepsim.sensitivity import sensitivity as run
    from stepsim.sensitivity.figures import plot_sensitivity
    from stepsim.sensitivity.output import print_sensitivity, sensitivity_json

    check_outputs([file], json=options.json, figures=[options.plot])
    workload = load_workload(file, strict=options.strict)
    with working("changing one number at a time", enabled=not options.quiet):
        found = run(workload, **options.arguments())
    warn(found.warnings, quiet=options.quiet)
    if options.plot:
        plot_sensitivity(found, options.plot)
    show(
        options.json,
        lambda: sensitivity_json(found),
        lambda to: print_sensitivity(to, found),
    )


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
    from stepsim.batch import NoiseModel, simulate_noise
    from stepsim.loading import load_workload
    from stepsim.progress import working
    from stepsim.sensitivity.figures import plot_noise
    from stepsim.sensitivity.output import noise_json, print_noise

    check_outputs([file], json=options.json, figures=[options.plot])
    model = NoiseModel(
        task=task,
        communication=communication,
        rank=rank,
        straggler_probability=stragglers,
        straggler_factor=straggler_factor,
    )
    workload = load_workload(file, strict=options.strict)
    arguments = options.arguments()
    with working(f"drawing {samples} steps", enabled=not options.quiet):
        found = simulate_noise(workload, model=model, samples=samples, seed=seed, **arguments)
    warn(found.warnings, quiet=options.quiet)
    if options.plot:
        plot_noise(found, options.plot)
    show(options.json, lambda: noise_json(found), lambda to: print_noise(to, found))
