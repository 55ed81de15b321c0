"""`stepsim sweep`: many scenarios, and what was found, at once or from a database."""

from contextlib import ExitStack
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from stepsim.base.errors import OutputError, PlanError, SweepError, errors_at, printable
from stepsim.base.structs import Values, replace
from stepsim.cli.batches import BESIDE_DRAWN_SWEEP
from stepsim.cli.declared import argument, flag
from stepsim.cli.options import (
    NO_MEMORY,
    USUAL_NAMES,
    LengthOptions,
    RunOptions,
    SetOption,
    StudyFiles,
    given_options,
    refuse_beside,
    study_of,
    takes,
)
from stepsim.cli.terminal import (
    FILE,
    Stopped,
    check_outputs,
    command_line,
    figure,
    show,
    sweep_bar,
    warn,
)
from stepsim.options import OPTIONS

if TYPE_CHECKING:
    from stepsim.files.sweep_table import SweepTable
    from stepsim.files.sweep_toml import SweepFile

_OF_COMMAND = tuple(each.name for each in fields(RunOptions) if each.name != "asked")


@dataclass(frozen=True, kw_only=True)
class _ShowOptions(StudyFiles):
    """Files that show what a sweep has found."""

    export: tuple[Path, ...] = flag(
        "Write a row per scenario: .csv or .parquet. Repeatable.",
        writes="stepsim.files.sweep_document:check_export_path",
    )
    plot: Path | None = figure("Draw the sweep over its axes")
    plot_kind: str = flag(
        "What to draw: time, bubble or breakdown.",
        default="time",
        offers="stepsim.views.sweep.view:FigureKind",
    )
    plot_axes: str | None = flag("Axes of the figure, e.g. fabric.bandwidth,schedule.")

    @property
    def plot_names(self) -> list[str]:
        """Names of the axes that the figure shows, empty where they are not chosen."""
        return [name.strip() for name in self.plot_axes.split(",")] if self.plot_axes else []

    def check_shown(self) -> None:
        """Refuse what cannot be drawn before the work; raises StepsimError."""
        from stepsim.views.sweep.view import figure_kind

        figure_kind(self.plot_kind)
        if self.plot_axes and not (self.plot or self.report):
            raise OutputError("--plot-axes is about a figure: name one with --plot or --report")
        if self.plot_kind != "time" and not self.plot:
            raise OutputError("--plot-kind is about a figure: name one with --plot")


# Options that do something with the database of a sweep.
_OF_DATABASE = {each.name for each in fields(_ShowOptions)} | {"file"}
_DATABASES = (".sqlite", ".sqlite3", ".db")
_SQLITE = b"SQLite format 3\0"


@dataclass(frozen=True, kw_only=True)
class _SweepOptions(_ShowOptions, LengthOptions, RunOptions):
    """What is swept, where results go, and who computes."""

    axes: SetOption = ()
    database: Path | None = flag(
        "SQLite file that keeps the results, to continue or to look at later.",
        "--db",
        shown="a temporary one, which goes when the command ends",
        writes=FILE,
    )
    resume: bool = flag("Continue the sweep that the database holds.", "--resume", default=False)
    force: bool = flag("Throw away the sweep that the database holds.", "--force", default=False)
    breakdown: bool = flag("Store the parts of each step.", "--breakdown", default=False)
    jobs: int | None = flag("Local processes.", "--jobs", "-j", shown="as useful")
    executor: str = flag("Where scenarios run: local, or dask (with --scheduler).", default="local")
    scheduler: str | None = flag("Address of a Dask scheduler.")

    @property
    def axis_names(self) -> set[str]:
        """Names of the axes that were typed."""
        return {text.partition("=")[0].strip() for text in self.axes}


@takes(_SweepOptions)
def sweep_command(
    file: Annotated[
        Path,
        argument(
            "FILE", "A model or a workload, a sweep file (.toml), or the database of a sweep."
        ),
    ],
    options: _SweepOptions,
) -> None:
    """Simulate every combination of some values of options.

    An axis is an option, or a number of the topology, with its values: --set. The database of --db
    keeps each result as it comes, so that --resume can continue. Given that database in place of a
    workload, the command shows what it holds, also while the sweep is running.
    """
    from tempfile import TemporaryDirectory

    from stepsim.explore.sweep import swept
    from stepsim.files.axes import is_drawn
    from stepsim.views.sweep.view import FigureKind

    if _is_database(file):
        refuse_beside(f"{file} holds a sweep that has run", _OF_DATABASE)
        _show_database(file, options)
        return
    if options.lengths is not None or any(map(is_drawn, options.axis_names)):
        refuse_beside("--lengths", BESIDE_DRAWN_SWEEP)
        _show_draws(file, options)
        return
    options.check_lengths()
    file, options, given = _from_file(file, options, given_options())
    _check(options)
    breakdown = options.breakdown or options.plot_kind == FigureKind.BREAKDOWN
    study = study_of(file, options, options.axes, given, breakdown=breakdown)
    with ExitStack() as opened:
        database = options.database
        if database is None:  # a database that nobody named goes when the command ends
            folder = opened.enter_context(TemporaryDirectory(prefix="stepsim-"))
            database = Path(folder, "sweep.sqlite")
        try:
            with sweep_bar() as bar:
                run = swept(
                    study,
                    database,
                    resume=options.resume,
                    force=options.force,
                    jobs=options.jobs,
                    executor=options.executor,
                    scheduler=options.scheduler,
                    progress=bar and (lambda p: bar(p.done, p.failed, p.size)),
                )
                table = opened.enter_context(run)
        except Stopped as stopped:
            kept = "nothing of this sweep is kept: --db names a file that keeps it"
            if options.database:
                kept = f"{printable(str(database))} keeps what is done: --resume continues"
            raise Stopped(stopped.args[0], kept) from None
        _show(table, options, kept=options.database is not None)


