"""What communications put on which links and when, and what sharing these with others would cost.

Where ranks are alike by their number, one group of each orbit is traced. Links of NPUs that differ
in a turned digit alone then carry the same, unless a group lies along that digit: its values are
told apart by what crosses the links there, and one value of each kind is kept.

`other_traffic` estimates, without a run, what sharing links with other traffic than siblings costs.
Where two communications are in flight together and their mean rates add up to more than a link
carries, the one on the critical path takes longer by that share of the time they overlap. This is
of first order: what starts later, then meets others, is not followed.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from math import ceil

import numpy as np
from msgspec import Struct, field

from stepsim.base.arrays import Floats, Ints, mixed, sums_at
from stepsim.base.structs import replace
from stepsim.base.units import PS_PER_S
from stepsim.engine.lay_out import Times
from stepsim.engine.timeline import Timeline, transfers
from stepsim.explain.critical_path import PathRuns
from stepsim.graph.build import TaskGraph
from stepsim.graph.programs import SegmentKind
from stepsim.network.collectives.flows import loads_by_owner
from stepsim.network.groups import lies_in, lowered, stages_turn, turns_of_ranks
from stepsim.network.prices import Prices, Use
from stepsim.network.topology.placed import Turn
from stepsim.parallel.ranks import Ranks
from stepsim.workload.rows import CommOp, Group, Stream


class Traffic(Struct, frozen=True, kw_only=True):
    """Row i: one run of `uses[user[i]]` puts `size[i]` bytes on `link[i]`; links may repeat.

    `rate[i]` are these bytes per second of the run. Use u runs `counts[u]` times in a step. Exactly
    the same crosses `alike[i]` links, of which `link[i]` is the one with the lowest number.
    """

    uses: tuple[Use, ...]
    counts: Ints
    user: Ints
    link: Ints
    alike: Ints
    size: Floats
    rate: Floats


class _Rows(Struct, frozen=True, kw_only=True):
    """Rows of traffic whose groups lie along some digits of NPU numbers.

    `also` are other users that do the same, and how many stages further on.
    """

    along: tuple[Turn, ...]
    also: Ints
    user: Ints
    link: Ints
    size: Floats
    rate: Floats

    def at(self, chosen: Ints, link: Ints) -> "_Rows":
        """Some of the rows, by number, on these links."""
        user, size, rate = self.user[chosen], self.size[chosen], self.rate[chosen]
        return replace(self, user=user, link=link, size=size, rate=rate)


def find_traffic(graph: TaskGraph, prices: Prices) -> Traffic:
    """Trace the collectives of every stage and the messages it sends."""
    return _Tracer(graph=graph, prices=prices).traffic()


class _Tracer(Struct, frozen=True, kw_only=True, dict=True):
    graph: TaskGraph
    prices: Prices

    def traffic(self) -> Traffic:
        """What all uses put on links, of links that carry exactly the same on one."""
        rows = [rows for several in self.alike() for rows in self.traced(*several)]
        counts = []
        for turn in self.turns.values():
            rows, count = self.told_apart(turn, rows)
            counts.append((turn, count))
        rows = [self.in_all_stages(each) for each in rows]
        nothing = np.zeros(0, dtype=np.int64)
        columns = {
            name: np.concatenate([nothing, *(getattr(each, name) for each in rows)])
            for name in ("user", "link", "size", "rate")
        }
        alike = np.ones_like(columns["link"])
        for (low, high), count in counts:
            alike *= count[self.prices.topology.place_of(columns["link"]) % high // low]
        uses = self.numbers
        return Traffic(
            uses=tuple(uses),
            counts=np.array([self.graph.programs[u.stage].counts[u] for u in uses], dtype=np.int64),
            alike=alike,
            **columns,
        )

    @cached_property
    def numbers(self) -> dict[Use, int]:
        """Collectives and sent messages of all stages, numbered."""
        uses = (use for use in self.graph.uses if use.peer_stage < 0 or use.sends)
        return {use: i for i, use in enumerate(uses)}

    @cached_property
    def turns(self) -> dict[Turn, Turn]:
        """Digits of rank numbers that turn links too, and what they are of NPU numbers."""
        plan, topology = self.graph.plan, self.prices.topology
        kinds = {op.group for op in self.graph.comms} - {Group.PP}
        found = {turn: plan.npu_digit(*turn) for turn in turns_of_ranks(plan, kinds, topology)}
        return {turn: npu for turn, npu in found.items() if topology.moves_links(npu)}

    @cached_property
    def stages(self) -> Turn | None:
        """The digit of NPU numbers that stages are, where they lie alike."""
        plan, topology = self.graph.plan, self.prices.topology
        digit = plan.npu_digit(plan.stage_ranks, plan.npus)
        return digit if stages_turn(plan, topology) and topology.moves_links(digit) else None

    def alike(self) -> Iterator[tuple[CommOp, list[tuple[Use, Ints]]]]:
        """Groups of all stages that do the same in the same way: they are traced together."""
        graph, pp = self.graph, self.graph.plan.pp
        found: dict[tuple[CommOp, bytes, int], list[tuple[Use, Ints]]] = defaultdict(list)
        for use in self.numbers:
            patterns, apart = self.prices.patterns(use), (use.ends[1] - use.ends[0]) % pp
            for groups in alike_groups(graph, self.prices, use):
                look = patterns.key(int(patterns.pattern[groups[0]]))
                found[graph.comms[use.comm], look, apart].append((use, groups))
        for (op, _, _), several in found.items():
            yield op, several

    def traced(self, op: CommOp, several: Sequence[tuple[Use, Ints]]) -> Iterator[_Rows]:
        """Rows of uses in one of each orbit of these groups; of the first use, if stages turn."""
        topology = self.prices.topology
        use, groups = several[0]
        patterns, first = self.prices.patterns(use), int(groups[0])
        time_ps = self.prices.duration_ps(use.comm, patterns, first)
        span = self.graph.plan.span(op.group)
        outside = [turn for turn in self.turns if not lies_in(turn, span)]
        shown = several if self.stages is None else several[:1]
        npus = [self.npus(use, groups, outside) for use, groups in shown]
        owners = np.repeat([self.numbers[use] for use, _ in shown], [len(each) for each in npus])
        turned = [self.turns[turn] for turn in outside]
        also = [(self.numbers[u], u.stage - use.stage) for u, _ in several[len(shown) :]]
        for step in self.prices.steps(use.comm, patterns, first):
            owner, link, load = loads_by_owner(topology, np.concatenate(npus), owners, step)
            if turned:
                lowest = lowered(topology.place_of(link), turned)
                link = topology.moved(link, lowest)
            size = load * (step.repeat * op.size_bytes)
            yield _Rows(
                along=tuple(npu for turn, npu in self.turns.items() if lies_in(turn, span)),
                also=np.array(also, dtype=np.int64).reshape(-1, 2),
                user=owner,
                link=link,
                size=size,
                rate=size * (PS_PER_S / max(time_ps, 1)),
            )

    def npus(self, use: Use, groups: Ints, outside: Sequence[Turn]) -> Ranks:
        """NPUs of the lowest of these groups of a stage under shifts outside of groups."""
        plan, members = self.graph.plan, self.prices.patterns(use).members[groups]
        inside = members % plan.stage_ranks
        lowest = inside[lowered(inside[:, 0], outside) == inside[:, 0]]
        stages = np.array(use.ends if use.peer_stage >= 0 else use.stage)
        npus = plan.npus_of(lowest + stages * plan.stage_ranks)
        return npus if use.peer_stage >= 0 else np.sort(npus, axis=1)

    def told_apart(self, turn: Turn, rows: list[_Rows]) -> tuple[list[_Rows], Ints]:
        """The rows at one value of each kind of a digit, and how many values each stands for."""
        low, high = turn
        marks = np.zeros(high // low, dtype=np.uint64)
        places = [self.prices.topology.place_of(each.link) for each in rows]
        values = [place % high // low for place in places]
        for each, place, value in zip(rows, places, values, strict=True):
            if turn in each.along:
                link = self.prices.topology.moved(each.link, place - value * low)
                mark = mixed(each.user, link, each.size.view(np.int64))
                marks += sums_at(value, mark, len(marks))
        _, first, several = np.unique(marks, return_index=True, return_counts=True)
        count = np.zeros(len(marks), dtype=np.int64)
        count[first] = several
        found = []
        for each, place, value in zip(rows, places, values, strict=True):
            if turn in each.along:
                kept = np.flatnonzero(count[value])
                found.append(each.at(kept, each.link[kept]))
            else:
                chosen = np.tile(np.arange(len(place)), len(first))
                moved = place[chosen] + np.repeat(first, len(place)) * low
                found.append(each.at(chosen, self.prices.topology.moved(each.link[chosen], moved)))
        return found, count

    def in_all_stages(self, rows: _Rows) -> _Rows:
        """The rows with those of other stages that do the same."""
        if self.stages is None or not len(rows.also) or not len(rows.link):
            return rows
        low, high = self.stages
        here = np.arange(len(rows.link))
        chosen = np.tile(here, 1 + len(rows.also))
        place = self.prices.topology.place_of(rows.link)[chosen]
        user, further = np.insert(rows.also, 0, (rows.user[0], 0), axis=0).T
        shift = np.repeat(further, len(here))
        stage = place % high // low
        moved = place + ((stage + shift) % (high // low) - stage) * low
        found = rows.at(chosen, self.prices.topology.moved(rows.link[chosen], moved))
        return replace(found, user=np.repeat(user, len(here)))

    def moved(self, links: Ints, npus: Ranks) -> Ints:
        """The links that are to these NPUs what each link is to its own."""
        return self.prices.topology.moved(links, npus)


def alike_groups(graph: TaskGraph, prices: Prices, use: Use) -> list[Ints]:
    """The groups of a stage that carry out a communication, those that look alike together."""
    return prices.patterns(use).rows(use.ends[0], graph.plan.stage_ranks)


_WORTH_SAYING = 0.02
"""Share of a communication's time from which on other traffic that slows it is warned about."""
_WORTH_OF_STEP = 0.005
"""Share of the step below which that is left out."""
_TIGHT = 1.001
"""Rates that fill a link to this share do not slow each other: they are means, and rounded."""

