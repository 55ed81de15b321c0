"""What every communication of every stage puts on which links, and when it runs."""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from stepsim.base.arrays import Floats, Ints, distinct
from stepsim.base.records import dataclass
from stepsim.base.units import PS_PER_S
from stepsim.engine.prices import Prices
from stepsim.graph.build import TaskGraph, Use
from stepsim.network.collectives.flows import loads_by_owner
from stepsim.workload.rows import CommOp


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Row i: one run of `uses[user[i]]` puts `size[i]` bytes on `link[i]`; links may repeat.

    `rate[i]` are these bytes per second of the run. Use u runs `counts[u]` times in a step.
    """

    uses: tuple[Use, ...]
    counts: Ints
    user: Ints
    link: Ints
    size: Floats
    rate: Floats


def find_traffic(graph: TaskGraph, prices: Prices) -> Traffic:
    """Trace the collectives of every stage and the messages it sends."""
    counts = dict(_sent(graph))
    number = {use: i for i, use in enumerate(counts)}
    nothing = np.zeros(0, dtype=np.int64)
    columns: list[tuple[Ints, Ints, Floats, Floats]] = [
        (nothing, nothing, np.zeros(0), np.zeros(0))
    ]
    for op, several in _alike_in_all_stages(graph, prices):
        use, groups = several[0]
        patterns, first = prices.patterns(use), int(groups[0])
        time_ps = prices.duration_ps(use.comm, patterns, first)
        npus = np.concatenate([prices.patterns(each).npus[these] for each, these in several])
        owners = np.repeat([number[each] for each, _ in several], [len(g) for _, g in several])
        for step in prices.steps(use.comm, patterns, first):
            owner, link, load = loads_by_owner(prices.topology, npus, owners, step)
            size = load * (step.repeat * op.size_bytes)
            columns.append((owner, link, size, size * (PS_PER_S / max(time_ps, 1))))
    user, link, size, rate = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Traffic(
        uses=tuple(counts),
        counts=np.array(list(counts.values()), dtype=np.int64),
        user=user,
        link=link,
        size=size,
        rate=rate,
    )


def _sent(graph: TaskGraph) -> Iterator[tuple[Use, int]]:
    """Collectives and sent messages of all stages, and how often each runs."""
    for stage in range(len(graph.programs)):
        for use in graph.uses(stage):
            if use.peer_stage < 0 or use.sends:
                yield use, graph.counts(stage)[use]


def _alike_in_all_stages(
    graph: TaskGraph, prices: Prices
) -> Iterator[tuple[CommOp, list[tuple[Use, Ints]]]]:
    """Groups of all stages that do the same in the same way: they are traced together."""
    found: dict[tuple[CommOp, bytes], list[tuple[Use, Ints]]] = defaultdict(list)
    for use, _ in _sent(graph):
        patterns = prices.patterns(use)
        for groups in alike_groups(graph, prices, use):
            look = patterns.key(int(patterns.pattern[groups[0]]))
            found[graph.comms[use.comm], look].append((use, groups))
    for (op, _), several in found.items():
        yield op, several


def alike_groups(graph: TaskGraph, prices: Prices, use: Use) -> Iterator[Ints]:
    """The groups of a stage that carry out a communication, those that look alike together."""
    patterns = prices.patterns(use)
    here = patterns.members[:, 0] // graph.plan.stage_ranks == use.ends[0]
    for pattern in distinct(patterns.pattern[here]):
        yield np.flatnonzero(here & (patterns.pattern == pattern))
