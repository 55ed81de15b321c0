"""One rank of each class tells the same as every rank: in every number of the result."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from helpers import examples, row
from hypothesis import given, strategies as st
from invariants import check_same_times
from jobs import asked, make_batch, totals_of
from random_jobs import Job, circumstances, jobs, networks

import stepsim
from stepsim.base.axes import CollectiveKind, Group, ParallelAxis, Part, Phase, degrees_of
from stepsim.face.results import Result
from stepsim.network.topology import (
    Dimension,
    DimensionKind,
    LinkClass,
    NestedTopology,
    Topology,
)
from stepsim.workload.rows import CommOp, Microbatch, Role, StepItem, Work, Workload


@given(job=jobs(), network=networks(), data=st.data())
@examples(30)
def test_folding_changes_no_number(job: Job, network: Topology, data: st.DataObject) -> None:
    check_folding(job, network, data.draw(circumstances(job)))


def check_folding(job: Job, network: Topology, asked: dict[str, Any]) -> None:
    """Whoever is simulated by whatever engine, all that is said and when tasks ran are the same."""
    shares = asked["contention"] == "fair"
    engines = ["simpy"] if shares else ["simpy", "levels"]
    ways = [(fold, engine) for engine in engines for fold in (True, False)]
    folded, *others = (
        stepsim.simulate(
            job.workload, network, fold_ranks=fold, engine=engine, **job.options(), **asked
        )
        for fold, engine in ways
    )
    for every in others:
        assert list(differences(numbers(folded), numbers(every))) == []
        check_same_times(folded.timeline, every.timeline)
    if shares:
        check_totals(folded, job, network, asked)
    else:
        batch = make_batch(job.workload, network, **job.options(), **asked)
        assert batch.evaluate({}).step_time_ps.tolist() == [folded.report.step_time_ps]


def check_totals(folded: Result, job: Job, network: Topology, given: dict[str, Any]) -> None:
    """Totals, which take no events where no transfers meet, are those of the report."""
    report = folded.report
    options = asked(**job.options(), **given)
    found = totals_of(job.workload, network, options)
    assert found.step_time_ps == report.step_time_ps
    assert found.pipeline_time_ps == report.pipeline_time_ps
    assert found.bubble_fraction == report.bubble_fraction
    assert found.breakdown_ps == report.breakdown_ps


def numbers(result: Result) -> Any:
    """The document without what says that it was folded, and by which engine it was made.

    Its timeline has a row for everybody who is simulated.
    """
    document = json.loads(result.to_json())
    del document["settings"]["engine"], document["timeline"]
    for rank in document["ranks"]:
        del rank["like"]
    return document


def differences(one: Any, other: Any, place: str = "") -> Iterator[tuple[str, object, object]]:
    """Where two documents differ, and how."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() | other.keys():
            yield from differences(one.get(key), other.get(key), f"{place}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for i, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from differences(a, b, f"{place}[{i}]")
    elif one != other:
        yield place, one, other


def gradients(*sizes: int) -> StepItem:
    """Gradients that several collectives reduce, one after the other."""
    kinds = [CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER]
    comms = tuple(
        CommOp(kind=kind, group=Group.DP, axis=ParallelAxis.DP, size_bytes=size)
        for kind, size in zip(kinds, sizes, strict=False)
    )
    return StepItem(
        name="gradients",
        phase=Phase.WEIGHT_GRAD,
        work=Work(comms=comms),
        role=Role.GRADIENTS,
    )


def two_stages(*items: StepItem) -> Workload:
    """Two stages of two ranks, whose last backward sends while it reduces."""
    times = row(10_000, 10_000, 10_000)
    block = Microbatch(embedding=(), layers=((times,), (times,)), head=())
    return Workload(
        source="made",
        degrees=degrees_of(pp=2),
        npus=4,
        pp_comm_bytes=20_000,
        microbatches=(block,),
        per_step=items,
    )


LINK = LinkClass(name="link", bandwidth=1e9, latency_ps=1000)
FLAT = NestedTopology(
    name="flat",
    source="test",
    dimensions=(Dimension(kind=DimensionKind.FULLY_CONNECTED, size=4, link=LINK),),
)


@pytest.mark.parametrize("fold", [True, False])
def test_a_message_between_two_reductions_is_exposed_in_order_of_starts(fold: bool) -> None:
    """Of 24.003 us of reductions in two, 11 us run beside the message that started before them."""
    result = stepsim.simulate(
        two_stages(gradients(9_000, 30_000)),
        FLAT,
        microbatches=2,
        p2p="blocking",
        dp_overlap=True,
        dp_bucket="1 GB",
        fold_ranks=fold,
    )
    last = result.report.stages[1].breakdown_ps
    assert (last[Part.EXPOSED_DP.key], last[Part.EXPOSED_PP.key]) == (13_004_000, 51_001_000)


RING = NestedTopology(
    name="ring",
    source="test",
    dimensions=(Dimension(kind=DimensionKind.RING, size=4, link=LINK),),
)


@pytest.mark.parametrize(("tp", "slows"), [(2, True), (1, False)])
@pytest.mark.parametrize("size", [1, 9_000])
@pytest.mark.parametrize("fold", [True, False])
def test_reductions_that_are_held_for_one_slow_each_other(
    fold: bool, size: int, tp: int, slows: bool
) -> None:
    """Two groups of every other rank of a ring share its links; one group of all has them alone."""
    block = Microbatch(embedding=(), layers=((row(10, 10),),), head=())
    workload = Workload(
        source="made",
        degrees=degrees_of(tp=tp),
        npus=4,
        microbatches=(block,),
        per_step=(gradients(size),),
    )
    result = stepsim.simulate(workload, RING, contention="fair", fold_ranks=fold)
    said = any("no transfer slows another" in each for each in result.report.warnings)
    assert said is not slows