_DIGITS = float(1 << 36)

_Slower = dict[Use, dict[Use, float]]
"""How much longer a use takes while another is in flight, as a share of its time."""
_Spans = dict[tuple[Use, int], tuple[Times, Times]]
"""Start and end of communications of the path, by use and rank."""


class _Slowdown(Struct, frozen=True, kw_only=True):
    """A communication on the critical path for `path_ps` in all, which `others` would lengthen."""

    op: CommOp
    path_ps: int
    extra_ps: int
    others: tuple[CommOp, ...]

    def is_worth_saying(self, step_time_ps: int) -> bool:
        """Whether it is slowed enough, and the step with it."""
        least = max(_WORTH_SAYING * self.path_ps, _WORTH_OF_STEP * step_time_ps)
        return self.extra_ps > least


def other_traffic(
    timeline: Timeline, prices: Prices, traffic: Traffic, path: Iterable[PathRuns]
) -> tuple[_Slowdown, ...]:
    """What others on their links cost the communications of the path, most time lost first.

    What is not worth saying is left out, and not looked up where it could not be.
    """
    graph = timeline.graph
    spans = _spans_on_path(graph, path)
    slower = _slower(graph, prices, traffic, {use for use, _ in spans})
    flights = _Flights(timeline=timeline, uses=frozenset().union(*slower.values()))
    several: dict[CommOp, _Spans] = defaultdict(dict)
    for (use, rank), each in spans.items():
        several[graph.comms[use.comm]][use, rank] = each
    found = []
    for op, own in several.items():
        if _most_lost(op, own, slower).is_worth_saying(timeline.step_time_ps):
            found.append(_lost(op, own, slower, flights))
    worth = (each for each in found if each.is_worth_saying(timeline.step_time_ps))
    return tuple(sorted(worth, key=lambda each: -each.extra_ps))


