"""`stepsim simulate`: one step of a workload, or a measured run replayed."""

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from stepsim.cli.figures import MessagesOption, PlotOption, check_messages
from stepsim.cli.measured import CalibrationOption, TimesOption, simulate_measured
from stepsim.cli.options import ChunksOption, RunOptions, ScheduleOption, takes
from stepsim.cli.terminal import JsonOption, WorkloadArgument, check_outputs, show, warn
from stepsim.errors import PlanError


@takes(RunOptions)
def simulate(
    file: WorkloadArgument,
    options: RunOptions,
    schedule: ScheduleOption = "1f1b",
    chunks: ChunksOption = None,
    json: JsonOption = None,
    plot: PlotOption = None,
    messages: MessagesOption = False,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write the spans as CSV.")] = None,
    calibration: CalibrationOption = None,
    times: TimesOption = "median",
) -> None:
    """Simulate one training step of a workload FILE, or replay a measured run."""
    from stepsim import api, collector
    from stepsim.loading import load_workload
    from stepsim.progress import progress_bar
    from stepsim.tables import print_report
    from stepsim.validation.load import is_measured

    collector.stop()

    check_outputs([file], json=json, figures=[plot], files=[csv])
    check_messages(messages, plot)
    if is_measured(file):
        _refuse_options(file, options, schedule, chunks)
        simulate_measured(file, calibration=calibration, times=times, json=json, plot=plot, csv=csv)
        return
    workload = load_workload(file, strict=options.strict)
    with progress_bar(enabled=not options.quiet) as progress:
        result = api.simulate(
            workload,
            schedule=schedule,
            chunks=chunks,
            progress=progress,
            **options.arguments() | _calibrated(calibration, options),
        )
    warn(result.report.warnings, quiet=options.quiet)
    if plot:
        result.plot(plot, messages=messages)
    if csv:
        result.write_csv(csv)
    show(json, lambda: result.to_json().encode(), lambda to: print_report(to, result.report))


def _refuse_options(run: Path, options: RunOptions, schedule: str, chunks: int | None) -> None:
    """A replay takes everything from the run: options would do nothing."""
    asked = [
        "--" + field.name.replace("_", "-")
        for field in fields(options)
        if field.name not in ("quiet", "strict") and getattr(options, field.name) != field.default
    ]
    asked += ["--schedule"] * (schedule != "1f1b") + ["--chunks"] * (chunks is not None)
    if asked:
        raise PlanError(
            f"{run}: a measured run is replayed as it ran: leave out {', '.join(asked)} "
            "(stepsim what-if changes runs)"
        )


def _calibrated(path: Path | None, options: RunOptions) -> dict[str, Any]:
    """What a calibration sets of a simulation, where the user does not say otherwise."""
    if path is None:
        return {}
    from stepsim.formats.calibration_toml import read_calibration
    from stepsim.validation.load import simulate_options

    found = read_calibration(path)
    arguments: dict[str, Any] = {}
    if options.host_overhead == RunOptions.host_overhead:
        arguments |= simulate_options(found)
    if not options.comm_table:
        arguments["comm_table"] = found.collectives
    return arguments
