"""Random jobs whose transfers share links."""

from collections import Counter, defaultdict
from math import inf

import pytest
from fluid import capacities, replay, transfers_of
from helpers import examples
from hypothesis import event, given
from invariants import check_timeline, task_times
from random_jobs import Job, jobs, networks

import stepsim
from stepsim.base.axes import Group, ParallelAxis
from stepsim.core.timeline import Timeline
from stepsim.core.write import SegmentKind
from stepsim.face.results import Result
from stepsim.network.prices import Prices
from stepsim.network.topology import Topology

some_examples = examples(25)


def simulate(job: Job, network: Topology, *, contention: str = "fair", fold: bool = True) -> Result:
    return stepsim.simulate(
        job.workload,
        network,
        schedule=job.schedule,
        p2p=job.p2p,
        microbatches=job.microbatches,
        dp_overlap=job.dp_overlap,
        dp_bucket=job.dp_bucket,
        contention=contention,
        fold_ranks=fold,
    )


def prices_of(timeline: Timeline, network: Topology) -> Prices:
    plan = timeline.graph.plan
    return Prices(
        plan=plan,
        topology=network.fit(plan.npus),
        comms=timeline.graph.comms,
        sharing=timeline.graph.options.contention,
    )


@some_examples
@given(job=jobs(), network=networks())
def test_every_run_is_consistent(job: Job, network: Topology) -> None:
    """Every schedule, mode and kind of network, gradients after the pipeline or beside it."""
    for fold in (True, False):
        result = simulate(job, network, fold=fold)
        check_timeline(result.timeline)
        report = result.report
        assert (result.ranks.breakdown.sum(axis=1) == report.step_time_ps).all()
        assert (result.ranks.breakdown >= 0).all()
        assert sum(report.critical_path_ps.values()) == report.step_time_ps
        assert simulate(job, network, fold=fold).to_json() == result.to_json()


@some_examples
@given(job=jobs(), network=networks())
def test_transfers_take_what_the_shares_of_a_fluid_say(job: Job, network: Topology) -> None:
    """Of all groups and pairs at once, moment by moment, by another program.

    Ends are whole picoseconds, and one less left at the speed alone is several at a small share.
    """
    timeline = simulate(job, network).timeline
    transfers = transfers_of(timeline, prices_of(timeline, network))
    ends = replay(transfers, capacities(network, transfers))
    for sent, end in zip(transfers, ends, strict=True):
        assert sent.end_ps - sent.start_ps >= sent.alone_ps, sent.what
        assert end == pytest.approx(sent.end_ps, rel=0, abs=20 + 1e-6 * (end - sent.start_ps)), (
            sent.what
        )
    event(f"shared: {any(sent.end_ps - sent.start_ps > sent.alone_ps for sent in transfers)}")


@some_examples
@given(job=jobs(), network=networks())
def test_no_link_carries_more_than_it_can(job: Job, network: Topology) -> None:
    """All of its bytes take their time: a lower bound of the step, per link."""
    result = simulate(job, network)
    transfers = transfers_of(result.timeline, prices_of(result.timeline, network))
    capacity = capacities(network, transfers)
    busy: dict[int, float] = defaultdict(float)
    for sent in transfers:
        for part in sent.parts:
            level = part.level_alone(capacity)
            for link, flows in part.loads.items():
                if level < inf:
                    busy[link] += part.alone_ps * flows / capacity[link] * level
    assert max(busy.values(), default=0) <= result.report.step_time_ps * (1 + 1e-9) + 1


@some_examples
@given(job=jobs(), network=networks())
@pytest.mark.parametrize("contention", ["siblings", "fair"])
def test_no_task_is_earlier_than_without_contention(
    contention: str, job: Job, network: Topology
) -> None:
    """Orders are fixed before the run, so a longer transfer makes nothing earlier."""
    alone = simulate(job, network, contention="none", fold=False).timeline
    shared = simulate(job, network, contention=contention, fold=False).timeline
    for before, after in zip(task_times(alone), task_times(shared), strict=True):
        assert before.keys() == after.keys()
        assert all(after[place] >= time for place, time in before.items())


def gradients(timeline: Timeline, stage: int) -> Counter[Group]:
    """Bytes that a stage reduces over each of its data groups, once per step."""
    graph = timeline.graph
    found = Counter[Group]()
    program = graph.programs[stage]
    for look in (program.looks[i] for i in program.look):
        if look.kind in (SegmentKind.REDUCTION, SegmentKind.PER_STEP):
            for task in graph.task_lists[look.task_list].tasks:
                if task.comm >= 0 and graph.comms[task.comm].axis is ParallelAxis.DP:
                    found[graph.comms[task.comm].group] += graph.comms[task.comm].size_bytes
    return found


@some_examples
@given(job=jobs(), network=networks())
def test_overlapped_gradients_leave_the_pipeline_alone(job: Job, network: Topology) -> None:
    """Without contention; and as many bytes are reduced in all, in buckets or after the pipeline.

    The step need not be shorter: every bucket pays latency. Where backwards have launches of
    their own, each row has its share of them once its gradients are reduced behind it, so the
    pipeline may take another time.
    """
    job = Job(**{**vars(job), "dp_overlap": True})
    later = Job(**{**vars(job), "dp_overlap": False})
    one, other = (simulate(each, network, contention="none") for each in (job, later))
    blocks = job.workload.microbatches
    rows = [row for block in blocks for part in (block.embedding, *block.layers) for row in part]
    if not any(work.host_ps for row in rows for work in (row.input_grad, row.weight_grad)):
        assert one.report.pipeline_time_ps == other.report.pipeline_time_ps
    for stage in range(one.report.plan["pp"]):
        assert gradients(one.timeline, stage) == gradients(other.timeline, stage)
