"""What groups cost beside their siblings, by hand.

Nodes of four NPUs share one NIC of 1 GB/s. Groups of two ranks on two nodes send half their bytes
each way twice in an all-reduce: alone 1 byte per ns, with k groups on the NIC k times that.
"""

import pytest
from unit.network.test_measured_times import curve, table
from unit.network.test_prices import DP, MB, MESSAGE, MS, TP, durations

from stepsim.base.axes import CollectiveKind, Group, RankOrder
from stepsim.base.structs import replace
from stepsim.network.collectives import Algorithm, AlgorithmChoice
from stepsim.network.prices import Prices, Use
from stepsim.network.topology import Dimension, DimensionKind, LinkClass, NestedTopology, Topology
from stepsim.network.topology.wirings import Ports
from stepsim.parallel.modes import Sharing
from stepsim.workload.plan import Plan

PLAN = Plan(tp=4, dp=2, pp=2)


def shared_nic(nodes: int = 4) -> NestedTopology:
    """Nodes of four NPUs on a switch of 8 GB/s a port, one NIC of 1 GB/s a node."""
    inner = LinkClass(name="inner", latency_ps=0, bandwidth=8e9)
    outer = LinkClass(name="outer", latency_ps=0, bandwidth=1e9)
    switch = DimensionKind.SWITCH
    return NestedTopology(
        name="shared nic",
        source="test",
        dimensions=(
            Dimension(kind=switch, size=4, link=inner),
            Dimension(kind=switch, size=nodes, link=outer, ports=Ports(npus_per_nic=4)),
        ),
    )


def prices(sharing: Sharing, plan: Plan = PLAN, network: Topology | None = None) -> Prices:
    return Prices(
        plan=plan,
        topology=network or shared_nic(),
        comms=(TP, DP, MESSAGE),
        algorithms={CollectiveKind.ALL_REDUCE: AlgorithmChoice(algorithm=Algorithm.RING)},
        sharing=sharing,
    )


def test_groups_of_a_stage_share_its_nics() -> None:
    alone, together = prices(Sharing.NONE), prices(Sharing.SIBLINGS)
    assert durations(alone, 1) == [4 * MS] * 8
    assert durations(together, 1) == [4 * 4 * MS] * 8


def test_groups_that_never_meet_cost_what_they_do_alone() -> None:
    alone, together = prices(Sharing.NONE), prices(Sharing.SIBLINGS)
    assert durations(together, 0) == durations(alone, 0)
    patterns = together.groups(Group.TP)
    assert patterns.beside[0] is not None
    assert patterns.beside[0].siblings.count == 1


def test_messages_of_all_ranks_of_a_stage_share_its_nics() -> None:
    alone, together = prices(Sharing.NONE), prices(Sharing.SIBLINGS)
    for each, times in ((alone, 1), (together, 4)):
        assert each.duration_ps(Use(2, 0, 1, sends=True), 0) == 2 * MS * times


def test_stages_are_no_siblings() -> None:
    """With pp fastest, a node holds two ranks of each stage: only those of a stage meet."""
    plan = replace(PLAN, tp=2, dp=4, rank_order=RankOrder.PP_TP_DP)
    assert durations(prices(Sharing.SIBLINGS, plan), 1)[0] == pytest.approx(
        2 * durations(prices(Sharing.NONE, plan), 1)[0]
    )


def test_fair_prices_are_of_groups_alone() -> None:
    """Sharing happens when they run."""
    assert durations(prices(Sharing.FAIR), 1) == durations(prices(Sharing.NONE), 1)


def test_a_measured_time_is_longer_beside_siblings() -> None:
    """By as much as the model's: four groups on a NIC."""
    known = table(curve({MB: 777, 16 * MB: 777}, ranks=2, nodes=2))
    for sharing, times in ((Sharing.NONE, 1), (Sharing.SIBLINGS, 4), (Sharing.FAIR, 1)):
        found = replace(prices(sharing), table=known)
        assert durations(found, 1) == [times * 777] * 8