def _most_lost(op: CommOp, spans: _Spans, slower: _Slower) -> _Slowdown:
    """What a communication loses if all others are in flight all the time."""
    time_ps = {key: int((end - start).sum()) for key, (start, end) in spans.items()}
    most = sum(time_ps[use, rank] * sum(slower[use].values()) for use, rank in spans)
    return _Slowdown(op=op, path_ps=sum(time_ps.values()), extra_ps=ceil(most) + 1, others=())


def _lost(op: CommOp, spans: _Spans, slower: _Slower, flights: "_Flights") -> _Slowdown:
    """What a communication loses to others, by when these are in flight."""
    comms = flights.timeline.graph.comms
    lost: dict[CommOp, float] = defaultdict(float)
    time_ps = 0
    for (use, rank), each in spans.items():
        time_ps += int((each[1] - each[0]).sum())
        for other, share in slower[use].items():
            overlap = _overlap_ps(each, flights.beside(other, rank))
            if overlap:
                lost[comms[other.comm]] += overlap * share
    return _Slowdown(
        op=op,
        path_ps=time_ps,
        extra_ps=round(sum(lost.values())),
        others=tuple(sorted(lost, key=lambda other: -lost[other])),
    )


def _spans_on_path(graph: TaskGraph, path: Iterable[PathRuns]) -> _Spans:
    """Start and end of the communications of the path; receipts as sent."""
    found: dict[tuple[Use, int], list[tuple[Times, Times]]] = defaultdict(list)
    for runs in path:
        for use, columns in _uses_of(graph, runs):
            times = runs.start_ps[:, columns].ravel(), runs.end_ps[:, columns].ravel()
            found[use, runs.rank].append(times)
    return {
        key: (np.concatenate(start), np.concatenate(end))
        for key, (start, end) in ((key, zip(*parts, strict=True)) for key, parts in found.items())
    }


