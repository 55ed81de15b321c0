"""What communications put on which links.

Where ranks are alike by their number, one group of each orbit is traced. Links of NPUs that differ
in a turned digit alone then carry the same, unless a group lies along that digit: its values are
told apart by what crosses the links there, and one value of each kind is kept.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Floats, Ints, mixed, sums_at
from stepsim.base.structs import replace
from stepsim.base.units import PS_PER_S
from stepsim.core.write import TaskGraph
from stepsim.network.collectives.flows import loads_by_owner
from stepsim.network.groups import lies_in, lowered, stages_turn, turns_of_ranks
from stepsim.network.prices import Prices, Use
from stepsim.network.topology.placed import Turn
from stepsim.parallel.ranks import Ranks
from stepsim.workload.rows import CommOp, Group


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
