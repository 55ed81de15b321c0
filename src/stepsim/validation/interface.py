"""Measured runs from Python: the words of the command line, as functions.

A run is a folder of traces, the trace of one rank, or a log of leaf modules: by its path, or loaded
once by `load_run`. `node_size` is in ranks; without it clocks tell, else it is 8.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from stepsim.base.errors import PlanError
from stepsim.base.units import parse_bandwidth
from stepsim.files.collectives.measurements import read_measurements
from stepsim.files.step_table import is_step_table, read_step_table
from stepsim.files.traces.calibration_toml import read_calibration, write_calibration
from stepsim.measured.calibration.calibration import Calibration, message_topology
from stepsim.measured.calibration.runs import calibrate as calibrate_traces
from stepsim.measured.calibration.runs import fastest
from stepsim.measured.clocks import Placement
from stepsim.measured.leaf_log import LeafRun
from stepsim.measured.summary import RunSummary
from stepsim.network.measured_times import CommTable
from stepsim.network.topology import Topology
from stepsim.step.simulate import SimulatedStep
from stepsim.validation.document import Validation
from stepsim.validation.leaf import fit_overhead, simulate_leaves, validate_logs
from stepsim.validation.load import (
    MeasuredRuntime,
    load_run,
    load_trace,
    with_bandwidth,
    with_runtime,
)
from stepsim.validation.replay import Durations, replay
from stepsim.validation.table import validate_table
from stepsim.validation.validate import validate_runs
from stepsim.validation.what_if import Change, WhatIf, change_run

__all__ = [
    "calibrate",
    "load_run",
    "read_calibration",
    "simulate_run",
    "validate",
    "what_if",
    "write_calibration",
]

Run = RunSummary | LeafRun | str | Path
Benchmarks = CommTable | Sequence[str | Path]


def calibrate(
    runs: Iterable[Run],
    *,
    nccl: Benchmarks | None = None,
    comm_source: str = "",
    node_size: int | None = None,
) -> Calibration:
    """Host, message and gradient costs of a machine, and the overhead of its leaf-module logs.

    `nccl` are micro-benchmarks of the machine, or their files; of these `comm_source` chooses those
    whose machine or source holds it. What cannot be told is left out, and `unidentified` says why.
    Raises TraceError for runs that cannot be read, CalibrationError for benchmarks of several
    machines.
    """
    traced, logs = _opened(runs, node_size)
    table = benchmarks(nccl, comm_source)
    if traced:
        found = calibrate_traces(traced, table)
    else:
        found = Calibration(sources=(), collectives=fastest(table) if table else None)
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


def simulate_run(
    run: Run,
    *,
    calibration: Calibration | str | Path | None = None,
    times: Durations | str = Durations.MEDIAN,
    node_size: int | None = None,
) -> SimulatedStep:
    """Replay a run as it was: its stage times, its schedule, blocking messages.

    Host and message times are those of the calibration, else the run's own; a log of leaf modules
    is simulated from these, and its calibrated overhead. `times` are stage times: median, mean or
    microbatch. Raises TraceError for runs that cannot be read or replayed.
    """
    chosen, known = _durations(times), _calibration(calibration)
    if not isinstance(run, RunSummary | LeafRun):
        run = load_run(run, node_size=node_size)
    if isinstance(run, LeafRun):
        return _simulate_log(run, known, chosen)
    ready = with_runtime(run, known)
    return _with_warnings(replay(ready.summary, ready.runtime, chosen), ready.notes)


def validate(
    runs: Iterable[Run],
    *,
    calibration: Calibration | str | Path | None = None,
    nccl: Benchmarks | None = None,
    comm_source: str = "",
    leave_one_out: bool = False,
    times: Durations | str = Durations.MEDIAN,
    node_size: int | None = None,
) -> Validation:
    """Compare runs, and tables of measured steps (.csv, .toml), with their simulation.

    Without a calibration replays take a run's own host and message times; `leave_one_out`
    calibrates each run on all others. Raises PlanError for options that would do nothing,
    TraceError for runs and tables that cannot be read.
    """
    runs = list(runs)
    tables = [Path(run) for run in runs if isinstance(run, str | Path) and is_step_table(Path(run))]
    others = [run for run in runs if not isinstance(run, str | Path) or Path(run) not in tables]
    chosen, known = _durations(times), _calibration(calibration)
    _refuse_idle(
        tables,
        others,
        nccl=nccl,
        times=chosen,
        leave_one_out=leave_one_out,
        calibrated=known is not None,
    )
    benchmarked = benchmarks(nccl, comm_source)
    steps = [step for path in tables for step in read_step_table(path)]
    traced, logs = _opened(others, node_size)
    notes = warnings_of([*traced, *logs])
    rows = (
        *validate_logs(logs, known, leave_one_out=leave_one_out, notes=notes),
        *validate_table(steps, known, benchmarked),
    )
    found = validate_runs(
        traced, known, leave_one_out=leave_one_out, durations=chosen, table=benchmarked
    )
    return Validation(
        runs=tuple(found),
        rows=rows,
        warnings=(
            *notes,
            *(benchmarked.warnings if benchmarked else ()),
            *(note for row in rows for note in row.notes),
        ),
    )


def what_if(
    run: RunSummary | str | Path,
    *,
    calibration: Calibration | str | Path | None = None,
    schedule: str | None = None,
    microbatches: int | None = None,
    balance: Sequence[int] | None = None,
    layers: int | None = None,
    bandwidth: Mapping[str, str] | None = None,
    node_size: int | None = None,
) -> WhatIf:
    """A run replayed, and once more with another schedule, balance or bandwidth of messages.

    `balance` are the layers of every stage, `layers` those of the model where the run's names do
    not tell, `bandwidth` e.g. `{"inter_node": "400Gbps"}`. Raises PlanError for changes that the
    run cannot make, TraceError for runs that cannot be read or replayed.
    """
    traced = run if isinstance(run, RunSummary) else load_trace(run, node_size)
    ready = with_runtime(traced, _calibration(calibration))
    change = Change(
        schedule=schedule,
        microbatches=microbatches,
        balance=tuple(balance) if balance else None,
        topology=_topology(ready, bandwidth) if bandwidth else None,
        layers=layers,
    )
    found = change_run(ready.summary, ready.runtime, change)
    return replace(found, notes=(*ready.notes, *found.notes))


def warnings_of(runs: Iterable[RunSummary | LeafRun]) -> list[str]:
    """What was noticed while reading runs."""
    read = [run.run if isinstance(run, RunSummary) else run for run in runs]
    return [text for each in read for text in each.warnings]


def benchmarks(nccl: Benchmarks | None, source: str = "") -> CommTable | None:
    """All micro-benchmarks together, or those that fit `source`; None where there are none."""
    if not nccl:
        return None
    if not isinstance(nccl, CommTable):
        nccl = read_measurements([Path(each) for each in nccl])
    return nccl.choose(source) if source else nccl


def _simulate_log(log: LeafRun, known: Calibration | None, times: Durations) -> SimulatedStep:
    if times is not Durations.MEDIAN:
        raise PlanError(
            f"{log.source}: a log of leaf modules is simulated from its medians: leave out --times"
        )
    lacking = known is not None and known.leaf_overhead is None
    notes = ["the calibration has no leaf_overhead: leaf modules alone"] * lacking
    return _with_warnings(simulate_leaves(log, known.leaf_overhead if known else None), notes)


def _with_warnings(result: SimulatedStep, more: Sequence[str]) -> SimulatedStep:
    report = replace(result.report, warnings=(*result.report.warnings, *more))
    return replace(result, report=report)


def _opened(runs: Iterable[Run], node_size: int | None) -> tuple[list[RunSummary], list[LeafRun]]:
    """Traces and logs, those given by their paths loaded."""
    loaded = [
        run if isinstance(run, RunSummary | LeafRun) else load_run(run, node_size=node_size)
        for run in runs
    ]
    traced = [run for run in loaded if isinstance(run, RunSummary)]
    return traced, [run for run in loaded if isinstance(run, LeafRun)]


def _calibration(given: Calibration | str | Path | None) -> Calibration | None:
    return read_calibration(given) if isinstance(given, str | Path) else given


def _durations(times: str) -> Durations:
    try:
        return Durations(times)
    except ValueError:
        raise PlanError(f"times is {times!r}: expected one of {', '.join(Durations)}") from None


def _refuse_idle(
    tables: Sequence[Path],
    others: Sequence[Run],
    *,
    nccl: Benchmarks | None,
    times: Durations,
    leave_one_out: bool,
    calibrated: bool,
) -> None:
    """Refuse options that would do nothing."""
    unused = ["--leave-one-out"] * leave_one_out
    unused += ["--times"] * (times is not Durations.MEDIAN)
    if unused and not others:
        raise PlanError(f"{tables[0]}: rows are simulated as they say: leave out {unused[0]}")
    if leave_one_out and calibrated:
        raise PlanError(
            "--leave-one-out calibrates every run on all others: leave out --calibration"
        )
    if nccl and not tables and not leave_one_out:
        raise PlanError(
            "--nccl: expected --leave-one-out or a table of measured steps; a calibration file "
            "holds its own benchmarks (stepsim calibrate RUN... --nccl FILE)"
        )


def _topology(ready: MeasuredRuntime, bandwidths: Mapping[str, str]) -> Topology:
    """The run's message times with other bandwidths."""
    changed: dict[Placement, float] = {}
    for name, value in bandwidths.items():
        if name not in list(Placement):
            raise PlanError(f"bandwidth is {name!r}: expected one of {', '.join(Placement)}")
        changed[Placement(name)] = parse_bandwidth(value)
    return message_topology(with_bandwidth(ready.links, changed), ready.summary.clocks.node_size)
