"""What communications put on which links."""

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from stepsim.base.arrays import Ints, Summand, add_up
from stepsim.core.write import TaskGraph
from stepsim.network.collectives.flows import loads_by_owner
from stepsim.network.prices import Prices, Use
from stepsim.workload.axes import CollectiveKind, Group, ParallelAxis
from stepsim.workload.rows import CommOp

_AT_ONCE = 1 << 18
"""NPUs that are traced together: what all of a large job put on links takes much memory."""
_User = tuple[Group, CollectiveKind, ParallelAxis]
"""Whose bytes are on a link: communications of a kind in groups, along an axis."""


Traffic = Mapping[_User, Summand]
"""Links, ascending, and the bytes that each user puts on them in a step."""


def find_traffic(graph: TaskGraph, prices: Prices) -> Traffic:
    """Trace the collectives of every stage and the messages it sends.

    Groups of all stages that do the same in the same way, equally often, are traced together.
    """
    alike: dict[tuple[CommOp, bytes, int], list[tuple[Use, int, Ints]]] = defaultdict(list)
    for use in graph.uses:
        if use.peer_stage >= 0 and not use.sends:
            continue
        patterns, count = prices.patterns(use), graph.programs[use.stage].counts[use]
        for groups in patterns.rows(use.ends[0], graph.plan.stage_ranks):
            look = int(patterns.pattern[groups[0]])
            key = graph.comms[use.comm], patterns.key(look), count
            alike[key].append((use, look, patterns.npus[groups]))
    found: dict[_User, Summand] = {}
    for (op, _, count), several in alike.items():
        use, look, _ = several[0]
        npus = np.concatenate([each for *_, each in several])
        user = op.group, op.kind, op.axis
        parts = [found[user]] if user in found else []
        for step in prices.steps(use, look):
            for some in np.array_split(npus, npus.size // _AT_ONCE + 1):
                together = np.zeros(len(some), np.int64)
                _, link, load = loads_by_owner(prices.topology, some, together, step)
                parts.append((link, load * (step.repeat * op.size_bytes * count)))
        if parts:
            found[user] = add_up(parts)
    return found
