"""The communications of a step: how often each runs, how it is carried out, what it takes."""

from collections import defaultdict

from msgspec import Struct

from stepsim.base.arrays import distinct
from stepsim.base.documents import Bytes, Count, Entry, Names, Picoseconds
from stepsim.graph.build import TaskGraph
from stepsim.network.prices import Prices
from stepsim.workload.rows import CommOp, Group


class CommUse(Entry, frozen=True, kw_only=True):
    """A kind of communication of one size, in its slowest group; `group` and `kind` are names.

    `algorithms` are those taken, which differ where groups lie differently on the network. `count`
    is how often the rank that takes part most often does. `time_ps` is what it takes beside its
    siblings where `contention` is siblings; otherwise it is `alone_ps`, with the links to itself.
    """

    group: str
    kind: str
    ranks: Count
    size_bytes: Bytes
    count: Count
    algorithms: Names
    time_ps: Picoseconds
    alone_ps: Picoseconds | None = None


class PlacedComm(Struct, frozen=True, kw_only=True):
    """A communication, and over how many nodes the most spread of its groups lies."""

    use: CommUse
    nodes: int


def comm_use(graph: TaskGraph, prices: Prices) -> tuple[PlacedComm, ...]:
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
    comms = []
    for op, ways in taken.items():
        if not op.size_bytes:
            continue
        comm = CommUse(
            group=op.group,
            kind=op.kind,
            ranks=2 if op.group is Group.PP else graph.plan.group_size(op.group),
            size_bytes=op.size_bytes,
            count=max(counts[op]),
            algorithms=tuple(sorted({algorithm for _, _, algorithm in ways})),
            time_ps=max(time for time, _, _ in ways),
            alone_ps=max(alone for _, alone, _ in ways),
        )
        comms.append(PlacedComm(use=comm, nodes=spread[op]))
    return tuple(sorted(comms, key=lambda comm: -comm.use.count * comm.use.time_ps))
