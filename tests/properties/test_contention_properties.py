"""Random jobs whose transfers share links."""

from collections import defaultdict
from math import inf
from pathlib import Path
from typing import Any

import pytest
from fluid import capacities, replay, transfers_of
from helpers import examples, few
from hypothesis import event, given
from invariants import check_timeline, task_times
from random_jobs import SCHEDULES, Job, jobs, networks

import stepsim
from stepsim.engine.timeline import Timeline
from stepsim.face import Result
from stepsim.files.reading import topology_names
from stepsim.graph.programs import SegmentKind
from stepsim.network.prices import Prices
from stepsim.network.topology import Topology
from stepsim.workload.rows import Group, ParallelAxis

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


def same(one: Result, other: Result) -> None:
    """Both results say the same of every task of every rank, and of every link."""
    a, b = one.report, other.report
    assert (a.step_time_ps, a.pipeline_time_ps) == (b.step_time_ps, b.pipeline_time_ps)
    for rank in range(a.npus):
        mine, theirs = one.timeline.tasks(rank), other.timeline.tasks(rank)
        assert (mine.start == theirs.start).all(), rank
        assert (mine.end == theirs.end).all(), rank
    ours, others = one.ranks, other.ranks
    assert (ours.breakdown[ours.actor_of] == others.breakdown[others.actor_of]).all()
    assert a.links == b.links
    assert a.critical_path_ps == b.critical_path_ps


@some_examples
@given(job=jobs(), network=networks())
def test_folding_changes_nothing(job: Job, network: Topology) -> None:
    """Every schedule, mode and kind of network, gradients after the pipeline or beside it."""
    folded, full = simulate(job, network), simulate(job, network, fold=False)
    event(f"folded: {len(folded.timeline.actors) < len(full.timeline.actors)}")
    same(folded, full)
    for result in (folded, full):
        check_timeline(result.timeline)
        report = result.report
        assert (result.ranks.breakdown.sum(axis=1) == report.step_time_ps).all()
        assert (result.ranks.breakdown >= 0).all()
        assert sum(report.critical_path_ps.values()) == report.step_time_ps


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
def test_no_task_is_earlier_than_without_contention(job: Job, network: Topology) -> None:
    """Orders are fixed before the run, so a longer transfer makes nothing earlier."""
    alone = simulate(job, network, contention="none", fold=False).timeline
    shared = simulate(job, network, fold=False).timeline
    for before, after in zip(task_times(alone), task_times(shared), strict=True):
        assert before.keys() == after.keys()
        assert all(after[place] >= time for place, time in before.items())


@examples(10)
@given(job=jobs(), network=networks())
def test_the_same_input_gives_the_same_bytes(job: Job, network: Topology) -> None:
    assert simulate(job, network).to_json() == simulate(job, network).to_json()


def gradients(timeline: Timeline, stage: int, kind: SegmentKind) -> dict[Group, int]:
    """Bytes that a stage's segments of a kind move over its data groups, once per step."""
    graph = timeline.graph
    found: dict[Group, int] = defaultdict(int)
    for segment in graph.programs[stage].segments:
        if segment.kind is kind:
            for task in graph.task_lists[segment.task_list].tasks:
                if task.comm >= 0 and graph.comms[task.comm].axis is ParallelAxis.DP:
                    found[graph.comms[task.comm].group] += graph.comms[task.comm].size_bytes
    return found


@some_examples
@given(job=jobs(), network=networks())
def test_overlapped_gradients_leave_the_pipeline_alone(job: Job, network: Topology) -> None:
    """Without contention; and as many bytes are reduced in all, in buckets or after the pipeline.

    The step need not be shorter: every bucket pays latency.
    """
    job = Job(**{**vars(job), "dp_overlap": True})
    later = Job(**{**vars(job), "dp_overlap": False})
    one, other = (simulate(each, network, contention="none") for each in (job, later))
    assert one.report.pipeline_time_ps == other.report.pipeline_time_ps
    kinds = SegmentKind.REDUCTION, SegmentKind.PER_STEP
    for stage in range(one.report.plan["pp"]):
        sums = []
        for each in (one, other):
            found = [gradients(each.timeline, stage, kind) for kind in kinds]
            sums.append({group: sum(f[group] for f in found) for group in Group})
        assert sums[0] == sums[1]


SHIPPED: dict[str, dict[str, Any]] = {
    "gpt_tp4": {"npus": 16, "pp": 2},
    "moe_128": {"npus": 64, "pp": 2},
    "gpt_1024": {"npus": 32, "pp": 2},
}
"""Every shipped workload on few ranks, at least two in each kind of group."""


@pytest.mark.slow
@pytest.mark.parametrize("contention", ["none", "fair"])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("topology", topology_names())
@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_jobs_fold(
    name: str, topology: str, schedule: str, contention: str, workloads: Path
) -> None:
    """Gradients beside the pipeline only where that lets transfers meet."""
    for overlap in (False, True) if contention == "fair" else (False,):
        results = [
            stepsim.simulate(
                workloads / f"{name}.txt",
                topology,
                schedule=schedule,
                microbatches=4,
                contention=contention,
                dp_overlap=overlap,
                fold_ranks=fold,
                **SHIPPED[name],
            )
            for fold in (True, False)
        ]
        same(*results)


@pytest.mark.parametrize("topology", ["hgx-h100", "ring"])
@pytest.mark.parametrize("name", few(["gpt_tp4", "moe_128"], "gpt_tp4"))
def test_some_shipped_jobs_fold(name: str, topology: str, workloads: Path) -> None:
    """The quick ones of the slow test above."""
    options = SHIPPED[name] | {"microbatches": 2}
    folded, full = (
        stepsim.simulate(
            workloads / f"{name}.txt",
            topology,
            contention="fair",
            dp_overlap=True,
            fold_ranks=fold,
            **options,
        )
        for fold in (True, False)
    )
    same(folded, full)
    assert len(folded.timeline.actors) < len(full.timeline.actors)
