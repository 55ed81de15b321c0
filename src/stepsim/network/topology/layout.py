"""How a group of NPUs lies on a network: all that a collective algorithm may know of it."""

from msgspec import Struct

from stepsim.base.arrays import Ints
from stepsim.network.topology.wiring import DimensionKind


class Layout(Struct, frozen=True, kw_only=True):
    """Where the ranks of a group sit, in the group's own numbering (positions 0 to n-1).

    `coordinates[i, k]` is the coordinate of member i along axis k, innermost first, and `kinds[k]`
    how that axis is wired. `orders` are the rings to use side by side, one per channel, each a
    permutation of the positions in which neighbours are close. `reduces` says that all members meet
    in one switch that can reduce, `reduces_inside` that those do which differ along the innermost
    axis only.
    """

    coordinates: Ints
    kinds: tuple[DimensionKind, ...]
    orders: tuple[Ints, ...]
    reduces: bool = False
    reduces_inside: bool = False
    reduce_efficiency: float = 1.0

    @property
    def ranks(self) -> int:
        """Members of the group."""
        return len(self.coordinates)
