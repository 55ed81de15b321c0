"""What the parts of a model take on a device under a framework: the one model of a layer.

Times of operators are seconds, arrays over plans. A part is a layer, or an end of the model. Its
blocks have the time of each of their operators in each pass; the closed form of a step sums them,
and the rows of a plan are made of them.

Host time is the time of calls of the framework's operations, as far as no CUDA graph holds them.
The host calls an operation, which launches its kernels; a mixer's own kernel is several calls, as
its launches are. Calls of one framework take about as long whatever they do, so that the time for a
layer of a kind that was measured tells that of others.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from stepsim.base.arrays import Bools, Floats
from stepsim.base.axes import Group
from stepsim.base.structs import Noun
from stepsim.base.units import PS_PER_S
from stepsim.workload.model.architecture import Architecture, Layer
from stepsim.workload.model.blocks import embedding_block, head_blocks, layer_blocks, tower_blocks
from stepsim.workload.model.choices import GraphScopes
from stepsim.workload.model.context import launch_ps
from stepsim.workload.model.device import Device
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.parts import Block, Blocks, Interconnect, Operator, OperatorKind
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

# Calls of a low-rank adapter beside a frozen product: two products, forward and backward.
_ADAPTER_CALLS = 4
_ADAPTED = (OperatorKind.MATRIX, OperatorKind.GROUPED)


WEIGHT_GRADIENT_FACTOR = 1.05  # fp32 accumulation costs 5 %: SimuMax's NT products on B200
_WEIGHT_GRAD = 2  # the number of a phase
_ALIGNED = 8  # elements: tensor cores take rows of 16 bytes


class PhaseSeconds(NamedTuple):
    """Time of operators by phase, arrays over plans.

    `again` is the forward of those that the backward runs again, where parts of a layer are
    recomputed. Frozen weights have no gradients.
    """

    forward: Floats
    input_grad: Floats
    weight_grad: Floats
    again: Floats

    @property
    def backward(self) -> Floats:
        """Input and weight gradients."""
        return self.input_grad + self.weight_grad


class Pricer(Noun):
    """Prices operators of some plans, all of one precision."""

    device: Device
    framework: Framework
    columns: PlanTable

    @property
    def in_one_graph(self) -> Bools:
        """Whether a CUDA graph holds the whole step."""
        return self.columns.of(lambda plan: plan.cuda_graph and not self._scopes(plan)) > 0

    def _scopes(self, plan: Plan) -> GraphScopes:
        """The parts of layers that a plan's graphs hold."""
        return self.framework.graph_scopes if plan.graph_scopes is None else plan.graph_scopes

    def price_one(self, operator: Operator) -> PhaseSeconds:
        """Time of an operator."""
        match operator.kind:
            case OperatorKind.MEMORY:
                seconds = self._memory(operator)
            case OperatorKind.ATTENTION:
                seconds = self._attention(operator)
            case OperatorKind.SCORES if operator.head_dim % _ALIGNED:
                seconds = operator.flops / self.device.vector_rate
            case OperatorKind.SCAN:
                assert operator.scanned is not None
                sequence = self.columns.sequence
                seconds = self.device.scan_seconds(operator.scanned, operator.flops, sequence)
            case OperatorKind.MIXED:
                seconds = self._mixed(operator)
            case OperatorKind.GROUPED:
                seconds = self._groups(operator)
            case _:
                seconds = self._products(operator)
        slower = self.device.slower.get(operator.pytorch, 1.0)
        first, input_grad, weight_grad = slower * seconds
        chosen = self.columns.drops(operator.module) if operator.module else 0.0
        return PhaseSeconds(
            forward=first,
            input_grad=input_grad,
            weight_grad=weight_grad * (1 - self.columns.adapters),
            again=np.maximum(chosen, self.columns.recompute_selective * operator.core) * first,
        )

    def together(self, prices: Iterable[PhaseSeconds]) -> PhaseSeconds:
        """The sum of some times, phase by phase."""
        nothing = self.columns.nothing
        phases = zip([nothing] * 4, *prices, strict=True)
        return PhaseSeconds(*(sum(phase, nothing) for phase in phases))

    def bytes_seconds(self, moved: Floats) -> Floats:
        """Time of memory-bound kernels that move so many bytes."""
        return moved / self.device.bytes_per_s * self.framework.memory_factor

    @property
    def _filled(self) -> float:
        """Share of the device's SMs that products run on, where the framework leaves some free."""
        sms = self.device.processors
        return 1.0 - self.framework.free_sms / sms if sms else 1.0

    # the times of an operator's phases, of shape (3, plans)

    def _memory(self, operator: Operator) -> Floats:
        """Bytes, or operations of vectors where they take longer; nothing if fused away.

        What is part of products of experts in some frameworks needs no sizes that the host knows
        there: steps in one graph run it so.
        """
        if operator.apart and self.framework.fuses_experts:
            return np.zeros_like(operator.flops)
        floor = self.device.kernel_floor_ps / PS_PER_S * operator.launches
        moved = np.maximum(self.bytes_seconds(operator.bytes_moved), floor)
        vector = self.device.vector_rate
        taken = np.maximum(moved, operator.flops / vector) if vector else moved
        if operator.inside and self.framework.fuses_grouped:
            return np.where(self.in_one_graph, 0.0, taken)
        return taken

    def _products(self, operator: Operator) -> Floats:
        """Products of no groups; heads and scores run in bf16 whatever the precision."""
        device, precision = self.device, self.columns.plans[0].precision
        if operator.kind in (OperatorKind.HEAD, OperatorKind.SCORES) and precision.casts:
            precision = device.usual_precision
        sustained = device.sustained * self._filled
        product = device.rate_of(precision).seconds(operator.flops, operator.launches, sustained)
        product[_WEIGHT_GRAD] *= WEIGHT_GRADIENT_FACTOR
        taken = np.maximum(product, operator.bytes_moved / device.bytes_per_s)
        if not self.framework.fuses_gradient_sums and operator.sides is not None:
            # no product adds up by itself: gradients are read in 2 bytes, sums read and written
            _, inner, outer = operator.sides
            each = 2.0 + 2.0 * self.framework.gradient_bytes
            taken[_WEIGHT_GRAD] += self.bytes_seconds(each * inner * outer)
        return taken

    def _groups(self, operator: Operator) -> Floats:
        """Products of experts, tile by tile: one kernel, or launched one by one.

        One by one they reach the rate of any product, and each costs a start. Weight gradients are
        read and written in the framework's bytes; amounts hold them in 4.
        """
        assert operator.groups is not None
        device, shape, moved = self.device, operator.groups, operator.bytes_moved.copy()
        precision = self.columns.plans[0].precision
        weights = (shape.count * shape.rows * shape.columns)[_WEIGHT_GRAD]
        moved[_WEIGHT_GRAD] -= 2.0 * (4 - self.framework.gradient_bytes) * weights
        if self.framework.groups_experts:
            whole = device.grouped_seconds(str(precision), shape, shape.tiles(), moved)
            return whole / self._filled
        rate = device.rate_of(precision).rate * device.sustained * self._filled
        products = shape.seconds(shape.tiles(), rate, device.tile_processors)
        starts = device.group_start_ps / PS_PER_S * shape.count
        return np.hypot(products, moved / device.bytes_per_s) + starts

    def _mixed(self, operator: Operator) -> Floats:
        """Kernels with products of their own: these or their bytes, whatever takes longer."""
        rate = self.device.rate_of(self.device.usual_precision)
        sustained = self.device.sustained * self._filled
        products = rate.seconds(operator.flops, operator.launches, sustained)
        return np.maximum(products, self.bytes_seconds(operator.bytes_moved))

    def _attention(self, operator: Operator) -> Floats:
        rate = self.framework.attention_on(self.device)
        assert operator.rows is not None
        length = self.columns.attended if operator.length is None else operator.length
        forward, back = (
            rate.flops_per_s(
                length, operator.rows, operator.head_dim, backward=backward, keys=operator.keys
            )
            for backward in (False, True)
        )
        flops = operator.flops
        if operator.sharing is not None:
            flops = rate.computed(operator.sharing, operator.head_dim) * flops
        return flops / np.stack([forward, back, back])


