"""The communications of a step: how often each runs, how it is carried out, what it takes."""

from collections import defaultdict

from msgspec import Struct

from stepsim.base.arrays import distinct
from stepsim.engine.prices import Prices
from stepsim.graph.build import TaskGraph
from stepsim.workload.rows import CollectiveKind, CommOp, Group


class CommUse(Struct, frozen=True, kw_only=True):
    """One kind of communication of one size; times are of its slowest group.

    `nodes` is the most that a group lies over. `algorithms` are those taken, which differ where
    groups lie differently on the network. `count` is how often the rank that takes part most often
    does. It takes `time_ps` beside its siblings, where the step counts those, and `alone_ps` with
    the links to itself.
    """

    group: Group
    kind: CollectiveKind
    ranks: int
    nodes: int
    size_bytes: int
    count: int
    algorithms: tuple[str, ...]
    time_ps: int
    alone_ps: int


def comm_use(graph: TaskGraph, prices: Prices) -> tuple[CommUse, ...]:
    """Every communication of the step, those that take most time first."""
    counts: dict[CommOp, list[int]] = defaultdict(list)
    taken: dict[CommOp, set[tuple[int, int, str]]] = defaultdict(set)
    spread: dict[CommOp, int] = defaultdict(int)
    for stage in range(len(graph.programs)):
        here: dict[CommOp, int] = defaultdict(int)
        for use, count in graph.counts(stage).items():
            if use.peer_stage >= 0 and not use.sends:
                continue
            op, patterns = graph.comms[use.comm], prices.patterns(use)
            here[op] += count
            for rows in patterns.rows(use.ends[0], graph.plan.stage_ranks):
                pattern = int(patterns.pattern[rows[0]])
                cost = prices.cost(op, patterns, pattern)
                taken[op].add((cost.time_ps, cost.alone_ps, cost.way))
                nodes = len(distinct(patterns.distinct[pattern] // prices.topology.node_size))
                spread[op] = max(spread[op], nodes)
        for op, count in here.items():
            counts[op].append(count)
    uses = [
        CommUse(
            group=op.group,
            kind=op.kind,
            ranks=2 if op.group is Group.PP else graph.plan.group_size(op.group),
            nodes=spread[op],
            size_bytes=op.size_bytes,
            count=max(counts[op]),
            algorithms=tuple(sorted({algorithm for _, _, algorithm in ways})),
            time_ps=max(time for time, _, _ in ways),
            alone_ps=max(alone for _, alone, _ in ways),
        )
        for op, ways in taken.items()
        if op.size_bytes
    ]
    return tuple(sorted(uses, key=lambda use: -use.count * use.time_ps))
