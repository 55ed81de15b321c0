"""How long communications take in every scenario, by its links and sizes."""

from collections.abc import Sequence

import numpy as np

from stepsim.base.arrays import Floats, Ints
from stepsim.base.errors import SimulationError
from stepsim.base.structs import Noun
from stepsim.base.units import MAX_INT64
from stepsim.explore.batch.scenarios import AXES, Scenarios
from stepsim.network.collectives import (
    CollectiveShape,
    collective_times_ps,
    lone_times_ps,
    with_siblings_ps,
)
from stepsim.workload.rows import CommOp


class CommLength(Noun, kw_only=False):
    """A communication in groups of one `look` on the topology.

    Where its time alone was measured, its siblings slow that as they slow the model's.
    """

    op: CommOp
    look: bytes
    shape: CollectiveShape
    alone_ps: int | None = None

    def __eq__(self, other: object) -> bool:
        """Whether it is the same communication: groups of one look have one shape."""
        return isinstance(other, CommLength) and (other.op, other.look) == (self.op, self.look)

    def __hash__(self) -> int:
        return hash((self.op, self.look))

    def ps(self, scenarios: Scenarios, earlier: Sequence[Ints]) -> Ints:
        """By the scenario's links and sizes."""
        size: Floats = np.rint(self.op.size_bytes * scenarios.size[:, self.axis])
        times, chosen = communication_ps(self.shape, size, scenarios)
        runs = times > 0
        if self.alone_ps is not None:
            size = np.broadcast_to(size, times.shape)
            alone = lone_times_ps(self.shape, chosen, size, scenarios.launch_ps, scenarios.links)
            times, runs = with_siblings_ps(self.alone_ps, times, alone), np.ones_like(runs)
        return np.where(runs, np.maximum(times, self.op.least_ps) + self.op.process_ps, 0)

    @property
    def axis(self) -> int:
        """Place of its factor on bytes in `AXES`."""
        return AXES.index(self.op.axis)

    @property
    def classes(self) -> Ints:
        """Link classes on which its time depends."""
        crossed = [step.shared + step.hops.sum(axis=0) for step in self.shape.steps]
        return np.flatnonzero(sum(crossed, start=np.zeros(1)))


def communication_ps(
    shape: CollectiveShape, size_bytes: Floats, scenarios: Scenarios
) -> tuple[Ints, Ints]:
    """Picoseconds of a traced communication in many scenarios, and the candidate each takes.

    Raises SimulationError where one takes 2**63 - 1 ps or more.
    """
    links = scenarios.links
    rows = max(len(column) for column in (size_bytes, scenarios.launch_ps, *links))
    size = np.broadcast_to(size_bytes, (rows,))
    times, chosen = collective_times_ps(shape, size, scenarios.launch_ps, links)
    if (times == MAX_INT64).any():
        raise SimulationError(
            "a collective takes more than 2**63 - 1 ps (106 days) in a scenario: "
            "it cannot be simulated"
        )
    return times, chosen
