"""Curves over time, by hand: activations of a pipeline, bytes on the links of a step."""

import numpy as np
import pytest
from helpers import collective, pipeline_graph, prices_of

import stepsim
from stepsim.base.axes import Group, degrees_of
from stepsim.core.timeline import Timeline, run_graph
from stepsim.documents.trace import Curves
from stepsim.explain.counters import link_rates, live_activations
from stepsim.parallel.p2p import P2PMode
from stepsim.parallel.schedules import Schedule, build
from stepsim.parallel.schedules.base import peak_live
from stepsim.workload.rows import Microbatch, Row, Work, Workload

F, B = 10, 20


def timeline_of(schedule: Schedule) -> Timeline:
    ranks = schedule.placement.ranks
    graph = pipeline_graph(schedule, [F] * ranks, [B] * ranks, P2PMode.EAGER)
    return run_graph(graph, prices_of(graph, hop_ps=0))


def steps(curves: Curves) -> list[tuple[int, ...]]:
    """Time and values, wherever they change."""
    rows = zip(curves.time_ps.tolist(), curves.values.astype(int).tolist(), strict=True)
    return [(time, *values) for time, values in rows]


def test_activations_live_from_their_forward_to_the_end_of_their_backward() -> None:
    """Two stages, two microbatches: rank 0 runs F0 F1, waits, B0 B1; rank 1 alternates."""
    timeline = timeline_of(build("1f1b", ranks=2, microbatches=2))
    assert live_activations(timeline, 0).names == ("until backward",)
    # rank 0: F0 0-10, F1 10-20, B0 40-60, B1 70-90
    assert steps(live_activations(timeline, 0)) == [(0, 1), (10, 2), (60, 1), (90, 0)]
    # rank 1: F0 10-20, B0 20-40, F1 40-50, B1 50-70
    assert steps(live_activations(timeline, 1)) == [(10, 1), (40, 1), (70, 0)]


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "zb-h1", "zb-v", "interleaved:2", "dualpipe-v"])
@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 4), (4, 8)])
def test_the_highest_points_are_the_peaks_of_the_schedule(
    name: str, ranks: int, microbatches: int
) -> None:
    schedule = build(name, ranks=ranks, microbatches=microbatches)
    workload = Workload(
        source="even",
        degrees=degrees_of(pp=ranks),
        npus=ranks,
        microbatches=(Microbatch(embedding=(), layers=((_row(),), (_row(),)), head=()),),
    )
    result = stepsim.simulate(workload, "ideal", schedule=name, microbatches=microbatches)
    for rank, peak in enumerate(peak_live(schedule)):
        curves = live_activations(result.timeline, rank)
        assert curves.values.sum(axis=1).max() == peak.freed_at_w
        assert curves.values[:, 0].max() == peak.freed_at_b
        assert len(curves.names) == (2 if schedule.splits_backward else 1)
        assert np.all(curves.values[-1] == 0)


def _row(*, comm_bytes: int = 0) -> Row:
    comms = (collective(comm_bytes, Group.TP),) if comm_bytes else ()
    return Row(
        name="r",
        forward=Work(compute_ps=F * 1000, comms=comms),
        input_grad=Work(compute_ps=B * 1000),
        weight_grad=Work(compute_ps=B * 1000),
    )


@pytest.mark.parametrize("pp", [1, 2])
def test_the_integral_of_a_rate_is_the_bytes_on_the_links(pp: int) -> None:
    workload = Workload(
        source="even",
        degrees=degrees_of(tp=2, pp=pp),
        npus=4 * pp,
        microbatches=(Microbatch(embedding=(), layers=((_row(comm_bytes=10**6),),), head=()),) * 3,
        pp_comm_bytes=10**5,
    )
    result = stepsim.simulate(workload, "hgx-h100")
    curves = link_rates(result.timeline, result.prices)
    seconds = np.diff(curves.time_ps) / 1e12
    carried = (curves.values[:-1] * seconds[:, None]).sum(axis=0)
    for name, found in zip(curves.names, carried.tolist(), strict=True):
        (use,) = (each for each in result.report.links if each.name == name)
        assert found == pytest.approx(use.total_bytes, rel=1e-9, abs=1e-3)
    assert carried.sum() > 0
    assert np.all(curves.values[-1] == 0)
