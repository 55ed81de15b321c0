"""Level by level over a grid of ranks, as over the dimensions of a network.

All-reduce scatters in, reduces across and gathers out, so that each level outwards moves only the
share that is left (BlueConnect: Cho et al., MLSys 2019; ASTRA-sim's localBWAware). All-gather goes
from the outermost level in, reduce-scatter from the innermost out. All-to-all exchanges inside
first, so that data lies on the right rail, then across (DeepSpeed-MoE; HetuMoE).

`per_dimension` is ASTRA-sim's baseline: an all-reduce of the whole size at every level. Each level
moves at least as much as hierarchically, so it is never faster.
"""

from collections.abc import Iterator

from stepsim.network.collectives.flows import (
    REDUCING,
    FlatAlgorithm,
    FlowStep,
    LevelledAlgorithm,
    Levels,
)
from stepsim.workload.axes import CollectiveKind

_SCATTER, _GATHER = CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER


def _hierarchical(
    kind: CollectiveKind, levels: Levels, algorithms: tuple[FlatAlgorithm, ...]
) -> list[FlowStep]:
    """Steps with one algorithm per level, innermost first."""
    return [
        step
        for phase, level, scale in _phases(kind, levels)
        for step in levels.everywhere(
            algorithms[level].steps(phase, levels.layout(level)), level, scale
        )
    ]


def _per_dimension(
    kind: CollectiveKind, levels: Levels, algorithms: tuple[FlatAlgorithm, ...]
) -> list[FlowStep]:
    """Steps of an all-reduce at each level, innermost first; others as hierarchically."""
    if kind is not CollectiveKind.ALL_REDUCE:
        return _hierarchical(kind, levels, algorithms)
    return [
        step
        for level, algorithm in enumerate(algorithms)
        for step in levels.everywhere(algorithm.steps(kind, levels.layout(level)), level, 1.0)
    ]


def _part(kind: CollectiveKind, level: int, count: int) -> CollectiveKind:
    """What one of `count` levels carries out: an all-reduce scatters inside the outermost."""
    return _SCATTER if kind is CollectiveKind.ALL_REDUCE and level < count - 1 else kind


def _phases(kind: CollectiveKind, levels: Levels) -> Iterator[tuple[CollectiveKind, int, float]]:
    """(kind, level, share of the size) of each phase in order."""
    inwards = range(len(levels.sizes))
    if kind is CollectiveKind.ALL_TO_ALL:
        yield from ((kind, level, 1.0) for level in inwards)
        return
    last = len(levels.sizes) - 1 if kind is CollectiveKind.ALL_REDUCE else len(levels.sizes)
    if kind is not _GATHER:
        yield from ((_SCATTER, level, levels.share(level)) for level in inwards[:last])
    if kind is CollectiveKind.ALL_REDUCE:
        yield kind, last, levels.share(last)
    if kind is not _SCATTER:
        yield from ((_GATHER, level, levels.share(level)) for level in reversed(inwards[:last]))


_KINDS = (*REDUCING, CollectiveKind.ALL_TO_ALL)

HIERARCHICAL = LevelledAlgorithm(
    kinds=_KINDS, steps=_hierarchical, part=_part, returns=(CollectiveKind.ALL_REDUCE,)
)
PER_DIMENSION = LevelledAlgorithm(
    kinds=_KINDS,
    steps=_per_dimension,
    part=lambda kind, level, count: kind,
    worth_pricing=False,
)
