"""The list of algorithms: their names, where each is, and the choice of one.

The choice says which algorithms can carry out a collective, which of them `auto` prices, and what
their steps are.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import product

import numpy as np

from stepsim.base.axes import CollectiveKind as Kind
from stepsim.base.errors import PlanError, member
from stepsim.base.structs import Names, Noun, replace
from stepsim.network.collectives.direct import DIRECT
from stepsim.network.collectives.double_binary_tree import DOUBLE_BINARY_TREE
from stepsim.network.collectives.flows import (
    ROOTED,
    FlatAlgorithm,
    FlowStep,
    LevelledAlgorithm,
    Levels,
    levels_of,
)
from stepsim.network.collectives.halving_doubling import HALVING_DOUBLING
from stepsim.network.collectives.hierarchical import HIERARCHICAL, PER_DIMENSION
from stepsim.network.collectives.nvls import NVLS
from stepsim.network.collectives.ring import BIDIRECTIONAL_RING, RING
from stepsim.network.collectives.tree import TREE
from stepsim.network.topology import DimensionKind, Layout


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


FLAT: Mapping[Algorithm, FlatAlgorithm] = {
    Algorithm.RING: RING,
    Algorithm.BIDIRECTIONAL_RING: BIDIRECTIONAL_RING,
    Algorithm.DIRECT: DIRECT,
    Algorithm.HALVING_DOUBLING: HALVING_DOUBLING,
    Algorithm.DOUBLE_BINARY_TREE: DOUBLE_BINARY_TREE,
    Algorithm.NVLS: NVLS,
    Algorithm.TREE: TREE,
}
LEVELLED: Mapping[Algorithm, LevelledAlgorithm] = {
    Algorithm.HIERARCHICAL: HIERARCHICAL,
    Algorithm.PER_DIMENSION: PER_DIMENSION,
}
# What each algorithm carries out, on some group at least.
_KINDS: Mapping[Algorithm, tuple[Kind, ...]] = {
    Algorithm.AUTO: (),
    **{name: algorithm.kinds for name, algorithm in FLAT.items()},
    **{name: algorithm.kinds for name, algorithm in LEVELLED.items()},
}
LEVEL_ALGORITHMS = tuple(name for name, algorithm in FLAT.items() if algorithm.kinds != ROOTED)
"""What a level of a levelled algorithm can use: no level has a root."""
# A kind that every machine carries out so, whatever its library offers beside it.
_EVERYWHERE = Kind.ALL_TO_ALL, Algorithm.DIRECT
_MAX_CHUNKS = 1 << 16


class AlgorithmChoice(Noun):
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


FASTEST = AlgorithmChoice(algorithm=Algorithm.AUTO)
"""The fastest."""


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


_LINEAR = (DimensionKind.RING, DimensionKind.LINE)


def parse_algorithms(texts: Sequence[str]) -> dict[Kind, AlgorithmChoice]:
    """Choices in `all_reduce=ring`, or in `ring`: for every collective that it can carry out.

    Later texts win. Raises PlanError for kinds and algorithms that do not exist or do not go
    together.
    """
    asked: dict[Kind, AlgorithmChoice] = {}
    for text in texts:
        name, equals, algorithm = text.rpartition("=")
        choice = parse_algorithm(algorithm)
        if equals:
            kinds = [member(Kind, name.strip(), f"algorithm {text!r}: what stands before =")]
            if not _carries_out(kinds[0], choice):
                raise PlanError(f"algorithm is {text!r}: {choice} cannot carry out {kinds[0]}")
        else:
            every = (kind for kind in Kind if kind is not Kind.SEND_RECV)
            kinds = [kind for kind in every if _carries_out(kind, choice)]
        asked |= dict.fromkeys(kinds, choice)
    return asked


def flow_steps(
    kind: Kind,
    layout: Layout,
    choice: AlgorithmChoice,
) -> list[FlowStep]:
    """Steps of a collective over a group that lies so; none for a group of one.

    The choice is one of the `candidates`: it can carry the kind out, and leaves no level open.
    """
    if layout.ranks < 2:
        return []
    if choice.algorithm in FLAT:
        steps, returns = FLAT[choice.algorithm].steps(kind, layout), False
    else:
        levels = levels_of(layout)
        assert levels is not None  # see refusal
        levelled = LEVELLED[choice.algorithm]
        steps = [
            step
            for part, level, share in levelled.phases(kind, levels)
            for step in levels.everywhere(
                FLAT[choice.levels[level]].steps(part, levels.layout(level)), level, share
            )
        ]
        returns = kind in levelled.returns
    if choice.chunks > 1:
        steps = [_chunked(step, choice, returns=returns) for step in steps]
    return steps


def _chunked(step: FlowStep, choice: AlgorithmChoice, *, returns: bool) -> FlowStep:
    """A step of each of several chunks, some of which take no time of their own.

    Level `view` never waits and works on all chunks; the first and the last of them pass the levels
    before and behind it once more. What returns through the inner levels leaves the outer ones to
    be hidden: while they work on the last chunk, the level still has those before it on their way
    back.
    """
    passes = choice.chunks
    if step.level != choice.view:
        passes = 0 if returns and step.level > choice.view else 1
    return replace(
        step,
        fraction=step.fraction / choice.chunks,
        repeat=step.repeat * choice.chunks,
        hidden=step.repeat * (choice.chunks - passes),
    )


def candidates(
    kind: Kind,
    layout: Layout,
    wanted: AlgorithmChoice = FASTEST,
    offered: Names = (),
) -> tuple[AlgorithmChoice, ...]:
    """The choices to price, each with its levels set.

    `auto` prices what is `offered` (empty: everything), can carry the kind out on this group and is
    worth its price: see `_worth_pricing`. Where that is nothing, the basic algorithm remains. Of a
    pipeline of chunks each level is priced as the one that never waits. An
    all-to-all may go directly everywhere: every network routes messages, tori too, where it takes
    size / (4 x bandwidth of both directions) along a ring (How to Scale Your Model, chapter 3, of
    TPUs). Raises PlanError when the wanted algorithm cannot.
    """
    if wanted.algorithm is not Algorithm.AUTO:
        wanted = _along_its_dimensions(layout, wanted)
        reason = refusal(kind, layout, wanted.algorithm, wanted.levels)
        if reason:
            raise PlanError(f"{kind} cannot use {wanted}: {reason}")
        return tuple(
            replace(choice, view=view)
            for choice in _with_levels(kind, layout, wanted, offered)
            for view in range(len(choice.levels) if choice.chunks > 1 and choice.levels else 1)
        )
    found = [
        choice
        for algorithm in Algorithm
        if not offered or algorithm in offered or (kind, algorithm) == _EVERYWHERE
        if not refusal(kind, layout, algorithm)
        if _worth_pricing(kind, layout, algorithm)
        for choice in _with_levels(kind, layout, AlgorithmChoice(algorithm=algorithm), offered)
    ]
    if not found:
        basic = next(name for name, algorithm in FLAT.items() if kind in algorithm.basic)
        found = [AlgorithmChoice(algorithm=basic)]
    return tuple(found)


def _along_its_dimensions(layout: Layout, wanted: AlgorithmChoice) -> AlgorithmChoice:
    """The choice for a group along some dimensions, where levels name all of the network's.

    ASTRA-sim's lists of implementations mean that: an algorithm for each dimension.
    """
    spans = (layout.coordinates.max(axis=0) > layout.coordinates.min(axis=0)).tolist()
    if len(wanted.levels) != len(spans) or all(spans) or not any(spans):
        return wanted
    kept = tuple(level for level, spanned in zip(wanted.levels, spans, strict=True) if spanned)
    if len(kept) == 1:
        return replace(wanted, algorithm=kept[0], levels=())
    return replace(wanted, levels=kept)


def able_algorithms(kind: Kind, layout: Layout) -> tuple[Algorithm, ...]:
    """All algorithms that can carry out the kind over this group."""
    return tuple(a for a in Algorithm if not refusal(kind, layout, a))


def _carries_out(kind: Kind, choice: AlgorithmChoice) -> bool:
    """Whether a choice can carry out a kind at all, on some group; `auto` can."""
    return choice.algorithm is Algorithm.AUTO or kind in _KINDS[choice.algorithm]


def refusal(
    kind: Kind, layout: Layout, algorithm: Algorithm, named: tuple[Algorithm, ...] = ()
) -> str:
    """Why an algorithm cannot carry out a collective over this group; empty if it can.

    `named` are those of its levels, innermost first, if it has any.
    """
    if kind not in _KINDS[algorithm]:
        return f"expected {', '.join(name for name in Algorithm if kind in _KINDS[name])}"
    if layout.ranks < 2:
        return ""
    if algorithm in LEVELLED:
        return _levels_refusal(kind, layout, algorithm, named)
    return FLAT[algorithm].refuses(kind, layout)


def _levels_refusal(
    kind: Kind, layout: Layout, algorithm: Algorithm, named: tuple[Algorithm, ...]
) -> str:
    levels = levels_of(layout)
    if levels is None:
        return "its ranks form no regular grid: nodes hold different numbers of them"
    if len(levels.sizes) < 2:
        return "its ranks differ along one dimension only"
    if named and len(named) != len(levels.sizes):
        return f"its ranks differ along {len(levels.sizes)} dimensions: name an algorithm for each"
    for level, name in enumerate(named):
        part = LEVELLED[algorithm].part(kind, levels, level)
        reason = refusal(part, levels.layout(level), name)
        if reason:
            return f"level {level} ({part}) cannot use {name}: {reason}"
    return ""


def _worth_pricing(kind: Kind, layout: Layout, algorithm: Algorithm, groups: int = 1) -> bool:
    """Whether `auto` prices an algorithm in `groups` groups: see `FlatAlgorithm`."""
    if algorithm in LEVELLED:
        return LEVELLED[algorithm].worth_pricing
    spans = np.ptp(layout.coordinates, axis=0).tolist()
    # dimensions, and on rings and lines links, between the members farthest apart, roughly
    reach = sum(
        -(-span // 2) if wiring in _LINEAR else 1
        for span, wiring in zip(spans, layout.kinds, strict=True)
        if span
    )
    flat, ranks = FLAT[algorithm], layout.ranks
    return kind in flat.basic or flat.worth_pricing(kind, groups * ranks * reach, ranks)


def _with_levels(
    kind: Kind, layout: Layout, choice: AlgorithmChoice, offered: Names
) -> Iterator[AlgorithmChoice]:
    """The choice with every sensible algorithm at each level it leaves open."""
    open_levels = choice.algorithm in LEVELLED and not choice.levels
    levels = levels_of(layout) if open_levels else None
    if levels is None:
        yield choice
        return
    options = [
        _level_options(LEVELLED[choice.algorithm].part(kind, levels, level), levels, level, offered)
        for level in range(len(levels.sizes))
    ]
    for chosen in product(*options):
        yield replace(choice, levels=chosen)


def _level_options(kind: Kind, levels: Levels, level: int, offered: Names) -> list[Algorithm]:
    """What a level may use: offered algorithms, or any if none of these suits it.

    Two ranks do the same in every algorithm; where each has a link to each, nothing beats `direct`.
    """
    layout = levels.layout(level)
    able = [a for a in LEVEL_ALGORITHMS if not refusal(kind, layout, a)]
    groups = len(levels.groups(level))
    able = [a for a in able if _worth_pricing(kind, layout, a, groups)] or able[:1]
    listed = [a for a in able if a in offered] or able
    if any(FLAT[each].in_switch for each in listed):
        return listed
    best = [each for each in listed if layout.kinds[0] in FLAT[each].best_on]
    return listed[:1] if layout.ranks == 2 else best or listed
