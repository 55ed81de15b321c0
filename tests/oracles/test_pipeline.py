"""1F1B against its definition, its closed forms and the orders of the original code."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers import pipeline_graph, prices_of, uniform_workload

import stepsim
from stepsim.core.timeline import run_graph
from stepsim.explain.make_report import make_report, simulated_ranks
from stepsim.explain.network_use import find_traffic
from stepsim.parallel.p2p import P2PMode
from stepsim.parallel.schedules import build
from stepsim.workload.rows import Row, Workload

PARTS = {"before": "head", "between": "inner", "after": "tail", "busy": "busy"}
"""Parts of a bubble, and what the golden cases call them."""


def longest_path(forward: Sequence[Sequence[int]], backward: Sequence[Sequence[int]]) -> int:
    """Makespan of 1F1B, `forward[stage][microbatch]`, from its definition, by recursion on time.

    Rank r: min(P-1-r, m) forwards, then one forward and one backward by turns, then backwards.
    """
    stages, count = len(forward), len(forward[0])
    done: dict[tuple[str, int, int], int] = {}
    orders = []
    for r in range(stages):
        k = min(stages - 1 - r, count)
        pairs = [t for j in range(count - k) for t in (("F", k + j), ("B", j))]
        rest = [("B", j) for j in range(count - k, count)]
        orders.append([*(("F", j) for j in range(k)), *pairs, *rest])
    position, free = [0] * stages, [0] * stages
    while any(position[r] < len(orders[r]) for r in range(stages)):
        for r in range(stages):
            while position[r] < len(orders[r]):
                kind, j = orders[r][position[r]]
                needs = []
                if kind == "F" and r > 0:
                    needs.append(("F", r - 1, j))
                if kind == "B":
                    needs.append(("F", r, j))
                    if r < stages - 1:
                        needs.append(("B", r + 1, j))
                if any(need not in done for need in needs):
                    break
                start = max([free[r], *(done[need] for need in needs)])
                free[r] = start + (forward if kind == "F" else backward)[r][j]
                done[kind, r, j] = free[r]
                position[r] += 1
    return max(done.values())


def rows_time(rows: Sequence[Row]) -> tuple[int, int]:
    forward = sum(row.forward.compute_ps for row in rows)
    return forward, sum(row.input_grad.compute_ps + row.weight_grad.compute_ps for row in rows)


@pytest.mark.parametrize("name", ["moe_128", "gpt_tp4", "gpt_1024"])
def test_seed_pipeline_time_is_the_longest_path(name: str, workloads: Path) -> None:
    workload: Workload = stepsim.load_workload(workloads / f"{name}.txt")
    times = [rows_time(list(block.rows())) for block in workload.microbatches]
    stages = workload.degrees["pp"]
    expected = longest_path([[f for f, _ in times]] * stages, [[b for _, b in times]] * stages)
    result = stepsim.simulate(workload, "ideal", stage_rows="every", p2p="eager")
    assert result.report.pipeline_time_ps == expected


@pytest.mark.parametrize(
    ("ranks", "microbatches"), [(1, 1), (1, 5), (4, 1), (4, 3), (4, 16), (8, 8)]
)
def test_uniform_pipeline_takes_the_closed_form(ranks: int, microbatches: int) -> None:
    forward, backward = 1_000, 2_300
    workload = uniform_workload(
        forward=forward, backward=backward, pp=ranks, microbatches=microbatches
    )
    result = stepsim.simulate(workload, "ideal", p2p="eager")
    report = result.report
    assert report.pipeline_time_ps == (microbatches + ranks - 1) * (forward + backward)
    assert report.bubble_fraction == pytest.approx((ranks - 1) / (microbatches + ranks - 1))
    assert all(each.total == (ranks - 1) * (forward + backward) for each in result.ranks.bubbles)


def makespan(ranks: int, microbatches: int, hop: int, mode: P2PMode) -> int:
    schedule = build("1f1b", ranks=ranks, microbatches=microbatches)
    graph = pipeline_graph(schedule, [100] * ranks, [200] * ranks, mode)
    return run_graph(graph, prices_of(graph, hop)).pipeline_time_ps


@pytest.mark.parametrize(("ranks", "microbatches"), [(3, 2), (3, 9), (4, 3), (4, 8), (8, 32)])
def test_blocking_transfers_cost_the_closed_form(ranks: int, microbatches: int) -> None:
    hop = 7
    extra = makespan(ranks, microbatches, hop, P2PMode.BLOCKING) - makespan(
        ranks, microbatches, 0, P2PMode.BLOCKING
    )
    assert extra == hop * (2 * microbatches + 2 * ranks - 5)


@pytest.mark.parametrize("microbatches", [1, 2, 7])
def test_blocking_transfers_of_two_ranks_cost_the_closed_form(microbatches: int) -> None:
    hop = 7
    assert makespan(2, microbatches, hop, P2PMode.BLOCKING) == (
        (microbatches + 1) * 300 + hop * (microbatches + 1)
    )


@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 4), (4, 4), (4, 12), (8, 16)])
def test_eager_transfers_cost_the_closed_form(ranks: int, microbatches: int) -> None:
    hop = 7
    base = (microbatches + ranks - 1) * 300
    extra = 2 * hop * ((ranks - 1) * microbatches // ranks + ranks - 2)
    assert makespan(ranks, microbatches, hop, P2PMode.EAGER) == base + extra


def golden_cases(shared: Path) -> list[dict[str, Any]]:
    document = json.loads((shared / "reference/pipeline/1f1b.json").read_text())
    return list(document["cases"])


def durations(case: dict[str, Any], name: str) -> tuple[list[int], list[int]]:
    """Forward and backward times per stage of a named evaluation."""
    given = case["eval"][name]["durations"]

    def spread(value: int | list[int]) -> list[int]:
        return value if isinstance(value, list) else [value] * case["P"]

    return spread(given["F"]), spread(given["B"])


def test_orders_are_those_of_megatron(shared: Path) -> None:
    for case in golden_cases(shared):
        schedule = build("1f1b", ranks=case["P"], microbatches=case["m"])
        assert schedule.tokens() == case["order"]


def test_eager_times_and_idle_are_the_reference_evaluation(shared: Path) -> None:
    compared = 0
    for case in golden_cases(shared):
        schedule = build("1f1b", ranks=case["P"], microbatches=case["m"])
        for name, expected in case["eval"].items():
            graph = pipeline_graph(schedule, *durations(case, name), P2PMode.EAGER)
            prices = prices_of(graph, expected["p2p"])
            timeline = run_graph(graph, prices)
            spent = simulated_ranks(timeline)
            report = make_report(
                timeline, prices, spent, find_traffic(graph.uses, prices), workload="", warnings=()
            )
            assert report.pipeline_time_ps == expected["makespan"], (case["P"], case["m"], name)
            idle = [spent.bubbles[actor] for actor in spent.actor_of]
            for part, golden in PARTS.items():
                assert [getattr(each, part) for each in idle] == expected[golden]
            assert report.bubble_fraction == pytest.approx(expected["bubble_fraction"], abs=1e-9)
            compared += 1
    assert compared


def test_blocking_makespan_is_megatrons_program(shared: Path) -> None:
    compared = 0
    for case in golden_cases(shared):
        schedule = build("1f1b", ranks=case["P"], microbatches=case["m"])
        for label, expected in case["program_makespan"]["default"].items():
            name, _, transfer = label.partition("|")
            if transfer == "rendezvous":
                graph = pipeline_graph(schedule, *durations(case, name), P2PMode.BLOCKING)
                prices = prices_of(graph, case["eval"][name]["p2p"])
                assert run_graph(graph, prices).pipeline_time_ps == expected, (case["P"], label)
                compared += 1
    assert compared
