"""`stepsim simulate`: one step of a workload, or a measured run replayed."""

import gc
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from stepsim.base.errors import PlanError
from stepsim.base.structs import replace
from stepsim.base.units import format_size_bytes
from stepsim.cli.against import hold_step_against
from stepsim.cli.batches import BESIDE_LENGTHS, show_batches
from stepsim.cli.measured import NodeSizeOption, TimesOption, simulate_measured
from stepsim.cli.options import (
    NO_MEMORY,
    OF_NO_RUN,
    OF_PROFILES,
    ON_COMMAND_LINE,
    BatchOptions,
    MessagesOption,
    OneStepOptions,
    PlanFileOption,
    PlotMemoryOption,
    PlotOption,
    RanksOption,
    ReportOption,
    RunViews,
    StyleOption,
    TraceOption,
    WindowOption,
    check_messages,
    check_trace,
    flag,
    refuse_beside,
    refuse_given,
    refuse_options,
    takes,
)
from stepsim.cli.profiles import simulate_profile
from stepsim.cli.terminal import (
    CsvOption,
    FullOption,
    JsonOption,
    ShowOption,
    StudyFiles,
    TablesAsked,
    WorkloadArgument,
    advise,
    check_outputs,
    command_line,
    show,
    warn,
    warn_of,
)
from stepsim.show.figures.style import FigureStyle

_OF_SENSITIVITY = NO_MEMORY | {
    *("file", "sensitivity", "json", "csv", "plot", "style"),
    *("topology", "strict", "comm_source", "numbers", "plan_file"),
}
"""Options that do something beside --sensitivity."""
_BESIDE_TRACES = ON_COMMAND_LINE | {
    *("file", "against", "json", "csv", "plot", "style", "report", "full", "plan_file"),
    *("topology", "strict", "comm_source", "numbers"),
}
"""Options that do something beside --against."""
_BESIDE = ("dp_overlap", "tp_comm_overlap")
"""Options under which transfers run beside compute."""

if TYPE_CHECKING:
    from stepsim.files.asked import StepInputs
    from stepsim.step.prepared import PreparedStep, SimulatedStep
    from stepsim.step.size import StepSize
    from stepsim.workload.model.model import Model

_MANY_TASKS = 100_000
"""Seconds from which a run is told of before it begins."""


@dataclass(frozen=True, kw_only=True)
class _SimulateOptions(BatchOptions):
    """What `simulate` takes beside the options of a step."""

    plan_file: PlanFileOption = None
    against: Path | None = flag("Print the step beside a recorded one: a profile.", metavar="TRACE")
    sensitivity: bool = flag(
        "Print instead what 1 % of each number saves; CSV and JSON too.",
        "--sensitivity",
        default=False,
    )

    def inputs(self, file: "Path | Model", node_size: int | None = None) -> "StepInputs":
        """Read everything that the options name; raises the errors of the readers."""
        if self.plan_file is None:
            return super().inputs(file, node_size)
        from stepsim.files.load import is_model, read_model
        from stepsim.files.models.launch import with_launch

        if not isinstance(file, Path) or not is_model(file):
            raise PlanError(f"{file}: --plan-file gives a model its plan: expected a model")
        return super().inputs(
            with_launch(read_model(file, self.environment), self.plan_file), node_size
        )


