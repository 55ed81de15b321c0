"""`stepsim inspect`: what is understood of a file."""

from os.path import exists
from pathlib import Path
from typing import Annotated

import typer

from stepsim.base.errors import OutputError, PlanError
from stepsim.cli.measured import NodeSizeOption, inspect_measured
from stepsim.cli.options import (
    OF_MODEL,
    OF_SIZE,
    CommandOptions,
    StyleOption,
    refuse_options,
    refuse_run_options,
    takes,
)
from stepsim.cli.profiles import inspect_profile, refuse_for_profiles
from stepsim.cli.terminal import CsvOption, JsonOption, check_outputs, show, show_tables, warn
from stepsim.show.figures.style import FigureStyle


@takes(CommandOptions, OF_SIZE | OF_MODEL | {"compute_scale"})
def inspect_command(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Workload, topology, GPU or framework (file or name), or measured run.",
        ),
    ],
    options: CommandOptions,
    json: JsonOption = None,
    csv: CsvOption = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw a topology: .png, .svg or .pdf.")
    ] = None,
    style: StyleOption = FigureStyle.SCREEN,
    node_size: NodeSizeOption = None,
) -> None:
    """Print what stepsim understands of a workload, a topology, a measured run or a profile.

    Of a GPU or a framework, by name or file: every number and what it rests on.
    """
    from stepsim.files.accelerators import is_accelerator
    from stepsim.files.load import is_model, is_public, is_topology
    from stepsim.files.traces.forms import has_step_lines, is_measured, is_profile

    if exists(file) and is_profile(Path(file)):
        refuse_options(Path(file), options)
        refuse_for_profiles(Path(file), plot=plot, node_size=node_size)
        inspect_profile(Path(file), json=json, csv=csv, quiet=options.quiet)
        return
    if exists(file) and is_measured(Path(file)):
        refuse_options(Path(file), options, *(["--plot"] if plot else []))
        inspect_measured(Path(file), json=json, csv=csv, node_size=node_size, quiet=options.quiet)
        return
    if is_accelerator(file):
        refuse_options(Path(file), options, *(["--plot"] if plot else []))
        _inspect_constants(file, json, csv)
        return
    _refuse_unknown(file)
    refuse_run_options(Path(file), node_size=node_size)
    check_outputs([Path(file)], files=[csv])
    if has_step_lines(Path(file)):
        refuse_options(Path(file), options, *(["--plot"] if plot else []))
        _inspect_step_log(Path(file), json, csv)
        return
    described = is_model(file) if exists(file) else is_public(file)
    if not described and (is_topology(file) or not (exists(file) or Path(file).suffix)):
        _inspect_topology(file, options, json, csv, plot, style)
    elif json or plot:
        raise OutputError(f"{file}: --json and --plot are not for workloads: leave them out")
    else:
        _inspect_workload(Path(file), options, csv)


def _inspect_constants(name: str, json: str | None, csv: Path | None) -> None:
    """The numbers of a device or a framework, by name or file, and what each rests on."""
    from stepsim.files.accelerators import is_device, read_device, read_framework
    from stepsim.show.tables.inspection import constants_of_device, constants_of_framework

    if json:
        raise OutputError(f"{name}: --json is not for devices and frameworks: leave it out")
    if is_device(name):
        show_tables(constants_of_device(read_device(name)), csv)
    else:
        show_tables(constants_of_framework(read_framework(name)), csv)


def _inspect_step_log(file: Path, json: str | None, csv: Path | None) -> None:
    from stepsim.files.traces.step_lines import read_step_log
    from stepsim.show.tables.measured import step_log_shown

    if json:
        raise OutputError(f"{file}: --json is not for logs of steps: leave it out")
    show_tables(step_log_shown(read_step_log(file)), csv)


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
    from stepsim.network.placement import place
    from stepsim.parallel.inspection import inspect_workload
    from stepsim.show.tables.inspection import workload_shown
    from stepsim.step.inputs import choose_plan, make_work, scaled_workload

    job = options.inputs(file)
    made = make_work(job.workload, job.topology, job.options)
    workload, _ = scaled_workload(made.workload, made.sized)
    plan, assumed = choose_plan(workload, job.topology, made.sized)
    place(job.topology, plan, job.options.placement)
    seen = inspect_workload(workload, plan, assumed)
    warn(seen.warnings, quiet=options.quiet)
    show_tables(workload_shown(seen), csv)


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
    from stepsim.show.tables.inspection import topology_shown

    check_outputs([Path(name)], json=json, figures=[plot], files=[csv])
    npus = options.asked.get("npus")
    topology = topology_of(name, npus if isinstance(npus, int) else None)
    if plot:
        from stepsim.show.figures.topologies import draw_topology

        draw_topology(topology, plot, style=style)
    seen = inspect_topology(topology)
    show(json, seen.to_json, topology_shown(seen, topology.library), csv)
