"""Compute beside communications in many scenarios: the closed estimate of plans, over lengths.

For how much of its time a communication runs beside which compute is taken from the job as it is,
where nothing is slowed. In every scenario it takes that share of its own time there.
"""

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Ints
from stepsim.base.units import PS_PER_S
from stepsim.core.beside import Alongside, wire_share
from stepsim.explore.batch.scenarios import AXES, Scenarios
from stepsim.workload.model.slowing import Slowing
from stepsim.workload.overlap import CommEngine, Demands
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

    def ps(self, scenarios: Scenarios, earlier: Sequence[Ints]) -> Ints:
        """Picoseconds lost in every scenario."""
        return self.beside(scenarios, earlier[self.comm])

    def beside(
        self, scenarios: Scenarios, comm_ps: Ints, kernels: tuple[Demands, float] | None = None
    ) -> Ints:
        """Picoseconds lost where the communication takes `comm_ps`, by products or by kernels."""
        size = np.rint(self.op.size_bytes * scenarios.size[:, AXES.index(self.op.axis)])
        sent, seconds = np.broadcast_arrays(
            size * wire_share(self.op, self.members), comm_ps / PS_PER_S
        )
        far = np.full(len(seconds), self.is_far)
        lost = self.slowing.lost(self.carrier, sent, seconds, far, kernels)
        return np.rint(lost * comm_ps).astype(np.int64)


class SlowedLength(Struct, frozen=True):
    """Compute beside communications.

    It takes the length with number `alone` by itself. `beside` has the number of every
    communication's length, the number of what products lose beside it, the share of its time, and
    that of the loss.
    """

    alone: int
    beside: tuple[tuple[int, int, float, float], ...]

    def ps(self, scenarios: Scenarios, earlier: Sequence[Ints]) -> Ints:
        """Picoseconds of compute that is slowed until the communications end, or it does."""
        alone = earlier[self.alone]
        beside_ps = sum(share * earlier[comm] for comm, _, share, _ in self.beside)
        lost = sum(share * earlier[loss] for _, loss, _, share in self.beside)
        all_along = alone * lost / np.maximum(beside_ps - lost, 1.0)
        return alone + np.rint(np.minimum(lost, all_along)).astype(np.int64)


def slowed_lengths(
    alone: list[int],
    beside: Alongside,
    comms: list[tuple[int, int]],
    kernels: Callable[[int, int], tuple[float, float]],
) -> dict[int, SlowedLength]:
    """The lengths of compute that is slowed, by its place.

    `alone` are the numbers of its lengths, `comms` those of communications and of what products
    lose beside them. `kernels` says of two such numbers for which share of its time the first
    computes, and how much it loses of what products would.
    """
    shares: dict[int, dict[tuple[int, int], float]] = {}
    for task, comm, share in zip(
        beside.compute.tolist(), beside.comm.tolist(), beside.share.tolist(), strict=True
    ):
        own = shares.setdefault(task, {})
        own[comms[comm]] = own.get(comms[comm], 0.0) + share
    found = {}
    for task, own in shares.items():
        pairs = []
        for (comm, loss), share in sorted(own.items()):
            computed, weight = kernels(alone[task], loss)
            shared = round(share * computed, _DIGITS)
            pairs.append((comm, loss, shared, round(shared * weight, _DIGITS)))
        found[task] = SlowedLength(alone[task], tuple(pairs))
    return found
