"""What is done with measured runs: calibrating on them, replaying, validating, changing them.

Beside runs stand rows of a user's table of measured steps, which are simulated as they say.
"""

from collections.abc import Iterable, Sequence

from stepsim.base.errors import PlanError, StepsimError, TraceError
from stepsim.base.structs import replace
from stepsim.base.units import format_time_ps
from stepsim.files.asked import StepInputs, read_inputs
from stepsim.files.step_table import MeasuredStep
from stepsim.measured.calibration.applied import with_calibration
from stepsim.measured.calibration.calibration import Calibration
from stepsim.measured.calibration.runs import calibrate_traces
from stepsim.measured.layers import Durations
from stepsim.measured.ready import ready_run
from stepsim.measured.step_log import LeafLog
from stepsim.measured.summary import RunSummary
from stepsim.network.measured_times import CommTable
from stepsim.runs.leaf import fit_overhead, simulate_leaves, validate_logs
from stepsim.runs.replay import replay
from stepsim.runs.validate import Source, TimeEntry, Validation, compared, validate_runs
from stepsim.step.prepared import SimulatedStep, prepare


def calibrate_measured(
    runs: Sequence[RunSummary | LeafLog], benchmarks: CommTable | None
) -> Calibration:
    """Host, message and gradient costs of a machine, and the overhead of its leaf-module logs.

    `benchmarks` are those of the machine. What cannot be told is left out, and `unidentified` says
    why. Raises CalibrationError for benchmarks of several machines.
    """
    traced, logs = _traced_and_logs(runs)
    found = calibrate_traces(traced, benchmarks)
    if not logs:
        return found
    missing = [*found.unidentified]
    return replace(
        found,
        sources=(*found.sources, *(log.source for log in logs)),
        traces=(*found.traces, *(log.fingerprint for log in logs)),
        leaf_overhead=fit_overhead(logs, missing),
        unidentified=tuple(missing),
    )


def replay_measured(
    run: RunSummary | LeafLog,
    calibration: Calibration | None = None,
    durations: Durations | None = None,
) -> SimulatedStep:
    """Replay a run as it was: its stage times, its schedule, blocking messages.

    Host and message times are those of the calibration, else the run's own; a log of leaf modules
    is simulated from these, and its calibrated overhead. Without `durations` they are those that
    the run tells best. Raises TraceError for runs that cannot be replayed, PlanError for durations
    that a log does not hold.
    """
    if isinstance(run, LeafLog):
        return _simulate_log(run, calibration, durations)
    return replay(ready_run(run, calibration), durations)


def validate_measured(
    runs: Sequence[RunSummary | LeafLog],
    steps: Sequence[MeasuredStep] = (),
    *,
    calibration: Calibration | None = None,
    benchmarks: CommTable | None = None,
    leave_one_out: bool = False,
    durations: Durations | None = None,
) -> Validation:
    """Compare runs and measured steps with their simulation.

    Without a calibration replays take a run's own host and message times; `leave_one_out`
    calibrates each run on all others. Raises PlanError for options that would do nothing.
    """
    unused = ["--leave-one-out"] * leave_one_out
    unused += ["--times"] * (durations is not None)
    if unused and not runs:
        raise PlanError(f"{steps[0].where}: rows are simulated as they say: leave out {unused[0]}")
    if leave_one_out and calibration:
        raise PlanError(
            "--leave-one-out calibrates every run on all others: leave out --calibration"
        )
    if benchmarks and not steps and not leave_one_out:
        raise PlanError(
            "--nccl: expected --leave-one-out or a table of measured steps; a calibration file "
            "holds its own benchmarks (stepsim calibrate RUN... --nccl FILE)"
        )
    traced, logs = _traced_and_logs(runs)
    notes = [text for run in runs for text in run.warnings]
    of_logs = validate_logs(logs, calibration, leave_one_out=leave_one_out, notes=notes)
    of_table, said = validate_table(steps, calibration, benchmarks)
    found = validate_runs(
        traced, calibration, leave_one_out=leave_one_out, durations=durations, table=benchmarks
    )
    notes += benchmarks.warnings if benchmarks else ()
    return Validation.of(found, (*of_logs, *of_table), (*notes, *said))


def _traced_and_logs(
    runs: Iterable[RunSummary | LeafLog],
) -> tuple[list[RunSummary], list[LeafLog]]:
    every = list(runs)
    traced = [run for run in every if isinstance(run, RunSummary)]
    return traced, [run for run in every if isinstance(run, LeafLog)]


def _simulate_log(
    log: LeafLog, known: Calibration | None, times: Durations | None
) -> SimulatedStep:
    if times is not None:
        raise PlanError(
            f"{log.source}: a log of leaf modules has one time per stage: leave out --times"
        )
    overhead = known.leaf_overhead if known else None
    result = simulate_leaves(log, overhead)
    if overhead:
        notes = [
            f"the step is a fit: host time {format_time_ps(overhead.action.value)} per action, "
            f"layers {overhead.layer_factor.value:.2f} times their leaf modules"
        ]
    else:
        share = result.report.pipeline_time_ps / log.step_ps
        notes = [
            f"leaf modules explain {share:.0%} of the measured step of "
            f"{format_time_ps(log.step_ps)}: simulated times are that share, not the step"
        ]
        if known:
            notes.append("the calibration has no leaf_overhead: leaf modules alone")
    report = replace(result.report, warnings=(*result.report.warnings, *notes))
    return replace(result, report=report)


def calibrated_step(job: StepInputs, calibration: Calibration | None) -> SimulatedStep:
    """The step of a job, calibrated if there is anything to calibrate it with."""
    options = with_calibration(job.options, calibration) if calibration else job.options
    return prepare(replace(job, options=options)).simulated()


def validate_table(
    measurements: Sequence[MeasuredStep],
    calibration: Calibration | None = None,
    table: CommTable | None = None,
) -> tuple[list[TimeEntry], list[str]]:
    """Simulate every row and compare step times, and what was assumed.

    A calibration sets host time, where the row does not, and times of collectives; `table` holds
    other times of collectives. Raises TraceError naming the row where a simulation refuses its
    input.
    """
    rows, notes = list[TimeEntry](), list[str]()
    for each in measurements:
        typed = {"comm_table": table, "schedule": each.schedule, **each.options}
        try:
            job = read_inputs(each.workload, each.topology, typed)
            report = calibrated_step(job, calibration).report
        except StepsimError as error:
            raise TraceError(f"{each.where}: {error}") from None
        notes += [f"{each.where}: {note}" for note in (*report.findings, *report.warnings)]
        options = [f"{name} {value}" for name, value in each.options.items()]
        name = ", ".join([each.workload.name, report.schedule, report.topology, *options])
        rows.append(compared(name, Source.PREDICTION, report.step_time_ps, each.measured_ps))
    return rows, notes