@takes(_SimulateOptions, ON_COMMAND_LINE)
def simulate_command(
    context: typer.Context,
    file: WorkloadArgument,
    options: _SimulateOptions,
    full: FullOption = False,
    show_: ShowOption = None,
    json: JsonOption = None,
    plot: PlotOption = None,
    plot_memory: PlotMemoryOption = None,
    messages: MessagesOption = False,
    style: StyleOption = FigureStyle.SCREEN,
    csv: CsvOption = None,
    trace: TraceOption = None,
    ranks: RanksOption = None,
    window: WindowOption = None,
    report: ReportOption = None,
    write_workload: Path | None = flag("Write a model's workload as a SimAI text."),
    chakra: Path | None = flag("Write Chakra traces of all ranks: a folder."),
    kineto: Path | None = flag("Write traces as PyTorch's profiler does: a folder."),
    times: TimesOption = None,
    node_size: NodeSizeOption = None,
    force: bool = flag("Run a step that may not fit into this machine.", "--force", default=False),
) -> None:
    """Simulate one training step of a model or a workload.

    A measured run or a profile is replayed. With --sensitivity, print the step time saved by 1 % of
    each bandwidth, latency and compute time.
    """
    if options.lengths is not None:
        refuse_beside(context, "--lengths", BESIDE_LENGTHS | {"plan_file"})
        show_batches(file, options, StudyFiles(json, csv, plot, style), report)
        return
    options.check_lengths()
    if options.against:
        refuse_beside(context, "--against", _BESIDE_TRACES)
        hold_step_against(
            file,
            options.against,
            options,
            StudyFiles(json, csv, plot, style),
            report,
            TablesAsked(full=full),
        )
        return
    if options.sensitivity:
        refuse_beside(context, "--sensitivity", _OF_SENSITIVITY)
        _show_sensitivity(file, options, StudyFiles(json, csv, plot, style))
        return
    gc.disable()  # the process ends with what it makes
    asked = TablesAsked(names=show_, full=full)
    check_outputs(
        [file, *([options.plan_file] if options.plan_file else [])],
        json=json,
        figures=[plot, plot_memory],
        files=[csv, trace, write_workload],
        page=report,
        folders=[chakra, kineto],
    )
    check_messages(messages, plot)
    views = RunViews(
        plot=plot,
        csv=csv,
        trace=check_trace(trace, ranks, window),
        report=report,
        chakra=chakra,
        kineto=kineto,
        style=style,
    )
    of_steps = {
        "--messages": messages,
        "--plot-memory": plot_memory,
        "--write-workload": write_workload,
    }
    calibration = options.file_of("calibration")
    is_profile, is_measured = _recorded(file)
    if is_profile or is_measured:
        refuse_options(file, options, *filter(of_steps.get, of_steps), but="--calibration")
    if is_profile:
        refuse_given(file, OF_PROFILES, calibration=calibration, times=times, node_size=node_size)
        simulate_profile(file, views, asked, json=json, quiet=options.quiet)
        return
    if is_measured:
        simulate_measured(
            file,
            views,
            asked,
            calibration=calibration,
            times=times,
            node_size=node_size,
            json=json,
            quiet=options.quiet,
        )
        return
    refuse_given(file, OF_NO_RUN, times=times)
    from stepsim.show.tables.step import STEP_TABLES

    asked.check(STEP_TABLES)
    job = options.inputs(file, node_size)

    from stepsim.show.terminal import progress_bar
    from stepsim.step.prepared import prepare

    with progress_bar(enabled=not options.quiet) as progress:
        ready = prepare(
            *job.nouns,
            notes=job.notes,
            on_size=partial(_look_at_size, force=force, quiet=options.quiet),
        )
        result = ready.simulated(weigh=True, progress=progress)
    if write_workload:
        _write_workload(job, write_workload, options)
    views.write_step(result, str(file), quiet=options.quiet)
    _draw(result, plot, plot_memory, messages=messages, style=style)
    if report:
        from stepsim.show.page.write import find_what_if, write_step

        with progress_bar("writing the page", enabled=not options.quiet):
            found = find_what_if(job)
            write_step(result, report, command=command_line(), what_if=found)
    _show_step(ready, result, json, options, asked)


