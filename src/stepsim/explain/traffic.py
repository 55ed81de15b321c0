"""What communications put on which links."""

from collections import defaultdict

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Floats, Ints
from stepsim.core.write import TaskGraph
from stepsim.network.collectives.flows import loads_by_owner
from stepsim.network.prices import Prices, Use
from stepsim.workload.rows import CommOp


class Traffic(Struct, frozen=True, kw_only=True):
    """Row i: one run of `uses[user[i]]` puts `size[i]` bytes on `link[i]`; links may repeat.

    Use u runs `counts[u]` times in a step.
    """

    uses: tuple[Use, ...]
    counts: Ints
    user: Ints
    link: Ints
    size: Floats


def find_traffic(graph: TaskGraph, prices: Prices) -> Traffic:
    """Trace the collectives of every stage and the messages it sends.

    Groups of all stages that do the same in the same way are traced together.
    """
    uses = tuple(use for use in graph.uses if use.peer_stage < 0 or use.sends)
    alike: dict[tuple[CommOp, bytes], list[tuple[int, int, Ints]]] = defaultdict(list)
    for number, use in enumerate(uses):
        patterns, op = prices.patterns(use), graph.comms[use.comm]
        for groups in patterns.rows(use.ends[0], graph.plan.stage_ranks):
            look = int(patterns.pattern[groups[0]])
            alike[op, patterns.key(look)].append((number, look, groups))
    rows: list[tuple[Ints, Ints, Floats]] = []
    for (op, _), several in alike.items():
        npus = [prices.patterns(uses[number]).npus[groups] for number, _, groups in several]
        owners = np.repeat([number for number, *_ in several], [*map(len, npus)])
        first, look, _ = several[0]
        for step in prices.steps(uses[first], look):
            owner, link, load = loads_by_owner(prices.topology, np.concatenate(npus), owners, step)
            rows.append((owner, link, load * (step.repeat * op.size_bytes)))
    rows.append((np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)))
    user, link, size = (np.concatenate(column) for column in zip(*rows, strict=True))
    return Traffic(
        uses=uses,
        counts=np.array([graph.programs[use.stage].counts[use] for use in uses], dtype=np.int64),
        user=user,
        link=link,
        size=size,
    )
