"""Compute that communication slows: work is kept, nothing is taken twice, and nothing is nothing.

The oracle looks at the times of a run alone: over every task of compute it adds up what the law
says of all communications of its rank that run or wait meanwhile.
"""

from itertools import cycle, pairwise

import numpy as np
import pytest
from helpers import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jobs import asked
from random_jobs import Job, circumstances, jobs, networks

from stepsim.base.structs import replace
from stepsim.base.units import PS_PER_S
from stepsim.engine.beside import OverlapCost, Taken, row_demands
from stepsim.engine.lay_out import lay_out
from stepsim.engine.paces import apart, make_paces
from stepsim.engine.run import run
from stepsim.engine.timeline import Cohort, Timeline
from stepsim.network.topology import Topology
from stepsim.parallel.modes import Sharing
from stepsim.step.prepared import PreparedStep, prepare
from stepsim.workload.overlap import (
    MEMORY_DRAW,
    MOST_TAKEN,
    CommDemand,
    CommEngine,
    Demands,
    GpuLimits,
    KernelDemand,
    KernelKind,
    memory_stretch,
    row_slowdown,
    slowdown,
    waves,
)
from stepsim.workload.rows import Kernel, Kernels

GPU = GpuLimits(sms=132, bytes_per_s=3350e9)
NOTHING = OverlapCost(gpu=GpuLimits(sms=132, bytes_per_s=float("inf")), sms=0)
COSTS = st.builds(
    OverlapCost,
    gpu=st.just(GPU),
    sms=st.sampled_from([None, 1, 8, 32]),
    exchange=st.sampled_from([CommEngine.POINT_TO_POINT, CommEngine.DEEPEP]),
)

KERNELS = st.builds(
    KernelDemand,
    kind=st.sampled_from(KernelKind),
    blocks=st.sampled_from([0, 1, 100, 132, 133, 264, 1000]),
    per_sm=st.sampled_from([(1,), (2,), (1, 2, 4)]),
    free_sms=st.sampled_from([0, 0, 8, 32]),
    draw=st.sampled_from([0.3, MEMORY_DRAW, 1.0]),
)
"""Kernels by their blocks, by the bytes that they want, and by the SMs that they leave free."""


@st.composite
def kernels(draw: st.DrawFn) -> Kernels:
    """What a row runs, beside a wait for the host; of some nobody knows what they ask."""
    run = draw(st.lists(st.none() | KERNELS, max_size=3))
    launches = draw(st.sampled_from([0.0, 0.25, 3.0]))
    wait = [None] * draw(st.integers(0, 1))
    return Kernels(
        tuple(
            Kernel(name="a", operator="", weight=1.0, demand=each, launches=launches)
            for each in (*wait, *run)
        )
    )


def ready(
    job: Job, network: Topology, cost: OverlapCost | None, data: st.DataObject
) -> PreparedStep:
    drawn = data.draw(circumstances(job))
    several = data.draw(st.lists(kernels(), min_size=1, max_size=4))
    turns = cycle(several)
    workload = job.workload.with_works(lambda phase, work: replace(work, kernels=next(turns)))
    step = prepare(workload, network, asked(**job.options(), **drawn))
    return replace(step, overlap=cost)


def check(job: Job, network: Topology, cost: OverlapCost, data: st.DataObject) -> None:
    step = ready(job, network, cost, data)
    timeline = step.laid_out().timeline()
    check_work(timeline, step, cost)
    check_by_itself(timeline, step, cost)
    options = replace(step.options, fold_ranks=False)
    every = replace(step, options=options).laid_out().timeline()
    for rank in range(step.graph.plan.npus):
        one, other = timeline.tasks(rank), every.tasks(rank)
        assert (one.start == other.start).all()
        assert (one.end == other.end).all()


