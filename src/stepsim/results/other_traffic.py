"""What sharing links with other traffic than siblings would cost: an estimate, without running it.

Where two communications are in flight together and their mean rates add up to more than a link
carries, the one on the critical path takes longer by that share of the time they overlap. This is
of first order: what starts later, then meets others, is not followed.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import field

import numpy as np

from stepsim.base.arrays import Floats, Ints
from stepsim.base.records import dataclass
from stepsim.engine.lay_out import Times
from stepsim.engine.prices import Prices
from stepsim.engine.timeline import Timeline
from stepsim.graph.build import TaskGraph, Use
from stepsim.graph.programs import SegmentKind
from stepsim.results.counters import transfers
from stepsim.results.critical_path import PathTask
from stepsim.results.traffic import Traffic
from stepsim.workload.rows import CommOp

_TIGHT = 1.001
"""Rates that fill a link to this share do not slow each other: they are means, and rounded."""

_DIGITS = float(1 << 36)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slowdown:
    """A communication on the critical path for `path_ps` in all, which `others` would lengthen."""

    op: CommOp
    path_ps: int
    extra_ps: int
    others: tuple[CommOp, ...]


def other_traffic(
    timeline: Timeline, prices: Prices, traffic: Traffic, path: Iterable[PathTask]
) -> tuple[_Slowdown, ...]:
    """The communications of the path that others meet on their links, most time lost first."""
    graph, flights = timeline.graph, _Flights(timeline=timeline)
    spans = _spans_on_path(graph, path)
    slower = _slower(prices, traffic, {use for use, _ in spans})
    lost: dict[CommOp, dict[CommOp, float]] = defaultdict(lambda: defaultdict(float))
    time_ps: dict[CommOp, int] = defaultdict(int)
    for (use, rank), each in spans.items():
        op = graph.comms[use.comm]
        time_ps[op] += int((each[1] - each[0]).sum())
        for other, share in slower.get(use, {}).items():
            overlap = _overlap_ps(each, flights.beside(other, rank))
            if overlap:
                lost[op][graph.comms[other.comm]] += overlap * share
    found = [
        _Slowdown(
            op=op,
            path_ps=time_ps[op],
            extra_ps=round(sum(by.values())),
            others=tuple(sorted(by, key=lambda other: -by[other])),
        )
        for op, by in lost.items()
    ]
    return tuple(sorted(found, key=lambda each: -each.extra_ps))


def _spans_on_path(
    graph: TaskGraph, path: Iterable[PathTask]
) -> dict[tuple[Use, int], tuple[Times, Times]]:
    """Start and end of the communications of the path, by use and rank; receipts as sent."""
    found: dict[tuple[Use, int], list[tuple[int, int]]] = defaultdict(list)
    width, known = graph.plan.stage_ranks, dict[tuple[int, int, int], Use]()
    for rank, segment, task_list, inner, start_ps, end_ps in path:
        stage = rank // width
        look = stage, task_list, inner if task_list >= 0 else segment
        if look not in known:
            known[look] = _use_of(graph, *look)
        if known[look].comm >= 0:
            found[known[look], rank].append((start_ps, end_ps))
    columns = {key: np.array(spans, dtype=np.int64).T for key, spans in found.items()}
    return {key: (start, end) for key, (start, end) in columns.items()}


def _use_of(graph: TaskGraph, stage: int, task_list: int, number: int) -> Use:
    """The communication of a task of a task list, or of a message's segment; receipts as sent."""
    if task_list >= 0:
        return Use(comm=graph.task_lists[task_list].tasks[number].comm, stage=stage)
    program = graph.programs[stage]
    ends = (stage, int(program.peer_stage[number]))
    sender, receiver = ends if program.kind[number] == SegmentKind.SEND else ends[::-1]
    return Use(comm=program.message, stage=sender, peer_stage=receiver, sends=True)


def _slower(prices: Prices, traffic: Traffic, uses: Collection[Use]) -> dict[Use, dict[Use, float]]:
    """How much longer each of these takes while another is in flight, where that is longer."""
    link, rates = _distinct_links(traffic)
    classes = prices.topology.link_class(link)
    capacity = np.array([each.capacity for each in prices.topology.link_classes])[classes]
    number = {use: i for i, use in enumerate(traffic.uses)}
    found = {}
    for use in uses:
        own = rates[number[use]]
        used = np.flatnonzero(own)
        both = np.where(rates[:, used] > 0, rates[:, used] + own[used], 0.0) / capacity[used]
        most = both.max(axis=1, initial=0.0)
        most[number[use]] = 0.0
        pairs = {traffic.uses[i]: float(most[i]) - 1 for i in np.flatnonzero(most > _TIGHT)}
        if pairs:
            found[use] = pairs
    return found


def _distinct_links(traffic: Traffic) -> tuple[Ints, Floats]:
    """Links that differ in what crosses them, and the rate of every use (rows) on each.

    They are told by a sum of the rates that weighs every use by another irrational number.
    """
    links, column = np.unique(traffic.link, return_inverse=True)
    column = column.reshape(-1)
    marks = traffic.rate * (1 + (traffic.user * np.pi) % 1)
    mantissa, exponent = np.frexp(np.bincount(column, marks, minlength=len(links)))
    looks = np.ldexp(np.rint(mantissa * _DIGITS), exponent)
    _, chosen = np.unique(looks, return_index=True)
    place = np.full(len(links), -1, dtype=np.int64)
    place[chosen] = np.arange(len(chosen))
    kept = place[column] >= 0
    rates = np.zeros((len(traffic.uses), len(chosen)))
    np.add.at(rates, (traffic.user[kept], place[column[kept]]), traffic.rate[kept])
    return links[chosen], rates


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flights:
    """When communications are in flight, looked up once."""

    timeline: Timeline
    known: dict[int, dict[Use, list[tuple[Times, Times]]]] = field(default_factory=dict)
    found: dict[tuple[Use, int], tuple[Times, Times]] = field(default_factory=dict)

    def beside(self, use: Use, rank: int) -> tuple[Times, Times]:
        """Start and end, ascending, of a use at the rank that has a rank's place in its stage."""
        place = rank % self.timeline.graph.plan.stage_ranks
        if (use, place) not in self.found:
            self.found[use, place] = self._look_up(use, place)
        return self.found[use, place]

    def _look_up(self, use: Use, place: int) -> tuple[Times, Times]:
        width = self.timeline.graph.plan.stage_ranks
        cohort, column = self.timeline.place(use.stage * width + place)
        if id(cohort) not in self.known:
            found: dict[Use, list[tuple[Times, Times]]] = defaultdict(list)
            for each, start, end in transfers(cohort, self.timeline.graph):
                found[each].append((start, end))
            self.known[id(cohort)] = found
        parts = self.known[id(cohort)][use]
        nothing = [np.zeros(0, dtype=np.int64)]
        start = np.concatenate(nothing + [start[:, column] for start, _ in parts])
        end = np.concatenate(nothing + [end[:, column] for _, end in parts])
        return np.sort(start), np.sort(end)


def _overlap_ps(spans: tuple[Times, Times], flights: tuple[Times, Times]) -> float:
    """Time of the spans in which a flight is under way; flights of a use follow each other."""
    start, end = flights
    if not len(start):
        return 0.0
    before = np.concatenate(([0], np.cumsum(end - start)))

    def flown(time: Times) -> Times:
        begun = np.searchsorted(start, time, side="right")
        last = np.maximum(begun - 1, 0)
        over = np.where(begun > 0, np.maximum(end[last] - time, 0), 0)
        return before[begun] - over

    return float((flown(spans[1]) - flown(spans[0])).sum())
