"""The engine: a run that cannot finish says what is stuck; time is bounded."""

from typing import Any

import numpy as np
import pytest
from helpers import pipeline_graph, prices_of, uniform_workload
from unit.network.test_flights import phase

import stepsim
from stepsim.base.arrays import Lists
from stepsim.base.axes import Part
from stepsim.base.errors import SimulationError
from stepsim.base.structs import replace
from stepsim.core.events import run
from stepsim.core.timeline import run_graph
from stepsim.network.flights import Fabric, Transfer
from stepsim.parallel.modes import Sharing
from stepsim.parallel.p2p import P2PMode
from stepsim.parallel.schedules import Action, ActionKind, Placement, Schedule
from stepsim.run.spans import NodeWaits


def action(kind: ActionKind, stage: int, microbatch: int = 0) -> Action:
    return Action(kind=kind, stage=stage, chunk=0, microbatch=microbatch)


def schedule(*orders: tuple[Action, ...]) -> Schedule:
    return Schedule(
        name="test", placement=Placement(ranks=len(orders)), microbatches=1, orders=orders
    )


@pytest.mark.parametrize("sharing", Sharing)
def test_a_deadlocked_schedule_names_the_stuck_tasks_and_what_they_wait_for(
    sharing: Sharing,
) -> None:
    backward_first = (action(ActionKind.BACKWARD, 0), action(ActionKind.FORWARD, 0))
    last = (action(ActionKind.FORWARD, 1), action(ActionKind.BACKWARD, 1))
    graph = pipeline_graph(schedule(backward_first, last), [1, 1], [1, 1], P2PMode.EAGER)
    with pytest.raises(SimulationError) as stuck:
        run_graph(graph, replace(prices_of(graph, 1), sharing=sharing))
    message = str(stuck.value)
    assert "8 tasks wait for each other in a circle" in message
    assert "rank 0 recv 0 from stage 1: waits for rank 1 send 3 to stage 0" in message
    assert "rank 1 recv 0 from stage 0: waits for rank 0 send 3 to stage 1" in message


def test_a_step_beyond_the_clock_is_refused() -> None:
    workload = uniform_workload(forward=2**62, backward=2**62, pp=1, microbatches=2)
    with pytest.raises(SimulationError, match="106 days"):
        stepsim.simulate(workload, "ideal")


def test_a_transfer_that_others_slow_ends_by_its_last_forecast() -> None:
    """Three begin at 0, 300 and 600 on one link: each would take 1,000 ps alone.

    The first has 700 left at 300 and 550 at 600, of which it gets a third: it ends at 2,250. Then
    the second has 300 left and the third 450: at half the speed 2,850, and alone 3,000.
    """
    waits = NodeWaits(after=Lists.of([(), (), (1,), (), (3,)]))
    duration_ps = np.array([0, 300, 0, 600, 0])
    sent = Transfer(phases=(phase(1_000, {0: 1}),))
    fabric = Fabric(capacity=np.array([1e9]))
    start, end = run(waits, duration_ps, dict.fromkeys((0, 2, 4), sent), fabric)
    assert start.tolist() == [0, 0, 300, 0, 600]
    assert end.tolist() == [2_250, 300, 2_850, 600, 3_000]


def test_progress_counts_up_to_all_tasks() -> None:
    seen: list[tuple[int, int]] = []
    workload = uniform_workload(forward=1, backward=1, pp=8, microbatches=2400)
    stepsim.simulate(
        workload,
        "ideal",
        engine="simpy",
        progress=lambda ended, total: seen.append((ended, total)),
    )
    assert seen
    assert [ended for ended, _ in seen] == sorted(ended for ended, _ in seen)
    assert all(ended <= total and ended % (1 << 16) == 0 for ended, total in seen)


def test_host_overhead_is_charged_before_every_action() -> None:
    workload = uniform_workload(forward=100, backward=200, pp=1, microbatches=3)
    report = stepsim.simulate(workload, "ideal", host_overhead="10 ps").report
    assert report.step_time_ps == 3 * (100 + 200 + 2 * 10)


def test_a_weight_gradient_follows_on_the_host_without_a_delay() -> None:
    """The queue that holds it has all that it needs: an input gradient alone has host time."""
    workload = uniform_workload(forward=100, backward=200, pp=2, microbatches=3)
    asked: dict[str, Any] = {"schedule": "zb-h1", "host_overhead": "10 ps"}
    report = stepsim.simulate(workload, "ideal", **asked).report
    assert report.breakdown_ps[Part.HOST.key] == 3 * 2 * 10