def check_by_itself(timeline: Timeline, step: PreparedStep, cost: OverlapCost) -> None:
    """No task list is one task: the engine runs each task by its own events, to the same times."""
    if step.options.contention is Sharing.FAIR:
        return
    actors, plan = timeline.actors, step.graph.plan
    laid = lay_out(step.graph, actors, step.prices, step.slow, coalesce=False)
    paces = make_paces(laid.programs, actors, step.prices, cost)
    starts, ends = run(laid, actors, plan, paces=paces)
    times = [*map(np.asarray, starts)], [*map(np.asarray, ends)]
    starts_apart, ends_apart = apart(paces, laid.programs, laid.programs, times)
    for cohort in timeline.cohorts:
        for column, actor in enumerate(cohort.actors.tolist()):
            assert (cohort.start[:, column] == starts_apart[actor]).all()
            assert (cohort.end[:, column] == ends_apart[actor]).all()


def check_work(timeline: Timeline, step: PreparedStep, cost: OverlapCost) -> None:
    """Work done is rate times time for every task of compute of every simulated rank."""
    laid = {int(a): each.laid for each in timeline.cohorts for a in each.actors}
    programs = [laid[actor] for actor in range(len(timeline.actors))]
    demands = row_demands(programs, timeline.actors, step.prices, cost)
    for cohort in timeline.cohorts:
        for column, actor in enumerate(cohort.actors.tolist()):
            rows = demands[actor]
            taken = [
                *held(cohort, column, rows.moves, waits=False),
                *held(cohort, column, rows.waits, waits=True),
            ]
            computes = np.array([each is not None for each in rows.works])
            for task in np.flatnonzero(computes[cohort.laid.row]).tolist():
                row = rows.works[cohort.laid.row[task]]
                assert row
                (kernels,) = row.kernels
                assert kernels
                alone = int(cohort.laid.duration_ps[task])
                start, end = cohort.start[task, column], cohort.end[task, column]
                done = work(int(start), int(end), taken, kernels, row.duration_ps[0])
                assert done == pytest.approx(alone, rel=1e-9, abs=1.0 + 1e-6)


def held(
    cohort: Cohort, column: int, demands: list[Taken | None], *, waits: bool
) -> list[tuple[int, int, CommDemand]]:
    """When each communication of an actor takes what: while it runs, or while it waits."""
    found = []
    after = cohort.laid.after.tolist()
    for task in np.flatnonzero(cohort.laid.group >= 0).tolist():
        demand = demands[cohort.laid.row[task]]
        start = int(cohort.start[task, column])
        arrived = max((int(cohort.end[each, column]) for each in after[task]), default=0)
        span = (arrived, start) if waits else (start, int(cohort.end[task, column]))
        if demand and span[0] < span[1]:
            sms, bytes_per_s, delays = demand
            longest_ps = max(delays, default=0)
            taken = CommDemand(sms=sms, bytes_per_s=float(bytes_per_s), delay_ps=longest_ps)
            found.append((*span, taken))
    return found


def work(
    start: int,
    end: int,
    taken: list[tuple[int, int, CommDemand]],
    kernels: Demands,
    alone_ps: int,
) -> float:
    """Time alone that has passed between two moments, in ps, of a row of `alone_ps`."""
    inside = [each for each in taken if each[0] < end and each[1] > start]
    cuts = sorted({start, end, *(min(max(t, start), end) for a, b, _ in inside for t in (a, b))})
    done = 0.0
    for low, high in pairwise(cuts):
        beside = [demand for a, b, demand in inside if a <= low and b >= high]
        factor = row_slowdown(kernels, alone_ps / PS_PER_S, beside, GPU)
        assert 1.0 <= factor < float("inf")
        for _, kernel in kernels.shares:
            check_capacity(kernel, beside)
        done += (high - low) / factor
    return done


