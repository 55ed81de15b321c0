"""`stepsim validate` and `stepsim what-if`; `inspect` and `simulate` of measured runs."""

from os.path import isdir
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepsim.cli import completion
from stepsim.cli.terminal import JsonOption, check_outputs, console, show, warn
from stepsim.errors import PlanError

if TYPE_CHECKING:
    from rich.console import Console

    from stepsim.calibration.document import Calibration
    from stepsim.comm_table import CommTable
    from stepsim.topology import Topology
    from stepsim.validation.load import MeasuredRuntime
    from stepsim.validation.replay import Durations

RunsArgument = Annotated[
    list[Path],
    typer.Argument(metavar="RUN...", help="Folders of traces, or the trace of one rank."),
]
CalibrationOption = Annotated[
    Path | None, typer.Option("--calibration", help="Calibration to use, a TOML file.")
]
NcclOption = Annotated[
    list[Path] | None,
    typer.Option("--nccl", help="Micro-benchmarks of the machine: CSV or nccl-tests output."),
]
CommSourceOption = Annotated[
    str | None,
    typer.Option("--comm-source", help="Take the benchmarks whose machine or source holds this."),
]
NodeSizeOption = Annotated[
    int | None,
    typer.Option(
        "--node-size", min=1, help="Ranks per node.", show_default="told by clocks, else 8"
    ),
]
TimesOption = Annotated[
    str,
    typer.Option(
        "--times",
        help="Stage times of a replay: median, mean or microbatch.",
        autocompletion=completion.durations,
    ),
]


def validate(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...", help="Folders of traces, or one CSV or TOML table of measured steps."
        ),
    ],
    calibration: CalibrationOption = None,
    nccl: NcclOption = None,
    comm_source: CommSourceOption = None,
    leave_one_out: Annotated[
        bool, typer.Option("--leave-one-out", help="Calibrate every run on all others.")
    ] = False,
    times: TimesOption = "median",
    max_error: Annotated[
        str | None,
        typer.Option("--max-error", help="Exit with 1 if a time is further off, e.g. 2%."),
    ] = None,
    node_size: NodeSizeOption = None,
    json: JsonOption = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw simulated over measured: .png, .svg, .pdf.")
    ] = None,
) -> None:
    """Compare measured RUNs, or a table of measured steps, with their simulation."""
    from stepsim.formats.step_table import is_step_table, read_step_table
    from stepsim.measured_tables import print_validation
    from stepsim.validation.load import load_run
    from stepsim.validation.output import all_times, exceeds, validation_json
    from stepsim.validation.table import validate_table
    from stepsim.validation.validate import validate_runs

    check_outputs(runs, json=json, figures=[plot])
    limit, durations = _limit(max_error), _durations(times)
    tables = [path for path in runs if is_step_table(path)]
    folders = [path for path in runs if path not in tables]
    _check_validation(tables, folders, nccl=nccl, times=times, leave_one_out=leave_one_out)
    known, table = _calibration(calibration), benchmarks(nccl, comm_source)
    steps = [step for path in tables for step in read_step_table(path)]
    rows = validate_table(steps, known, table)
    summaries = [load_run(path, node_size=node_size) for path in folders]
    warn([text for each in summaries for text in each.run.warnings])
    warn([note for row in rows for note in row.notes])
    found = validate_runs(
        summaries, known, leave_one_out=leave_one_out, durations=durations, table=table
    )
    if plot:
        from stepsim.validation_plots import plot_validation

        plot_validation(found, rows, plot)
    show(
        json,
        lambda: validation_json(found, rows),
        lambda to: print_validation(to, found, rows),
    )
    if exceeds(all_times(found, rows), limit):
        raise typer.Exit(1)


def what_if(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of traces, or one trace.")],
    schedule: Annotated[
        str | None,
        typer.Option(
            "--schedule",
            help="Another schedule, e.g. interleaved:2.",
            autocompletion=completion.schedules,
        ),
    ] = None,
    microbatches: Annotated[
        int | None, typer.Option("--microbatches", "-m", help="Microbatches per pipeline.")
    ] = None,
    balance: Annotated[
        str | None, typer.Option("--balance", help="Layers of every stage, e.g. 3,2,2,1.")
    ] = None,
    layers: Annotated[
        int | None,
        typer.Option("--layers", help="Layers of the model, if the run's names do not tell."),
    ] = None,
    bandwidth: Annotated[
        list[str] | None,
        typer.Option("--bandwidth", help="Of messages: inter_node=400Gbps or intra_node=..."),
    ] = None,
    calibration: CalibrationOption = None,
    node_size: NodeSizeOption = None,
) -> None:
    """Simulate a measured RUN with another schedule, balance or bandwidth."""
    from stepsim.measured_tables import print_what_if
    from stepsim.validation.load import load_run, with_runtime
    from stepsim.validation.whatif import Change
    from stepsim.validation.whatif import what_if as change_run

    ready = with_runtime(load_run(run, node_size=node_size), _calibration(calibration))
    warn([*ready.summary.run.warnings, *ready.notes])
    change = Change(
        schedule=schedule,
        microbatches=microbatches,
        balance=_balance(balance),
        topology=_topology(ready, bandwidth),
        layers=layers,
    )
    result = change_run(ready.summary, ready.runtime, change)
    print_what_if(console(), result, ready.summary.step_ps)


