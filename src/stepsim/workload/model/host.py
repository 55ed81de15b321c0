"""Host time of a layer: calls of its framework's operations, as far as no CUDA graph holds them.

The host calls an operation, which launches its kernels; a mixer's own kernel is several calls, as
its launches are. Calls of one framework take about as long whatever they do, so that the time for
a layer of a kind that was measured tells that of others.
"""

from collections.abc import Iterable

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.workload.model.architecture import Layer
from stepsim.workload.model.columns import PlanColumns
from stepsim.workload.model.context import Block, Exchange, launch_ps
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.operators import Operator, OperatorKind

DENSE_CALLS = 26
"""Calls of both passes of a dense layer in bf16, whose host time is `host_layer`.

Two norms, two residuals, rotary embedding, core attention and activation have two each, four
products three.
"""
EXPERT_CALLS = 45
"""Calls of a layer with experts in 8 bits, whose host time is `host_expert_layer`.

That is Qwen3's: a dense attention with norms of queries and keys, and casts (18 calls with its
norm and residual and 5 more), router, choice, three operations of experts with their casts, sum,
residual, norm, and four exchanges.
"""

_ADAPTER_CALLS = 4
"""Calls of a low-rank adapter beside a frozen product: two products, forward and backward."""
_ADAPTED = (OperatorKind.MATRIX, OperatorKind.GROUPED)


def host_ps(
    layer: Layer, blocks: Iterable[Block], columns: PlanColumns, framework: Framework
) -> Floats:
    """Host time, in ps, of both passes of a layer: its blocks' calls, and hops of a ring.

    A graph of the whole step leaves nothing, one of a part of the layer the calls of the others.
    """
    listed = tuple(blocks)
    made = sum((_calls(block, columns) for block in listed), np.zeros_like(columns.tp))
    made = made + launch_ps(layer, columns, framework.context) / call_ps(framework, layer)
    return np.where(columns.graphs_step > 0, 0.0, made * call_ps(framework, layer))


def call_ps(framework: Framework, layer: Layer) -> float:
    """Host time of one call in ps, as a layer with experts tells it, or one without."""
    if layer.is_sparse:
        return framework.host_expert_layer_ps / EXPERT_CALLS
    return framework.host_layer_ps / DENSE_CALLS


def _outside(block: Block, columns: PlanColumns) -> Floats:
    """1 where no graph holds a block."""
    if block.scope is None:
        return np.ones_like(columns.tp)
    return 1.0 - columns.graphs[block.scope]


def _calls(block: Block, columns: PlanColumns) -> Floats:
    """Calls of a block's operators in all phases, and of its exchanges between experts.

    A graph of a part of a layer ends where tokens are sent.
    """
    nothing = np.zeros_like(columns.tp)
    operators = sum((_calls_of(each, columns) for each in block.operators), nothing)
    sent = sum((1.0 * (each.size_bytes > 0) for each in _between_experts(block)), nothing)
    return operators * _outside(block, columns) + sent


def _between_experts(block: Block) -> tuple[Exchange, ...]:
    return tuple(each for each in (*block.forward, *block.backward) if each.experts is not None)


def _calls_of(operator: Operator, columns: PlanColumns) -> Floats:
    """Calls of an operator; a frozen product has those of its adapter in place of its gradient."""
    phases = (operator.forward, operator.input_grad, operator.weight_grad)
    counts = [np.asarray(phase.launches) for phase in phases]
    if operator.kind is not OperatorKind.SCAN:
        counts = [1.0 * (count > 0) for count in counts]
    beside = _ADAPTER_CALLS - 1 if operator.kind in _ADAPTED else 0
    adapted = 1 + columns.adapters * beside
    return counts[0] + counts[1] + counts[2] * adapted
