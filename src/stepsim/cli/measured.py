"""`stepsim validate` and `stepsim what-if`; `simulate` of measured runs."""

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated

from click.exceptions import Exit

from stepsim.base.errors import PlanError
from stepsim.base.structs import Numbers, replace
from stepsim.base.units import parse_share
from stepsim.cli.declared import Says, argument, flag
from stepsim.cli.options import (
    SCHEDULES,
    NodeSizeOption,
    QuietOptions,
    SimulateOptions,
    StudyFiles,
    StyleOption,
    TimesOption,
    takes,
)
from stepsim.cli.terminal import (
    CsvOption,
    JsonOption,
    check_outputs,
    command_line,
    figure,
    show,
    show_tables,
    step_json,
    warn,
)
from stepsim.show.figures.style import FigureStyle

# An error may be larger than what was measured.
_MOST_ERROR = 100.0
RunsArgument = Annotated[
    tuple[Path, ...],
    argument("RUN...", "Folders of traces, traces of one rank, or leaf logs."),
]
CalibrationOption = Annotated[Path | None, Says("Calibration to use, a TOML file.")]
NcclOption = Annotated[
    tuple[Path, ...],
    Says("Micro-benchmarks of the machine: CSV or nccl-tests output."),
]
CommSourceOption = Annotated[
    str,
    Says("Use benchmarks whose machine or source holds this text."),
]


@takes(QuietOptions)
def validate_command(
    runs: Annotated[
        tuple[Path, ...],
        argument("RUN...", "Traces, leaf logs, or CSV or TOML tables of measured steps."),
    ],
    calibration: CalibrationOption = None,
    nccl: NcclOption = (),
    comm_source: CommSourceOption = "",
    leave_one_out: bool = flag(
        "Calibrate every run on all others.", "--leave-one-out", default=False
    ),
    times: TimesOption = None,
    max_error: str | None = flag("Exit with 1 if an error is larger, e.g. 2%."),
    node_size: NodeSizeOption = None,
    json: JsonOption = None,
    csv: CsvOption = None,
    plot: Path | None = figure("Draw simulated over measured"),
    style: StyleOption = FigureStyle.SCREEN,
    leave_out: tuple[str, ...] = flag("Source of published steps to leave out. Repeatable."),
) -> None:
    """Compare measured runs with their simulation.

    In place of runs it takes tables of measured steps, or of published ones.
    """
    from stepsim.files.calibrations import read_calibration
    from stepsim.files.collectives.measurements import load_benchmarks
    from stepsim.files.measured import load_measurements
    from stepsim.files.model_steps import is_published_steps
    from stepsim.measured.layers import parse_durations
    from stepsim.runs.measured import validate_measured
    from stepsim.views.validation import validation_shown

    files = StudyFiles(json=json, csv=csv, plot=plot, style=style)
    limit = None if max_error is None else parse_share("max-error", max_error, _MOST_ERROR)
    durations = parse_durations(times)
    if is_published_steps(runs[0]):
        _validate_published(runs, limit, leave_out, calibration, files)
        return
    if leave_out:
        raise PlanError("--leave-out names sources of published steps: there are none")
    known = read_calibration(calibration) if calibration else None
    loaded, steps = load_measurements(runs, node_size=node_size)
    check_outputs(vars(files) | {"runs": [step.workload for step in steps]})
    found = validate_measured(
        loaded,
        steps,
        calibration=known,
        benchmarks=load_benchmarks(nccl, comm_source),
        leave_one_out=leave_one_out,
        durations=durations,
    )
    warn(found.warnings)
    if plot:
        from stepsim.views.validation import plot_validation

        plot_validation(found, plot, style=style)
    show(json, found.to_json, validation_shown(found), csv)
    if limit is not None and found.exceeds(limit):
        raise Exit(1)


def _validate_published(
    tables: Sequence[Path],
    limit: float | None,
    leave_out: Sequence[str],
    calibration: Path | None,
    files: StudyFiles,
) -> None:
    """Compare published steps of models with their closed form."""
    from stepsim.files.calibrations import read_model_calibration
    from stepsim.files.model_steps import read_published_steps
    from stepsim.runs.published import PublishedDocument, validate_published
    from stepsim.views.validation import published_shown

    read = [read_published_steps(table) for table in tables]
    steps = [step for found, _ in read for step in found]
    unknown = set(leave_out) - {step.source for step in steps}
    if unknown:
        sources = ", ".join(dict.fromkeys(step.source for step in steps))
        raise PlanError(f"--leave-out {min(unknown)}: expected one of {sources}")
    known = read_model_calibration(calibration) if calibration else None
    notes = [*chain.from_iterable(each for _, each in read)]
    found = validate_published(steps, leave_out=leave_out, calibration=known, unread=len(notes))
    warn((*notes, *found.warnings))
    if files.plot:
        from stepsim.views.validation import plot_published

        plot_published(found, files.plot, style=files.style)
    document = PublishedDocument.of(found)
    show(files.json, document.to_json, published_shown(found), files.csv)
    if limit is not None and found.exceeds(limit):
        raise Exit(1)


