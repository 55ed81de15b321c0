"""A second opinion on shared links: replays a run's transfers as fluids, link by link.

It takes from the run only when each transfer started. Nothing is folded, merged or kept from one
moment to the next: at every change the max-min levels of all transfers in flight are found anew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf

import numpy as np
from invariants import meetings, task_times

from stepsim.base.arrays import Ints
from stepsim.core.timeline import Timeline
from stepsim.core.write import TaskGraph
from stepsim.network.collectives.flows import FlowStep, step_load
from stepsim.network.prices import Prices, Use
from stepsim.network.topology import Topology

Loads = Mapping[int, float]
"""Flows per link."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A latency, then traffic that takes `alone_ps` when nothing else uses the links.

    A flow has at most `rate` bytes/s.
    """

    latency_ps: int
    alone_ps: int
    loads: Loads
    rate: float

    def level_alone(self, capacity: Mapping[int, float]) -> float:
        """Bytes/s of a flow when nothing else uses the links."""
        slowest = (capacity[link] / flows for link, flows in self.loads.items())
        return min(slowest, default=inf) if self.rate == inf else min(self.rate, *slowest)


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A transfer of a run: its parts, and when it started and ended."""

    what: str
    parts: tuple[Part, ...]
    start_ps: int
    end_ps: int

    @property
    def alone_ps(self) -> int:
        """Picoseconds when nothing else uses the links."""
        return sum(part.latency_ps + part.alone_ps for part in self.parts)


def levels(loads: Sequence[Loads], capacity: Mapping[int, float]) -> list[float]:
    """Max-min levels by progressive filling, one link at a time."""
    found: dict[int, float] = {}
    while len(found) < len(loads):
        best, tight = inf, -1
        for link in {link for i, each in enumerate(loads) if i not in found for link in each}:
            users = [(i, each[link]) for i, each in enumerate(loads) if link in each]
            left = capacity[link] - sum(found[i] * load for i, load in users if i in found)
            level = left / sum(load for i, load in users if i not in found)
            if level < best:
                best, tight = level, link
        for i, each in enumerate(loads):
            if i not in found and (best == inf or tight in each):
                found[i] = best
    return [found[i] for i in range(len(loads))]


def transfers_of(timeline: Timeline, prices: Prices) -> list[Sent]:
    """Every transfer of every group and pair of a run."""
    graph = timeline.graph
    start, end = task_times(timeline)
    known: dict[tuple[Use, int], tuple[Part, ...]] = {}
    found = []
    for members in meetings(timeline):
        rank, number, inner = members[0]
        use = _use(graph, rank, number, inner)
        if use.comm < 0 or (use.peer_stage >= 0 and len(members) < 2):
            continue
        patterns = prices.patterns(use)
        group, look = patterns.row(rank), patterns.look(rank)
        if (use, group) not in known:
            known[use, group] = tuple(
                Part(
                    latency_ps=phase.latency_ps,
                    alone_ps=phase.alone_ps,
                    loads=_flows(prices.topology, patterns.members[group], phase.step),
                    rate=phase.rate,
                )
                for phase in prices.phases(use, look)
            )
        found.append(
            Sent(
                what=f"{graph.comms[use.comm]} of {patterns.members[group].tolist()}",
                parts=known[use, group],
                start_ps=start[members[0]],
                end_ps=end[members[0]],
            )
        )
    return found


def _use(graph: TaskGraph, rank: int, number: int, inner: int) -> Use:
    stage = graph.plan.stage_of(rank)
    program = graph.programs[stage]
    look = program.looks[program.look[number]]
    if look.task_list < 0:
        return program.message_use(look)
    return Use(comm=graph.task_lists[look.task_list].tasks[inner].comm, stage=stage)


def _flows(topology: Topology, members: Ints, step: FlowStep) -> Loads:
    load = step_load(topology, members, step)
    most = float(np.max(step.fraction))
    return {
        int(link): each / most for link, each in zip(load.links, load.loads.tolist(), strict=True)
    }


def capacities(topology: Topology, transfers: Sequence[Sent]) -> dict[int, float]:
    """Bytes per second of every link that some transfer crosses."""
    links = sorted({link for sent in transfers for part in sent.parts for link in part.loads})
    classes = topology.link_class(np.array(links, dtype=np.int64)).tolist() if links else []
    rates = [each.capacity for each in topology.link_classes]
    return {link: rates[c] for link, c in zip(links, classes, strict=True)}


def replay(transfers: Sequence[Sent], capacity: Mapping[int, float]) -> list[int]:
    """When each transfer ends, given when it starts."""
    ends = [0] * len(transfers)
    waiting = sorted(((sent.start_ps, i, 0) for i, sent in enumerate(transfers)), reverse=True)
    entering: list[tuple[int, int, int]] = []
    flying: dict[tuple[int, int], float] = {}
    now = 0
    while waiting or entering or flying:
        rates = _speeds(transfers, list(flying), capacity)
        arrivals = {
            key: max(now, ceil(now + left / rates[key] - 1e-3)) for key, left in flying.items()
        }
        moments = [
            *arrivals.values(),
            *(t for t, _, _ in entering),
            *(t for t, _, _ in waiting[-1:]),
        ]
        then = min(moments)
        flying = {key: left - (then - now) * rates[key] for key, left in flying.items()}
        now = then
        begun = [key for key, t in arrivals.items() if t == now]
        for key in begun:
            del flying[key]
        nexts = [(i, part + 1) for i, part in begun]
        while waiting and waiting[-1][0] == now:
            nexts.append(waiting.pop()[1:])
        for i, part in nexts:
            if part == len(transfers[i].parts):
                ends[i] = now
            else:
                entering.append((now + transfers[i].parts[part].latency_ps, i, part))
        for t, i, part in [each for each in entering if each[0] == now]:
            entering.remove((t, i, part))
            flying[i, part] = float(transfers[i].parts[part].alone_ps)
    return ends


def _speeds(
    transfers: Sequence[Sent], flying: Sequence[tuple[int, int]], capacity: Mapping[int, float]
) -> dict[tuple[int, int], float]:
    parts = [transfers[i].parts[part] for i, part in flying]
    together = levels([part.loads for part in parts], capacity)
    alone = [part.level_alone(capacity) for part in parts]
    pairs = zip(flying, together, alone, strict=True)
    return {key: min(1.0, level / own) if own < inf else 1.0 for key, level, own in pairs}
