"""Kernels whose time is neither a product's nor a copy's: products of groups, and scans.

Each has a rate by family and device, and sizes that an operator states.
"""

from typing import Annotated

import numpy as np
from msgspec import Meta

from stepsim.base.arrays import Floats
from stepsim.base.quantities import Time
from stepsim.base.structs import Noun, Share, TomlTable, UnitShare
from stepsim.base.units import PS_PER_S

TILE_ROWS, TILE_COLUMNS = 64, 128
"""Rows (tokens of an expert) and columns of results that a processor makes at once."""


class GroupedRate(TomlTable):
    """`[grouped.bf16]` and the like: products of all groups in one kernel.

    They are shares of the peak and of the bandwidth that it reaches.
    """

    share: Annotated[Share, Meta(gt=0, le=1.5, description="of the peak")]
    memory_share: Annotated[Share, Meta(ge=1e-6, le=1)] = 0.89


class GroupedShape(Noun):
    """Products of `count` groups: `rows` x `columns` results of each, sums over `depth`."""

    count: Floats
    rows: Floats
    columns: Floats
    depth: Floats

    def tiles(self) -> Floats:
        """Tiles of results of all groups; the last one of a side is whole, however little it has.

        An example: 4 groups of 130 x 256 have 4 x 3 x 2 tiles of 64 x 128.
        """
        return self.count * np.ceil(self.rows / TILE_ROWS) * np.ceil(self.columns / TILE_COLUMNS)

    def seconds(self, tiles: Floats, rate: float, processors: int) -> Floats:
        """Seconds of so many tiles at a `rate` of full processors in operations a second.

        Tiles are dealt out to processors in rounds, of which the last is half empty on average.
        """
        rounds = tiles / processors + 0.5
        return rounds * processors * TILE_ROWS * TILE_COLUMNS * 2.0 * self.depth / rate


class ScanShape(Noun):
    """A scan of `heads` (batch x heads of a rank), each in chunks of `chunk` tokens.

    `passes` are how often a state goes through all chunks, forward and backward.
    """

    family: str
    heads: Floats
    chunk: float
    passes: tuple[int, int] = (1, 2)


class ScanRate(TomlTable):
    """`[scan.chunked]` and the like: kernels that pass a state from chunk to chunk.

    Their products reach `share` of the bf16 peak (0: steps alone take time). A state goes on to the
    next chunk in `step_ps`, and all launches of a forward take `start_ps`. With `whole` a processor
    takes all chunks of a head, one after the other, so that heads beyond the processors wait; else
    chunks run side by side. What they read and write is no limit: kernels side by side reach a
    third to a half of the bandwidth.
    """

    share: Annotated[UnitShare, Meta(description="of the bf16 peak; 0: steps alone count")] = 0.0
    step_ps: Time = 0
    start_ps: Time = 0
    whole: bool = False

    def rounds(self, heads: Floats, processors: int) -> Floats:
        """How often all processors go through the chunks of a sequence."""
        return np.ceil(heads / processors) if self.whole else np.ones_like(heads)

    def waiting(self, steps: Floats, rounds: Floats, starts: float = 1.0) -> Floats:
        """Seconds of `starts` forwards' launches and of states that go on in `steps`."""
        return (starts * self.start_ps + self.step_ps * steps * rounds) / PS_PER_S


USUAL_SCAN = ScanRate(share=0.08, step_ps=1_700_000, start_ps=22_000_000)
"""Between those of Hopper and of Blackwell: for a device that names no scan of a family."""