def _uses_of(graph: TaskGraph, runs: PathRuns) -> Iterator[tuple[Use, Ints]]:
    """The communications that run, and in which columns; receipts as sent."""
    look, stage = runs.look, graph.plan.stage_of(runs.rank)
    if look.task_list < 0:
        ends = (stage, look.peer_stage)
        sender, receiver = ends if look.kind is SegmentKind.SEND else ends[::-1]
        message = graph.programs[stage].message
        yield Use(comm=message, stage=sender, peer_stage=receiver, sends=True), np.array([0])
        return
    tasks = graph.task_lists[look.task_list].tasks
    comms = np.array([tasks[task].comm for task in runs.tasks.tolist()], dtype=np.int64)
    for comm in dict.fromkeys(comms[comms >= 0].tolist()):
        yield Use(comm=comm, stage=stage), np.flatnonzero(comms == comm)


def _slower(graph: TaskGraph, prices: Prices, traffic: Traffic, uses: Collection[Use]) -> _Slower:
    """How much longer each of these takes while another is in flight, where that is longer.

    Collectives of a stage that queue on one stream never are: they are left out.
    """
    streams = _streams(graph)
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
        others = ((traffic.uses[i], float(most[i]) - 1) for i in np.flatnonzero(most > _TIGHT))
        found[use] = {
            other: share for other, share in others if not _take_turns(use, other, streams)
        }
    return found


def _streams(graph: TaskGraph) -> dict[int, set[Stream]]:
    """The streams that collectives queue on."""
    found: dict[int, set[Stream]] = defaultdict(set)
    for task_list in graph.task_lists:
        for comm, stream in {(task.comm, task.stream) for task in task_list.tasks}:
            found[comm].add(stream)
    return found


def _take_turns(use: Use, other: Use, streams: Mapping[int, set[Stream]]) -> bool:
    """Whether two uses are collectives of one stage that queue on the same stream alone."""
    if use.stage != other.stage or use.peer_stage >= 0 or other.peer_stage >= 0:
        return False
    return len(streams[use.comm] | streams[other.comm]) == 1


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


class _Flights(Struct, frozen=True, kw_only=True):
    """When communications of some uses are in flight, looked up once."""

    timeline: Timeline
    uses: frozenset[Use]
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
            for each, start, end in transfers(cohort, self.timeline.graph, self.uses):
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
