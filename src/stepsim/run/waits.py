"""What waits for what: nodes in an order in which each follows those that it waits for."""

from collections.abc import Callable
from functools import cached_property

from stepsim.base.arrays import Ints, Lists, Small
from stepsim.base.structs import Noun

EndView = Callable[[Ints], Ints]
"""How a node sees the end of another: which of its values are its own, in which order."""


class NodeWaits(Noun, eq=False, dict=True):
    """Nodes, and what each waits for: node i starts after all of `after[i]`, which are before it.

    Level l is the nodes from `levels[l]` to `levels[l + 1]`: they wait for lower levels only. Where
    nodes wait for each other in a circle, those and what waits for them are behind the last level.
    `levels` is None where nodes stand in order, but not by levels. `results` are the nodes whose
    ends are wanted, None for all: others are forgotten once nothing waits for them. `views[i]` has
    how node i sees the end of each node of `after[i]`, None as it is; without `views` all are seen
    as they are.

    For example three nodes, of which the last waits for the others, are `after` of the lists
    `(), (), (0, 1)` and `levels` of `0, 2, 3`.
    """

    after: Lists
    levels: Small | None = None
    results: tuple[int, ...] | None = None
    views: tuple[tuple[EndView | None, ...], ...] | None = None

    def __len__(self) -> int:
        return len(self.after)

    @property
    def runnable(self) -> int:
        """How many nodes can run: the first ones. Fewer than all where some wait in a circle."""
        return len(self) if self.levels is None else int(self.levels[-1])

    @cached_property
    def lists(self) -> list[tuple[int, ...]]:
        """What every node waits for, in Python's numbers."""
        return self.after.tolist()

    @cached_property
    def over_after(self) -> list[tuple[int, ...]]:
        """For every node those that nothing later waits for, and that are no results."""
        last_use = list(range(len(self)))
        for node, before in enumerate(self.lists):
            for earlier in before:
                last_use[earlier] = node
        wanted = set(range(len(self)) if self.results is None else self.results)
        over: list[list[int]] = [[] for _ in last_use]
        for node, user in enumerate(last_use):
            if node not in wanted:
                over[user].append(node)
        return [tuple(nodes) for nodes in over]
