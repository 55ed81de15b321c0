"""Level by level over a grid of ranks, as over the dimensions of a network.

All-reduce scatters in, reduces across and gathers out, so that each level outwards moves only the
share that is left (BlueConnect: Cho et al., MLSys 2019; ASTRA-sim's localBWAware). All-gather goes
from the outermost level in, reduce-scatter from the innermost out. All-to-all exchanges inside
first, so that data lies on the right rail, then across (DeepSpeed-MoE; HetuMoE).

`per_dimension` is ASTRA-sim's baseline: an all-reduce of the whole size at every level. Each level
moves at least as much as hierarchically, so it is never faster.
"""

from collections.abc import Iterator

from stepsim.base.axes import CollectiveKind
from stepsim.network.collectives.flows import REDUCING, LevelledAlgorithm, LevelPhase, Levels

_SCATTER, _GATHER = CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER


def _hierarchical(kind: CollectiveKind, levels: Levels) -> Iterator[LevelPhase]:
    """An all-reduce scatters inside the outermost level, reduces there and gathers inside it."""
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


def _per_dimension(kind: CollectiveKind, levels: Levels) -> Iterator[LevelPhase]:
    """An all-reduce of the whole size at each level; others as hierarchically."""
    if kind is CollectiveKind.ALL_REDUCE:
        return ((kind, level, 1.0) for level in range(len(levels.sizes)))
    return _hierarchical(kind, levels)


_KINDS = (*REDUCING, CollectiveKind.ALL_TO_ALL)

HIERARCHICAL = LevelledAlgorithm(
    kinds=_KINDS, phases=_hierarchical, returns=(CollectiveKind.ALL_REDUCE,)
)
PER_DIMENSION = LevelledAlgorithm(kinds=_KINDS, phases=_per_dimension, worth_pricing=False)
