"""Bytes on links, by hand: nodes of two NPUs at 4 GB/s, two nodes at 1 GB/s.

An all-reduce of two ranks sends half its bytes twice, so all of them once each way.
"""

import pytest
from helpers import collective, row, two_levels

from stepsim.base.axes import CollectiveKind, Group
from stepsim.base.structs import replace
from stepsim.core.write import TaskGraph, write_graph
from stepsim.explain.network_use import find_traffic, link_use
from stepsim.explain.report import LinkUse, LinkUser
from stepsim.network.prices import Prices
from stepsim.network.topology import Dimension, DimensionKind, LinkClass, NestedTopology
from stepsim.options import StepOptions
from stepsim.parallel.schedules import build
from stepsim.parallel.stages import Stages, StageWork
from stepsim.workload.plan import Plan
from stepsim.workload.rows import CommOp, Work

MB, MS = 10**6, 10**9
REDUCE = CollectiveKind.ALL_REDUCE


def graph_of(plan: Plan, *comms: CommOp, message: int = 0) -> TaskGraph:
    """A row with these forward collectives on every stage, in every microbatch."""
    rows = ((replace(row(5, 7), forward=Work(compute_ps=5, comms=comms)),),)
    works = (StageWork(chunks=(rows,), per_step=()),) * plan.pp
    stages = Stages(works=works, pp_comm_bytes=message, warnings=())
    schedule = build("1f1b", ranks=plan.pp, microbatches=plan.microbatches)
    return write_graph(stages, schedule, plan, StepOptions())


def uses(graph: TaskGraph, step_ps: int = 100 * MS) -> tuple[LinkUse, LinkUse]:
    """Use of the inner and the outer links in a step of so long."""
    prices = Prices(plan=graph.plan, topology=two_levels(), comms=graph.comms)
    inner, outer = link_use(prices.topology, find_traffic(graph.uses, prices), step_ps)
    return inner, outer


def test_collectives_load_the_links_of_their_groups_alone() -> None:
    """Three microbatches of 4 MB over tp, which lies within nodes: two links each way."""
    graph = graph_of(Plan(tp=2, dp=2, microbatches=3), collective(4 * MB, Group.TP))
    inner, outer = uses(graph)
    assert (inner.links, inner.used, inner.bandwidth_bytes_per_s) == (4, 4, 4e9)
    assert inner.total_bytes == 4 * 3 * 4 * MB
    assert inner.busiest_bytes == 3 * 4 * MB
    assert inner.busy_ps == 3 * MS
    assert inner.utilisation == pytest.approx(0.03)
    assert inner.users == (LinkUser(group=Group.TP, kind=REDUCE, bytes=3 * 4 * MB),)
    assert (outer.used, outer.total_bytes, outer.busiest, outer.users) == (0, 0.0, "", ())


def test_messages_cross_the_links_between_their_stages_both_ways() -> None:
    """Stages on two nodes: 2 MB forward and back for each of five microbatches."""
    graph = graph_of(Plan(tp=2, pp=2, microbatches=5), message=2 * MB)
    inner, outer = uses(graph)
    assert inner.used == 0
    assert outer.used == 4
    assert outer.total_bytes == 2 * 2 * 5 * 2 * MB
    assert outer.busiest_bytes == 5 * 2 * MB
    (user,) = outer.users
    assert (user.group, user.kind) == (Group.PP, CollectiveKind.SEND_RECV)


def test_users_of_the_busiest_link_are_listed_most_bytes_first() -> None:
    """An all-gather of two ranks sends half its bytes."""
    small, large = collective(1 * MB, Group.DP), collective(3 * MB, Group.DP)
    gather = collective(10 * MB, Group.DP, CollectiveKind.ALL_GATHER)
    _, outer = uses(graph_of(Plan(tp=2, dp=2), small, large, gather))
    assert outer.users == (
        LinkUser(group=Group.DP, kind=CollectiveKind.ALL_GATHER, bytes=5 * MB),
        LinkUser(group=Group.DP, kind=REDUCE, bytes=4 * MB),
    )
    assert outer.busiest_bytes == 9 * MB


def test_a_step_of_no_time_uses_no_share_of_a_link() -> None:
    graph = graph_of(Plan(tp=2, dp=2), collective(4 * MB, Group.TP))
    assert uses(graph, step_ps=0)[0].utilisation == 0.0


def test_a_round_that_sends_nothing_loads_no_link_of_any_stage() -> None:
    """Three ranks on nodes of two share out a byte: one of their rounds sends nothing."""
    plan = Plan(tp=3, dp=2, pp=2)
    graph = graph_of(plan, collective(1, Group.TP))
    link = LinkClass(name="wire", bandwidth=1e9, latency_ps=0)
    dimensions = (
        Dimension(kind=DimensionKind.CABLES, size=2, link=link),
        Dimension(kind=DimensionKind.SWITCH, size=12, link=replace(link, name="rail")),
    )
    topology = NestedTopology(name="nodes", source="test", dimensions=dimensions)
    prices = Prices(plan=plan, topology=topology, comms=graph.comms)
    inner, outer = link_use(topology, find_traffic(graph.uses, prices), MS)
    assert (inner.total_bytes, outer.total_bytes) == (8, 16)
