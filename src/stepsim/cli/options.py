"""What commands are asked: options of a step, from the one list of them, and their own.

What a shell offers when Tab is pressed in a value stands first. Options of commands that show
timelines (figures, traces, pages) stand last.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from inspect import signature
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import click
from click.core import ParameterSource

from stepsim.base.errors import PlanError, SweepError
from stepsim.base.option import Option, Panel
from stepsim.base.units import format_size_bytes
from stepsim.cli.declared import Declared, DeclaredCommand, Says, flag, parameter, parameters_of
from stepsim.cli.terminal import (
    FILE,
    FOLDER,
    PAGE,
    CsvOption,
    FullOption,
    JsonOption,
    check_outputs,
    command_line,
    figure,
    is_quiet,
    log_shown,
    show,
    warn,
    warn_of,
    write_rows,
)
from stepsim.options import OPTIONS
from stepsim.show.figures.style import FigureStyle

if TYPE_CHECKING:
    from stepsim.base.structs import Document
    from stepsim.documents.table import Answer, Sheet, Shown
    from stepsim.explain.report import Report
    from stepsim.explain.stragglers import Stragglers
    from stepsim.explore.sweep import Study
    from stepsim.files.asked import StepInputs
    from stepsim.measured.profile.events import Profile
    from stepsim.show.frames import Columns
    from stepsim.step.prepared import SimulatedStep
    from stepsim.views.window import Window
    from stepsim.workload.model.model import Model


TOPOLOGIES = "stepsim.files.reading:topology_names"
SCHEDULES = "stepsim.parallel.schedules:BUILDERS"
"""Where the names stand that a shell completes."""
ON_COMMAND_LINE = frozenset(OPTIONS)
"""Options of a step: all have a flag."""
NO_MEMORY = ON_COMMAND_LINE - {"activation_size"}
"""Those of commands that show no memory."""
OF_STUDY = NO_MEMORY | {
    *("file", "json", "csv", "plot", "style", "topology", "strict", "comm_source", "numbers")
}
"""Options of a command that do something also where it studies a step in another way."""
OF_SIZE = frozenset(
    name for name in ON_COMMAND_LINE if OPTIONS[name].panel is Panel.JOB and name != "rank_order"
)
"""Those that set the size of a job."""
OF_MODEL = frozenset(name for name, option in OPTIONS.items() if option.panel is Panel.MODEL)
"""Those that only a model can be asked."""


LineOption = Annotated[
    str | None,
    Says(
        "What a log's step lines look like, with groups such as (?P<step>..) and (?P<s>..).",
        metavar="REGEX",
    ),
]

SetOption = Annotated[
    tuple[str, ...],
    Says("An axis, e.g. tp=1,2,4 or 'fabric.latency=1us,2us'.", ("--set",), metavar="NAME=RANGE"),
]


# no struct: options of commands are metadata of their fields
@dataclass(frozen=True, kw_only=True)
class QuietOptions:
    """What commands take that warn."""

    quiet: bool = flag("Print no warnings and no progress.", "--quiet", "-q", default=False)


@dataclass(frozen=True, kw_only=True)
class CommandOptions(QuietOptions):
    """What commands about a step take beside its options, which `asked` holds as typed."""

    topology: str | None = flag(
        "Shipped topology or TOML file.",
        "--topology",
        "-t",
        shown="the device's machine, else hgx-h100",
        offers=TOPOLOGIES,
        panel=Panel.NETWORK,
    )
    strict: bool = flag("Refuse files whose header and rows disagree.", "--strict", default=False)
    verbose: bool = flag(
        "Print each stage of the work and its time on stderr.", "--verbose", "-v", default=False
    )
    env: tuple[str, ...] = flag(
        "A variable of a launch script's environment. Repeatable.",
        metavar="NAME=VALUE",
        panel=Panel.MODEL,
    )
    asked: Mapping[str, object] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """Variables of a script that were given; raises PlanError for a text that is none."""
        found = {}
        for text in self.env:
            name, equals, value = text.partition("=")
            if not (equals and (name.isidentifier() or name.isdecimal())):
                raise PlanError(f"--env is {text!r}: expected NAME=VALUE")
            found[name] = value
        return found

    def file_of(self, name: str) -> Path | None:
        """The file that was typed as an option."""
        typed = self.asked.get(name)
        return None if typed is None else Path(str(typed))

    def typed_files(self) -> dict[str, str]:
        """Options that name a file, or what may lie in one, as they were typed."""
        found = {}
        for name, typed in self.asked.items():
            if OPTIONS[name].is_file or OPTIONS[name].noun:
                several = typed if isinstance(typed, tuple) else [typed]
                if len(several) > 1:
                    raise PlanError(f"{name}: a plan file names one file: give one")
                found[name] = str(several[0])
        return found

    def inputs(self, file: "Path | Model", node_size: int | None = None) -> "StepInputs":
        """Read everything that the options name; raises the errors of the readers."""
        from stepsim.files.asked import read_inputs
        from stepsim.files.load import read_numbers

        node = {} if node_size is None else {"node_size": str(node_size)}
        return read_inputs(
            file,
            self.topology,
            self.asked,
            comm_source=getattr(self, "comm_source", None) or "",
            strict=self.strict,
            numbers=node | read_numbers(getattr(self, "numbers", ())),
            environment=self.environment,
        )


@dataclass(frozen=True, kw_only=True)
class RunOptions(CommandOptions):
    """What commands that run a step take."""

    comm_source: str | None = flag(
        "Use the curves whose machine or run holds this text; !TEXT leaves them out.",
        panel=Panel.NETWORK,
    )


@dataclass(frozen=True, kw_only=True)
class OneStepOptions(RunOptions):
    """What commands take whose topology has one value of each number."""

    numbers: tuple[str, ...] = flag(
        "A number of the topology, e.g. 'fabric.bandwidth=400 Gbps'. Repeatable.",
        "--set",
        metavar="NAME=VALUE",
        panel=Panel.NETWORK,
    )


def takes(
    kind: Any = object, asked: Collection[str] = NO_MEMORY
) -> Callable[[Callable[..., None]], DeclaredCommand]:
    """Make a command of a function, which takes a dataclass of options and those of a step.

    It receives them as `options` if it has a parameter of this name. Without a `kind` it takes what
    its own signature declares.
    """
    hints = get_type_hints(kind, include_extras=True)
    # its own options stand before those of its bases
    every = (vars(each).get("__annotations__", ()) for each in kind.__mro__)
    names = dict.fromkeys(name for some in every for name in some if name != "asked")
    declared = [kind.__dataclass_fields__[name] for name in names]
    of_step = {
        name: known
        for name, known in OPTIONS.items()
        if name in asked and issubclass(kind, CommandOptions)
    }

    def decorate(command: Callable[..., None]) -> DeclaredCommand:
        wants = "options" in signature(command).parameters

        def run(**typed: Any) -> None:
            check_outputs(typed)
            said = {name: typed.pop(name) for name in of_step}
            values = {each.name: typed.pop(each.name) for each in declared}
            if of_step:
                values["asked"] = {n: each for n, each in said.items() if each not in (None, ())}
            if wants:
                typed["options"] = kind(**values)
                # Numpy makes its types in thousands of calls. Deeper in the stack each of them may
                # begin a new chunk of it, which Python asks the system for and gives back.
                import numpy  # noqa: F401

            with log_shown() if values.get("verbose") else nullcontext():
                command(**typed)

        shared = (parameter(each.name, hints[each.name], each) for each in declared)
        every = [*parameters_of(command), *map(_parameter, of_step.values()), *shared]
        return DeclaredCommand(
            command.__name__.removesuffix("_command").replace("_", "-"),
            sorted(every, key=lambda each: each[0].name in _LAST),
            callback=run,
            help=command.__doc__,
            short_help=str(command.__doc__).partition("\n")[0],
        )

    return decorate


# Options that stand last in the help of a command: how it runs, not what it asks.
_LAST = frozenset(name for name, option in OPTIONS.items() if option.panel is Panel.RUN) | {
    *("strict", "quiet", "verbose")
}


def _parameter(known: Option) -> Declared:
    """The option of a step; absent, it is None."""
    value: Any = str if known.read else known.quantity.kind
    if known.is_file:
        value = Path
    says = flag(
        known.about,
        *known.flags,
        shown=known.absent or (known.text(known.default) if value is not bool else ""),
        offers=known.offers,
        panel=known.panel,
    )
    return parameter(known.name, tuple[value, ...] if known.many else value, says)


_LARGE_BYTES = 200_000_000

PlanFileOption = Annotated[
    Path | None,
    Says("A model's plan: what stepsim plan prints, or a framework's own file.", panel=Panel.MODEL),
]
ReportOption = Annotated[Path | None, Says("Write the full report as one HTML page.", writes=PAGE)]
NodeSizeOption = Annotated[
    int | None,
    Says("Ranks per node.", shown="as measured, or the topology's"),
]
TimesOption = Annotated[
    str | None,
    Says(
        "Stage times of a replay: median, mean or microbatch.",
        shown="microbatch if every rank was traced, else mean",
        offers="stepsim.measured.layers:Durations",
    ),
]
StyleOption = Annotated[
    FigureStyle,
    Says("Size of figures: screen, or a paper's column (3.3 in) or page (7 in)."),
]


def write_traces(
    step: "SimulatedStep", source: str, chakra: Path | None, kineto: Path | None
) -> None:
    """Write all ranks of a step as the traces that other tools read.

    Raises PlanError for a step of too many tasks, OutputError where a folder cannot be written.
    """
    from stepsim.explain.as_profile import profile_of_step
    from stepsim.files.traces.chakra_write import write_chakra
    from stepsim.files.traces.kineto_write import write_kineto

    if chakra:
        write_chakra(profile_of_step(step.timeline, source=source), chakra)
    if kineto:
        write_kineto(profile_of_step(step.timeline, source=source, kernels=True), kineto)


def given_options() -> frozenset[str]:
    """Names of the options and arguments of the command that stand on the command line."""
    context = click.get_current_context()
    told = {name: context.get_parameter_source(name) for name in context.params}
    return frozenset(name for name, by in told.items() if by is ParameterSource.COMMANDLINE)


def refuse_beside(what: str, kept: Collection[str]) -> None:
    """Raise PlanError where options stand beside `what` that would do nothing.

    `kept` are the names of the options and arguments that do something.
    """
    useless = given_options() - {*kept, "quiet", "verbose"}
    refuse_given(f"{what}: these options do nothing", useless)


def refuse_given(why: str, names: Collection[str]) -> None:
    """Raise PlanError where options of these names stand on the command line."""
    given, parameters = given_options(), click.get_current_context().command.params
    flags = [each.opts[0] for each in parameters if each.name in given and each.name in names]
    if flags:
        raise PlanError(f"{why}: leave out {', '.join(flags)}")


def study_of(
    file: Path,
    options: RunOptions,
    axes: Iterable[str],
    given: Collection[str] = (),
    *,
    breakdown: bool = False,
) -> "Study":
    """A step with axes, and what there is to say of it; raises SweepError for those in `given`."""
    from msgspec.structs import asdict

    from stepsim.explore.sweep import Grid, Study, parse_axis
    from stepsim.files.asked import foreign_links
    from stepsim.files.load import infinite
    from stepsim.measured.work import RecordedWork

    grid = Grid(axes=tuple(map(parse_axis, axes)))
    values = {axis.name: axis.values for axis in grid.axes}
    for name in sorted(values.keys() & given):
        raise SweepError(f"{name} is an axis and an option: give one of them")
    job = options.inputs(file)
    boundless = infinite(name for name, some in values.items() if inf in some)
    foreign = [] if options.topology else foreign_links(job.topology, values.get("device", ()))
    work = job.workload
    said = work.workload(job.options).warnings if isinstance(work, RecordedWork) else work.said
    warn([*said, *job.notes, *boundless, *foreign])
    own = options.topology is None
    return Study(**asdict(job), grid=grid, breakdown=breakdown, own_machines=own)


PACKER_NAMES = "sequence, padded, grouped, concat, first-fit, balanced, dynamic-cp."
USUAL_NAMES = "padded,grouped,concat,first-fit,balanced"
"""Packers that are compared where nobody names some."""


@dataclass(frozen=True, kw_only=True)
class LengthOptions:
    """What documents the microbatches of a step hold, where they differ in length."""

    lengths: str | None = flag(
        "Documents' tokens: a file, or a law as 'lognormal(mu=6, sigma=1, most=8192)'.",
        panel=Panel.JOB,
    )
    packers: str | None = flag(
        "With --lengths, how documents become microbatches: " + PACKER_NAMES,
        shown=f"{USUAL_NAMES.replace(',', ', ')}; first-fit for plans",
        panel=Panel.JOB,
    )
    steps: int | None = flag(
        "With --lengths, steps to draw.", shown="1000; 100 of each plan", panel=Panel.JOB
    )
    seed: int = flag("With --lengths, equal seeds give equal steps.", default=0, panel=Panel.JOB)

    def check_lengths(self) -> None:
        """Raise PlanError where an option says how documents are packed, but there are none."""
        if self.lengths is None:
            why = "without --lengths there are no documents to pack"
            refuse_given(why, ("packers", "steps", "seed"))


@dataclass(frozen=True, kw_only=True)
class StudyFiles:
    """Where the result of a command goes beside the terminal."""

    json: JsonOption = None
    csv: CsvOption = None
    plot: Path | None = None
    style: StyleOption = FigureStyle.SCREEN
    report: ReportOption = None

    def show_study(
        self,
        document: "Document",
        shown: "Sheet",
        draw: Callable[..., object] | None = None,
        rows: "Columns | None" = None,
    ) -> None:
        """Print the result, draw it and write it where asked for.

        `draw` takes the path of a figure and its style. `rows` are those of its CSV, where that is
        not the first table of the document.
        """
        if self.plot and draw:
            draw(self.plot, style=self.style)
        write_rows(self.csv, document, rows)
        show(self.json, document.to_json, shown)


@dataclass(frozen=True, kw_only=True)
class ViewOptions(LengthOptions, OneStepOptions, StudyFiles):
    """What commands take that show steps: tables below the answer, and files beside it."""

    full: FullOption = False
    show: tuple[str, ...] = flag(
        "Print a table, e.g. stages, memory, communication, links. Repeatable.",
        default=(),
        metavar="TABLE",
    )
    plot: Path | None = figure("Draw timelines")
    messages: bool = flag(
        "Draw an arrow for every message, with --plot.", "--messages", default=False
    )
    trace: Path | None = flag(
        "Write a trace for Perfetto: .json or .json.gz.",
        writes="stepsim.show.perfetto:check_trace_path",
    )
    ranks: str | None = flag("Ranks in the trace, e.g. 0,8-15.", shown="one of each class")
    window: str | None = flag("Part of the step in the trace, e.g. 2s..3s.", shown="all of it")

    @property
    def traced(self) -> "tuple[tuple[int, ...] | None, Window] | None":
        """Ranks and the part of the step that a trace shows; None where no trace is asked for.

        Ranks are None for one of each class. Raises PlanError.
        """
        if self.trace is None:
            refuse_given("no trace is named with --trace", ("ranks", "window"))
            return None
        from stepsim.network.one_collective import parse_ranks
        from stepsim.views.window import WHOLE, parse_window

        ranks = None if self.ranks is None else parse_ranks(self.ranks)
        return ranks, WHOLE if self.window is None else parse_window(self.window)

    def write_trace(
        self,
        steps: "Iterable[tuple[str, SimulatedStep]]",
        profiles: "Iterable[Profile]" = (),
    ) -> None:
        """Write named steps or profiles as the trace asked for, and say before if it will be large.

        Raises PlanError for ranks that a job does not have, or a window behind a step.
        """
        if self.trace is None or (shown := self.traced) is None:
            return
        from stepsim.show.perfetto import trace_bytes, write_trace
        from stepsim.views.processes import TracedProfile, TracedRun, trace_processes

        ranks, window = shown
        runs: list[TracedRun | TracedProfile] = [
            *(TracedRun(step, ranks, window, name) for name, step in steps),
            *(TracedProfile(profile=each, ranks=ranks, window=window) for each in profiles),
        ]
        size_bytes = trace_bytes(sum(run.slices for run in runs), self.trace)
        if size_bytes > _LARGE_BYTES:
            text = f"{self.trace} will have about {format_size_bytes(size_bytes)}"
            warn([f"{text}: --window and --ranks show less, .json.gz packs"])
        write_trace(trace_processes(runs), self.trace, command_line())

    def check(self) -> None:
        """Raise PlanError for what a trace cannot show, and for options of views not asked for."""
        if not self.plot:
            refuse_given("no figure is named with --plot", ("messages",))
        _ = self.traced

    def check_tables(self, known: Iterable[str]) -> None:
        """Raise PlanError for a name that no table has."""
        for name in self.show:
            if name not in known:
                raise PlanError(f"show is {name!r}: expected one of {', '.join(known)}")

    def chosen(self, tables: "Callable[[], Mapping[str, Shown]]") -> "Sheet":
        """The tables asked for, below an empty line; those that are not known are said to be."""
        if not (self.full or self.show):
            return
        from stepsim.documents.table import Table

        known = tables()
        asked = dict.fromkeys(known if self.full else self.show)
        shown = [known.get(name, f"{name}: not known of this step") for name in asked]
        # a table has an empty line before it
        yield from ([] if isinstance(shown[0], Table) else [""])
        yield from shown

    def show_answer(
        self,
        answer: "Answer",
        document: Callable[[], bytes],
        shown: "Sheet",
        reports: "Iterable[Report]" = (),
        doubts: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """Print an answer, tables, what there is to say of steps, and what to look at next.

        `doubts` are found where somebody reads them.
        """
        show(self.json, document, shown, answer=answer)
        is_read = not (is_quiet() or self.json)
        if is_read:
            sys.stdout.flush()
            warn(doubts())
        all_said = self.full or self.json
        verbose, most = self.verbose or self.full, None if all_said else _MOST_SAID
        warn_of(reports, verbose=verbose, most=most)
        if is_read and not (self.full or self.show):
            click.echo(answer.advice, err=True)

    def draw(self, steps: "Iterable[SimulatedStep]", measured: "Profile | None" = None) -> None:
        """Draw timelines above each other, a recorded one first; raises OutputError."""
        if self.plot:
            from stepsim.show.figures.timelines import plot_timelines
            from stepsim.views.timelines import drawn_profile, drawn_step

            runs = [drawn_profile(measured)] if measured else []
            runs += [drawn_step(step.timeline, step.report) for step in steps]
            plot_timelines(runs, self.plot, messages=self.messages, style=self.style)


@dataclass(frozen=True, kw_only=True)
class SimulateOptions(ViewOptions):
    """What `simulate` takes, also of a profile or a measured run."""

    plan_file: PlanFileOption = None
    against: Path | None = flag("Print the step beside a recorded one: a profile.", metavar="TRACE")
    sensitivity: bool = flag(
        "Print instead what 1 % of each number saves; CSV and JSON too.",
        "--sensitivity",
        default=False,
    )
    plot_memory: Path | None = figure("Draw memory of ranks over time")
    write_workload: Path | None = flag("Write a model's workload as a SimAI text.", writes=FILE)
    chakra: Path | None = flag("Write Chakra traces of all ranks: a folder.", writes=FOLDER)
    kineto: Path | None = flag("Write traces as PyTorch's profiler does: a folder.", writes=FOLDER)
    times: TimesOption = None
    node_size: NodeSizeOption = None
    force: bool = flag("Run a step that may not fit into this machine.", "--force", default=False)

    def inputs(self, file: "Path | Model", node_size: int | None = None) -> "StepInputs":
        """Read everything that the options name; raises the errors of the readers."""
        if self.plan_file is None:
            return super().inputs(file, node_size)
        from stepsim.files.load import is_model, read_model
        from stepsim.files.models.launch import with_launch

        if not isinstance(file, Path) or not is_model(file):
            raise PlanError(f"{file}: --plan-file gives a model its plan: expected a model")
        return super().inputs(
            with_launch(read_model(file, self.environment), self.plan_file, self.environment),
            node_size,
        )

    def write_step(self, step: "SimulatedStep", source: str) -> None:
        """Write what ran in a step, as a table and as traces; raises OutputError."""
        if self.trace:
            self.write_trace([("", step)])
        if self.chakra or self.kineto:
            write_traces(step, source, self.chakra, self.kineto)
        if self.csv:
            from stepsim.files.spans_csv import write_spans

            write_spans(step.timeline.spans(), self.csv)

    def write_profile(self, found: "Stragglers") -> None:
        """Write what a profile recorded; raises OutputError where a file cannot be."""
        profile = found.profile
        self.write_trace([], [profile])
        if self.chakra:
            from stepsim.files.traces.chakra_write import write_chakra

            write_chakra(profile, self.chakra)
        if self.kineto:
            from stepsim.files.traces.kineto_write import write_kineto

            write_kineto(profile, self.kineto)
        self.draw([], profile)
        if self.csv:
            from stepsim.files.spans_csv import write_spans

            write_spans([profile.spans()], self.csv)
        if self.report:
            from stepsim.views.pages import profile_page

            profile_page(found).write(self.report, command_line())


# Lines of what was assumed, where nobody asks for all: with the answer they are twelve at most.
_MOST_SAID = 7
