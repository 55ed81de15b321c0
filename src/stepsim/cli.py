"""The command line. Everything else is imported when a command runs: `--help` stays fast."""

import os
import sys
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stepsim import __version__
from stepsim.cli_calibrate import app as calibrate
from stepsim.cli_collective import collective
from stepsim.cli_measured import (
    CalibrationOption,
    TimesOption,
    inspect_measured,
    simulate_measured,
    validate,
    what_if,
)
from stepsim.cli_options import PlanOptions, RunOptions, takes
from stepsim.cli_sensitivity import noise, sensitivity
from stepsim.cli_sweep import sweep, sweep_report
from stepsim.errors import OutputError, PlanError, StepsimError

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    name="stepsim",
    help="Predict how long one training step takes on a cluster you do not have, and see why.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

WorkloadArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="Workload text of SimAI, AICB or ASTRA-sim.")
]
JsonOption = Annotated[
    str | None, typer.Option("--json", help="Write the result as JSON; - is stdout.")
]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", help="Draw timelines: .png, .svg or .pdf.")
]
MessagesOption = Annotated[
    bool, typer.Option("--messages", help="Draw an arrow for every message, with --plot.")
]


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Handle options that stand before a command."""
    if version:
        typer.echo(f"stepsim {__version__}")
        raise typer.Exit


@app.command()
@takes(RunOptions)
def simulate(
    file: WorkloadArgument,
    options: RunOptions,
    schedule: Annotated[
        str, typer.Option("--schedule", help="Schedule, e.g. interleaved:4, or torch's CSV.")
    ] = "1f1b",
    chunks: Annotated[
        int | None, typer.Option("--chunks", help="Virtual stages of each rank.")
    ] = None,
    json: JsonOption = None,
    plot: PlotOption = None,
    messages: MessagesOption = False,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write the spans as CSV.")] = None,
    calibration: CalibrationOption = None,
    times: TimesOption = "median",
) -> None:
    """Simulate one training step of a workload FILE, or replay a measured run."""
    from stepsim import api, collector
    from stepsim.progress import progress_bar
    from stepsim.tables import print_report
    from stepsim.validation.load import is_measured

    collector.stop()

    _check_outputs([file], json, plot, csv, messages=messages)
    if is_measured(file):
        _refuse_options(file, options, schedule, chunks)
        simulate_measured(file, calibration=calibration, times=times, json=json, plot=plot, csv=csv)
        return
    workload = api.load_workload(file, strict=options.strict)
    with progress_bar(enabled=not options.quiet) as progress:
        result = api.simulate(
            workload,
            schedule=schedule,
            chunks=chunks,
            progress=progress,
            **options.arguments() | _calibrated(calibration, options),
        )
    _warn(result.report.warnings, options)
    if plot:
        result.plot(plot, messages=messages)
    if csv:
        result.write_csv(csv)
    if json == "-":
        typer.echo(result.to_json(), nl=False)
        return
    if json:
        result.write_json(json)
    print_report(_console(), result.report)


@app.command()
@takes(RunOptions)
def compare(
    file: WorkloadArgument,
    options: RunOptions,
    schedules: Annotated[
        str, typer.Option("--schedules", help="Names or CSV files, separated by commas.")
    ] = "1f1b,interleaved:2,interleaved:4,zb-h1",
    with_: Annotated[
        str | None, typer.Option("--with", help="simai-formula: add SimAI's closed formula.")
    ] = None,
    json: JsonOption = None,
    plot: PlotOption = None,
    messages: MessagesOption = False,
) -> None:
    """Compare pipeline schedules on a workload FILE."""
    from stepsim import api
    from stepsim.compare import compare as run
    from stepsim.compare import comparison_json, simai_totals
    from stepsim.formats.outputs import write_whole
    from stepsim.progress import progress_bar
    from stepsim.tables import print_comparison, print_simai

    if with_ not in (None, "simai-formula"):
        raise PlanError(f"with is {with_!r}: expected simai-formula")
    _check_outputs([file], json, plot, messages=messages)
    workload = api.load_workload(file, strict=options.strict)
    with progress_bar(enabled=not options.quiet) as progress:
        comparison = run(workload, schedules.split(","), progress=progress, **options.arguments())
    _warn(comparison.warnings, options)
    if plot:
        comparison.plot(plot, messages=messages)
    totals = simai_totals(workload, comparison) if with_ else None
    document = comparison_json(comparison, totals) if json else b""
    if json == "-":
        typer.echo(document.decode(), nl=False)
        return
    if json:
        write_whole(Path(json), document)
    print_comparison(_console(), comparison)
    if totals:
        print_simai(_console(), totals)


@app.command()
@takes(PlanOptions)
def inspect(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="Workload, topology (file or name), or measured run."),
    ],
    options: PlanOptions,
    json: JsonOption = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw a topology: .png, .svg or .pdf.")
    ] = None,
) -> None:
    """Print what stepsim understands of a workload, a topology or a measured run."""
    from stepsim.formats.topology_files import is_topology
    from stepsim.validation.load import is_measured

    if Path(file).exists() and is_measured(Path(file)):
        inspect_measured(Path(file))
    elif is_topology(file):
        _inspect_topology(file, options, json, plot)
    elif json or plot:
        raise OutputError(f"{file}: --json and --plot are for topologies: this is a workload")
    else:
        _inspect_workload(Path(file), options)


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


def _inspect_workload(file: Path, options: PlanOptions) -> None:
    from stepsim import api
    from stepsim.compute import scale_compute
    from stepsim.inspection import inspect_workload
    from stepsim.planning import plan_job
    from stepsim.shipped import DEFAULT_TOPOLOGY
    from stepsim.tables import print_inspection

    arguments = options.arguments()
    topology = api.load_topology(arguments.pop("topology") or DEFAULT_TOPOLOGY)
    workload = api.load_workload(file, strict=options.strict)
    workload = scale_compute(workload, arguments.pop("compute_scale"))
    plan, assumed = plan_job(workload, topology, **arguments)
    topology.fit(plan.npus)
    seen = inspect_workload(workload, plan, assumed)
    _warn(seen.warnings, options)
    print_inspection(_console(), seen)


def _inspect_topology(name: str, options: PlanOptions, json: str | None, plot: Path | None) -> None:
    from stepsim import api
    from stepsim.formats.outputs import write_whole
    from stepsim.formats.topology_json import topology_json
    from stepsim.tables import print_topology
    from stepsim.topology_inspection import inspect_topology

    _check_outputs([Path(name)], json, plot)
    topology = api.load_topology(name, options.npus)
    if plot:
        from stepsim.topology_plot import draw_topology

        draw_topology(topology, plot)
    seen = inspect_topology(topology)
    if json == "-":
        typer.echo(topology_json(seen).decode(), nl=False)
        return
    if json:
        write_whole(Path(json), topology_json(seen))
    print_topology(_console(), seen)


@app.command()
def convert(
    schedule: Annotated[str, typer.Argument(help="Schedule, e.g. interleaved:4.")],
    target: Annotated[Path, typer.Argument(metavar="OUT.csv", help="File to write.")],
    ranks: Annotated[int, typer.Option("--ranks", help="Pipeline ranks.")],
    microbatches: Annotated[int, typer.Option("--microbatches", "-m", help="Microbatches.")],
    chunks: Annotated[
        int | None, typer.Option("--chunks", help="Virtual stages of each rank.")
    ] = None,
) -> None:
    """Write a schedule as a torch pipeline CSV."""
    from stepsim.formats.schedule_csv import write_schedule
    from stepsim.schedules import build

    if target.suffix != ".csv":
        raise OutputError(f"{target}: a schedule is written as .csv")
    write_schedule(build(schedule, ranks=ranks, microbatches=microbatches, chunks=chunks), target)


@app.command()
def diff(
    a: Annotated[Path, typer.Argument(metavar="A.json", help="Result of simulate --json.")],
    b: Annotated[Path, typer.Argument(metavar="B.json", help="Result to compare with it.")],
) -> None:
    """Explain the difference of two step times: settings, components, stages, links."""
    from stepsim.diff import diff_results, print_diff
    from stepsim.formats.result_read import read_result

    print_diff(_console(), diff_results(read_result(a), read_result(b)))


app.command()(collective)
app.command()(sensitivity)
app.command()(noise)
app.add_typer(calibrate, name="calibrate")
app.command()(validate)
app.command("what-if")(what_if)
app.command()(sweep)
app.command()(sweep_report)


def main() -> None:
    """Run the command line; a user's mistake prints one message and exits with 2."""
    try:
        app()
    except StepsimError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except OSError as error:
        typer.echo(f"error: cannot write to stdout: {error.strerror}", err=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        sys.exit(130)


def _check_outputs(
    inputs: list[Path],
    json: str | None,
    plot: Path | None,
    csv: Path | None = None,
    *,
    messages: bool = False,
) -> None:
    """Refuse outputs that cannot be written before the run, not after it."""
    from stepsim.formats.outputs import check_writable

    files = [Path(json)] if json and json != "-" else []
    files += [path for path in (plot, csv) if path]
    known = {path.resolve() for path in inputs}
    for path in files:
        if str(path) == "-":
            raise OutputError("only --json can be written to stdout: name a file")
        check_writable(path)
        if path.resolve() in known:
            raise OutputError(
                f"{path}: cannot write: it is an input, or two outputs go to the same file"
            )
        known.add(path.resolve())
    if messages and not plot:
        raise OutputError("--messages draws arrows into a figure: name one with --plot")
    if plot:
        from stepsim.plots import check_figure_path

        check_figure_path(plot)


def _console() -> "Console":
    from rich.console import Console

    return Console(highlight=False, markup=False)


def _warn(warnings: Iterable[str], options: PlanOptions) -> None:
    """Print warnings on stderr unless asked to be quiet."""
    for warning in () if options.quiet else warnings:
        typer.echo(f"warning: {warning}", err=True)
