"""Schedules run by the engine against the reference's evaluations and Megatron's programs."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from helpers import line_of_npus

from stepsim.base.structs import replace
from stepsim.core.actions import TaskList, fused_tasks
from stepsim.core.timeline import run_graph
from stepsim.core.write import write_graph
from stepsim.explain.make_report import make_report, simulated_ranks
from stepsim.explain.network_use import find_traffic
from stepsim.explain.report import Report, SimulatedRanks
from stepsim.network.prices import Prices
from stepsim.options import StepOptions
from stepsim.parallel.p2p import P2PMode
from stepsim.parallel.schedules import Schedule, build
from stepsim.parallel.stages import Stages, StageWork
from stepsim.workload.plan import Plan
from stepsim.workload.rows import Row, Work

FILES = {
    "gpipe": ("gpipe", {}),
    "1f1b": ("1f1b", {}),
    "interleaved_megatron": ("interleaved", {}),
    "interleaved_torch": ("interleaved", {"grouping": "torch"}),
    "looped_bfs": ("looped-bfs", {}),
    "interleaved_zero_bubble": ("interleaved-zb", {}),
    "zb_h1": ("zb-h1", {}),
    "zb_v": ("zb-v", {}),
    "dualpipe": ("dualpipe", {}),
    "dualpipe_v": ("dualpipe-v", {}),
}
PROGRAMS = {
    "default": (P2PMode.BLOCKING, False),
    "no_overlap": (P2PMode.BLOCKING, False),
    "overlap": (P2PMode.OVERLAP, False),
    "overlap_warmup_flush": (P2PMode.OVERLAP, True),
}


SCALE = 3
"""Durations are scaled so that two thirds of a pair are whole picoseconds."""

PARTS = {"before": "head", "between": "inner", "after": "tail", "busy": "busy"}
"""Parts of a bubble, and what the golden cases call them."""


def cases(shared: Path, name: str) -> Iterator[tuple[dict[str, Any], Schedule]]:
    """Golden cases that are no refusals, with stepsim's schedule."""
    document = json.loads((shared / f"reference/pipeline/{name}.json").read_text())
    schedule, options = FILES[name]
    for case in document["cases"]:
        if "error" not in case:
            group = case.get("params", {}).get("microbatch_group_size_per_vp_stage")
            extra = {"group_size": group} if group else {}
            yield (
                case,
                build(
                    schedule,
                    ranks=case["P"],
                    microbatches=case["m"],
                    chunks=case["v"],
                    **options,
                    **extra,
                ),
            )


def run(
    schedule: Schedule,
    evaluation: dict[str, Any],
    mode: P2PMode,
    options: StepOptions,
    factor: float,
) -> tuple[Report, SimulatedRanks]:
    """Run a schedule whose stage s takes the evaluation's durations."""
    placement, given = schedule.placement, evaluation["durations"]

    def duration(kind: str, stage: int) -> int:
        value = given[kind]
        return SCALE * int(value[stage] if isinstance(value, list) else value)

    def row(stage: int) -> Row:
        whole, grad, weight = (duration(kind, stage) for kind in "BIW")
        assert whole == grad + weight
        return Row(
            name=f"stage{stage}",
            forward=Work(compute_ps=duration("F", stage)),
            input_grad=Work(compute_ps=grad),
            weight_grad=Work(compute_ps=weight),
        )

    works = tuple(
        StageWork(
            chunks=tuple(
                ((row(placement.stage(rank, chunk)),),) for chunk in range(placement.chunks)
            ),
            per_step=(),
        )
        for rank in range(placement.ranks)
    )
    plan = Plan(pp=placement.ranks, microbatches=schedule.microbatches)
    stages = Stages(works=works, pp_comm_bytes=1, warnings=())
    with patch("stepsim.core.actions.fused_tasks", partial(scaled_pair, factor)):
        graph = write_graph(stages, schedule, plan, replace(options, p2p=mode))
    prices = Prices(
        plan=plan, topology=line_of_npus(plan.npus, SCALE * evaluation["p2p"]), comms=graph.comms
    )
    timeline = run_graph(graph, prices)
    spent = simulated_ranks(timeline)
    return make_report(
        timeline, prices, spent, find_traffic(graph.uses, prices), workload="", warnings=()
    ), spent


