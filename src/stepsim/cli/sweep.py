"""`stepsim sweep` and `stepsim sweep-report`: many scenarios, and what was found."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from stepsim.cli.options import ChunksOption, RunOptions, ScheduleOption, Switch, takes
from stepsim.cli.terminal import check_outputs, console, warn
from stepsim.errors import OutputError, SweepError, printable

if TYPE_CHECKING:
    from stepsim.formats.sweep_toml import SweepFile
    from stepsim.sweep import Study
    from stepsim.sweep.table import SweepTable

ExportOption = Annotated[
    list[Path] | None,
    typer.Option("--export", help="Write the table: .csv or .parquet. Repeatable."),
]
PlotOption = Annotated[
    Path | None,
    typer.Option("--plot", help="Draw step times over the axes: .png, .svg or .pdf."),
]
PlotAxesOption = Annotated[
    str | None,
    typer.Option("--plot-axes", help="Axes of the figure, e.g. fabric.bandwidth,schedule."),
]
ParetoOption = Annotated[
    Path | None,
    typer.Option("--pareto", help="Draw step time against the bandwidth of all links."),
]


@dataclass(frozen=True, kw_only=True)
class SweepOptions(RunOptions):
    """What is swept, where results go, and who computes."""

    schedule: ScheduleOption = "1f1b"
    chunks: ChunksOption = None
    axes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=RANGE",
            help="An axis, e.g. 'fabric.bandwidth=100..800 Gbps:8' or schedule=1f1b,zb-h1.",
        ),
    ] = None
    database: Annotated[Path, typer.Option("--db", help="SQLite file for the results.")] = Path(
        "sweep.sqlite"
    )
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the sweep that the database holds.")
    ] = False
    breakdown: Annotated[bool, typer.Option("--breakdown", help="Keep where each step goes.")] = (
        False
    )
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", help="Local processes.", show_default="as useful")
    ] = None
    executor: Annotated[str, typer.Option("--executor", help="Who computes: local, or dask.")] = (
        "local"
    )
    scheduler: Annotated[
        str | None, typer.Option("--scheduler", help="Address of a Dask scheduler.")
    ] = None
    export: ExportOption = None
    plot: PlotOption = None
    plot_axes: PlotAxesOption = None
    pareto: ParetoOption = None

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of `stepsim.simulate`, the topology among them."""
        return super().arguments() | {"schedule": self.schedule, "chunks": self.chunks}


@takes(SweepOptions)
def sweep(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Workload text, or a sweep file (.toml).")
    ],
    options: SweepOptions,
) -> None:
    """Simulate every combination of some axes; results go to a database as they come."""
    from stepsim.progress import sweep_bar
    from stepsim.sweep import sweep as run

    file, options, given = _from_file(file, options, _given(context))
    _check_outputs(options, [file])
    study = _study(file, options, given)
    try:
        with sweep_bar(enabled=not options.quiet) as bar:
            run(
                study,
                options.database,
                resume=options.resume,
                jobs=options.jobs,
                executor=options.executor,
                scheduler=options.scheduler,
                progress=bar and (lambda p: bar(p.done, p.failed, p.size)),
            )
    except KeyboardInterrupt:
        typer.echo(
            f"{printable(str(options.database))} keeps what is done: --resume continues", err=True
        )
        raise
    _show(options.database, options.export, options.plot, options.plot_axes, options.pareto)


def sweep_report(
    database: Annotated[Path, typer.Argument(metavar="DB", help="Database of a sweep.")],
    export: ExportOption = None,
    plot: PlotOption = None,
    plot_axes: PlotAxesOption = None,
    pareto: ParetoOption = None,
) -> None:
    """Print, export and draw what a sweep has found so far; it may still be running."""
    _check_files([database], export, plot, pareto)
    _show(database, export, plot, plot_axes, pareto)


def _given(context: typer.Context) -> frozenset[str]:
    """Names of the options that stand on the command line."""
    sources = ((name, context.get_parameter_source(name)) for name in context.params)
    return frozenset(name for name, source in sources if source and source.name == "COMMANDLINE")


def _from_file(
    file: Path, options: SweepOptions, given: frozenset[str]
) -> tuple[Path, SweepOptions, frozenset[str]]:
    """The workload, the options of a sweep file where flags do not say otherwise, and which."""
    if file.suffix != ".toml":
        return file, options, given
    from stepsim.formats.sweep_toml import read_sweep

    content = read_sweep(file)
    stated = _stated(file, content)
    merged = replace(options, **{n: v for n, v in stated.items() if n not in given})
    own = {text.partition("=")[0].strip() for text in options.axes or ()}
    kept = [f"{name}={text}" for name, text in content.axes.items() if name not in own]
    merged = replace(merged, axes=[*kept, *(options.axes or ())])
    return Path(content.workload), merged, given | stated.keys()


