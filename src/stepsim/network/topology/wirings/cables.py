"""Cables: a small network given pair by pair, such as a hybrid cube mesh; positions forward."""

from functools import cached_property
from typing import ClassVar

import numpy as np

from stepsim.base.arrays import Floats, Ints, Summand
from stepsim.base.errors import TopologyError
from stepsim.base.structs import Noun
from stepsim.network.topology.wiring import Digit, DimensionKind, Flows, Node

MAX_CABLED = 32
_MOST_CABLES = 1024


class Cables(Noun, dict=True):
    """Cable i joins `cables[i]`, by link 2i one way and 2i + 1 the other; pairs may repeat.

    A flow spreads evenly over its shortest paths, and evenly over parallel cables.
    """

    kind: ClassVar[DimensionKind] = DimensionKind.CABLES
    size: int
    cables: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if not 1 <= self.size <= MAX_CABLED:
            raise TopologyError(f"size is {self.size}: cables join 1 to {MAX_CABLED} positions")
        if len(self.cables) > _MOST_CABLES:
            raise TopologyError(f"{len(self.cables)} cables: expected at most {_MOST_CABLES}")
        for i, (a, b) in enumerate(self.cables):
            if a == b:
                raise TopologyError(f"cables[{i}] joins {a} to itself")
            if not (0 <= a < self.size and 0 <= b < self.size):
                raise TopologyError(f"cables[{i}] is [{a}, {b}]: expected 0 to {self.size - 1}")
        lost = np.flatnonzero(self._distances[0] >= self.size)
        if lost.size:
            raise TopologyError(f"the cables do not connect 0 and {lost[0]}")

    @property
    def link_counts(self) -> tuple[int, ...]:
        """Links per class: one each way per cable."""
        return (2 * len(self.cables),)

    @property
    def digits(self) -> tuple[Digit, ...]:
        """One digit: no two positions are equivalent."""
        return (Digit(self.size, turns=False),)

    @property
    def farthest(self) -> tuple[int, ...]:
        """The longest of the shortest paths."""
        return (int(self._distances.max()),)

    def ends(self, link: int) -> tuple[Node, Node]:
        """The two positions that a cable joins."""
        a, b = self.cables[link // 2]
        return (b, a) if link % 2 else (a, b)

    @cached_property
    def _adjacency(self) -> Floats:
        """Cables between every two positions."""
        adjacency = np.zeros((self.size, self.size))
        for a, b in self.cables:
            adjacency[a, b] += 1
            adjacency[b, a] += 1
        return adjacency

    def between(self, positions: Ints) -> Ints:
        """Cables from each of these positions to each other."""
        cables: Ints = self._adjacency[np.ix_(positions, positions)].astype(np.int64)
        return cables

    @cached_property
    def _distances(self) -> Ints:
        """Cables on a shortest path; `size` where there is none."""
        distances = np.where(self._adjacency > 0, 1, self.size)
        np.fill_diagonal(distances, 0)
        for middle in range(self.size):
            through = distances[:, middle, None] + distances[None, middle, :]
            distances = np.minimum(distances, through)
        return distances

    @cached_property
    def _shares(self) -> Floats:
        """`[a * size + b, link]`: share of a flow from a to b."""
        n, distances = self.size, self._distances
        neighbours = (self._adjacency > 0).astype(float)
        paths, walks = np.eye(n), np.eye(n)
        for length in range(1, n):
            walks = walks @ neighbours
            paths = np.where(distances == length, walks, paths)
        shares = np.zeros((n, n, 2 * len(self.cables)))
        for link in range(2 * len(self.cables)):
            u, v = (int(node) for node in self.ends(link))
            between = distances[:, u, None] + 1 + distances[None, v, :] == distances
            through = paths[:, u, None] * paths[None, v, :] / paths
            shares[:, :, link] = np.where(between, through / self._adjacency[u, v], 0.0)
        return shares.reshape(n * n, -1)

    def load(self, flows: Flows) -> list[Summand]:
        """Shares of all pairs, added up copy by copy."""
        copies, row = np.unique(flows.copy, return_inverse=True)
        pairs = self.size * self.size
        key = row * pairs + flows.start * self.size + flows.end
        weights = np.bincount(key, flows.weight, len(copies) * pairs).reshape(len(copies), pairs)
        loads = weights @ self._shares
        place, link = np.nonzero(loads)
        return [(copies[place] * self.link_counts[0] + link, loads[place, link])]

    def hops(self, flows: Flows) -> Ints:
        """Length of the shortest paths."""
        return self._distances[flows.start, flows.end][:, None]

    def halves(self, capacities: tuple[float, ...]) -> float:
        """Bytes/s of the cables between the lower and the upper half of the positions."""
        half = self.size // 2
        return capacities[0] * float(self._adjacency[:half, half:].sum())
