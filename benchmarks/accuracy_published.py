"""Published measurements against stepsim: 8 A100 and leaf-module logs."""

import csv
import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
from sizes import sized

from stepsim.base.structs import replace
from stepsim.files.traces.optimus_log import read_optimus_log
from stepsim.measured.calibration.calibration import LeafOverhead, LinkFit, message_topology
from stepsim.measured.clocks import NodePlacement
from stepsim.measured.layers import StageCost
from stepsim.measured.step_log import LeafLog
from stepsim.measured.work import RecordedWork
from stepsim.parallel.p2p import P2PMode
from stepsim.parallel.schedules import Schedule, build
from stepsim.runs.leaf import fit_overhead, simulate_leaves
from stepsim.runs.replay import simulated
from stepsim.workload.plan import Plan

PS_PER_MS = 10**9
PS_PER_US = 10**6
Table = list[dict[str, str]]


def rows_of(path: Path) -> Table:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def iteration_ms(
    schedule: Schedule,
    stages: Sequence[Sequence[StageCost]],
    hop_ps: float,
    host_ps: float,
    mode: P2PMode | None,
) -> float:
    """Longest time from a rank's first action to its last: iterations follow rank by rank.

    `stages` are those of every rank, a cost for each of its chunks.
    """
    link = LinkFit(
        placement=NodePlacement.INTRA_NODE,
        latency_ps=round(hop_ps),
        bandwidth=math.inf,
        residual=0.0,
        samples=1,
        sizes=(),
    )
    work = RecordedWork(
        source="published",
        plan=Plan(pp=len(stages), microbatches=schedule.microbatches),
        blocks=(tuple(replace(chunks[0], chunks=tuple(chunks)) for chunks in stages),),
        schedule=schedule,
        topology=message_topology((link,), 8),
        host_overhead_ps=round(host_ps),
        message_bytes=1,
    )
    step = simulated(work, replace(work.options, schedule=schedule, p2p=mode))
    pipeline_ps = step.report.pipeline_time_ps
    spans = [pipeline_ps - each.before - each.after for each in step.ranks.bubbles]
    return max(spans) / PS_PER_MS


def stage_cost(forward: float, input_grad: float, weight_grad: float = 0.0) -> StageCost:
    """A chunk of so many ps."""
    backward = round(input_grad) + round(weight_grad)
    share = round(weight_grad) / max(backward, 1)
    return StageCost(layers=1, forward_ps=round(forward), backward_ps=backward, weight_share=share)


def a100_error(row: dict[str, str], host_us: float) -> float:
    times = zip(*(map(float, row[each].split()) for each in ("F_us", "B_us")), strict=True)
    stages = [
        [stage_cost(forward * PS_PER_US, backward * PS_PER_US)] for forward, backward in times
    ]
    schedule = build("1f1b", ranks=int(row["P"]), microbatches=int(row["m"]))
    predicted = iteration_ms(schedule, stages, 0, host_us * PS_PER_US, P2PMode.BLOCKING)
    return predicted / float(row["iter_ms_measured"]) - 1


def eight_a100(path: Path) -> Iterator[str]:
    """Host time fitted on four rows, tried on the other four, for four choices of rows."""
    rows = rows_of(path)[: sized(None, 2)]
    halves = sized(([0, 2, 4, 6], [1, 3, 5, 7], [0, 1, 2, 3], [4, 5, 6, 7]), ([0],))
    bare = np.array([a100_error(row, 0) for row in rows])
    slope = (np.array([a100_error(row, 100) for row in rows]) - bare) / 100
    yield "| fitted on rows | host time, us | mean error on the others | largest |"
    yield "|---|---|---|---|"
    for chosen in halves:
        host = -float(slope[chosen] @ bare[chosen] / (slope[chosen] @ slope[chosen]))
        others = [abs(a100_error(row, host)) for i, row in enumerate(rows) if i not in chosen]
        names = ", ".join(map(str, chosen))
        yield f"| {names} | {host:.0f} | {np.mean(others):.2%} | {max(others):.2%} |"


LEAF_TEXT = """\
Leaf modules and a backward of twice the forward leave half of a step unexplained. The rest is put
down to two numbers: a layer takes a multiple of its leaf modules (attention, norms, rotary
embedding and residuals are launched one by one like them; embedding and head are leaf modules as a
whole), and every forward and backward of a stage takes host time. Both are fitted on some logs and
tried on the others. A pair of logs tells both only if its stages differ enough in layers: where
either number is below two standard errors, from the spread of a log's steps, nothing is fitted.
The mechanism was chosen among several with these four logs at hand, and four logs of one model on
one machine are few.

Steps with these numbers are a **fit**, not a replay. Bytes are in neither: tensor-parallel
all-reduces go over PCIe here, and the logs tell neither sequence length nor element size. On nine
further logs of the set, which this page does not have, the fit is off by 8.6 % mean, 15.8 % at
most: expect that, not the errors below, on a log of other degrees or microbatches.
"""


def leaf_logs(paths: Sequence[Path]) -> Iterator[str]:
    """What leaf modules explain, and overheads fitted on two or three runs tried on the others."""
    runs = [read_optimus_log(path) for path in paths[: sized(None, 2)]]
    names = [f"pp{r.plan.pp} tp{r.plan.tp} mbs{r.plan.microbatch_size}" for r in runs]
    yield LEAF_TEXT
    yield "| run | measured, ms | spread of steps | explained by leaf modules | unexplained |"
    yield "|---|---|---|---|---|"
    for name, run in zip(names, runs, strict=True):
        share = simulate_leaves(run).report.pipeline_time_ps / run.step_ps
        spread = run.step_spread_ps / run.step_ps
        yield (
            f"| {name} | {run.step_ps / PS_PER_MS:.0f} | {spread:.1%} | {share:.0%} | "
            f"{1 - share:.0%} |"
        )
    yield ""
    yield "| fitted on | host time per action | layers over leaf modules | errors on the others |"
    yield "|---|---|---|---|"
    for chosen in (*combinations(range(len(runs)), 2), *combinations(range(len(runs)), 3)):
        found = fit_overhead([runs[i] for i in chosen])
        errors = [
            f"{names[i]} {_leaf_error(run, found)}" for i, run in enumerate(runs) if i not in chosen
        ]
        cells = [" and ".join(names[i] for i in chosen), *_leaf_numbers(found)]
        yield f"| {' | '.join(cells)} | {', '.join(errors) if found else ''} |"


def _leaf_error(run: LeafLog, overhead: LeafOverhead | None) -> str:
    simulated = simulate_leaves(run, overhead).report.pipeline_time_ps
    return f"{simulated / run.step_ps - 1:+.1%}"


def _leaf_numbers(found: LeafOverhead | None) -> list[str]:
    if found is None:
        return ["not identified", "not identified"]
    action, factor = found.action, found.layer_factor
    return [
        f"{action.value / PS_PER_MS:.1f} ± {action.residual / PS_PER_MS:.1f} ms",
        f"{factor.value:.2f} ± {factor.residual:.2f}",
    ]
