"""What the parts of a model take on a device under a framework: the one model of a layer.

A part is a layer, or an end of the model. Its blocks have the time of each of their operators in
each pass, arrays over plans; the closed form of a step sums them, and the rows of a plan are made
of them.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.structs import Noun
from stepsim.workload.model.architecture import Architecture, Layer
from stepsim.workload.model.blocks import embedding_block, head_blocks, layer_blocks
from stepsim.workload.model.device import Device
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.host import host_ps, tower_host_ps, waits_ps
from stepsim.workload.model.interconnect import Interconnect
from stepsim.workload.model.parts import Block
from stepsim.workload.model.pricing import PhaseSeconds, Pricer
from stepsim.workload.model.tower import tower_blocks
from stepsim.workload.plan import PlanTable


class TimedPart(Noun, eq=False):
    """A part of a model by `blocks`, with the times of each block's operators.

    The host launches its kernels in `host_ps`, in both passes, and in each block kernels wait for
    the host for `waits_ps`, however long they are.
    """

    blocks: tuple[Block, ...]
    prices: tuple[tuple[PhaseSeconds, ...], ...]
    host_ps: Floats
    waits_ps: Sequence[Floats]


class TimedModel(Noun, dict=True):
    """Times of the parts of a model under some plans of one precision."""

    architecture: Architecture
    device: Device
    framework: Framework
    interconnect: Interconnect
    columns: PlanTable

    @cached_property
    def pricer(self) -> Pricer:
        """What prices operators."""
        return Pricer(device=self.device, framework=self.framework, columns=self.columns)

    def layer(self, layer: Layer) -> TimedPart:
        """A layer; far ranks of tp take the host longer where a pipeline leaves its node."""
        columns, framework = self.columns, self.framework
        blocks = layer_blocks(layer, self.architecture, columns, framework.context)
        far = (columns.pp > 1) & (columns.tp > 1) & (columns.npus > self.interconnect.domain)
        return self.part(
            blocks,
            host_ps(layer, blocks, columns, framework) + framework.host_tp_ps * columns.tp * far,
            waits_ps(layer, blocks, columns, framework, self.interconnect),
        )

    def embedding(self) -> TimedPart:
        """The embedding, behind a tower that sees, whose layers the host launches."""
        tower = self.architecture.seeing
        first = tower_blocks(self.architecture, self.columns)
        launched = tower_host_ps(tower, self.columns, self.framework) if tower else None
        return self.part((*first, embedding_block(self.architecture, self.columns)), launched)

    def head(self) -> TimedPart:
        """Final norm, head and loss."""
        fused = self.framework.fused_loss
        return self.part(head_blocks(self.architecture, self.columns, fused_loss=fused))

    def part(
        self,
        blocks: Iterable[Block],
        launched: Floats | None = None,
        waits: Sequence[Floats] | None = None,
    ) -> TimedPart:
        """Blocks with their times, which the host launches and keeps waiting for so long."""
        listed, nothing = tuple(blocks), np.zeros(len(self.columns))
        return TimedPart(
            blocks=listed,
            prices=tuple(tuple(map(self.pricer.price_one, block.operators)) for block in listed),
            host_ps=nothing if launched is None else launched,
            waits_ps=[nothing] * len(listed) if waits is None else waits,
        )
