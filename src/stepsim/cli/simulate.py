"""`stepsim simulate`: one step of a workload, or a measured run replayed."""

import gc
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stepsim.base.errors import PlanError
from stepsim.base.structs import Values
from stepsim.base.units import format_size_bytes
from stepsim.cli.against import hold_step_against
from stepsim.cli.batches import BESIDE_LENGTHS, show_batches
from stepsim.cli.measured import simulate_measured
from stepsim.cli.options import (
    OF_STUDY,
    ON_COMMAND_LINE,
    OneStepOptions,
    SimulateOptions,
    given_options,
    refuse_beside,
    refuse_given,
    takes,
)
from stepsim.cli.profiles import recorded_forms, simulate_profile
from stepsim.cli.terminal import (
    WorkloadArgument,
    command_bar,
    command_line,
    is_quiet,
    step_json,
    warn,
)

# Options that do something beside --sensitivity.
_OF_SENSITIVITY = OF_STUDY | {"sensitivity", "plan_file"}
# Options that do something beside --against.
_BESIDE_TRACES = OF_STUDY | {"activation_size", "against", "report", "full", "plan_file"}
# Options of replays, and those with which what was recorded is simulated as any other step.
_OF_RUNS = ("calibration", "times", "node_size")
_OF_STEPS = ON_COMMAND_LINE - {"calibration"} | {
    *("topology", "strict", "comm_source", "numbers", "plan_file"),
    *("messages", "plot_memory", "write_workload"),
}
# Options under which transfers run beside compute.
_BESIDE = ("dp_overlap", "tp_comm_overlap")

if TYPE_CHECKING:
    from stepsim.files.asked import StepInputs
    from stepsim.step.prepared import PreparedStep, SimulatedStep
    from stepsim.step.size import StepSize

# Tasks from which a run is told of before it begins.
_MANY_TASKS = 100_000


@takes(SimulateOptions, ON_COMMAND_LINE)
def simulate_command(file: WorkloadArgument, options: SimulateOptions) -> None:
    """Simulate one training step of a model or a workload.

    A measured run or a profile is replayed, with options changed. With --sensitivity, print the
    step time saved by 1 % of each bandwidth, latency and compute time.
    """
    if options.lengths is not None:
        refuse_beside("--lengths", BESIDE_LENGTHS | {"plan_file"})
        show_batches(file, options)
        return
    options.check_lengths()
    if options.against:
        refuse_beside("--against", _BESIDE_TRACES)
        hold_step_against(file, options.against, options)
        return
    if options.sensitivity:
        refuse_beside("--sensitivity", _OF_SENSITIVITY)
        _show_sensitivity(file, options)
        return
    gc.disable()  # the process ends with what it makes
    options.check()
    is_profile, is_measured = recorded_forms(file)
    changed = given_options() & _OF_STEPS
    if is_profile and not changed:
        refuse_given(f"{file}: a profile is replayed as it ran", _OF_RUNS)
        simulate_profile(file, options)
        return
    if is_measured and not changed:
        simulate_measured(file, options)
        return
    refuse_given(f"{file}: this is no replay of a measured run", ("times",))
    from stepsim.views.step import STEP_TABLES

    options.check_tables(STEP_TABLES)
    job = options.inputs(file, options.node_size)

    from stepsim.step.job import job_of
    from stepsim.step.prepared import prepare
    from stepsim.step.size import size_of

    with command_bar() as progress:
        made = job_of(job)
        _look_at_size(size_of(made), force=options.force)
        ready = prepare(made)
        result = ready.simulated(weigh=True, progress=progress)
    if options.write_workload:
        _write_workload(job, options.write_workload, options)
    options.write_step(result, str(file))
    options.draw([result])
    if options.plot_memory:
        from stepsim.views.memory import plot_memory

        plot_memory(result, options.plot_memory, style=options.style)
    if options.report:
        from stepsim.views.pages import step_page

        with command_bar("writing the page"):
            step_page(result, job).write(options.report, command_line())
    _show_step(ready, result, options)


def _show_step(ready: "PreparedStep", result: "SimulatedStep", options: SimulateOptions) -> None:
    """Print the answer, the tables that were asked for, what was assumed, and what to look at."""
    from stepsim.step.doubts import said_of_step
    from stepsim.views.answer import answer_of
    from stepsim.views.step import step_tables

    report = result.report
    options.show_answer(
        answer_of(report),
        lambda: step_json(result),
        options.chosen(lambda: step_tables(report, len(result.ranks.actors))),
        [report],
        lambda: said_of_step(ready, report.step_time_ps),
    )


def _show_sensitivity(file: Path, options: SimulateOptions) -> None:
    """Print the step time saved by 1 % of each bandwidth, latency and compute time of a step.

    Raises the errors of the readers, and OutputError for a file that cannot be written.
    """
    from stepsim.explore.sensitivity import find_sensitivity
    from stepsim.views.studies import plot_sensitivity, sensitivity_shown

    job = options.inputs(file)
    with command_bar("changing one number at a time"):
        found = find_sensitivity(job)
    draw = partial(plot_sensitivity, found)
    warn(found.warnings)
    options.show_study(found, sensitivity_shown(found), draw)


def _look_at_size(size: "StepSize", *, force: bool) -> None:
    """Say how large a long run is; raises PlanError where this machine has not the memory."""
    about = f"about {size.tasks:,} tasks and {format_size_bytes(size.size_bytes)}"
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # a machine that does not say
        memory = 0
    if memory and size.size_bytes > memory and not force:
        raise PlanError(
            f"this step needs {about}, and this machine has {format_size_bytes(memory)}: expected "
            "fewer microbatches or ranks, or --force"
        )
    if size.tasks > _MANY_TASKS and not is_quiet():
        click.echo(f"simulating {about}", err=True)


def _write_workload(job: "StepInputs", path: Path, options: OneStepOptions) -> None:
    """Write a model's workload, and say what its reader should know."""
    from stepsim.files.simai.write import write_simai_text
    from stepsim.step.job import job_of
    from stepsim.workload.model.model import Model

    made = job_of(job)
    beside: Values = {
        name: False
        for name in _BESIDE
        if made.setup and getattr(made.plan, name) and getattr(job.options, name) is None
    }
    if beside:
        made = job_of(job.asking(**beside))
    if not isinstance(job.workload, Model):
        raise PlanError(f"{job.workload.source}: --write-workload writes that of a model")
    notes = write_simai_text(made.given, path)
    if beside:
        notes.append(f"written with {', '.join(beside)} off: a SimAI text cannot say otherwise")
    warn(f"{path}: {note}" for note in notes)