def scaled_pair(factor: float, *halves: Any) -> TaskList:
    """A fused pair whose compute takes `factor` times as long as its halves."""
    pair = fused_tasks(*halves)
    tasks = (replace(task, duration_ps=round(task.duration_ps * factor)) for task in pair.tasks)
    return replace(pair, tasks=tuple(tasks))


@pytest.mark.parametrize("name", FILES)
def test_eager_runs_are_the_reference_evaluations(name: str, shared: Path) -> None:
    compared = 0
    for case, schedule in cases(shared, name):
        for label, expected in case["eval"].items():
            factor = 2 / 3 if label.endswith("overlap=max2_3") else 1.0
            report, spent = run(schedule, expected, P2PMode.EAGER, StepOptions(), factor)
            where = (case["P"], case["m"], case["v"], label)
            assert report.pipeline_time_ps == round(SCALE * expected["makespan"]), where
            idle = [spent.bubbles[actor] for actor in spent.actor_of]
            for part, golden in PARTS.items():
                scaled = [round(SCALE * value) for value in expected[golden]]
                assert [getattr(each, part) for each in idle] == scaled, where
            assert report.bubble_fraction == pytest.approx(expected["bubble_fraction"], abs=1e-9)
            compared += 1
    assert compared


@pytest.mark.parametrize("name", ["1f1b", "interleaved_megatron"])
def test_programs_take_as_long_as_megatrons(name: str, shared: Path) -> None:
    compared = 0
    for case, schedule in cases(shared, name):
        for program, makespans in case["program_makespan"].items():
            if isinstance(makespans, str):
                assert makespans.startswith("rejected")
                continue
            mode, flush = PROGRAMS[program]
            for label, expected in makespans.items():
                evaluation, _, transfer = label.partition("|")
                if transfer != "eager":
                    options = StepOptions(warmup_flush=flush)
                    report, _ = run(schedule, case["eval"][evaluation], mode, options, 1.0)
                    where = (case["P"], case["m"], case["v"], program, label)
                    assert report.pipeline_time_ps == SCALE * expected, where
                    compared += 1
    assert compared


OVERLAP, FLUSH = StepOptions(), StepOptions(warmup_flush=True)
DEALLOCATED = StepOptions(deallocate_outputs=True)
BOTH = StepOptions(warmup_flush=True, deallocate_outputs=True)


@pytest.mark.parametrize(
    ("schedule", "group", "mode", "options", "bubbles"),
    [
        ("1f1b", None, P2PMode.BLOCKING, OVERLAP, (17.9, 22.9, 29.3)),
        ("interleaved:4", None, P2PMode.BLOCKING, OVERLAP, (5.2, 18.5, 32.6)),
        ("interleaved:4", None, P2PMode.OVERLAP, OVERLAP, (5.2, 10.7, 17.8)),
        ("interleaved:4", 16, P2PMode.OVERLAP, FLUSH, (5.2, 6.5, 8.4)),
        ("interleaved:4", None, P2PMode.OVERLAP, DEALLOCATED, (5.2, 18.3, 32.5)),
        ("interleaved:4", 16, P2PMode.OVERLAP, BOTH, (5.2, 16.5, 29.4)),
    ],
)
def test_bubbles_of_megatrons_runtimes(
    schedule: str,
    group: int | None,
    mode: P2PMode,
    options: StepOptions,
    bubbles: tuple[float, float, float],
) -> None:
    """The table of the reference README: P = 8, m = 32, F = 12 and B = 24 per rank."""
    built = build(schedule, ranks=8, microbatches=32, **({"group_size": group} if group else {}))
    chunks = built.placement.chunks
    forward, work = 12_000 // chunks, 32 * 36_000 * SCALE
    durations = {"F": forward, "B": 2 * forward, "I": forward, "W": forward}
    for hop, expected in zip((0, 1_200, 3_000), bubbles, strict=True):
        report, _ = run(built, {"durations": durations, "p2p": hop}, mode, options, 1.0)
        bubble = 100 * (1 - work / report.pipeline_time_ps)
        assert bubble == pytest.approx(expected, abs=0.051), hop