def _show_step(
    ready: "PreparedStep",
    result: "SimulatedStep",
    json: str | None,
    options: OneStepOptions,
    asked: TablesAsked,
) -> None:
    """Print the answer, the tables that were asked for, what was assumed, and what to look at."""
    from stepsim.show.tables.answer import answer_of
    from stepsim.show.tables.step import step_tables

    report, answer = result.report, answer_of(result.report)
    tables = asked.chosen(lambda: step_tables(report, len(result.ranks.counts)))
    show(json, lambda: result.document().to_json(), tables, answer=answer)
    if not (options.quiet or json):
        from stepsim.step.doubts import said_of_step

        sys.stdout.flush()
        warn(said_of_step(ready, result.timeline))
    warn_of(
        [report],
        quiet=options.quiet,
        verbose=options.verbose or asked.full,
        most=None if json else asked.most_said,
    )
    advise(answer.advice, quiet=options.quiet or bool(asked.full or asked.names or json))


def _show_sensitivity(file: Path, options: OneStepOptions, files: StudyFiles) -> None:
    """Print the step time saved by 1 % of each bandwidth, latency and compute time of a step.

    Raises the errors of the readers, and OutputError for a file that cannot be written.
    """
    from stepsim.explore.sensitivity import find_sensitivity
    from stepsim.show.figures.sensitivity import plot_sensitivity
    from stepsim.show.frames import tables_of
    from stepsim.show.tables.studies import sensitivity_shown
    from stepsim.show.terminal import progress_bar

    files.check(file)
    job = options.inputs(file)
    with progress_bar("changing one number at a time", enabled=not options.quiet):
        found = find_sensitivity(*job.nouns, notes=job.notes)
    draw = partial(plot_sensitivity, found)
    said = () if options.quiet else found.warnings
    files.show(found.to_json, sensitivity_shown(found), tables_of(found), draw, said)


def _recorded(file: Path) -> tuple[bool, bool]:
    """Whether a file is a profile, and a measured run; a model by name or folder is neither."""
    from stepsim.files.load import is_model_at_sight
    from stepsim.files.traces.forms import is_measured, is_profile

    if is_model_at_sight(file):
        return False, False
    return is_profile(file), is_measured(file)


def _draw(
    result: "SimulatedStep",
    plot: Path | None,
    plot_memory: Path | None,
    *,
    messages: bool,
    style: FigureStyle,
) -> None:
    """Draw the timelines of a step and the memory of its ranks, where files are named for them."""
    if plot:
        from stepsim.show.figures.timelines import drawn_step, plot_timelines

        run = drawn_step(result.timeline, result.report)
        plot_timelines([run], plot, messages=messages, style=style)
    if plot_memory:
        from stepsim.show.figures.memory import plot_memory as draw_memory

        draw_memory(result, plot_memory, style=style)


def _look_at_size(size: "StepSize", *, force: bool, quiet: bool) -> None:
    """Say how large a long run is; raises PlanError where this machine has not the memory."""
    from stepsim.step.size import memory_of_machine

    about = f"about {size.tasks:,} tasks and {format_size_bytes(size.size_bytes)}"
    memory = memory_of_machine()
    if memory and size.size_bytes > memory and not force:
        raise PlanError(
            f"this step needs {about}, and this machine has {format_size_bytes(memory)}: expected "
            "fewer microbatches or ranks, or --force"
        )
    if size.tasks > _MANY_TASKS and not quiet:
        typer.echo(f"simulating {about}", err=True)


def _write_workload(job: "StepInputs", path: Path, options: OneStepOptions) -> None:
    """Write a model's workload, and say what its reader should know."""
    from stepsim.files.simai.write import write_simai_text
    from stepsim.step.job import job_of
    from stepsim.workload.model.model import Model

    made = job_of(*job.nouns)
    beside: dict[str, Any] = {
        name: False
        for name in _BESIDE
        if made.setup and getattr(made.plan, name) and getattr(job.options, name) is None
    }
    if beside:
        made = job_of(job.workload, job.topology, replace(job.options, **beside))
    if not isinstance(job.workload, Model):
        raise PlanError(f"{job.workload.source}: --write-workload writes that of a model")
    notes = write_simai_text(made.given, path)
    if beside:
        notes.append(f"written with {', '.join(beside)} off: a SimAI text cannot say otherwise")
    warn((f"{path}: {note}" for note in notes), quiet=options.quiet)
