"""Which part of a stage's gradients and parameters belongs to embedding and head.

AICB's generator (`SimAI_training_workload_generator.py`, `_get_total_params`) sums the parameters
of a whole file: layers of one stage, embedding and head. No stage between the ends has the last
two.
"""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from stepsim.base.structs import replace
from stepsim.workload.placeholders import is_placeholder
from stepsim.workload.rows import Group, Microbatch, Role, Row, StepItem

_EXPERTS = ("moe", "expert")


def with_shares(
    items: Iterable[StepItem], microbatches: Sequence[Microbatch]
) -> Iterator[StepItem]:
    """The items with the shares of embedding and head in what they reduce and gather.

    A row's share of the parameters is its share of the weight-gradient compute, for both grow with
    it; an embedding has as many as a head row. Expert gradients are in items of their own.
    """
    head, embeddings = _head_share(microbatches[0]) if microbatches else (Fraction(0), 0)
    for item in items:
        dense = all(op.group is Group.DP for op in item.work.comms)
        if head and dense and item.role in (Role.GRADIENTS, Role.PARAMETERS):
            yield replace(item, head_share=head, embedding_share=head * embeddings)
        else:
            yield item


def _head_share(block: Microbatch) -> tuple[Fraction, int]:
    """The head's share of a block's dense weight gradients, and embeddings for each head row."""
    heads = [ps for row in block.head if not row.lookup and (ps := _weight_ps(row))]
    layers = sum(
        _weight_ps(row)
        for layer in block.layers
        for row in layer
        if not any(word in row.name for word in _EXPERTS)
    )
    embeddings = 1 if block.embedding else 0
    total = layers + sum(heads) * (1 + embeddings)
    return (Fraction(sum(heads), total) if layers else Fraction(0)), embeddings


def _weight_ps(row: Row) -> int:
    """Weight-gradient compute of a row, 0 where it was not measured."""
    ps = row.weight_grad.compute_ps
    return 0 if is_placeholder(ps) else ps
