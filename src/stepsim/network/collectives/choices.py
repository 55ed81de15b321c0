"""Which algorithms can carry out a collective, which of them `auto` prices, and their steps."""

from collections.abc import Callable, Iterator
from itertools import product

from stepsim.base.errors import PlanError
from stepsim.network.collectives.algorithms import LEVEL_ALGORITHMS, Algorithm, AlgorithmChoice
from stepsim.network.collectives.direct import direct, uneven_all_to_all
from stepsim.network.collectives.double_binary_tree import double_binary_tree
from stepsim.network.collectives.flows import FlowStep
from stepsim.network.collectives.halving_doubling import halving_doubling
from stepsim.network.collectives.hierarchical import hierarchical, level_kind, per_dimension
from stepsim.network.collectives.levels import Levels, levels_of
from stepsim.network.collectives.nvls import nvls
from stepsim.network.collectives.ring import bidirectional_ring, ring
from stepsim.network.collectives.tree import binomial_tree
from stepsim.network.topology import DimensionKind, Layout
from stepsim.workload.rows import CollectiveKind as Kind

_MOST_PAIRS = 1 << 17
_MOST_CROSSINGS = 1 << 20
_LINEAR = (DimensionKind.RING, DimensionKind.LINE)

_REDUCING = (Kind.ALL_REDUCE, Kind.ALL_GATHER, Kind.REDUCE_SCATTER)
_ROOTED = (Kind.BROADCAST, Kind.REDUCE, Kind.GATHER, Kind.SCATTER)
_KINDS: dict[Algorithm, tuple[Kind, ...]] = {
    Algorithm.RING: (*_REDUCING, Kind.ALL_TO_ALL, Kind.BROADCAST, Kind.REDUCE),
    Algorithm.BIDIRECTIONAL_RING: _REDUCING,
    Algorithm.DIRECT: (*_REDUCING, Kind.ALL_TO_ALL, Kind.GATHER, Kind.SCATTER, Kind.SEND_RECV),
    Algorithm.HALVING_DOUBLING: _REDUCING,
    Algorithm.DOUBLE_BINARY_TREE: (Kind.ALL_REDUCE, Kind.BROADCAST, Kind.REDUCE),
    Algorithm.HIERARCHICAL: (*_REDUCING, Kind.ALL_TO_ALL),
    Algorithm.NVLS: _REDUCING,
    Algorithm.TREE: _ROOTED,
    Algorithm.PER_DIMENSION: (*_REDUCING, Kind.ALL_TO_ALL),
}
_FLAT: dict[Algorithm, Callable[[Kind, Layout], list[FlowStep]]] = {
    Algorithm.RING: ring,
    Algorithm.BIDIRECTIONAL_RING: bidirectional_ring,
    Algorithm.DIRECT: direct,
    Algorithm.HALVING_DOUBLING: halving_doubling,
    Algorithm.DOUBLE_BINARY_TREE: double_binary_tree,
    Algorithm.NVLS: nvls,
    Algorithm.TREE: binomial_tree,
}


def basic_algorithm(kind: Kind) -> Algorithm:
    """What carries out a kind on any network, where the machine's library offers nothing else."""
    if kind in _ROOTED:
        return Algorithm.TREE
    return Algorithm.RING if kind in _REDUCING else Algorithm.DIRECT


def flow_steps(
    kind: Kind,
    layout: Layout,
    choice: AlgorithmChoice | Algorithm | None = None,
    loads: tuple[float, ...] = (),
) -> list[FlowStep]:
    """Steps of a collective over a group that lies so; none for a group of one.

    Without a choice they are those of the basic algorithm. `loads` make an all-to-all uneven: see
    `uneven_all_to_all`. Raises PlanError when the algorithm
    cannot carry it out, or when the choice leaves something open: `auto`, or levels.
    """
    choice = as_choice(choice or basic_algorithm(kind))
    reason = refusal(kind, layout, choice)
    if reason:
        raise PlanError(f"{kind} cannot use {choice}: {reason}")
    if layout.ranks < 2:
        return []
    if loads:
        return uneven_all_to_all(loads)
    if not choice.algorithm.levelled:
        return _FLAT[choice.algorithm](kind, layout)
    levels = levels_of(layout)
    if levels is None or len(choice.levels) != len(levels.sizes):
        raise PlanError(f"{choice} leaves its levels open")
    build = hierarchical if choice.algorithm is Algorithm.HIERARCHICAL else per_dimension
    return build(kind, levels, choice.levels, _flat)


def as_choice(algorithm: AlgorithmChoice | Algorithm) -> AlgorithmChoice:
    """A choice, of an algorithm by its name too."""
    if isinstance(algorithm, AlgorithmChoice):
        return algorithm
    return AlgorithmChoice(algorithm=algorithm)


def candidates(
    kind: Kind,
    layout: Layout,
    wanted: AlgorithmChoice | Algorithm = Algorithm.AUTO,
    offered: tuple[str, ...] = (),
) -> tuple[AlgorithmChoice, ...]:
    """The choices to price, each with its levels set.

    `auto` prices what is `offered` (empty: everything), can carry the kind out on this group and is
    worth its price: see `_worth_pricing`. Where that is nothing, the basic algorithm remains.
    Raises PlanError when the wanted algorithm cannot.
    """
    wanted = as_choice(wanted)
    if wanted.algorithm is not Algorithm.AUTO:
        reason = refusal(kind, layout, wanted)
        if reason:
            raise PlanError(f"{kind} cannot use {wanted}: {reason}")
        return tuple(_with_levels(kind, layout, wanted, offered))
    found = [
        choice
        for algorithm in Algorithm
        if algorithm in offered or not offered
        if not refusal(kind, layout, as_choice(algorithm))
        if _worth_pricing(kind, layout, algorithm)
        for choice in _with_levels(kind, layout, as_choice(algorithm), offered)
    ]
    return tuple(found) or (as_choice(basic_algorithm(kind)),)


