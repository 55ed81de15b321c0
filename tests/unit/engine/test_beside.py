"""Paces of compute beside communication, and what communications of a step take."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stepsim
from stepsim.base.errors import PlanError
from stepsim.engine.beside import ListWork, RowDemands, Taken
from stepsim.engine.paces import Paces, Speeds
from stepsim.workload.overlap import (
    CommEngine,
    Demands,
    GpuLimits,
    KernelDemand,
    slowdown,
)

GPU = GpuLimits(sms=132, bytes_per_s=3350e9)
RING = CommEngine.RING.traits.moving(370e9)
FACTOR = slowdown(KernelDemand(), [RING], GPU)
ROOT = Path(__file__).parents[3]


TAKEN: Taken = (RING.sms, round(RING.bytes_per_s), ())
WAITS: Taken = (RING.sms, 0, ())


def paces() -> Paces:
    return Paces(
        rows=[RowDemands(works=[None], moves=[TAKEN], waits=[WAITS])], speeds=Speeds(gpu=GPU)
    )


def computes(*duration_ps: int) -> ListWork:
    """Compute, one task after the other."""
    after = [(task - 1,) if task else () for task in range(len(duration_ps))]
    nothing = [None for _ in duration_ps]
    return ListWork.of(duration_ps, [Demands() for _ in duration_ps], nothing, after)


@given(compute=st.integers(1, 10**13), beside=st.integers(0, 10**13))
def test_the_closed_estimate_is_what_the_engine_does(compute: int, beside: int) -> None:
    """Compute that begins with a communication: slowed until one of both ends."""
    run = paces()
    assert not run.change(0, TAKEN, 1)
    end = run.enter(0, 7, computes(compute), 0)
    if beside < end:
        assert run.change(0, TAKEN, -1)
        changed = dict(run.settle(beside))
        end = changed.get(0, end)
    slowed = compute + min(beside, compute * FACTOR) * (1 - 1 / FACTOR)
    assert end == pytest.approx(slowed, abs=2, rel=1e-12)


def test_changes_that_cancel_change_no_forecast() -> None:
    run = paces()
    run.enter(0, 3, computes(10**9), 0)
    assert run.change(0, TAKEN, 1)
    assert run.change(0, TAKEN, -1)
    assert [*run.settle(5)] == []
    assert run.leave(0) == 3
    assert not run.change(0, TAKEN, 1)


def test_a_ring_that_waits_slows_less_than_one_that_moves() -> None:
    """It holds its SMs and takes no memory bandwidth."""
    ends = []
    for taken in (None, WAITS, TAKEN):
        run = paces()
        if taken:
            run.change(0, taken, 1)
        ends.append(run.enter(0, 0, computes(10**9), 0))
    assert ends[0] == 10**9
    assert ends[1] == pytest.approx(10**9 * GPU.sms / (GPU.sms - RING.sms), abs=1)
    assert ends[1] < ends[2]


def test_of_several_delays_the_longest_counts_whoever_measured_it() -> None:
    """They were added, and cut at the delay of a message."""
    short, long = 1_500_000, 2_500_000
    for delays in ((long,), (short, long), (long, long, short)):
        run = paces()
        for delay_ps in (*delays, short):
            run.change(0, (0, 0, (delay_ps,)), 1)
        run.change(0, (0, 0, (short,)), -1)
        work = ListWork.of([10**7], [Demands(launches=1.0)], [None], [()])
        assert run.enter(0, 0, work, 0) == 10**7 + long


@given(
    tasks=st.lists(st.integers(1, 10**7), min_size=1, max_size=5),
    changes=st.lists(st.integers(0, 2 * 10**7), max_size=6),
)
def test_tasks_one_after_the_other_take_as_long_as_one(
    tasks: list[int], changes: list[int]
) -> None:
    """But for rounding, a picosecond each."""
    ends = []
    for work in (computes(*tasks), computes(sum(tasks))):
        run = paces()
        end = run.enter(0, 0, work, 0)
        for number, now in enumerate(sorted(changes)):
            if now < end:
                run.change(0, TAKEN, -1 if number % 2 else 1)
                end = dict(run.settle(now)).get(0, end)
        ends.append(end)
    assert ends[0] == pytest.approx(ends[1], abs=2 * len(tasks))


def step(**options: Any) -> stepsim.Result:
    return stepsim.simulate(
        "llama-3-8b", "hgx-h100", npus=8, global_batch=16, sequence=4096, **options
    )


FSDP: dict[str, Any] = {"framework": "torch-fsdp-compiled"}


def test_copy_engines_slow_less_than_rings_and_nothing_least() -> None:
    """The sign of a step on 8 H100 whose collectives were moved to copy engines: 2.4 % faster."""
    copies, rings, more = (
        step(**FSDP, overlap_cost=True, comm_sms=sms).report for sms in (0, None, 32)
    )
    assert copies.step_time_ps < rings.step_time_ps < more.step_time_ps
    assert 1.01 < rings.step_time_ps / copies.step_time_ps < 1.05


def test_the_law_takes_the_place_of_the_factor_beside_gathers() -> None:
    """Else compute beside gathered parameters would be slowed twice."""
    plain, slowed = (step(**FSDP, overlap_cost=cost).report for cost in (False, True))
    assert plain.slowed_by_communication_ps is None
    assert slowed.slowed_by_communication_ps
    alone = slowed.step_time_ps - slowed.slowed_by_communication_ps
    assert alone < plain.step_time_ps < slowed.step_time_ps


def test_sms_do_not_matter_where_nothing_overlaps() -> None:
    """One GPU after the other computes and reduces: no compute runs beside communication."""
    options: dict[str, Any] = {
        "tp": 8,
        "dp_overlap": False,
        "tp_overlap": False,
        "framework": "megatron-core",
    }
    plain = step(**options).report.step_time_ps
    for sms in (0, 4, 24, 64):
        slowed = step(**options, overlap_cost=True, comm_sms=sms).report
        assert slowed.step_time_ps == plain
        assert slowed.slowed_by_communication_ps == 0


def test_what_cannot_be_known_is_refused_by_name() -> None:
    workload = ROOT / "workloads" / "gpt_tp4.txt"
    with pytest.raises(PlanError, match="is of an unknown device"):
        stepsim.simulate(workload, "ideal", overlap_cost=True)
    with pytest.raises(PlanError, match="engine is levels with overlap_cost: expected simpy"):
        stepsim.simulate(workload, "hgx-h100", overlap_cost=True, engine="levels")
