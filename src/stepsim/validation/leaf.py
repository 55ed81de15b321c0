"""Runs known only by their leaf modules: what those explain, and host time for the rest.

A stage's backward is taken as twice its forward. What is left of the step is put down to host time
per action: a fixed part and a part per layer, since an eager runtime launches every kernel of every
layer. The two are fitted on some runs and tried on others.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepsim.api import Result
from stepsim.calibration.document import DEFAULT_NODE_SIZE, message_topology
from stepsim.errors import CalibrationError
from stepsim.measured.leaf_log import LeafRun
from stepsim.measured.run import PS_PER_MS
from stepsim.parallel import ParallelPlan
from stepsim.stages import StageWork
from stepsim.validation.replay import PipelineWork, Runtime, schedule_for, simulate_work, work_row

BACKWARD_OVER_FORWARD = 2
_PROBE_PS = 10 * PS_PER_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafOverhead:
    """Host time in ps of a forward or a backward: per action, and per layer of its stage."""

    action_ps: float = 0.0
    layer_ps: float = 0.0


def leaf_step_ps(run: LeafRun, overhead: LeafOverhead | None = None) -> int:
    """Pipeline time of a step, see `simulate_leaves`."""
    return simulate_leaves(run, overhead).report.pipeline_time_ps


def simulate_leaves(run: LeafRun, overhead: LeafOverhead | None = None) -> Result:
    """A 1F1B step of leaf modules and host time, with blocking messages that cost nothing."""
    overhead = overhead or LeafOverhead()
    works = []
    for stage in run.stages:
        host = round(overhead.layer_ps * stage.layers)
        forward, backward = stage.forward_ps, BACKWARD_OVER_FORWARD * stage.forward_ps
        works.append(
            StageWork(
                chunks=(((work_row("leaves", forward, backward), work_row("host", host, host)),),),
                per_step=(),
            )
        )
    plan = ParallelPlan(tp=run.tp, dp=run.dp, pp=run.pp, microbatches=run.microbatches)
    work = PipelineWork(
        source=run.source,
        plan=plan,
        works=tuple(works),
        message_bytes=0,
        warnings=run.warnings,
    )
    runtime = Runtime(
        host_overhead_ps=round(overhead.action_ps), topology=message_topology((), DEFAULT_NODE_SIZE)
    )
    return simulate_work(work, schedule_for(work, "1f1b"), runtime)


def explained(run: LeafRun) -> float:
    """Share of the measured step that leaf modules and the pipeline's bubbles explain."""
    return leaf_step_ps(run) / run.step_ps


def fit_overhead(runs: Sequence[LeafRun], *, per_layer: bool = True) -> LeafOverhead:
    """Host time with the least squared relative errors on some runs, none below 0.

    Raises CalibrationError for fewer runs than numbers, or runs that do not tell the two apart.
    """
    needed = 1 + per_layer
    if len(runs) < needed:
        raise CalibrationError(f"{len(runs)} runs for {needed} numbers: expected at least as many")
    found = np.zeros(2)
    for _ in range(4):
        base = np.array([_error(run, found) for run in runs])
        probes = np.eye(2)[:needed] * _PROBE_PS
        slopes = np.stack(
            [(np.array([_error(run, found + p) for run in runs]) - base) for p in probes], axis=1
        )
        if np.linalg.matrix_rank(slopes, tol=1e-3) < needed:
            raise CalibrationError(
                "time per action and per layer cannot be told apart: expected runs whose stages "
                "hold different numbers of layers"
            )
        step = np.linalg.lstsq(slopes, -base, rcond=None)[0] * _PROBE_PS
        found[:needed] = np.maximum(found[:needed] + step, 0)
    return LeafOverhead(action_ps=float(found[0]), layer_ps=float(found[1]))


def _error(run: LeafRun, overhead: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> float:
    given = LeafOverhead(action_ps=float(overhead[0]), layer_ps=float(overhead[1]))
    return leaf_step_ps(run, given) / run.step_ps - 1
