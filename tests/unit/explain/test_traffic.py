"""What a step puts on links: closed forms of collectives and messages, wherever ranks lie."""

import numpy as np
from helpers import collective, examples, two_levels
from hypothesis import given, strategies as st
from unit.explain.test_links import graph_of

from stepsim.base.axes import CollectiveKind, Group, RankOrder
from stepsim.explain.network_use import Traffic, find_traffic
from stepsim.network.prices import Prices
from stepsim.workload.plan import Plan
from stepsim.workload.rows import CommOp

MB = 10**6


def traffic(plan: Plan, *comms: CommOp) -> Traffic:
    graph = graph_of(plan, *comms, message=MB)
    topology = two_levels(plan.npus // 2)
    return find_traffic(graph.uses, Prices(plan=plan, topology=topology, comms=graph.comms))


def by_class(found: Traffic, npus: int) -> list[float]:
    """Bytes of a whole step on inner and outer links."""
    total = np.zeros(2)
    for links, sizes in found.values():
        classes = two_levels(npus // 2).link_class(links)
        total += np.bincount(classes, weights=sizes, minlength=2)
    return [float(each) for each in total]


@given(
    tp=st.sampled_from([1, 2, 4]),
    dp=st.sampled_from([1, 2, 3]),
    pp=st.sampled_from([1, 2]),
    order=st.sampled_from(RankOrder),
)
@examples(60)
def test_all_bytes_are_counted_wherever_ranks_lie(
    tp: int, dp: int, pp: int, order: RankOrder
) -> None:
    """Bytes of pairs that exchange: every rank sends and receives the same in all orders of ranks.

    On fully connected levels a flow crosses a link or two, one of each class.
    """
    plan = Plan(tp=tp, dp=2 * dp, pp=pp, microbatches=2, rank_order=order)
    found = traffic(plan, collective(4 * MB, Group.DP, CollectiveKind.ALL_TO_ALL))
    sent = plan.npus * 2 * 4 * MB * (2 * dp - 1) / (2 * dp)
    messages = 2 * (pp - 1) * plan.stage_ranks * 2 * MB
    total = sum(by_class(found, plan.npus))
    assert sent + messages <= total * (1 + 1e-9)
    assert total <= 2 * (sent + messages) * (1 + 1e-9)