@takes(QuietOptions)
def what_if_command(
    run: Annotated[Path, argument("RUN", "A measured run, or a profile.")],
    schedule: str | None = flag("Another schedule, e.g. interleaved:2.", offers=SCHEDULES),
    p2p: str | None = flag(
        "How the changed run sends messages: eager, blocking or overlap.",
        shown="as the schedule's runtime",
    ),
    microbatches: int | None = flag("Microbatches per pipeline.", "--microbatches", "-m"),
    balance: str | None = flag("Layers of every stage, e.g. 3,2,2,1."),
    layers: int | None = flag("Layers of the model, if the run does not name them."),
    bandwidth: tuple[str, ...] = flag(
        "Bandwidth of messages: inter_node=400Gbps or intra_node=..."
    ),
    dp: int | None = flag("Ranks that reduce a gradient together."),
    overlap_gradients: bool = flag(
        "Reduce them beside the last backward.", "--overlap-gradients", default=False
    ),
    calibration: CalibrationOption = None,
    node_size: NodeSizeOption = None,
    csv: CsvOption = None,
) -> None:
    """Simulate a measured run or a profile with other settings.

    They are another schedule, balance of layers, number of microbatches, dp or bandwidth.
    """
    from stepsim.files.asked import read_options
    from stepsim.files.calibrations import read_calibration
    from stepsim.files.load import read_numbers
    from stepsim.files.measured import load_trace, message_bandwidths
    from stepsim.measured.ready import ready_run
    from stepsim.runs.what_if import change_run
    from stepsim.views.measured import what_if_shown

    loaded = load_trace(run, node_size=node_size)
    warn(loaded.warnings)
    known = read_calibration(calibration) if calibration else None
    found = change_run(
        ready_run(loaded, known),
        schedule=schedule,
        p2p=read_options({"p2p": p2p})[0].p2p,
        microbatches=microbatches,
        balance=_balance(balance),
        layers=layers,
        bandwidths=message_bandwidths(read_numbers(bandwidth)),
        dp=dp,
        overlap=overlap_gradients,
    )
    show_tables(what_if_shown(found, loaded.step_ps), csv)


def simulate_measured(path: Path, options: SimulateOptions) -> None:
    """Replay a measured run; called by `stepsim simulate`. A figure shows the run above its replay.

    Logs that hold no stage times are simulated from their leaf modules; nothing of them is drawn.
    """
    from stepsim.documents.table import Shown
    from stepsim.files.calibrations import read_calibration
    from stepsim.files.measured import load_run
    from stepsim.measured.layers import parse_durations
    from stepsim.measured.step_log import LeafLog
    from stepsim.runs.measured import replay_measured
    from stepsim.views.measured import LEAF_TABLES, replay_answer, replay_table
    from stepsim.views.step import STEP_TABLES, step_tables

    durations = parse_durations(options.times)
    run = load_run(path, node_size=options.node_size)
    tables = LEAF_TABLES if isinstance(run, LeafLog) else (*STEP_TABLES, "replay")
    options.check_tables(tables)
    calibration = options.file_of("calibration")
    known = read_calibration(calibration) if calibration else None
    result = replay_measured(run, known, durations)
    options.write_step(result, str(path))
    compared, actors = replay_table(run, result.report), len(result.ranks.actors)
    options.draw([result], run.run)
    if options.report:
        from stepsim.views.pages import step_page

        page = step_page(result, None, run.run, [compared])
        page.write(options.report, command_line())
    advice = "next: --full (all tables), stepsim what-if (changes)"
    answer = replace(replay_answer(run, result.report, known), advice=advice)

    def known_tables() -> dict[str, Shown]:
        every = step_tables(result.report, actors) | {"replay": compared}
        return {name: table for name, table in every.items() if name in tables}

    shown = options.chosen(known_tables)
    options.show_answer(answer, lambda: step_json(result), shown, [result.report])


def _balance(text: str | None) -> Numbers | None:
    if text is None:
        return None
    try:
        return tuple(int(each) for each in text.split(","))
    except ValueError:
        raise PlanError(f"balance is {text!r}: expected layers per stage, e.g. 3,2,2,1") from None
