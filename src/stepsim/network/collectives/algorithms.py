"""The list of algorithms: their names, and where each is; the choice of one."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct

from stepsim.base.errors import PlanError
from stepsim.network.collectives.direct import DIRECT
from stepsim.network.collectives.double_binary_tree import DOUBLE_BINARY_TREE
from stepsim.network.collectives.halving_doubling import HALVING_DOUBLING
from stepsim.network.collectives.hierarchical import HIERARCHICAL, PER_DIMENSION
from stepsim.network.collectives.kinds import FlatAlgorithm, LevelledAlgorithm
from stepsim.network.collectives.nvls import NVLS
from stepsim.network.collectives.ring import BIDIRECTIONAL_RING, RING
from stepsim.network.collectives.tree import TREE


class Algorithm(StrEnum):
    """How a collective is carried out; `auto` takes the fastest.

    `hierarchical` and `per_dimension` work level by level: the first on ever smaller shares (reduce
    in, across, gather out), the second on everything at every level.
    """

    AUTO = "auto"
    RING = "ring"
    BIDIRECTIONAL_RING = "bidirectional_ring"
    DIRECT = "direct"
    HALVING_DOUBLING = "halving_doubling"
    DOUBLE_BINARY_TREE = "double_binary_tree"
    HIERARCHICAL = "hierarchical"
    NVLS = "nvls"
    TREE = "tree"
    PER_DIMENSION = "per_dimension"


FLAT: Mapping[Algorithm, FlatAlgorithm] = MappingProxyType(
    {
        Algorithm.RING: RING,
        Algorithm.BIDIRECTIONAL_RING: BIDIRECTIONAL_RING,
        Algorithm.DIRECT: DIRECT,
        Algorithm.HALVING_DOUBLING: HALVING_DOUBLING,
        Algorithm.DOUBLE_BINARY_TREE: DOUBLE_BINARY_TREE,
        Algorithm.NVLS: NVLS,
        Algorithm.TREE: TREE,
    }
)
LEVELLED: Mapping[Algorithm, LevelledAlgorithm] = MappingProxyType(
    {Algorithm.HIERARCHICAL: HIERARCHICAL, Algorithm.PER_DIMENSION: PER_DIMENSION}
)
LEVEL_ALGORITHMS = tuple(name for name, algorithm in FLAT.items() if algorithm.level)
"""What a level of a levelled algorithm can use."""
_MAX_CHUNKS = 1 << 16
UNEVEN = Algorithm.DIRECT
"""What carries out an all-to-all with uneven loads."""


class AlgorithmChoice(Struct, frozen=True, kw_only=True):
    """An algorithm; `levels` are those of a hierarchical one, innermost first, empty: the fastest.

    With several `chunks` the data is cut, and while one level works on a chunk the others work on
    those before and after it; level `view` is then taken as the one that never waits. Raises
    PlanError when the levels do not fit the algorithm, or there are too many chunks.
    """

    algorithm: Algorithm
    levels: tuple[Algorithm, ...] = ()
    chunks: int = 1
    view: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.chunks <= _MAX_CHUNKS:
            raise PlanError(
                f"{self.algorithm} in {self.chunks} chunks: expected 1 to {_MAX_CHUNKS}"
            )
        if self.levels and self.algorithm not in LEVELLED:
            raise PlanError(f"{self.algorithm} has no levels: leave out {':'.join(self.levels)}")
        for level in self.levels:
            if level not in LEVEL_ALGORITHMS:
                expected = ", ".join(LEVEL_ALGORITHMS)
                raise PlanError(f"{self}: a level cannot use {level}: expected {expected}")

    def __str__(self) -> str:
        """The text that `parse_algorithm` reads, e.g. `hierarchical:ring,halving_doubling/4`."""
        levels = f":{','.join(self.levels)}" if self.levels else ""
        return f"{self.algorithm}{levels}" + (f"/{self.chunks}" if self.chunks > 1 else "")


def parse_algorithm(text: str) -> AlgorithmChoice:
    """An algorithm's name, then perhaps `:` and its levels, innermost first, and `/` and chunks.

    Raises PlanError for a name that does not exist, and levels or chunks that do not fit.
    """
    body, slash, chunks = text.partition("/")
    name, _, levels = body.partition(":")
    if slash and not (chunks.strip().isascii() and chunks.strip().isdecimal()):
        raise PlanError(f"algorithm is {text!r}: expected a number of chunks after /, as in ring/4")
    try:
        return AlgorithmChoice(
            algorithm=Algorithm(name.strip()),
            levels=tuple(Algorithm(level.strip()) for level in levels.split(",") if levels),
            chunks=int(chunks.strip()[:9]) if slash else 1,
        )
    except ValueError as error:
        names = ", ".join(Algorithm)
        raise PlanError(f"{error}: expected {names}, or hierarchical:ring,direct") from None
