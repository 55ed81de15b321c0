"""Transfers on links that are shared in time, in many scenarios: how long, and whether any meet.

Where no two transfers meet on a link, each takes as long as by itself, and times are sums again.
Whether any meet is seen in these times afterwards, as for one run (see `stepsim.engine.nodes`).
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple, Self

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Bools, Floats, Ints, distinct
from stepsim.base.units import MOST_EXACT, PS_PER_S
from stepsim.engine.lay_out import Times
from stepsim.engine.nodes import any_meet, any_near
from stepsim.explore.batch.communications import CommLength, communication_ps
from stepsim.explore.batch.scenarios import Scenarios
from stepsim.network.collectives import (
    AlgorithmChoice,
    FlowStep,
    carried_out,
    collective_times_ps,
)
from stepsim.network.contention import Contention, PhaseLimits, Quotient, TransferKey
from stepsim.network.flights import shares_of_speed, times_left_ps
from stepsim.network.prices import phases_of_steps


class Flight(NamedTuple):
    """A transfer that meets no other, in many scenarios: columns of shape (phases, scenarios).

    A phase has bytes on links from `begin_ps` to `end_ps` after the start, at a rate of `level`
    bytes/s. `same_flows` says in which scenarios its flows, and so who shares which links, are
    those of the job; in others the times mean nothing.
    """

    begin_ps: Times
    end_ps: Times
    level: Floats
    same_flows: Bools

    @classmethod
    def unfilled(cls, phases: int, scenarios: int) -> Self:
        """Columns of nothing, of flows that are not those of the job: `put` fills them."""
        begin, end = np.zeros((2, phases, scenarios), dtype=np.int64)
        return cls(begin, end, np.zeros((phases, scenarios)), np.zeros(scenarios, dtype=bool))

    @property
    def taken_ps(self) -> Times:
        """From the start to the end of the last phase, in ps; nothing where nothing is sent."""
        return self.end_ps[-1] if len(self.end_ps) else self.same_flows * 0

    def put(self, scenarios: Ints, flight: "Flight") -> None:
        """Fill in some of the scenarios."""
        for column, some in zip(self, flight, strict=True):
            column[..., scenarios] = some


class TransferLength(Struct, frozen=True):
    """A transfer that meets no other: `comm` by the `algorithm` of the job, which takes `steps`.

    `limits[i]` are those of the flows of phase i.
    """

    comm: CommLength
    algorithm: AlgorithmChoice
    steps: tuple[FlowStep, ...]
    limits: tuple[PhaseLimits, ...]

    @classmethod
    def of(cls, contention: Contention, key: TransferKey) -> Self:
        """The length of one of the transfers of a job."""
        prices, chosen = contention.prices, contention.quotient.chosen[key]
        op, patterns, group = prices.comms[chosen.comm], chosen.patterns, int(chosen.groups[0])
        pattern = int(patterns.pattern[group])
        phases = range(len(chosen.phases(prices)))
        return cls(
            CommLength(op, patterns.key(pattern), prices.shape(op, patterns, pattern)),
            prices.cost(op, patterns, pattern).algorithm,
            tuple(prices.steps(chosen.comm, patterns, group)),
            tuple(contention.quotient.limits(key, phase) for phase in phases),
        )

    def __eq__(self, other: object) -> bool:
        """Whether it is the same communication under the same limits."""
        if not isinstance(other, TransferLength):
            return NotImplemented
        return (other.comm, other.limits) == (self.comm, self.limits)

    def __hash__(self) -> int:
        return hash((self.comm, self.limits))

    def ps(self, scenarios: Scenarios, earlier: Sequence[Times]) -> Times:
        """From its start to the end of its last phase; nothing where it sends nothing."""
        return self.flight(scenarios).taken_ps

    def flight(self, scenarios: Scenarios) -> Flight:
        """When its phases have bytes on links."""
        shape, size = self.comm.shape, self.comm.size_bytes(scenarios)
        times, chosen = (
            np.broadcast_to(column, len(scenarios))
            for column in communication_ps(shape, size, scenarios)
        )
        flight = Flight.unfilled(len(self.limits), len(scenarios))
        if not self.steps:
            flight.same_flows[:] = True
            return flight
        for number in distinct(chosen).tolist():
            if shape.candidates[number].algorithm == self.algorithm:
                cases = np.flatnonzero(chosen == number)
                flight.put(cases, self._by(number, times[cases], scenarios.some(cases, len(cases))))
        return flight

    def _by(self, candidate: int, times: Times, scenarios: Scenarios) -> Flight:
        """The flight with a candidate, which takes `times` (ps) beside its siblings."""
        size = np.broadcast_to(self.comm.size_bytes(scenarios), times.shape)
        launch, steps = self._alone(candidate, times, size, scenarios)
        flight, now = Flight.unfilled(len(self.limits), len(times)), launch * 0
        flight.same_flows[:] = size > 0
        protocol = self.comm.shape.candidates[candidate].protocol
        phases = phases_of_steps(self.steps, launch, steps)
        for number, (step, latency, alone) in enumerate(phases):
            most = size * float(np.max(step.fraction)) * step.timed
            rate = np.full(len(times), np.inf)
            np.divide(most, alone, out=rate, where=bool(protocol) & (alone > 0))
            own, level = self.limits[number].levels(scenarios.links[0])
            speed = shares_of_speed(level, np.minimum(own, rate * PS_PER_S))
            takes = times_left_ps(alone, speed)
            flight.same_flows[takes >= MOST_EXACT] = False
            flight.begin_ps[number] = now + latency
            flight.end_ps[number] = now = now + latency + takes
            flight.level[number] = level
        return flight

    def _alone(
        self, candidate: int, times: Times, size: Floats, scenarios: Scenarios
    ) -> tuple[Times, list[tuple[Times, Times]]]:
        """Launch and steps of a candidate without siblings, where these slow it."""
        shape, op, given = self.comm.shape, self.comm.op, (scenarios.launch_ps, scenarios.links)
        launch, steps = carried_out(shape, candidate, size, *given)
        if shape.is_shared:
            taken = shape.candidates[candidate]
            lone = shape.alone(taken.algorithm, taken.protocol)
            beside, times = times, collective_times_ps(lone, size, *given)[0]
            _, alone = carried_out(lone, 0, size, *given)
            steps = [
                (np.where(beside == times, shared, own), path)
                for (shared, _), (own, path) in zip(steps, alone, strict=True)
            ]
        besides = np.maximum(op.least_ps - times, 0) + op.process_ps
        return launch + np.where(times > 0, besides, 0), steps


class FlightTable(Struct, frozen=True, kw_only=True, eq=False):
    """The transfers of a job, and the links on which they may meet.

    Others may slow those of the first `flying` of the `lengths`. Row i says that a phase, of place
    `phase[i]` among all of theirs, has bytes on links of colour `link[i]`, at times counted from
    the start of node `node[i]`. `free` are the classes of links that never fill.

    For example a transfer whose phases have places 2 and 3, on links 4 and 7, and which the nodes 5
    and 6 carry out, has four rows: nodes 5, 5, 6, 6, phases 2, 3, 2, 3, links 4, 7, 4, 7.
    """

    lengths: tuple[TransferLength, ...]
    flying: int
    free: Bools
    node: Ints
    phase: Ints
    link: Ints

    @classmethod
    def of(
        cls,
        quotient: Quotient,
        lengths: Mapping[TransferKey, TransferLength],
        nodes: Mapping[int, TransferKey],
    ) -> Self:
        """The table of a job's transfers with these `lengths`, of which `nodes` may be slowed."""
        flying = dict.fromkeys(lengths[key] for key in nodes.values())
        every = tuple(flying | dict.fromkeys(lengths.values()))
        firsts = accumulate((len(length.limits) for length in every), initial=0)
        first = dict(zip(every, firsts, strict=False))
        uses: dict[TransferKey, list[tuple[int, int]]] = {}
        for key in set(nodes.values()):
            length = lengths[key]
            uses[key] = [
                (first[length] + phase, link)
                for phase in range(len(length.limits))
                for link in quotient.links(key, phase).tolist()
            ]
        rows = [(node, *use) for node, key in nodes.items() for use in uses[key]]
        node, phase, link = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        free = np.array(quotient.free, dtype=bool)
        return cls(lengths=every, flying=len(flying), free=free, node=node, phase=phase, link=link)

    def flown(self, scenarios: Scenarios) -> dict[TransferLength, Flight]:
        """The flight of every length."""
        return {length: length.flight(scenarios) for length in self.lengths}

    def apart(
        self, flown: Mapping[TransferLength, Flight], scenarios: Scenarios, start: Times
    ) -> Bools:
        """In which scenarios no transfer meets another, and links are shared as in the job.

        `start` is that of every node in ps, of shape (nodes, scenarios).
        """
        same_free = (np.isinf(scenarios.links[0]) == self.free).all(axis=1)
        apart = np.broadcast_to(same_free, len(scenarios)).copy()
        for flight in flown.values():
            apart &= flight.same_flows
        flights = [flown[length] for length in self.lengths[: self.flying]]
        if flights:
            begin, end, level, _ = (np.concatenate(column) for column in zip(*flights, strict=True))
            begin, end = (start[self.node] + times[self.phase] for times in (begin, end))
            apart &= ~any_near(level) & ~any_meet(self.link, begin, end)
        return apart