def inspect_measured(path: Path, node_size: int | None = None) -> None:
    """Print what stepsim understands of a measured run; called by `stepsim inspect`."""
    from stepsim.formats.optimus_log import is_optimus_log, read_optimus_log
    from stepsim.measured_tables import print_leaf_run, print_run
    from stepsim.validation.leaf import explained
    from stepsim.validation.load import load_run

    if not isdir(path) and is_optimus_log(path):
        run = read_optimus_log(path)
        warn(run.warnings)
        print_leaf_run(console(), run, explained(run))
        return
    summary = load_run(path, node_size=node_size)
    warn(summary.run.warnings)
    print_run(console(), summary)


def simulate_measured(
    path: Path,
    *,
    calibration: Path | None = None,
    times: str = "median",
    json: str | None = None,
    plot: Path | None = None,
    csv: Path | None = None,
    node_size: int | None = None,
) -> None:
    """Replay a measured run; called by `stepsim simulate`. A figure shows the run above its replay.

    Logs that hold no stage times are simulated from their leaf modules, and the unexplained share
    is printed.
    """
    from stepsim.formats.optimus_log import is_optimus_log
    from stepsim.measured_tables import print_replay
    from stepsim.tables import print_report
    from stepsim.validation.load import load_run, with_runtime
    from stepsim.validation.replay import replay

    if not isdir(path) and is_optimus_log(path):
        if calibration or times != "median":
            raise PlanError(
                f"{path}: a log of leaf modules is simulated from its medians alone: leave out "
                "--calibration and --times"
            )
        _simulate_log(path, json=json, plot=plot, csv=csv)
        return
    ready = with_runtime(load_run(path, node_size=node_size), _calibration(calibration))
    result = replay(ready.summary, ready.runtime, _durations(times))
    warn([*result.report.warnings, *ready.notes])
    if plot:
        from stepsim.validation_plots import plot_measured

        plot_measured(ready.summary, result, plot)
    if csv:
        result.write_csv(csv)

    def tables(to: "Console") -> None:
        print_report(to, result.report)
        print_replay(to, ready.summary, result.report)

    show(json, lambda: result.to_json().encode(), tables)


def _simulate_log(path: Path, *, json: str | None, plot: Path | None, csv: Path | None) -> None:
    """Leaf modules as a pipeline; the figure has no measured rows, as the log has none."""
    from stepsim.formats.optimus_log import read_optimus_log
    from stepsim.measured_tables import print_leaf_run
    from stepsim.tables import print_report
    from stepsim.validation.leaf import simulate_leaves

    run = read_optimus_log(path)
    result = simulate_leaves(run)
    warn(result.report.warnings)
    if plot:
        result.plot(plot)
    if csv:
        result.write_csv(csv)

    def tables(to: "Console") -> None:
        print_report(to, result.report)
        print_leaf_run(to, run, result.report.pipeline_time_ps / run.step_ps)

    show(json, lambda: result.to_json().encode(), tables)


def _check_validation(
    tables: list[Path],
    folders: list[Path],
    *,
    nccl: list[Path] | None,
    times: str,
    leave_one_out: bool,
) -> None:
    """Refuse options that would do nothing."""
    unused = ["--leave-one-out"] * leave_one_out + ["--times"] * (times != "median")
    if unused and not folders:
        raise PlanError(f"{tables[0]}: rows are simulated as they say: leave out {unused[0]}")
    if nccl and not tables and not leave_one_out:
        raise PlanError(
            "--nccl: expected --leave-one-out or a table of measured steps; a calibration file "
            "holds its own benchmarks (stepsim calibrate RUN... --nccl FILE)"
        )


def benchmarks(files: list[Path] | None, source: str | None) -> "CommTable | None":
    """All micro-benchmarks together."""
    if not files:
        return None
    from stepsim.formats.measurements import read_measurements

    table = read_measurements(files)
    warn(table.warnings)
    return table.choose(source) if source else table


def _calibration(path: Path | None) -> "Calibration | None":
    if path is None:
        return None
    from stepsim.formats.calibration_toml import read_calibration

    return read_calibration(path)


def _durations(text: str) -> "Durations":
    from stepsim.validation.replay import Durations

    try:
        return Durations(text)
    except ValueError:
        raise PlanError(f"times is {text!r}: expected one of {', '.join(Durations)}") from None


def _limit(text: str | None) -> float | None:
    """A share such as `2%` or `0.02`."""
    if text is None:
        return None
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 100:
        raise PlanError(f"max-error is {text!r}: expected a share such as 2% or 0.02")
    return value


def _balance(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(each) for each in text.split(","))
    except ValueError:
        raise PlanError(f"balance is {text!r}: expected layers per stage, e.g. 3,2,2,1") from None


def _topology(ready: "MeasuredRuntime", bandwidths: list[str] | None) -> "Topology | None":
    """The run's message times with other bandwidths."""
    if not bandwidths:
        return None
    from stepsim.calibration.document import message_topology
    from stepsim.measured.clocks import Placement
    from stepsim.units import parse_bandwidth
    from stepsim.validation.load import with_bandwidth

    changed: dict[Placement, float] = {}
    for text in bandwidths:
        name, _, value = text.partition("=")
        if name not in list(Placement) or not value:
            expected = " or ".join(f"{place}=400Gbps" for place in Placement)
            raise PlanError(f"bandwidth is {text!r}: expected {expected}")
        changed[Placement(name)] = parse_bandwidth(value)
    return message_topology(with_bandwidth(ready.links, changed), ready.summary.clocks.node_size)
