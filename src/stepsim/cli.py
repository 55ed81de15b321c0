"""The command line. Everything else is imported when a command runs: `--help` stays fast."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepsim import __version__
from stepsim.errors import OutputError, StepsimError

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
TopologyOption = Annotated[
    str | None,
    typer.Option("--topology", "-t", help="Shipped topology or TOML file. [default: hgx-h100]"),
]
NpusOption = Annotated[
    int | None, typer.Option("--npus", help="NPUs of the job; more or fewer scale dp.")
]
PpOption = Annotated[
    int | None, typer.Option("--pp", help="Pipeline stages; the model's layers are re-split.")
]
MicrobatchesOption = Annotated[
    int | None, typer.Option("--microbatches", "-m", help="Microbatches of each pipeline.")
]
GlobalBatchOption = Annotated[
    int | None, typer.Option("--global-batch", help="Samples per step, of all pipelines together.")
]
MicrobatchSizeOption = Annotated[
    int, typer.Option("--microbatch-size", help="Samples of a microbatch, with --global-batch.")
]
ComputeScaleOption = Annotated[
    str,
    typer.Option(
        "--compute-scale",
        help="Factor on compute times, e.g. 0.5, or forward=0.5,input_grad=0.6,weight_grad=0.6.",
    ),
]
StrictOption = Annotated[
    bool, typer.Option("--strict", help="Refuse files that would be read with a warning.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No warnings, no progress.")]


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Handle options that stand before a command."""
    if version:
        typer.echo(f"stepsim {__version__}")
        raise typer.Exit


@app.command()
def simulate(
    file: WorkloadArgument,
    topology: TopologyOption = None,
    schedule: Annotated[str, typer.Option("--schedule", help="Pipeline schedule.")] = "1f1b",
    chunks: Annotated[
        int | None, typer.Option("--chunks", help="Virtual stages of each rank.")
    ] = None,
    p2p: Annotated[
        str | None,
        typer.Option("--p2p", help="eager or blocking. [default: as the runtime does]"),
    ] = None,
    npus: NpusOption = None,
    pp: PpOption = None,
    microbatches: MicrobatchesOption = None,
    global_batch: GlobalBatchOption = None,
    microbatch_size: MicrobatchSizeOption = 1,
    compute_scale: ComputeScaleOption = "1",
    stage_rows: Annotated[
        str,
        typer.Option(
            "--stage-rows",
            help="Who runs embedding and head rows: ends, or every stage as SimAI has it.",
        ),
    ] = "ends",
    tp_overlap: Annotated[
        bool,
        typer.Option(
            "--tp-overlap/--no-tp-overlap",
            help="Weight gradients are computed beside the input gradient's collective.",
        ),
    ] = True,
    host_overhead: Annotated[
        str, typer.Option("--host-overhead", help="Host time before each action, e.g. 250us.")
    ] = "0 ns",
    fold: Annotated[
        bool,
        typer.Option("--fold/--no-fold", help="Simulate one rank of each class of ranks."),
    ] = True,
    strict: StrictOption = False,
    json: Annotated[
        str | None, typer.Option("--json", help="Write the result as JSON; - is stdout.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the timeline: .png, .svg or .pdf.")
    ] = None,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write the spans as CSV.")] = None,
    quiet: QuietOption = False,
) -> None:
    """Simulate one training step of a workload FILE."""
    from stepsim import api
    from stepsim.compute import parse_compute_scale
    from stepsim.progress import progress_bar
    from stepsim.tables import print_report

    _check_outputs(json, plot, csv)
    workload = api.load_workload(file, strict=strict)
    with progress_bar(enabled=not quiet) as progress:
        result = api.simulate(
            workload,
            topology,
            schedule=schedule,
            microbatches=microbatches,
            chunks=chunks,
            p2p=p2p,
            npus=npus,
            pp=pp,
            global_batch=global_batch,
            microbatch_size=microbatch_size,
            compute_scale=parse_compute_scale(compute_scale),
            stage_rows=stage_rows,
            tp_overlap=tp_overlap,
            host_overhead=host_overhead,
            fold_ranks=fold,
            progress=progress,
        )
    if not quiet:
        _warn(result.report.warnings)
    if plot:
        result.plot(plot)
    if csv:
        result.write_csv(csv)
    if json == "-":
        typer.echo(result.to_json(), nl=False)
        return
    if json:
        result.write_json(json)
    print_report(_console(), result.report)


@app.command()
def inspect(
    file: WorkloadArgument,
    topology: TopologyOption = None,
    npus: NpusOption = None,
    pp: PpOption = None,
    microbatches: MicrobatchesOption = None,
    global_batch: GlobalBatchOption = None,
    microbatch_size: MicrobatchSizeOption = 1,
    compute_scale: ComputeScaleOption = "1",
    strict: StrictOption = False,
    quiet: QuietOption = False,
) -> None:
    """Print what stepsim understands of a workload FILE, and what it assumes."""
    from stepsim import api
    from stepsim.compute import parse_compute_scale, scale_compute
    from stepsim.inspection import inspect_workload
    from stepsim.planning import plan_job
    from stepsim.shipped import DEFAULT_TOPOLOGY
    from stepsim.tables import print_inspection

    workload = api.load_workload(file, strict=strict)
    workload = scale_compute(workload, parse_compute_scale(compute_scale))
    plan, assumed = plan_job(
        workload,
        api.load_topology(topology or DEFAULT_TOPOLOGY),
        npus=npus,
        pp=pp,
        microbatches=microbatches,
        global_batch=global_batch,
        microbatch_size=microbatch_size,
    )
    seen = inspect_workload(workload, plan, assumed)
    if not quiet:
        _warn(seen.warnings)
    print_inspection(_console(), seen)


def main() -> None:
    """Run the command line; a user's mistake prints one message and exits with 2."""
    try:
        app()
    except StepsimError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        sys.exit(130)


def _check_outputs(json: str | None, plot: Path | None, csv: Path | None) -> None:
    """Refuse outputs that cannot be written before the run, not after it."""
    from stepsim.formats.outputs import check_writable

    files = [Path(json)] if json and json != "-" else []
    files += [path for path in (plot, csv) if path]
    for path in files:
        check_writable(path)
    if len({path.absolute() for path in files}) < len(files):
        raise OutputError(f"{files[-1]}: two outputs go to the same file")
    if plot:
        from stepsim.plots import check_figure_path

        check_figure_path(plot)


def _console() -> "Console":
    from rich.console import Console

    return Console(highlight=False, markup=False)


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)