def _stated(file: Path, content: "SweepFile") -> dict[str, Any]:
    """Options that a sweep file states, by the names of the fields of `SweepOptions`."""
    import msgspec

    stated: dict[str, Any] = {}
    own = {field.name for field in fields(SweepOptions)} - {f.name for f in fields(RunOptions)}
    known = [f.name for f in fields(RunOptions)] + ["schedule", "chunks"]
    for name, value in content.options.items():
        field = name.replace("-", "_")
        if field not in known:
            raise SweepError(f"{file}: unknown option {name!r}: expected {', '.join(known)}")
        stated[field] = _converted(f"{file}: options.{name}", field, value)
    for table in (content.output, content.run):
        for field, value in msgspec.structs.asdict(table).items():
            if field in own and value not in (None, []):
                stated[field] = _converted(f"{file}: {field}", field, value)
    return stated


def _converted(place: str, field: str, value: Any) -> Any:
    """A value of a TOML file as the option's type."""
    import msgspec

    hint = get_type_hints(SweepOptions)[field]
    if hint is Switch and isinstance(value, bool):
        value = "on" if value else "off"
    if hint is str and isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    try:
        return msgspec.convert(value, hint, dec_hook=lambda kind, text: kind(text))
    except (msgspec.ValidationError, TypeError) as error:
        raise SweepError(f"{place}: {error}") from None


def _study(file: Path, options: SweepOptions, given: frozenset[str]) -> "Study":
    from stepsim.loading import load_topology, load_workload
    from stepsim.shipped import DEFAULT_TOPOLOGY
    from stepsim.sweep import Grid, Study, parse_axis

    grid = Grid(axes=tuple(parse_axis(text) for text in options.axes or ()))
    _check_options(options, given, {axis.name for axis in grid.axes})
    arguments = options.arguments()
    topology = load_topology(arguments.pop("topology") or DEFAULT_TOPOLOGY)
    workload = load_workload(file, strict=options.strict)
    study = Study(
        workload=workload,
        topology=topology,
        grid=grid,
        options={name: value for name, value in arguments.items() if value is not None},
        breakdown=options.breakdown,
    )
    warn(workload.warnings, quiet=options.quiet)
    if options.topology is None:
        warn([f"no topology given: {DEFAULT_TOPOLOGY} assumed"], quiet=options.quiet)
    return study


def _check_options(options: SweepOptions, given: Iterable[str], axes: set[str]) -> None:
    """Refuse what is both an axis and an option, and options that no scenario could have."""
    from stepsim.sweep.axes import ARGUMENT_AXES, make_axis

    if "expert_skew" in axes and options.expert_load:
        raise SweepError("expert_skew is an axis and --expert-load an option: give one of them")
    for name in sorted(given):
        if name in axes:
            raise SweepError(f"{name} is an axis and an option: give one of them")
        value = getattr(options, name, None)
        if name in ARGUMENT_AXES and name != "compute_scale" and not isinstance(value, bool):
            texts = value if isinstance(value, list) else [value]
            try:
                make_axis(name, "".join(f"{text};" for text in texts))
            except SweepError as error:
                raise SweepError(str(error).removeprefix("axis ")) from None


def _check_outputs(options: SweepOptions, inputs: list[Path]) -> None:
    if options.plot_axes and not options.plot:
        raise OutputError("--plot-axes is about a figure: name one with --plot")
    names = (options.plot_axes or "").split(",") if options.plot_axes else []
    known = {text.partition("=")[0].strip() for text in options.axes or ()}
    for name in names:
        if name.strip() not in known:
            raise SweepError(f"--plot-axes: {name.strip()!r} is no axis of this sweep")
    _check_files([*inputs, options.database], options.export, options.plot, options.pareto)


def _check_files(
    inputs: list[Path], export: list[Path] | None, plot: Path | None, pareto: Path | None
) -> None:
    from stepsim.sweep.export import check_export_path

    for path in export or ():
        check_export_path(path)
    check_outputs(inputs, figures=[plot, pareto], files=export or ())


def _show(
    database: Path,
    export: list[Path] | None,
    plot: Path | None,
    plot_axes: str | None,
    pareto: Path | None,
) -> None:
    """Export, draw and print; raises SweepError when no scenario could run."""
    from stepsim.sweep import open_for_reading
    from stepsim.sweep.export import write_table
    from stepsim.sweep.table import SweepTable
    from stepsim.tables import print_sweep

    with open_for_reading(database) as store:
        table = SweepTable(store=store)
        for path in export or ():
            write_table(table, path)
        _refuse_if_all_failed(table)
        _draw(table, plot, plot_axes, pareto)
        print_sweep(console(), table)


def _draw(
    table: "SweepTable", plot: Path | None, plot_axes: str | None, pareto: Path | None
) -> None:
    if plot:
        from stepsim.sweep.figures import plot_sweep

        names = [name.strip() for name in plot_axes.split(",")] if plot_axes else []
        plot_sweep(table, plot, names)
    if pareto:
        from stepsim.sweep.figures import plot_pareto

        plot_pareto(table, pareto)


def _refuse_if_all_failed(table: "SweepTable") -> None:
    progress = table.progress
    failure = table.first_error()
    if failure and progress.failed == progress.done:
        raise SweepError(f"none of {progress.done} scenarios can run; the first: {failure[1]}")
