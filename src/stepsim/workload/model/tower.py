"""What a tower for images runs and keeps: blocks on the first stage, before the embedding.

Its layers are those of a transformer whose tokens are patches: all of them see all of an image, of
which a sample has one. Ranks of tp share its heads, ranks of cp its patches. A frozen tower runs
forward alone. Its layers are alike, so that they are priced as one, as often as there are layers.
"""

from collections.abc import Iterator

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.structs import replace
from stepsim.workload.model.architecture import Architecture, Tower
from stepsim.workload.model.blocks import layer_blocks
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.held import layer_bytes
from stepsim.workload.model.operators import products
from stepsim.workload.model.parts import Block, Exchange, Operator
from stepsim.workload.plan import PlanTable


def tower_blocks(architecture: Architecture, columns: PlanTable) -> tuple[Block, ...]:
    """The blocks of a tower that sees in forward order; none where nothing is seen."""
    tower = architecture.seeing
    if tower is None:
        return ()
    own, inner = _patches(tower, columns), _as_model(tower)
    first = tuple(products(own, ("patches", own.shard_tokens, float(tower.patch), tower.hidden)))
    layers = (_times(block, tower.depth) for block in layer_blocks(tower.layer, inner, own))
    blocks = (
        Block(name="patches", operators=first),
        *layers,
        Block(name="projector", operators=tuple(_projector(tower, own))),
    )
    return tuple(map(_forward_alone, blocks)) if tower.frozen else blocks


def tower_bytes(architecture: Architecture, columns: PlanTable, framework: Framework) -> Floats:
    """Bytes that a tower keeps of a microbatch until its backward; none where it is frozen."""
    tower = architecture.seeing
    if tower is None or tower.frozen:
        return np.zeros(len(columns))
    own = _patches(tower, columns)
    layers = tower.depth * layer_bytes(tower.layer, _as_model(tower), own, framework)[0]
    ends = own.shard_tokens * (2.0 * tower.patch + 4.0 * tower.merged * tower.hidden)
    return np.asarray(layers + ends)


def _as_model(tower: Tower) -> Architecture:
    """The tower's layers as a model of their own."""
    return Architecture(
        name="tower", hidden=tower.hidden, layers=(tower.layer,), vocabulary=1, norm=tower.norm
    )


def _patches(tower: Tower, columns: PlanTable) -> PlanTable:
    """The plans with patches for tokens.

    Of causal attention a token reads half of the sequence: in one twice as long it reads all.
    """
    of_sample = float(tower.tokens * tower.merged)
    tokens = columns.microbatch_size * of_sample / columns.cp
    shard = np.where(columns.sequence_parallel > 0, tokens / columns.tp, tokens)
    return columns.other(
        tokens=tokens,
        shard_tokens=shard,
        sequence=np.full(len(columns), 2.0 * of_sample),
        attended=np.full(len(columns), 2.0 * of_sample),
        cp=np.ones(len(columns)),
    )


def _projector(tower: Tower, columns: PlanTable) -> Iterator[Operator]:
    """Products that make tokens of the decoder, of whole ranks."""
    for number, (inner, outer, _) in enumerate(tower.products):
        rows = columns.shard_tokens / tower.merged
        yield from products(columns, (f"projector {number}", rows, float(inner), float(outer)))


def _times(block: Block, count: int) -> Block:
    """A block so many times over, as one."""
    return Block(
        name=f"tower {block.name}",
        operators=tuple(_repeated(item, float(count)) for item in block.operators),
        forward=tuple(_longer(item, count) for item in block.forward),
        backward=tuple(_longer(item, count) for item in block.backward),
    )


def _repeated(operator: Operator, count: float) -> Operator:
    many = np.full_like(operator.forward.flops, count)
    longer = operator.times(many, many)
    if operator.sides is None:
        return longer
    tokens, inner, outer = operator.sides
    return replace(longer, sides=(tokens, inner, outer * count))


def _longer(exchange: Exchange, count: int) -> Exchange:
    return replace(exchange, size_bytes=exchange.size_bytes * count)


def _forward_alone(block: Block) -> Block:
    """A block without its backward."""
    one = np.ones_like(block.operators[0].forward.flops)
    alone = (replace(each.times(one, 0.0 * one), sides=None) for each in block.operators)
    return Block(name=block.name, operators=tuple(alone), forward=block.forward)
