"""Compute beside communications in many scenarios: the closed estimate of plans, over lengths.

For how much of its time a communication runs beside which compute is taken from the job as it is,
where nothing is slowed. In every scenario it takes that share of its own time there.
"""

from typing import NamedTuple

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Floats, Ints, spans
from stepsim.base.units import PS_PER_S
from stepsim.engine.beside import wire_share
from stepsim.engine.lay_out import Times
from stepsim.explore.batch.scenarios import AXES, Scenarios
from stepsim.workload.model.slowing import Slowing
from stepsim.workload.overlap import CommEngine
from stepsim.workload.rows import CommOp

_DIGITS = 4
"""Shares are rounded, so that tasks that hardly differ have one length."""


class LossLength(Struct, frozen=True, kw_only=True, eq=False):
    """What compute loses that runs beside a communication all the time, in ps.

    `comm` is the number of the communication's own length. It is `op` among so many `members`,
    which `carrier` carries out, and `is_far` where it leaves a node.
    """

    comm: int
    op: CommOp
    members: int
    is_far: bool
    carrier: CommEngine
    slowing: Slowing

    def ps(self, scenarios: Scenarios, earlier: list[Times]) -> Times:
        """Picoseconds lost in every scenario."""
        return self.beside(scenarios, earlier[self.comm])

    def beside(self, scenarios: Scenarios, comm_ps: Times) -> Times:
        """Picoseconds lost where the communication takes `comm_ps`."""
        size = np.rint(self.op.size_bytes * scenarios.size[:, AXES.index(self.op.axis)])
        sent, seconds = np.broadcast_arrays(
            size * wire_share(self.op, self.members), comm_ps / PS_PER_S
        )
        far = np.full(len(seconds), self.is_far)
        lost = self.slowing.lost(self.carrier, sent, seconds, far)
        return np.rint(lost * comm_ps).astype(np.int64)


class SlowedLength(Struct, frozen=True):
    """Compute beside communications.

    It takes the length with number `alone` by itself. `beside` has the number of every
    communication's length, the number of what is lost beside it, and the share of its time.
    """

    alone: int
    beside: tuple[tuple[int, int, float], ...]

    def ps(self, scenarios: Scenarios, earlier: list[Times]) -> Times:
        """Picoseconds of compute that is slowed until the communications end, or it does."""
        alone = earlier[self.alone]
        beside_ps = sum(share * earlier[comm] for comm, _, share in self.beside)
        lost = sum(share * earlier[loss] for _, loss, share in self.beside)
        all_along = alone * lost / np.maximum(beside_ps - lost, 1.0)
        return alone + np.rint(np.minimum(lost, all_along)).astype(np.int64)


class Spans(NamedTuple):
    """When tasks of one rank run, in ps."""

    start: Ints
    end: Ints


class Beside(NamedTuple):
    """Pairs of tasks that run at the same time: places of both, and a share of the `comm`'s time.

    Of compute from 0 to 10 and 10 to 30, and a communication from 5 to 25, the pairs are (0, 0)
    with a share of 0.25 and (1, 0) with 0.75.
    """

    compute: Ints
    comm: Ints
    share: Floats


def runs_beside(compute: Spans, comm: Spans) -> Beside:
    """Which compute, one task after the other, runs beside which communication, and how long."""
    order = np.argsort(compute.start, kind="stable")
    start, end = compute.start[order], compute.end[order]
    first = np.searchsorted(end, comm.start, "right")
    count = np.maximum(np.searchsorted(start, comm.end, "left") - first, 0)
    count[comm.end <= comm.start] = 0
    which, of = spans(first, count), np.arange(len(count)).repeat(count)
    both = np.minimum(end[which], comm.end[of]) - np.maximum(start[which], comm.start[of])
    share = np.maximum(both, 0) / (comm.end - comm.start)[of]
    return Beside(compute=order[which], comm=of, share=share)


def slowed_lengths(
    alone: list[int], beside: Beside, comms: list[tuple[int, int]], part: Floats
) -> dict[int, SlowedLength]:
    """The lengths of compute that is slowed, by its place.

    `alone` are the numbers of its lengths, `comms` those of communications and of what is lost
    beside them; `part` of each task of compute computes indeed.
    """
    shares: dict[int, dict[tuple[int, int], float]] = {}
    for task, comm, share in zip(
        beside.compute.tolist(),
        beside.comm.tolist(),
        (beside.share * part[beside.compute]).tolist(),
        strict=True,
    ):
        own = shares.setdefault(task, {})
        own[comms[comm]] = own.get(comms[comm], 0.0) + share
    return {
        task: SlowedLength(
            alone[task],
            tuple(sorted((*comm, round(share, _DIGITS)) for comm, share in own.items())),
        )
        for task, own in shares.items()
    }
