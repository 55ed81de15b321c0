"""What an algorithm says of itself, so that nobody else knows its name."""

from collections.abc import Callable

from msgspec import Struct

from stepsim.network.collectives.flows import FlowStep
from stepsim.network.collectives.levels import Levels
from stepsim.network.topology import DimensionKind, Layout
from stepsim.workload.rows import CollectiveKind

REDUCING = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
)
ROOTED = (
    CollectiveKind.BROADCAST,
    CollectiveKind.REDUCE,
    CollectiveKind.GATHER,
    CollectiveKind.SCATTER,
)
_MOST_CROSSINGS = 1 << 20
"""Links or dimensions that the flows of a step may cross: what is soon traced."""


class FlatAlgorithm(Struct, frozen=True, kw_only=True):
    """An algorithm over a group as a whole: what it carries out, and its steps.

    For the kinds in `basic` it is the one that works on any network; a `level` of a hierarchical
    algorithm can use it. `refuses` says why it cannot carry out a kind over a group, or nothing.
    `worth_pricing` says whether `auto` prices it: whether it can win, and is soon traced if a step
    crosses so many links or dimensions in `crossed` from or to each of `ranks`. Nothing beats it
    where a group is wired as in `best_on`; with `in_switch` two ranks do not do the same as in
    every other algorithm. With `copies_own` a rank first reads and writes the share of the data
    that is its own, one of as many as there are ranks.
    """

    kinds: tuple[CollectiveKind, ...]
    steps: Callable[[CollectiveKind, Layout], list[FlowStep]]
    basic: tuple[CollectiveKind, ...] = ()
    level: bool = False
    refuses: Callable[[CollectiveKind, Layout], str] = lambda kind, layout: ""
    worth_pricing: Callable[[CollectiveKind, int, int], bool] = lambda kind, crossed, ranks: True
    best_on: tuple[DimensionKind, ...] = ()
    in_switch: bool = False
    copies_own: bool = False


class LevelledAlgorithm(Struct, frozen=True, kw_only=True):
    """An algorithm made of a flat one at each level of a group, innermost first.

    `part(kind, level, count)` is what one of `count` levels carries out. `worth_pricing` is false
    where another one is never slower. Kinds that it `returns` come back through the inner levels.
    """

    kinds: tuple[CollectiveKind, ...]
    steps: Callable[[CollectiveKind, Levels, tuple[FlatAlgorithm, ...]], list[FlowStep]]
    part: Callable[[CollectiveKind, int, int], CollectiveKind]
    worth_pricing: bool = True
    returns: tuple[CollectiveKind, ...] = ()


def soon_traced(kind: CollectiveKind, crossed: int, ranks: int) -> bool:
    """Whether exchanges over distances are worth pricing: up to a million links in a step.

    Left out are rings of more than 1,448 NPUs.
    """
    return crossed <= _MOST_CROSSINGS
