"""Compute that communication slows: within bounds, alike ranks alike, and nothing is nothing."""

from itertools import cycle

from helpers import examples
from hypothesis import given, strategies as st
from invariants import check_same_times
from jobs import asked
from random_jobs import Job, circumstances, jobs, networks

from stepsim.base.structs import replace
from stepsim.core.beside import OverlapCost
from stepsim.core.timeline import Timeline
from stepsim.files.asked import StepInputs
from stepsim.network.topology import Topology
from stepsim.step.prepared import PreparedStep, prepare
from stepsim.workload.overlap import (
    MEMORY_DRAW,
    CommEngine,
    GpuLimits,
    Kernel,
    KernelDemand,
    KernelKind,
    Kernels,
)

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
    """What a row runs; nothing where nobody knows."""
    launches = draw(st.sampled_from([0.0, 0.25, 3.0]))
    return tuple(
        Kernel(name="a", operator="", weight=1.0, demand=each, launches=launches)
        for each in draw(st.lists(KERNELS, max_size=4))
    )


def ready(
    job: Job, network: Topology, cost: OverlapCost | None, data: st.DataObject
) -> PreparedStep:
    drawn = data.draw(circumstances(job))
    several = data.draw(st.lists(kernels(), min_size=1, max_size=4))
    turns = cycle(several)
    workload = job.workload.with_works(lambda phase, work: replace(work, kernels=next(turns)))
    step = prepare(StepInputs(workload, network, asked(**job.options(), **drawn)))
    return replace(step, overlap=cost)


@given(job=jobs(), network=networks(), cost=COSTS, data=st.data())
@examples(30)
def test_compute_is_slowed_within_bounds(
    job: Job, network: Topology, cost: OverlapCost, data: st.DataObject
) -> None:
    step = ready(job, network, cost, data)
    timeline = step.timeline()
    assert timeline.unslowed_ps == replace(step, overlap=None).timeline().step_time_ps
    check_compute(timeline)
    every = replace(step, fold_ranks=False).timeline()
    check_same_times(timeline, every)


def check_compute(timeline: Timeline) -> None:
    """No compute is faster than alone, and it keeps a twentieth of its speed."""
    for cohort in timeline.cohorts:
        longer = cohort.longer_ps
        assert (longer >= 0).all()
        assert (longer <= 19.5 * cohort.tasks.duration_ps[:, None] + 1).all()


@given(job=jobs(), network=networks(), data=st.data())
@examples(30)
def test_no_sms_and_no_bytes_change_no_picosecond(
    job: Job, network: Topology, data: st.DataObject
) -> None:
    step = ready(job, network, None, data)
    as_ever = step.timeline()
    with_nothing = replace(step, overlap=NOTHING).timeline()
    check_same_times(as_ever, with_nothing)
