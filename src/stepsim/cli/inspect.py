"""`stepsim inspect`: what is understood of a file."""

from os.path import exists
from pathlib import Path
from typing import Annotated

import click

from stepsim.base.errors import OutputError, PlanError
from stepsim.cli.declared import argument
from stepsim.cli.options import (
    OF_MODEL,
    OF_SIZE,
    CommandOptions,
    LineOption,
    NodeSizeOption,
    StyleOption,
    refuse_beside,
    refuse_given,
    takes,
)
from stepsim.cli.profiles import read_stragglers
from stepsim.cli.terminal import (
    CsvOption,
    JsonOption,
    check_outputs,
    figure,
    show,
    show_tables,
    warn,
)
from stepsim.show.figures.style import FigureStyle

# Options that do something with what has none of a step.
_OF_CONSTANTS = ("file", "csv")
_OF_SCHEDULE = (*_OF_CONSTANTS, "pp", "microbatches")
_OF_LOG = (*_OF_CONSTANTS, "line")
_OF_PROFILE = (*_OF_CONSTANTS, "json")
_OF_RUN = (*_OF_PROFILE, "node_size")


@takes(CommandOptions, OF_SIZE | OF_MODEL | {"compute_scale"})
def inspect_command(
    file: Annotated[
        str,
        argument(
            "FILE",
            "Workload, topology, GPU, framework or schedule (file or name), or measured run.",
        ),
    ],
    options: CommandOptions,
    json: JsonOption = None,
    csv: CsvOption = None,
    plot: Path | None = figure("Draw a topology"),
    style: StyleOption = FigureStyle.SCREEN,
    node_size: NodeSizeOption = None,
    line: LineOption = None,
) -> None:
    """Print what stepsim understands of a file or a name.

    That is a workload, a model, a topology, a measured run or a profile. Of a GPU or a framework,
    print every number and what it rests on. Of a schedule, print the order of each rank's actions
    in torch's CSV notation, or write it to a CSV file.
    """
    from stepsim.files.accelerators import accelerator_of
    from stepsim.files.foreign import refuse_foreign
    from stepsim.files.load import (
        is_model,
        is_model_at_sight,
        is_public,
        is_topology,
        shadowed,
        shipped_kinds,
        typed_path,
    )
    from stepsim.files.traces.forms import has_step_lines, is_measured, is_profile
    from stepsim.parallel.schedules import BUILDERS

    if file.partition(":")[0] in BUILDERS:  # such as 1f1b or interleaved:4
        refuse_beside(f"{file} is a schedule", _OF_SCHEDULE)
        _inspect_schedule(file, options, csv)
        return
    from stepsim.views.inspection import constants_shown  # a schedule needs none of it

    kinds, path = shipped_kinds(file), typed_path(file)
    check_outputs({"file": path, "json": json, "csv": csv, "plot": plot})
    warn(note for kind in kinds for note in shadowed(kind, file))
    lies = exists(file) and not kinds
    is_run = lies and not is_model_at_sight(path)
    if is_run and is_profile(path):
        refuse_beside(f"{file} is a profile, which stepsim simulate changes", _OF_PROFILE)
        from stepsim.explain.profile_document import ProfileDocument
        from stepsim.views.profiles import profile_shown

        found = read_stragglers(path)
        show(json, lambda: ProfileDocument.of(found).to_json(), profile_shown(found), csv)
        return
    if is_run and is_measured(path):
        refuse_beside(f"{file} is a run, which stepsim simulate changes", _OF_RUN)
        from stepsim.files.measured import load_run
        from stepsim.measured.run_document import run_document
        from stepsim.views.measured import measured_shown

        run = load_run(path, node_size=node_size)
        warn(run.warnings)
        show(json, run_document(run).to_json, measured_shown(run), csv)
        return
    machine = accelerator_of(file)
    if machine and "topology" not in kinds:
        refuse_beside(f"{file} is a GPU or a framework", _OF_CONSTANTS)
        show_tables(constants_shown(machine), csv)
        return
    _refuse_unknown(file)
    refuse_given(f"{file} is no measured run", ("node_size",))
    if lies and (line or has_step_lines(path)):
        refuse_beside(f"{file} is a log of steps", _OF_LOG)
        from stepsim.files.traces.step_lines import read_step_log
        from stepsim.views.measured import step_log_shown

        show_tables(step_log_shown(read_step_log(path, line)), csv)
        return
    described = is_model(path) if lies else is_public(file)
    if lies and not described:
        refuse_foreign(path)
    if not described and (is_topology(file) or not (lies or path.suffix)):
        _inspect_topology(file, options, json, csv, plot, style)
        if machine and not (json or csv or plot):
            show_tables(constants_shown(machine), None)
    else:
        refuse_given(f"{file} is a workload", ("json", "plot"))
        _inspect_workload(path, options, csv)


