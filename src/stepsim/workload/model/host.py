"""Host time of a layer: calls of its framework's operations, as far as no CUDA graph holds them.

The host calls an operation, which launches its kernels; a mixer's own kernel is several calls, as
its launches are. Calls of one framework take about as long whatever they do, so that the time for
a layer of a kind that was measured tells that of others.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.units import PS_PER_S
from stepsim.workload.axes import Group
from stepsim.workload.model.architecture import Layer, Tower
from stepsim.workload.model.choices import GraphScope
from stepsim.workload.model.context import launch_ps
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.interconnect import Interconnect
from stepsim.workload.model.parts import Block, Operator, OperatorKind
from stepsim.workload.plan import Plan, PlanTable

DENSE_CALLS = 26
"""Calls of both passes of a dense layer in bf16, whose host time is `host_layer`.

Two norms, two residuals, rotary embedding, core attention and activation have two each, four
products three.
"""
EXPERT_CALLS = 41
"""Calls of a layer with experts, whose host time is `host_expert_layer`: Qwen3's.

Its attention with norms has 16, norm, router, choice, layout of tokens and the way to the experts
10, these with the ways of results and gradients 10, return of tokens, residual and the last way 5.
"""

_ADAPTER_CALLS = 4
"""Calls of a low-rank adapter beside a frozen product: two products, forward and backward."""
_ADAPTED = (OperatorKind.MATRIX, OperatorKind.GROUPED)


def host_ps(
    layer: Layer, blocks: Iterable[Block], columns: PlanTable, framework: Framework
) -> Floats:
    """Host time, in ps, of both passes of a layer: its blocks' calls, and hops of a ring.

    A graph of the whole step leaves nothing, one of a part of the layer the calls of the others.
    """
    called = called_ps(layer, blocks, columns, framework)
    hops = launch_ps(layer, columns, framework.context)
    return called + np.where(in_one_graph(columns, framework) > 0, 0.0, hops)


def waits_ps(
    layer: Layer,
    blocks: Sequence[Block],
    columns: PlanTable,
    framework: Framework,
    network: Interconnect,
) -> list[Floats]:
    """Host time, in ps, for which kernels of each block of a layer wait, however long they are.

    The host reads how many tokens each expert has before it calls what works on them. When it has,
    the device has run all that was called before. The dispatch is called first (Megatron-Core's
    `token_dispatcher.py` reads the counts ahead of it), so that the other calls of the layer hide
    behind it alone. Where two microbatches run as one, they hide behind the other one, whose own
    compute is called after the dispatch: it waits for what is gathered ahead of the counts.
    """
    late = [block.after_counts and not framework.pads_experts for block in blocks]
    nothing = np.zeros_like(columns.tp)
    called = [
        called_ps(layer, [block], columns, framework) if is_late else nothing
        for block, is_late in zip(blocks, late, strict=True)
    ]
    whole = np.sum(called, axis=0)
    sent = [each for block in blocks for each in block.forward if each.group is Group.EP]
    seconds = [each.alone_s(columns, network) * PS_PER_S for each in sent]
    ahead = sum((s for s, each in zip(seconds, sent, strict=True) if each.way is None), nothing)
    first = sum((s for s, each in zip(seconds, sent, strict=True) if each.is_dispatch), nothing)
    paired = columns.paired_share
    waited = np.maximum(whole - first, 0.0) * (1 - paired) + np.minimum(ahead, whole) * paired
    share = np.divide(waited, whole, out=nothing.copy(), where=whole > 0)
    return [each * share for each in called]


def called_ps(
    layer: Layer, blocks: Iterable[Block], columns: PlanTable, framework: Framework
) -> Floats:
    """Host time, in ps, of the calls of some blocks of a layer, as far as no graph holds them."""
    nothing = np.zeros_like(columns.tp)
    made = sum((_calls(block, columns, framework) for block in blocks), nothing)
    one = framework.host_layer_ps / DENSE_CALLS
    if layer.is_sparse:
        one = framework.host_expert_layer_ps / EXPERT_CALLS
    return np.where(in_one_graph(columns, framework) > 0, 0.0, made * one)


def tower_host_ps(tower: Tower, columns: PlanTable, framework: Framework) -> Floats:
    """Host time, in ps, of the layers of a tower that sees: of their forward alone if frozen."""
    layers = framework.host_layer_ps * tower.depth / (3 if tower.frozen else 1)
    return np.where(in_one_graph(columns, framework) > 0, 0.0, layers)


def in_one_graph(columns: PlanTable, framework: Framework) -> Floats:
    """1 where a CUDA graph holds the whole step."""
    return columns.of(lambda plan: plan.cuda_graph and not _scopes(plan, framework))


def _scopes(plan: Plan, framework: Framework) -> tuple[GraphScope, ...]:
    """The parts of layers that a plan's graphs hold."""
    return framework.graph_scopes if plan.graph_scopes is None else plan.graph_scopes


def _calls(block: Block, columns: PlanTable, framework: Framework) -> Floats:
    """Calls of a block's operators in all phases, and of its exchanges between experts.

    A graph of a part of a layer ends where tokens are sent.
    """
    nothing = np.zeros_like(columns.tp)
    whole = columns.drops(block.module) if block.module else nothing
    called = (each for each in block.operators if each.called)
    operators = sum((_calls_of(each, columns, whole) for each in called), nothing)
    outside = columns.of(
        lambda plan: not (plan.cuda_graph and block.scope in _scopes(plan, framework))
    )
    ways = (each for each in (*block.forward, *block.backward) if each.way is not None)
    return operators * outside + sum((1.0 * (each.size_bytes > 0) for each in ways), nothing)


def _calls_of(operator: Operator, columns: PlanTable, whole: Floats) -> Floats:
    """Calls of an operator, the forward's twice where it, or the `whole` block, is recomputed.

    A frozen product has those of its adapter in place of its gradient.
    """
    counts = [phase.launches for phase in operator.phases]
    if operator.kind is not OperatorKind.SCAN:
        counts = [np.where(count > 0, 1.0, 0.0) for count in counts]
    beside = _ADAPTER_CALLS - 1 if operator.kind in _ADAPTED else 0
    adapted = 1 + columns.adapters * beside
    own = columns.drops(operator.module) if operator.module else whole
    again = 1 + np.maximum(whole, own)
    return np.asarray(counts[0] * again + counts[1] + counts[2] * adapted)
