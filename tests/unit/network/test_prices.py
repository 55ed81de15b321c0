"""What communications cost in the groups that carry them out, by hand.

Nodes of two NPUs at 4 GB/s and 100 ps, two nodes at 1 GB/s and 1,000 ps. An all-reduce of two ranks
is two steps of half its bytes.
"""

from typing import Any

import pytest
from helpers import collective, two_levels
from unit.network.test_measured_times import curve, table

from stepsim.base.axes import CollectiveKind, Group, ParallelAxis, RankOrder
from stepsim.base.structs import replace
from stepsim.network.collectives import Algorithm, AlgorithmChoice
from stepsim.network.prices import Known, Prices, Use
from stepsim.parallel.modes import Sharing
from stepsim.workload.plan import Plan
from stepsim.workload.rows import CommOp

MB, MS = 10**6, 10**9
PLAN = Plan(tp=2, dp=2)
PIPELINE = Plan(tp=2, pp=2)
TP, DP = collective(4 * MB, Group.TP), collective(4 * MB, Group.DP)
MESSAGE = CommOp(
    kind=CollectiveKind.SEND_RECV, group=Group.PP, axis=ParallelAxis.PP, size_bytes=2 * MB
)


def prices(*comms: CommOp, plan: Plan = PLAN, sharing: Sharing = Sharing.NONE) -> Prices:
    return Prices(plan=plan, topology=two_levels(), comms=comms, sharing=sharing)


def durations(of: Prices, comm: int = 0) -> list[int]:
    group = of.comms[comm].group
    firsts = of.plan.groups(group)[:, 0].tolist()
    return [of.duration_ps(Use(comm, of.plan.stage_of(rank)), rank) for rank in firsts]


def test_groups_cost_what_their_links_take() -> None:
    both = prices(TP, DP)
    assert durations(both, 0) == [1 * MS + 2 * 100] * 2
    assert durations(both, 1) == [4 * MS + 2 * 1_000] * 2


def test_npus_are_taken_in_the_order_of_the_plan() -> None:
    """With dp fastest, the ranks of a tp group sit on different nodes."""
    found = prices(TP, DP, plan=replace(PLAN, rank_order=RankOrder.DP_TP_PP))
    assert found.groups(Group.TP).npus.tolist() == [[0, 2], [1, 3]]
    assert durations(found, 0) == [4 * MS + 2 * 1_000] * 2
    assert durations(found, 1) == [1 * MS + 2 * 100] * 2


def test_a_message_costs_its_bytes_and_its_hop() -> None:
    found = prices(MESSAGE, plan=PIPELINE)
    pairs = found.groups((0, 1))
    assert pairs.members.tolist() == [[0, 2], [1, 3]]
    sends = Use(comm=0, stage=0, peer_stage=1, sends=True)
    assert found.duration_ps(sends, 0) == 2 * MS + 1_000
    assert found.patterns(sends) is pairs
    assert found.groups((1, 0)).members.tolist() == [[2, 0], [3, 1]]
    assert found.patterns(sends._replace(sends=False)) is found.groups((1, 0))


def test_findings_that_another_thread_clears_are_still_told() -> None:
    class Cleared(Known):
        def __setitem__(self, key: tuple[object, ...], value: Any) -> None:
            self.clear()

    found = replace(prices(TP, DP), known=Cleared())
    assert [durations(found, comm) for comm in (0, 1)] == [
        durations(prices(TP, DP), comm) for comm in (0, 1)
    ]
    assert found.phases(Use(1, 0), 0)
    assert not found.known


@pytest.mark.parametrize("kind", [k for k in CollectiveKind if k is not CollectiveKind.SEND_RECV])
def test_the_phases_of_a_communication_add_up_to_it(kind: CollectiveKind) -> None:
    found = prices(collective(3 * MB + 1, Group.DP, kind))
    phases = found.phases(Use(0, 0), 0)
    assert sum(phase.latency_ps + phase.alone_ps for phase in phases) == durations(found)[0]


def test_every_phase_has_the_latency_of_its_own_steps() -> None:
    """4 MB over two nodes of two NPUs, level by level.

    Inside, half of the bytes at 4 GB/s; between, two equal steps, which are one phase, of a
    quarter at 1 GB/s; inside again.
    """
    levels = AlgorithmChoice(
        algorithm=Algorithm.HIERARCHICAL, levels=(Algorithm.RING, Algorithm.RING)
    )
    plain = prices(TP, plan=Plan(tp=4))
    priced = replace(plain, algorithms={CollectiveKind.ALL_REDUCE: levels})
    phases = priced.phases(Use(0, 0), 0)
    assert [(phase.latency_ps, phase.alone_ps) for phase in phases] == [
        (100, MS // 2),
        (2 * 1_000, 2 * MS),
        (100, MS // 2),
    ]


def test_measured_times_replace_those_of_the_groups_they_are_of() -> None:
    found = replace(prices(TP, DP), table=table(curve({MB: 777, 16 * MB: 777}, ranks=2)))
    assert durations(found, 0) == [777, 777]
    assert durations(found, 1) == [4 * MS + 2 * 1_000] * 2
    assert found.cost(Use(0, 0), 0).measured
    phases = found.phases(Use(0, 0), 0)
    assert sum(phase.latency_ps + phase.alone_ps for phase in phases) == 777


def test_measured_times_say_nothing_of_groups_that_fill_nodes_unevenly() -> None:
    """Three ranks on two nodes: no curve is of such a group."""
    plan = Plan(tp=3)
    plain = prices(TP, plan=plan)
    known = table(curve({MB: 5, 16 * MB: 5}, ranks=3, nodes=2))
    assert durations(replace(plain, table=known)) == durations(plain)
