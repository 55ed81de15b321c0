"""What a report adds up, against closed forms of even pipelines and sums made by hand.

Every stage takes F = 10 forward and B = 20 backward; messages take no time.
"""

from typing import Any

import numpy as np
import pytest
from helpers import pipeline_graph, prices_of, uniform_workload

import stepsim
from stepsim.base.axes import Part
from stepsim.core.timeline import run_graph
from stepsim.explain.make_report import (
    bubble_fraction,
    make_report,
    mean_columns,
    mean_parts,
    simulated_ranks,
)
from stepsim.explain.network_use import find_traffic
from stepsim.explain.report import Report, SimulatedRanks
from stepsim.parallel.p2p import P2PMode
from stepsim.parallel.schedules import build

F, B = 10, 20
SHAPES = [(1, 1), (2, 2), (4, 4), (4, 8), (3, 7)]


def reported(ranks: int, microbatches: int, name: str = "1f1b") -> tuple[Report, SimulatedRanks]:
    schedule = build(name, ranks=ranks, microbatches=microbatches)
    graph = pipeline_graph(schedule, [F] * ranks, [B] * ranks, P2PMode.EAGER)
    prices = prices_of(graph, hop_ps=0)
    timeline = run_graph(graph, prices)
    spent, before = simulated_ranks(timeline), ("said before",)
    return make_report(
        timeline, prices, spent, find_traffic(graph.uses, prices), workload="even", warnings=before
    ), spent


@pytest.mark.parametrize(("ranks", "microbatches"), SHAPES)
@pytest.mark.parametrize("name", ["1f1b", "gpipe"])
def test_an_even_pipeline_takes_as_long_as_published(
    ranks: int, microbatches: int, name: str
) -> None:
    """(m + P - 1)(F + B), of which (P - 1)(F + B) are idle on every rank."""
    report, spent = reported(ranks, microbatches, name)
    assert report.step_time_ps == (microbatches + ranks - 1) * (F + B)
    assert report.pipeline_time_ps == report.step_time_ps
    assert report.step_time_s == report.step_time_ps / 1e12
    assert {each.total for each in spent.bubbles} == {(ranks - 1) * (F + B)}
    assert {each.busy for each in spent.bubbles} == {microbatches * (F + B)}
    assert report.bubble_fraction == pytest.approx((ranks - 1) / (microbatches + ranks - 1))
    assert report.zero_bubble_rate == pytest.approx(report.bubble_fraction)
    assert set(spent.breakdown.sum(axis=1).tolist()) == {report.step_time_ps}
    for parts, compute_ps in (
        (report.breakdown_ps, microbatches * (F + B)),
        (report.critical_path_ps, report.step_time_ps),
    ):
        assert sum(parts.values()) == report.step_time_ps
        assert parts[Part.COMPUTE.key] == compute_ps


@pytest.mark.parametrize(("ranks", "microbatches"), SHAPES)
def test_idle_time_lies_before_between_and_after_a_ranks_actions(
    ranks: int, microbatches: int
) -> None:
    """Rank r starts r forwards late and ends r backwards early."""
    for rank, stage in enumerate(reported(ranks, microbatches)[0].stages):
        assert stage.bubble_ps is not None
        assert (stage.bubble_ps.before, stage.bubble_ps.after) == (rank * F, rank * B)
        assert (stage.forward_ps, stage.backward_ps) == (F, B)
        assert (stage.first_rank, stage.last_rank) == (rank, rank)
        assert stage.steady_start_ps == (2 * ranks - 1 - rank) * F + (ranks - 1 - rank) * (B - F)


# Means


def test_means_keep_the_sum_the_largest_remainders_rounded_up() -> None:
    """Two ranks of (3, 4, 3) and one of (4, 4, 2): 3.33, 4, 2.67 add up to 10 as 3, 4, 3."""
    parts = np.zeros((2, len(Part)), dtype=np.int64)
    parts[0, :3], parts[1, :3] = (3, 4, 3), (4, 4, 2)
    mean = mean_parts(parts, np.array([2, 1]))
    assert list(mean.values())[:4] == [3, 4, 3, 0]


def test_columns_are_averaged_as_one_by_one() -> None:
    random = np.random.default_rng(1)
    parts = random.integers(0, 99, (5, len(Part), 7))
    parts[:, -1] += parts.sum(axis=1).max() - parts.sum(axis=1)
    counts = np.array([1, 2, 3, 4, 5])
    columns = mean_columns(parts, counts)
    for i in range(7):
        assert list(mean_parts(parts[:, :, i], counts).values()) == columns[:, i].tolist()


def test_means_of_long_times_do_not_wrap() -> None:
    parts = np.zeros((1, len(Part)), dtype=np.int64)
    parts[0, 0] = 2**62
    assert mean_parts(parts, np.array([1000]))[Part.COMPUTE.key] == 2**62


def test_a_bubble_is_idle_over_pipeline_time_of_all_ranks() -> None:
    assert bubble_fraction([30, 0], 3, [20, 0]).tolist() == [0.5, 0.0]


# Warnings


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        ({"algorithm": "all_gather=ring"}, "the step has no all_gather"),
        ({"contention": "fair"}, "contention has no effect on this step"),
    ],
)
def test_what_shows_nowhere_is_said(options: dict[str, Any], warning: str) -> None:
    workload = uniform_workload(forward=10, backward=20, pp=1, microbatches=2)
    report = stepsim.simulate(workload, "hgx-h100", npus=1, **options).report
    assert [each for each in report.warnings if warning in each]