def _inspect_schedule(name: str, options: CommandOptions, csv: Path | None) -> None:
    """Print a schedule in torch's notation, a line per rank, or write it as a CSV file instead.

    Raises PlanError without the size that it is for, OutputError for a file of another kind.
    """
    from stepsim.base.writing import write_whole
    from stepsim.files.schedule_csv import format_schedule
    from stepsim.parallel.schedules import build

    ranks, microbatches = options.asked.get("pp"), options.asked.get("microbatches")
    if not isinstance(ranks, int) or not isinstance(microbatches, int):
        raise PlanError(f"{name}: a schedule is made for a size: give --pp and --microbatches (-m)")
    if csv and csv.suffix != ".csv":
        raise OutputError(f"{csv}: a schedule is written as .csv")
    text = format_schedule(build(name, ranks=ranks, microbatches=microbatches))
    if csv:
        write_whole(csv, text.encode())
    else:
        click.echo(text, nl=False)


def _refuse_unknown(name: str) -> None:
    """Raise PlanError for what is no file and no name, saying what was looked for."""
    from difflib import get_close_matches

    from stepsim.files.load import public_names
    from stepsim.files.reading import topology_names

    known = [*topology_names(), *public_names()]
    if exists(name) or name.lower() in known:
        return
    close = get_close_matches(name.lower(), known, n=3)
    meant = f"; did you mean {', '.join(close)}?" if close else ":"
    raise PlanError(
        f"{name}: no such file, and no topology or public model of this name{meant} expected a "
        f"file, a model such as llama-3.1-8b, or a topology: {', '.join(topology_names())}"
    )


def _inspect_workload(file: Path, options: CommandOptions, csv: Path | None) -> None:
    from stepsim.files.load import is_model, read_model
    from stepsim.step.inspection import inspect_job
    from stepsim.step.job import job_of
    from stepsim.views.inspection import workload_shown
    from stepsim.workload.model.architecture import said_of_architecture
    from stepsim.workload.model.model import Unread

    if "npus" not in options.asked and is_model(file):
        model = read_model(file, options.environment)
        size = model.asked.get("npus")
        if isinstance(size, Unread):
            warn([size.why, *model.said])
            show_tables(
                [(("workload", model.source), *said_of_architecture(model.architecture))], csv
            )
            return
    job = options.inputs(file)
    seen, device = inspect_job(job_of(job))
    warn(seen.warnings)
    show_tables(workload_shown(seen, device), csv)


def _inspect_topology(
    name: str,
    options: CommandOptions,
    json: str | None,
    csv: Path | None,
    plot: Path | None,
    style: FigureStyle,
) -> None:
    from stepsim.files.load import topology_of
    from stepsim.network.topology.inspection import inspect_topology
    from stepsim.views.inspection import topology_shown

    npus = options.asked.get("npus")
    topology = topology_of(name, npus if isinstance(npus, int) else None)
    if plot:
        from stepsim.views.topologies import draw_topology

        draw_topology(topology, plot, style=style)
    seen = inspect_topology(topology)
    show(json, seen.to_json, topology_shown(seen, topology.library), csv)