class TimedPart(Noun, eq=False):
    """A part of a model by `blocks`, with the times of each block's operators.

    The host launches its kernels in `host_ps`, in both passes, and in each block kernels wait for
    the host for `waits_ps`, however long they are.
    """

    blocks: Blocks
    prices: tuple[tuple[PhaseSeconds, ...], ...]
    host_ps: Floats
    waits_ps: Sequence[Floats]


class TimedModel(Pricer):
    """Times of the parts of a model under some plans of one precision."""

    architecture: Architecture
    interconnect: Interconnect

    def layer(self, layer: Layer) -> TimedPart:
        """A layer; far ranks of tp take the host longer where a pipeline leaves its node."""
        columns, framework = self.columns, self.framework
        blocks = layer_blocks(layer, self.architecture, columns, framework.context)
        far = (columns.pp > 1) & (columns.tp > 1) & (columns.npus > self.interconnect.domain)
        host = self.called_ps(layer, blocks)
        # hops of a ring; a graph of the whole step leaves nothing
        hops = launch_ps(layer, columns, framework.context)
        host = host + np.where(self.in_one_graph, 0.0, hops)
        late = any(block.after_counts for block in blocks) and not framework.pads_experts
        waits = self.waits_ps(layer, blocks) if late else None
        return self.part(blocks, host + framework.host_tp_ps * columns.tp * far, waits)

    def called_ps(self, layer: Layer, blocks: Iterable[Block]) -> Floats:
        """Host time, in ps, of the calls of some blocks of a layer, as far as no graph holds them.

        A graph of the whole step leaves nothing, one of a part of a layer the calls of the others.
        """
        one = self.framework.host_layer_ps / DENSE_CALLS
        if layer.is_sparse:
            one = self.framework.host_expert_layer_ps / EXPERT_CALLS
        return np.where(self.in_one_graph, 0.0, sum(map(self._calls, blocks)) * one)

    def _calls(self, block: Block) -> Floats:
        """Calls of a block's operators in all phases, and of its exchanges between experts.

        A graph of a part of a layer ends where tokens are sent. The forward has its calls twice
        where the operator, or the whole block, is recomputed. A frozen product has those of its
        adapter in place of its gradient.
        """
        columns, calls = self.columns, self.columns.nothing
        whole = columns.drops(block.module) if block.module else calls
        for each in block.operators:
            counts = each.launches
            if each.kind is not OperatorKind.SCAN:
                counts = np.where(counts > 0, 1.0, 0.0)
            beside = _ADAPTER_CALLS - 1 if each.kind in _ADAPTED else 0
            own = columns.drops(each.module) if each.module else whole
            again = counts[0] * np.maximum(whole, own)
            adapted = counts[2] * columns.adapters * beside
            calls = calls + each.called * (sum(counts) + again + adapted)
        outside = columns.of(
            lambda plan: not (plan.cuda_graph and block.scope in self._scopes(plan))
        )
        ways = (each for each in (*block.forward, *block.backward) if each.way is not None)
        return np.asarray(calls * outside + sum(1.0 * (each.size_bytes > 0) for each in ways))

    def waits_ps(self, layer: Layer, blocks: Sequence[Block]) -> list[Floats]:
        """Host time, in ps, for which kernels of each block wait, however long they are.

        The host reads how many tokens each expert has before it calls what works on them. When it
        has, the device has run all that was called before. The dispatch is called first
        (Megatron-Core's `token_dispatcher.py` reads the counts ahead of it), so that the other
        calls of the layer hide behind it alone. Where two microbatches run as one, they hide behind
        the other one, whose own compute is called after the dispatch: it waits for what is gathered
        ahead of the counts.
        """
        columns, nothing = self.columns, self.columns.nothing
        called = [
            self.called_ps(layer, [block]) if block.after_counts else nothing for block in blocks
        ]
        whole = np.sum(called, axis=0)
        sent = [each for block in blocks for each in block.forward if each.group is Group.EP]
        ahead = first = nothing
        for each in sent:
            took_ps = each.alone_s(columns, self.interconnect) * PS_PER_S
            if each.way is None:
                ahead = ahead + took_ps
            elif each.way.name == "to":
                first = first + took_ps
        paired = columns.paired_share
        waited = np.maximum(whole - first, 0.0) * (1 - paired) + np.minimum(ahead, whole) * paired
        share = np.divide(waited, whole, out=nothing.copy(), where=whole > 0)
        return [each * share for each in called]

    @property
    def embedding(self) -> TimedPart:
        """The embedding, behind a tower that sees, whose layers the host launches."""
        tower, launched = self.architecture.seeing, None
        blocks = [embedding_block(self.architecture, self.columns)]
        if tower is not None:  # of a frozen one the forward alone
            blocks = [*tower_blocks(tower, self.columns), *blocks]
            layers = self.framework.host_layer_ps * tower.depth / (3 if tower.frozen else 1)
            launched = np.where(self.in_one_graph, 0.0, layers)
        return self.part(blocks, launched)

    @property
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
        listed, nothing = tuple(blocks), self.columns.nothing
        return TimedPart(
            blocks=listed,
            prices=tuple(tuple(map(self.price_one, block.operators)) for block in listed),
            host_ps=nothing if launched is None else launched,
            waits_ps=[nothing] * len(listed) if waits is None else waits,
        )