def check_capacity(kernel: KernelDemand, beside: list[CommDemand]) -> None:
    """Communication is served first; compute has no more than what is left of SMs and memory."""
    factor = slowdown(kernel, beside, GPU)
    held = min(sum(each.sms for each in beside), GPU.sms // 2)
    used = GPU.sms - kernel.free_sms
    if not kernel.blocks and kernel.kind is KernelKind.PRODUCT:
        assert used / factor <= (GPU.sms - held) * (1 + 1e-12)
    elif kernel.kind is KernelKind.PRODUCT and len(kernel.per_sm) == 1:
        at_once = kernel.per_sm[0] * min(used, GPU.sms - held)
        full = kernel.blocks // at_once
        assert factor * waves(kernel.blocks, kernel.per_sm[0], used) >= full * (1 - 1e-12)
    moved = sum(each.bytes_per_s for each in beside) / GPU.bytes_per_s
    filled = min(1.0, kernel.blocks / GPU.sms) if kernel.blocks else 1.0
    wanted = kernel.draw * filled
    drawn = wanted / memory_stretch(wanted, moved * GPU.bytes_per_s, GPU)
    assert drawn + min(moved, MOST_TAKEN) <= 1.0 + 1e-12  # compute keeps a twentieth


@given(job=jobs(), network=networks(), cost=COSTS, data=st.data())
@examples(30)
def test_work_done_is_rate_times_time(
    job: Job, network: Topology, cost: OverlapCost, data: st.DataObject
) -> None:
    check(job, network, cost, data)


@pytest.mark.slow
@given(job=jobs(), network=networks(), cost=COSTS, data=st.data())
@settings(max_examples=500)
def test_work_done_is_rate_times_time_in_many_jobs(
    job: Job, network: Topology, cost: OverlapCost, data: st.DataObject
) -> None:
    check(job, network, cost, data)


@given(job=jobs(), network=networks(), data=st.data())
@examples(30)
def test_more_channels_slow_no_job_in_which_nothing_overlaps(
    job: Job, network: Topology, data: st.DataObject
) -> None:
    """Nothing runs beside compute with copy engines: then it is as long with any channels."""
    step = ready(job, network, OverlapCost(gpu=GPU, sms=0), data)
    few = step.laid_out().timeline()
    assume(not overlaps(few, step))
    for sms in (1, 8, 32, 66):
        many = replace(step, overlap=OverlapCost(gpu=GPU, sms=sms)).laid_out().timeline()
        for rank in range(step.graph.plan.npus):
            one, other = few.tasks(rank), many.tasks(rank)
            assert (one.start == other.start).all()
            assert (one.end == other.end).all()


def overlaps(timeline: Timeline, step: PreparedStep) -> bool:
    """Whether compute of any rank runs while a communication of its own runs or waits."""
    laid = {int(a): each.laid for each in timeline.cohorts for a in each.actors}
    programs = [laid[actor] for actor in range(len(timeline.actors))]
    rings = OverlapCost(gpu=GPU)
    found = row_demands(programs, timeline.actors, step.prices, rings)
    for cohort in timeline.cohorts:
        for column, actor in enumerate(cohort.actors.tolist()):
            rows = found[actor]
            spans = held(cohort, column, rows.moves, waits=False)
            spans += held(cohort, column, rows.waits, waits=True)
            computes = np.array([each is not None for each in rows.works])[cohort.laid.row]
            start, end = cohort.start[computes, column], cohort.end[computes, column]
            if any(((start < last) & (end > first)).any() for first, last, _ in spans):
                return True
    return False


@given(job=jobs(), network=networks(), data=st.data())
@examples(30)
def test_no_sms_and_no_bytes_change_no_picosecond(
    job: Job, network: Topology, data: st.DataObject
) -> None:
    step = ready(job, network, None, data)
    as_ever = step.laid_out().timeline()
    with_nothing = replace(step, overlap=NOTHING).laid_out().timeline()
    for rank in range(step.graph.plan.npus):
        one, other = as_ever.tasks(rank), with_nothing.tasks(rank)
        assert (one.start == other.start).all()
        assert (one.end == other.end).all()
