"""Runs known only by their leaf modules: what those explain, and what is beside them.

A stage's backward is taken as twice its forward. A layer does more than its leaf modules:
attention, norms, rotary embedding, residuals. In an eager runtime all of these are launched one by
one like the leaf modules, so a layer takes a multiple of what its leaf modules take. Embedding and
head are leaf modules as a whole. Every forward and backward of a stage takes host time besides, for
messages and bookkeeping. Multiple and host time are fitted on the steps of some logs and tried on
others.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.errors import CalibrationError
from stepsim.measured.calibration.calibration import (
    CLEAR,
    Calibration,
    Fitted,
    FittedTime,
    LeafOverhead,
    message_topology,
)
from stepsim.measured.clocks import DEFAULT_NODE_SIZE
from stepsim.measured.layers import StageCost
from stepsim.measured.run import PS_PER_MS
from stepsim.measured.step_log import LeafLog
from stepsim.measured.work import RecordedWork
from stepsim.runs.replay import simulated
from stepsim.runs.validate import Source, TimeEntry, compared
from stepsim.step.prepared import SimulatedStep

_BACKWARD_OVER_FORWARD = 2
_FEWEST_LOGS = 2
# No host time, and layers that are their leaf modules: what cannot be less.
_NONE = np.array([0.0, 1.0])
_PROBE = np.array([float(PS_PER_MS), 0.1])
_ROUNDS = 10
_SETTLED = 1e-6
# A change of relative errors, per probe, that is none.
_FLAT = 1e-3


def simulate_leaves(run: LeafLog, overhead: LeafOverhead | None = None) -> SimulatedStep:
    """A 1F1B step with blocking messages that cost nothing: leaf modules, and what is beside them.

    Without `overhead` there is nothing beside them.
    """
    if overhead is None:
        return _simulate(run, _NONE)
    return _simulate(run, np.array([overhead.action.value, overhead.layer_factor.value]))


def fit_overhead(
    runs: Sequence[LeafLog], missing: list[tuple[str, str]] | None = None
) -> LeafOverhead | None:
    """Host time and multiple with the least squared relative errors of steps.

    None where the logs do not tell them apart, that is, where either is not clearly above its bound
    if every step is off by its own spread; the reason is added to `missing`.
    """
    missing = missing if missing is not None else []
    if len(runs) < _FEWEST_LOGS:
        missing.append(("leaf_overhead", f"{len(runs)} log for two numbers"))
        return None
    found, uncertain = _solve(runs)
    if not np.all(found - _NONE > CLEAR * uncertain):
        reason = (
            "host time and what layers do beside their leaf modules cannot be told apart: "
            "expected logs whose stages differ in layers"
        )
        missing.append(("leaf_overhead", reason))
        return None
    (action, factor), residuals, samples = found.tolist(), (uncertain / found).tolist(), len(runs)
    return LeafOverhead(
        action=FittedTime(value=round(action), residual=residuals[0], samples=samples),
        layer_factor=Fitted(value=factor, residual=residuals[1], samples=samples),
    )


def _solve(runs: Sequence[LeafLog]) -> tuple[Floats, Floats]:
    """Both numbers, and how far each moves if every step is off by its spread.

    Gauss-Newton: a step is linear in both but where another stage becomes the slowest. The second
    is infinite where the logs tell only one combination of the two.
    """
    found = _NONE
    for _ in range(_ROUNDS):
        errors, slopes = _errors(runs, found)
        step = np.linalg.lstsq(slopes, -errors, rcond=None)[0]
        found = np.clip(found + step * _PROBE, _NONE, None)
        if np.all(np.abs(step) < _SETTLED):
            break
    if np.linalg.matrix_rank(slopes, tol=_FLAT) < len(found):
        return found, np.full(len(found), np.inf)
    noise = np.array([run.step_spread_ps / run.step_ps for run in runs])
    return found, np.sqrt(np.square(np.linalg.pinv(slopes) * noise).sum(axis=1)) * _PROBE


def validate_logs(
    runs: Sequence[LeafLog],
    calibration: Calibration | None,
    *,
    leave_one_out: bool,
    notes: list[str],
) -> list[TimeEntry]:
    """Steps of logs, simulated from their leaf modules and the overhead of a calibration.

    With `leave_one_out` the overhead is that of all other logs; a log whose others do not tell it
    is left out. Without either there is none. What was assumed or left out is added to `notes`.
    Raises CalibrationError where leaving one out leaves too few.
    """
    if leave_one_out and len(runs) in range(1, _FEWEST_LOGS + 1):
        raise CalibrationError(
            f"{len(runs)} logs of leaf modules: expected at least {_FEWEST_LOGS + 1} for "
            "--leave-one-out, two numbers are fitted on the others"
        )
    found = []
    for run in runs:
        overhead = calibration.leaf_overhead if calibration else None
        if leave_one_out:
            missing: list[tuple[str, str]] = []
            overhead = fit_overhead([each for each in runs if each is not run], missing)
            notes += [f"{run.source}: left out, of the other logs: {why}" for _, why in missing]
        elif overhead is None:
            notes.append(f"{run.source}: no leaf_overhead is calibrated: leaf modules alone")
        elif calibration and run.fingerprint in calibration.traces:
            notes.append(f"{run.source}: the calibration was fitted on this log too")
        if overhead or not leave_one_out:
            step = simulate_leaves(run, overhead).report.pipeline_time_ps
            source = Source.FIT if overhead else Source.EXPLAINED
            found.append(compared(Path(run.source).name, source, step, run.step_ps))
    return found


def _errors(runs: Sequence[LeafLog], at: Floats) -> tuple[Floats, Floats]:
    """Relative errors of steps, and how they change with a probe of each number."""

    def errors(at: Floats) -> Floats:
        simulated = [_simulate(run, at).report.pipeline_time_ps for run in runs]
        return np.array(simulated) / [run.step_ps for run in runs] - 1

    base = errors(at)
    return base, np.stack([errors(at + probe) - base for probe in np.diag(_PROBE)], axis=1)


def _simulate(run: LeafLog, at: Floats) -> SimulatedStep:
    """A step with host time in ps per action, and a multiple of the layers' leaf modules."""
    forwards = (round(each.layers_ps * float(at[1])) + each.ends_ps for each in run.stages)
    costs = (
        StageCost(layers=1, forward_ps=each, backward_ps=_BACKWARD_OVER_FORWARD * each)
        for each in forwards
    )
    work = RecordedWork(
        source=run.source,
        plan=run.plan,
        blocks=(tuple(costs),),
        schedule=None,
        topology=message_topology((), DEFAULT_NODE_SIZE),
        host_overhead_ps=round(float(at[0])),
        said=run.warnings,
    )
    return simulated(work)
