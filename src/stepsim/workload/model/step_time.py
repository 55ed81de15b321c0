"""Closed form of a step: stage times, bubble, exposed communication, optimizer.

A pipeline of p ranks and m microbatches takes m times its slowest rank, plus, to fill and drain it,
what the other ranks take for one microbatch of one of their v chunks (Narayanan et al. 2021).
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from msgspec.structs import asdict

from stepsim.base.arrays import Floats
from stepsim.base.axes import CollectiveKind, Group
from stepsim.base.structs import Noun, replace
from stepsim.base.units import PS_PER_S
from stepsim.workload.model.architecture import Architecture, Layer
from stepsim.workload.model.device import Device
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.held import counts_by_chunk, layer_parameters, plan_places
from stepsim.workload.model.memory import RankMemory, rank_memory
from stepsim.workload.model.parts import Block, Exchange, Interconnect
from stepsim.workload.model.pricing import PhaseSeconds, TimedModel, TimedPart
from stepsim.workload.plan import PIPELINE, Plans, PlanTable, as_table


class _PartSeconds(Noun):
    """One layer (or end) of one microbatch: compute and exposed exchanges of both passes.

    `exchanged` is what of both passes ranks wait for each other, `waited` what kernels wait for the
    host, however long they are.
    """

    forward: Floats
    backward: Floats
    host: Floats
    exchanged: Floats
    waited: Floats

    @property
    def total(self) -> Floats:
        """Both passes, at least what the host takes to launch them."""
        return np.maximum(self.forward + self.backward + self.waited, self.host)


class _Turns(NamedTuple):
    """A pass of a layer: what runs `inside`, between its two exchanges, and what `around` them.

    `ways` are the exchanges alone, `visible` what is seen of both where nothing else runs, and
    `delayed` weight gradients that run beside them.
    """

    around: Floats
    inside: Floats
    ways: list[Floats]
    visible: Floats
    delayed: Floats


class StepModel(Noun):
    """Prices plans of one model on one device under one framework."""

    architecture: Architecture
    device: Device
    framework: Framework
    interconnect: Interconnect

    def seconds(self, plans: Plans) -> Floats:
        """Step time of each plan; they may be of several precisions."""
        table = as_table(plans)
        seconds = np.empty(len(table))
        for chosen, _ in table.alike("precision"):
            seconds[chosen] = sum(self.parts(table.take(chosen)))
        return seconds

    def memory(self, plans: Plans) -> RankMemory:
        """What the fullest rank of each plan holds."""
        return rank_memory(self.architecture, self.device, self.framework, plans)

    def parts(self, columns: PlanTable) -> Sequence[Floats]:
        """Parts of the step of each plan, of one precision, which add up to it.

        They are the pipeline, its bubble, exchanges of replicas, the optimizer, and the host's.
        """
        parts = self.microbatch(columns)
        slowest, total = self._ranks(columns, parts)
        layers = parts[:-2]
        count, chunks = columns.microbatches, columns.chunks
        width = self.architecture.hidden * self.architecture.streams
        message = 2.0 * columns.tokens * width / columns.tp
        network, ranks = self.interconnect, columns.stage_ranks
        near = ranks < network.domain
        delay = (network.launch_ps + network.outer_ps) / PS_PER_S
        send = message / np.where(near, network.inner, network.outer) + delay
        send = np.where(columns.pp > 1, send, 0.0)
        nodes = np.maximum(ranks / network.domain, 1.0)
        skew = 1 + self.framework.skew * np.log2(nodes)
        waited = 2 * chunks * send * ((chunks == 1) | (not self.framework.overlaps_p2p))
        pipeline = skew * count * (slowest + waited)
        left = columns.of(lambda plan: plan.order.bubble)
        bubble = left * (total - slowest) / chunks + 2 * (columns.pp - 1) * send
        depth = self.architecture.depth / len(layers) / columns.pp
        backward = sum(np.maximum(part.backward, part.host * 2 / 3) for part in layers) * depth
        forward = sum(np.maximum(part.forward, part.host / 3) for part in layers) * depth
        graphed = np.where(columns.cuda_graph > 0, self.framework.graph_share, 1.0)
        exposed, optimizer = self._once(columns, backward, forward)
        host = graphed * self.framework.host_step_ps / PS_PER_S
        return pipeline, bubble, exposed, optimizer, host

    # parts of a microbatch

    def part_seconds(self, columns: PlanTable) -> Floats:
        """Both passes of a microbatch through a layer of each kind, the embedding and the head.

        Shape (plans, kinds + 2); in seconds.
        """
        return np.stack([part.total for part in self.microbatch(columns)], axis=1)

    def microbatch(self, columns: PlanTable) -> list[_PartSeconds]:
        """Compute and exchanges of a layer of each kind, of the embedding and the head."""
        timed = TimedModel(columns=columns, **asdict(self))
        kinds = self.architecture.layer_kinds()
        layers = [self._part(timed.layer(layer), timed, layer) for layer in kinds]
        return [*layers, self._part(timed.embedding, timed), self._part(timed.head, timed)]

    def _part(self, part: TimedPart, timed: TimedModel, layer: Layer | None = None) -> _PartSeconds:
        columns, framework, listed = timed.columns, self.framework, part.blocks
        forward = backward = exchanged = repeated = columns.nothing
        rerun = columns.recomputed(self.architecture.depth)
        prices = [timed.together(each) for each in part.prices]
        nothing = timed.together(())
        for block, price, before, after in zip(
            listed, prices, (nothing, *prices), (*prices[1:], nothing), strict=False
        ):
            sent = self._exchanged(block.forward, after.forward, columns)
            forward = forward + price.forward + sent
            back = self._exchanged(block.backward, before.backward + before.again, columns)
            if framework.overlaps_input_gradient:
                back = np.maximum(back - price.weight_grad * block.beside_weights, 0.0)
            again = price.again
            if block.module is not None:
                again = np.maximum(again, columns.drops(block.module) * (price.forward + sent))
            backward = backward + price.backward + back
            exchanged, repeated = exchanged + sent + back, repeated + again
        if layer is not None:
            share = rerun + framework.operator_recompute * columns.recompute_operators
            backward = backward + repeated * (1 - rerun) + share * forward
            if columns.paired_share.any():
                hidden = self._hidden_in_pairs(listed, prices, columns)
                backward = backward - columns.paired_share * hidden
                exchanged = exchanged - columns.paired_share * hidden
        found = _PartSeconds(
            forward=forward,
            backward=backward,
            host=part.host_ps / PS_PER_S,
            exchanged=exchanged,
            waited=np.sum(part.waits_ps, axis=0) / PS_PER_S,
        )
        if layer is None:
            return found
        return self._sharded(layer, replace(found, host=found.host * (1 + rerun / 3)), columns)

    def _hidden_in_pairs(
        self, blocks: Sequence[Block], prices: Sequence[PhaseSeconds], columns: PlanTable
    ) -> Floats:
        """What of a layer's exchanges between experts hides where two microbatches run as one.

        Of each pass experts run between its two exchanges, attention around them. The two halves
        take turns: the way back of the backward runs beside attention of the forward, the way to
        the experts beside these in the backward, their gradients' way beside them in the forward
        (and their own delayed weight gradients), and the way back beside attention's backward.
        """
        forward = self._turns(blocks, prices, columns, "forward")
        backward = self._turns(blocks[::-1], prices[::-1], columns, "backward")
        if not forward.ways or not backward.ways:
            return columns.nothing
        visible = (
            np.maximum(backward.ways[0] - forward.around, 0.0)
            + np.maximum(forward.ways[0] - backward.inside, 0.0)
            + np.maximum(backward.ways[1] - forward.inside - backward.delayed, 0.0)
            + np.maximum(forward.ways[1] - backward.around, 0.0)
        )
        hidden: Floats = np.maximum(forward.visible + backward.visible - visible, 0.0)
        return hidden

    def _turns(
        self,
        blocks: Sequence[Block],
        prices: Sequence[PhaseSeconds],
        columns: PlanTable,
        name: Literal["forward", "backward"],
    ) -> _Turns:
        """A pass of a layer in the order of its blocks, cut at its exchanges between experts."""
        zero = columns.nothing
        parts, visible, delayed = [zero, zero], zero, zero
        ways: list[Floats] = []
        nothing = prices[0]._replace(forward=zero, input_grad=zero, weight_grad=zero)
        for block, price, after in zip(blocks, prices, (*prices[1:], nothing), strict=True):
            sent, beside = getattr(block, name), getattr(after, name)
            others = [each for each in sent if each.group is not Group.EP]
            own = [each for each in sent if each.group is Group.EP]
            hides = name == "backward" and self.framework.overlaps_input_gradient
            late = price.weight_grad * block.beside_weights if own and hides else zero
            computed = getattr(price, name) - late
            inside = len(ways) % 2
            parts[inside] = parts[inside] + computed + self._exchanged(others, beside, columns)
            if own:
                alone = [each.alone_s(columns, self.interconnect) for each in own]
                ways.append(np.sum(alone, axis=0))
                plain = self._exchanged(own, beside, columns)
                visible = visible + np.maximum(plain - late, 0.0)
                delayed = delayed + late
        around, between = parts
        return _Turns(around, between, ways, visible, delayed)

    def _exchanged(
        self, exchanges: Sequence[Exchange], computed: Floats, columns: PlanTable
    ) -> Floats:
        """Visible time of a block's exchanges; some run beside what is `computed` in the next."""
        visible = beside = columns.nothing
        pipelined = np.where(columns.tp_comm_overlap > 0, self.framework.exposed_tp, 1.0)
        for exchange in exchanges:
            seconds = exchange.alone_s(columns, self.interconnect)
            if exchange.group is Group.TP:
                seconds = seconds * pipelined
            beside = beside + seconds * exchange.beside
            visible = visible + seconds * (1 - exchange.beside)
        return visible + np.maximum(beside - computed, 0.0)

    def _sharded(self, layer: Layer, part: _PartSeconds, columns: PlanTable) -> _PartSeconds:
        """The layer with parameters gathered and gradients scattered beside it (FSDP)."""
        gathered, sharded = columns.zero >= 1.5, columns.zero >= 2.5
        if not gathered.any():
            return part
        parameters = np.sum(layer_parameters(layer, self.architecture, columns), axis=0)
        size, seconds = self.framework.sharded_gradient_bytes, self.interconnect.seconds
        shards = columns.shards, columns.tp
        gather = seconds(CollectiveKind.ALL_GATHER, 2.0 * parameters, *shards)
        scatter = seconds(CollectiveKind.REDUCE_SCATTER, size * parameters, *shards)
        gather_back = gather * (columns.reshard * sharded)
        slow = self.framework.fsdp_slowdown
        gather = gather * (sharded | (columns.pp == 1))  # stage 2 of a pipeline: once a step
        use = gathered & (columns.dp > 1)

        def beside(computed: Floats, sent: Floats) -> Floats:
            longer = np.maximum(computed + slow * np.minimum(sent, computed), sent)
            return np.where(use, longer, computed)

        forward = beside(part.forward, gather)
        backward = beside(part.backward, gather_back + scatter)
        shown = forward - part.forward + backward - part.backward
        exchanged = part.exchanged + shown
        return replace(part, forward=forward, backward=backward, exchanged=exchanged)

    # ranks of a pipeline

    def _ranks(self, columns: PlanTable, parts: Sequence[_PartSeconds]) -> tuple[Floats, Floats]:
        """Time of a microbatch on the slowest rank, and on all ranks together."""
        table = np.stack([part.total for part in parts], axis=1)
        slowest, total = np.empty(len(columns)), np.empty(len(columns))
        for chosen, first in columns.alike(*PIPELINE):
            by_chunk = counts_by_chunk(self.architecture, first.layout, plan_places(first))
            times = table[chosen] @ by_chunk.sum(axis=2)
            slowest[chosen], total[chosen] = times.max(axis=1), times.sum(axis=1)
        return slowest, total

    # once per step

    def _rank_parameters(self, columns: PlanTable) -> tuple[Floats, Floats]:
        """Dense and routed parameters of the fullest rank, before sharding."""
        a = self.architecture
        layers = a.parameters() - a.embedding_parameters - a.head_parameters
        routed = sum(n * layer.routed_parameters(a.hidden) for layer, n in a.layer_counts().items())
        ends = np.where(
            columns.pp > 1,
            max(a.first_parameters, a.vocabulary * a.hidden),
            a.first_parameters + a.head_parameters,
        )
        dense = (layers - routed) / columns.pp + ends
        return dense / columns.tp, routed / (columns.pp * columns.ep * columns.expert_tp)

    def _once(self, columns: PlanTable, backward: Floats, forward: Floats) -> tuple[Floats, Floats]:
        """What a step shows of reducing gradients and gathering parameters, and the optimizer.

        That moves 30 bytes per owned parameter where sharded, else 26, and 8 per parameter.
        """
        size, seconds = self.framework.gradient_bytes, self.interconnect.seconds
        sharded, gathers = columns.zero >= 1, columns.zero >= 1.5
        reduce = gather = own = every = columns.nothing
        replicas = columns.replicas, columns.expert_replicas
        for parameters, ranks in zip(self._rank_parameters(columns), replicas, strict=True):
            apart = ranks, columns.stage_ranks / ranks
            whole, half = size * parameters, 2.0 * parameters
            reduce = reduce + seconds(CollectiveKind.REDUCE_SCATTER, whole, *apart)
            gathered = np.where(sharded, half, whole)
            gather = gather + seconds(CollectiveKind.ALL_GATHER, gathered, *apart)
            own = own + parameters / np.where(sharded, ranks, 1.0)
            every = every + parameters
        depth = self.architecture.depth
        shown = sum(
            np.where(columns.dp_overlap > 0, np.maximum(sent - beside, sent / depth), sent)
            for sent, beside in ((reduce, backward), (gather, forward))
        )
        exposed = np.where(gathers, (reduce + gather) / depth, shown)
        moved = np.where(sharded, 30.0, 26.0) * own + np.where(gathers, 0.0, 8.0) * every
        trained = 1 - columns.adapters
        return exposed * trained, self.device.update_seconds(moved * trained)
