"""Listed links as arrays: which link joins which nodes."""

from msgspec import Struct

from stepsim.base.arrays import Ints


class Cabling(Struct, frozen=True, kw_only=True, eq=False):
    """Named nodes, the `npus` NPUs first (`npu0`, `npu1`, ...), and directed links between them.

    Link l leaves node `tail[l]` for node `head[l]` and is of class `link_class[l]`.
    """

    nodes: tuple[str, ...]
    npus: int
    tail: Ints
    head: Ints
    link_class: Ints
