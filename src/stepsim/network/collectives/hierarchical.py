"""Level by level over a grid of ranks, as over the dimensions of a network.

All-reduce scatters in, reduces across and gathers out, so that each level outwards moves only the
share that is left (BlueConnect: Cho et al., MLSys 2019; ASTRA-sim's localBWAware). All-gather goes
from the outermost level in, reduce-scatter from the innermost out. All-to-all exchanges inside
first, so that data lies on the right rail, then across (DeepSpeed-MoE; HetuMoE).

`per_dimension` is ASTRA-sim's baseline: an all-reduce of the whole size at every level. Each level
moves at least as much as hierarchically, so it is never faster.
"""

from collections.abc import Callable, Iterator

from stepsim.network.collectives.algorithms import Algorithm
from stepsim.network.collectives.flows import FlowStep
from stepsim.network.collectives.levels import Levels
from stepsim.network.topology import Layout
from stepsim.workload.rows import CollectiveKind

Flat = Callable[[CollectiveKind, Layout, Algorithm], list[FlowStep]]
"""Steps of a flat algorithm."""

_SCATTER, _GATHER = CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER


def hierarchical(
    kind: CollectiveKind, levels: Levels, algorithms: tuple[Algorithm, ...], flat: Flat
) -> list[FlowStep]:
    """Steps with one algorithm per level, innermost first."""
    return [
        step
        for phase, level, scale in _phases(kind, levels)
        for step in levels.everywhere(
            flat(phase, levels.layout(level), algorithms[level]), level, scale
        )
    ]


def per_dimension(
    kind: CollectiveKind, levels: Levels, algorithms: tuple[Algorithm, ...], flat: Flat
) -> list[FlowStep]:
    """Steps of an all-reduce at each level, innermost first; others as `hierarchical`."""
    if kind is not CollectiveKind.ALL_REDUCE:
        return hierarchical(kind, levels, algorithms, flat)
    return [
        step
        for level, algorithm in enumerate(algorithms)
        for step in levels.everywhere(flat(kind, levels.layout(level), algorithm), level, 1.0)
    ]


def level_kind(
    kind: CollectiveKind, algorithm: Algorithm, level: int, count: int
) -> CollectiveKind:
    """What one of `count` levels carries out, for the question which algorithms it can use."""
    inside = algorithm is Algorithm.HIERARCHICAL and level < count - 1
    return _SCATTER if kind is CollectiveKind.ALL_REDUCE and inside else kind


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