def _show_draws(file: Path, options: _SweepOptions) -> None:
    """Print drawn steps of every combination of some axes.

    Raises the errors of the readers, PlanError for a workload file, and OutputError.
    """
    from stepsim.explore.batches.sweeps import parse_drawn_axis, sweep_batches
    from stepsim.files.axes import PACKER
    from stepsim.views.batches import batch_sweep_shown

    axes = [parse_drawn_axis(text) for text in options.axes]
    if all(axis.name != PACKER for axis in axes):
        axes.append(parse_drawn_axis(f"{PACKER}={options.packers or USUAL_NAMES}"))
    elif options.packers:
        raise PlanError("packer is an axis and --packers an option: give one of them")
    job = options.inputs(file)
    warn([*job.workload.said, *job.notes])
    with sweep_bar() as bar:
        found = sweep_batches(
            job,
            axes=axes,
            lengths=options.lengths or "",
            steps=1000 if options.steps is None else options.steps,
            seed=options.seed,
            progress=bar,
        )
    options.show_study(found, batch_sweep_shown(found))


def _is_database(file: Path) -> bool:
    """Whether a file is the database of a sweep, as its beginning or its name says."""
    from stepsim.files.load import is_public
    from stepsim.files.reading import first_bytes

    if is_public(str(file)):
        return False
    return file.suffix in _DATABASES or first_bytes(file, len(_SQLITE)) == _SQLITE


def _show_database(database: Path, options: _ShowOptions) -> None:
    """Print, export or draw the results of a sweep, also while it is running."""
    from stepsim.explore.sweep import SweepTable, open_for_reading

    options.check_shown()
    with open_for_reading(database) as store:
        _show(SweepTable(store=store), options, kept=True)


def _from_file(
    file: Path, options: _SweepOptions, given: frozenset[str]
) -> tuple[Path, _SweepOptions, frozenset[str]]:
    """The workload, the options of a sweep file where flags do not say otherwise, and which."""
    if file.suffix != ".toml":
        return file, options, given
    from stepsim.files.sweep_toml import read_sweep

    content = read_sweep(file)
    stated, asked = _stated(file, content)
    merged = replace(options, **{n: v for n, v in stated.items() if n not in given})
    click.get_current_context().params["quiet"] = merged.quiet
    named = options.axis_names
    kept = [f"{name}={text}" for name, text in content.axes.items() if name not in named]
    merged = replace(merged, axes=(*kept, *options.axes), asked={**asked, **options.asked})
    workload = Path(content.workload)
    check_outputs(vars(merged) | {"file": workload})
    return workload, merged, given | stated.keys() | asked.keys()


def _stated(file: Path, content: "SweepFile") -> tuple[Values, dict[str, object]]:
    """Options that a sweep file states: the command's, by the names of fields, and those of a step.

    Paths are those of its folder. Raises SweepError for what is none, and for values that an option
    cannot have.
    """
    import msgspec

    from stepsim.files.asked import read_options

    stated, asked = dict[str, Any](), dict[str, object]()
    for name, value in content.options.items():
        field = name.replace("-", "_")
        if field in _OF_COMMAND:
            stated[field] = value
        elif field in NO_MEMORY:
            with errors_at(f"{file}: options.{name}", SweepError):
                read_options({field: value})
            asked[field] = value
        else:
            known = ", ".join([*_OF_COMMAND, *(name for name in OPTIONS if name in NO_MEMORY)])
            raise SweepError(f"{file}: unknown option {name!r}: expected {known}")
    for table in (content.output, content.run):
        values = msgspec.structs.asdict(table)
        stated |= {name: value for name, value in values.items() if value not in (None, [])}
    try:
        found = msgspec.convert(
            stated, _SweepOptions, dec_hook=lambda kind, text: kind(file.parent, text)
        )
    except msgspec.ValidationError as error:
        raise SweepError(f"{file}: {error}") from None
    return {name: getattr(found, name) for name in stated}, asked


def _check(options: _SweepOptions) -> None:
    """Refuse what cannot be shown in the end before any work, and what no database was named for.

    Raises SweepError, OutputError.
    """
    options.check_shown()
    for name in options.plot_names:
        if name not in options.axis_names:
            raise SweepError(f"--plot-axes: {name!r} is no axis of this sweep")
    for name, asked in (("--resume", options.resume), ("--force", options.force)):
        if asked and not options.database:
            raise SweepError(f"{name} is about the database of a sweep: name it with --db")


def _show(table: "SweepTable", options: _ShowOptions, *, kept: bool) -> None:
    """Export, draw and print; raises SweepError when no scenario could run.

    The database is named where it is `kept`.
    """
    from stepsim.files.sweep_document import SweepDocument, write_csv, write_table
    from stepsim.views.studies import sweep_shown

    for path in options.export:
        write_table(table, path)
    if options.csv:
        write_csv(table, options.csv)
    table.refuse_if_all_failed()
    _draw(table, options)
    shown = sweep_shown(table, kept=kept)
    show(options.json, lambda: SweepDocument.of(table).to_json(), shown)


def _draw(table: "SweepTable", options: _ShowOptions) -> None:
    from stepsim.views.sweep import plot_sweep

    if options.plot:
        kind, style = options.plot_kind, options.style
        plot_sweep(table, options.plot, names=options.plot_names, kind=kind, style=style)
    if options.report:
        from stepsim.views.pages import sweep_page

        sweep_page(table, options.plot_names).write(options.report, command_line())