def able_algorithms(kind: Kind, layout: Layout) -> tuple[Algorithm, ...]:
    """All algorithms that can carry out the kind over this group."""
    return tuple(a for a in Algorithm if not refusal(kind, layout, as_choice(a)))


def carries_out(kind: Kind, choice: AlgorithmChoice) -> bool:
    """Whether a choice can carry out a kind at all, on some group; `auto` can."""
    return choice.algorithm is Algorithm.AUTO or kind in _KINDS[choice.algorithm]


def refusal(kind: Kind, layout: Layout, choice: AlgorithmChoice) -> str:
    """Why a choice cannot carry out a collective over this group; empty if it can."""
    algorithm = choice.algorithm
    if kind not in _KINDS.get(algorithm, ()):
        names = [name for name, kinds in _KINDS.items() if kind in kinds]
        return f"expected {', '.join(names)}"
    if layout.ranks < 2:
        return ""
    if algorithm is Algorithm.NVLS and not layout.reduces:
        return _nvls_refusal(kind, layout)
    return _levels_refusal(kind, layout, choice) if algorithm.levelled else ""


def _levels_refusal(kind: Kind, layout: Layout, choice: AlgorithmChoice) -> str:
    levels = levels_of(layout)
    if levels is None:
        return "its ranks form no regular grid: nodes hold different numbers of them"
    if len(levels.sizes) < 2:
        return "its ranks differ along one dimension only"
    if choice.levels and len(choice.levels) != len(levels.sizes):
        return f"its ranks differ along {len(levels.sizes)} dimensions: name an algorithm for each"
    for level, name in enumerate(choice.levels):
        part = level_kind(kind, choice.algorithm, level, len(levels.sizes))
        reason = refusal(part, levels.layout(level), as_choice(name))
        if reason:
            return f"level {level} ({part}) cannot use {name}: {reason}"
    return ""


def _nvls_refusal(kind: Kind, layout: Layout) -> str:
    if not layout.reduces_inside:
        return "its ranks meet in no switch that reduces"
    if kind is not Kind.ALL_REDUCE:
        return "over several nodes the switches only all-reduce"
    levels = levels_of(layout)
    if levels is None or len(levels.sizes) < 2 or not levels.reduces_inside:
        return "every node needs the same number of ranks, at least two"
    return ""


def _flat(kind: Kind, layout: Layout, algorithm: Algorithm) -> list[FlowStep]:
    return _FLAT[algorithm](kind, layout)


def _worth_pricing(kind: Kind, layout: Layout, algorithm: Algorithm, groups: int = 1) -> bool:
    """Whether `auto` prices an algorithm in `groups` groups: it can win and is soon traced.

    Left out: `per_dimension`, which `hierarchical` beats, and an all-to-all round a ring, which
    sending directly beats; exchanges of all pairs that cross more than 131,072 dimensions (362
    ranks on a switch), unless they are basic; exchanges over distances that cross more than a
    million in one step (halving-doubling and trees on rings of more than 1,448 NPUs).
    """
    if algorithm is basic_algorithm(kind):
        return True
    if algorithm is Algorithm.PER_DIMENSION:
        return False
    if algorithm is Algorithm.RING:
        return kind is not Kind.ALL_TO_ALL
    crossed = groups * layout.ranks * _reach(layout)
    if algorithm is Algorithm.DIRECT and kind in _REDUCING:
        return crossed * (layout.ranks - 1) <= _MOST_PAIRS
    far = algorithm in (Algorithm.HALVING_DOUBLING, Algorithm.DOUBLE_BINARY_TREE)
    return crossed <= _MOST_CROSSINGS or not far


def _reach(layout: Layout) -> int:
    """Dimensions, and on rings and lines links, between the members farthest apart, roughly."""
    spans = (layout.coordinates.max(axis=0) - layout.coordinates.min(axis=0)).tolist()
    return sum(
        -(-span // 2) if wiring in _LINEAR else 1
        for span, wiring in zip(spans, layout.kinds, strict=True)
        if span
    )


def _with_levels(
    kind: Kind, layout: Layout, choice: AlgorithmChoice, offered: tuple[str, ...]
) -> Iterator[AlgorithmChoice]:
    """The choice with every sensible algorithm at each level it leaves open."""
    levels = levels_of(layout) if choice.algorithm.levelled and not choice.levels else None
    if levels is None:
        yield choice
        return
    options = [
        _level_options(
            level_kind(kind, choice.algorithm, level, len(levels.sizes)), levels, level, offered
        )
        for level in range(len(levels.sizes))
    ]
    for chosen in product(*options):
        yield AlgorithmChoice(algorithm=choice.algorithm, levels=chosen)


def _level_options(
    kind: Kind, levels: Levels, level: int, offered: tuple[str, ...]
) -> list[Algorithm]:
    """What a level may use: offered algorithms, or any if none of these suits it.

    Two ranks do the same in every algorithm; where each has a link to each, nothing beats `direct`.
    """
    layout = levels.layout(level)
    able = [a for a in LEVEL_ALGORITHMS if not refusal(kind, layout, as_choice(a))]
    groups = len(levels.groups(level))
    able = [a for a in able if _worth_pricing(kind, layout, a, groups)] or able[:1]
    listed = [a for a in able if a in offered] or able
    if Algorithm.NVLS not in listed:
        if layout.ranks == 2:
            return listed[:1]
        if layout.kinds[0] is DimensionKind.FULLY_CONNECTED and Algorithm.DIRECT in listed:
            return [Algorithm.DIRECT]
    return listed
