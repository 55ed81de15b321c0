"""Closed form of a step: stage times, bubble, exposed communication, optimizer.

A pipeline of p ranks and m microbatches takes m times its slowest rank, plus, to fill and drain it,
what the other ranks take for one microbatch of one of their v chunks (Narayanan et al. 2021).
"""

from collections.abc import Sequence

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.structs import Noun, replace
from stepsim.base.units import PS_PER_S
from stepsim.workload.axes import CollectiveKind, Group
from stepsim.workload.model.architecture import Architecture, ExpertMlp, Layer
from stepsim.workload.model.device import Device
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.held import (
    counts_by_chunk,
    dense_parameters,
    plan_places,
    routed_parameters,
)
from stepsim.workload.model.interconnect import Interconnect
from stepsim.workload.model.memory import RankMemory, rank_memory
from stepsim.workload.model.parts import Block, Exchange
from stepsim.workload.model.pricing import PhaseSeconds
from stepsim.workload.model.timed import TimedModel, TimedPart
from stepsim.workload.plan import Plan, PlanTable, as_table


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
    def forward_at_least(self) -> Floats:
        """The forward, at least its third of the host's launches."""
        return np.maximum(self.forward, self.host / 3)

    @property
    def backward_at_least(self) -> Floats:
        """The backward, at least its two thirds of the host's launches."""
        return np.maximum(self.backward, self.host * 2 / 3)

    @property
    def total(self) -> Floats:
        """Both passes, at least what the host takes to launch them."""
        return np.maximum(self.forward + self.backward + self.waited, self.host)


class StepShares(Noun):
    """What a step is spent on, in seconds of the mean rank.

    `compute` are kernels, `exchanged` is what exchanges inside layers show, `host` what launches
    take longer than both; `rest` is all else: bubble, slower ranks, gradients, optimizer.
    """

    compute: float
    exchanged: float
    host: float
    rest: float


class _Turns(Noun):
    """A pass of a layer: what runs `inside`, between its two exchanges, and what `around` them.

    `ways` are the exchanges alone, `visible` what is seen of both where nothing else runs, and
    `delayed` weight gradients that run beside them.
    """

    around: Floats
    inside: Floats
    ways: tuple[Floats, ...]
    visible: Floats
    delayed: Floats


class _StepSeconds(Noun):
    """A predicted step and its parts, arrays over plans."""

    pipeline: Floats
    bubble: Floats
    data_parallel: Floats
    optimizer: Floats
    host: Floats

    @property
    def step(self) -> Floats:
        """Seconds of a whole step, per plan."""
        return self.pipeline + self.bubble + self.data_parallel + self.optimizer + self.host


class StepModel(Noun):
    """Prices plans of one model on one device under one framework."""

    architecture: Architecture
    device: Device
    framework: Framework
    interconnect: Interconnect

    def seconds(self, plans: Sequence[Plan] | PlanTable) -> Floats:
        """Step time of each plan; they may be of several precisions."""
        table = as_table(plans)
        seconds, kinds = np.empty(len(table)), [plan.precision for plan in table.plans]
        for kind in set(kinds):
            chosen = [i for i, each in enumerate(kinds) if each is kind]
            seconds[chosen] = self.parts(table.take(chosen)).step
        return seconds

    def memory(self, plans: Sequence[Plan] | PlanTable) -> RankMemory:
        """What the fullest rank of each plan holds."""
        return rank_memory(self.architecture, self.device, self.framework, plans)

    def parts(self, columns: PlanTable) -> _StepSeconds:
        """Parts of the step of each plan, of one precision."""
        layers, embedding, head = self._microbatch(columns)
        slowest, total = self._ranks(columns.plans, _part_table(layers, embedding, head))
        count, chunks = columns.microbatches, columns.chunks
        width = self.architecture.hidden * self.architecture.streams
        message = 2.0 * columns.tokens * width / columns.tp
        send = self._send(message, columns)
        nodes = np.maximum(columns.dp * columns.tp * columns.cp / self.interconnect.domain, 1.0)
        skew = 1 + self.framework.skew * np.log2(nodes)
        waited = 2 * chunks * send * ((chunks == 1) | (not self.framework.overlaps_p2p))
        pipeline = skew * count * (slowest + waited)
        left = columns.of(lambda plan: plan.order.bubble)
        bubble = left * (total - slowest) / chunks + 2 * (columns.pp - 1) * send
        depth = self.architecture.depth / len(layers) / columns.pp
        backward = sum(part.backward_at_least for part in layers) * depth
        forward = sum(part.forward_at_least for part in layers) * depth
        exposed = self._data_parallel(columns, backward, forward)
        return _StepSeconds(
            pipeline=pipeline,
            bubble=bubble,
            data_parallel=exposed,
            optimizer=self._optimizer(columns),
            host=self._graphed(columns) * self.framework.host_step_ps / PS_PER_S,
        )

    def shares(self, plan: Plan) -> StepShares:
        """What the step of a plan is spent on."""
        columns = PlanTable(plans=[plan])
        layers, embedding, head = self._microbatch(columns)
        counts = counts_by_chunk(self.architecture, plan.layout, plan_places(plan))
        parts = [*layers, embedding, head]
        often = counts.sum(axis=(1, 2)) * plan.microbatches / plan.pp
        whole = sum(float(n * part.total[0]) for n, part in zip(often, parts, strict=True))
        sent = sum(float(n * part.exchanged[0]) for n, part in zip(often, parts, strict=True))
        run = [float((part.forward + part.backward)[0]) for part in parts]
        busy = sum(float(n * seconds) for n, seconds in zip(often, run, strict=True))
        step = float(self.seconds(columns)[0])
        return StepShares(compute=busy - sent, exchanged=sent, host=whole - busy, rest=step - whole)

    # parts of a microbatch

    def part_seconds(self, columns: PlanTable) -> Floats:
        """Both passes of a microbatch through a layer of each kind, the embedding and the head.

        Shape (plans, kinds + 2); in seconds.
        """
        return _part_table(*self._microbatch(columns))

    def _microbatch(
        self, columns: PlanTable
    ) -> tuple[list[_PartSeconds], _PartSeconds, _PartSeconds]:
        timed = TimedModel(
            architecture=self.architecture,
            device=self.device,
            framework=self.framework,
            interconnect=self.interconnect,
            columns=columns,
        )
        kinds = self.architecture.layer_kinds()
        layers = [self._layer(layer, timed.layer(layer), timed) for layer in kinds]
        return layers, self._part(timed.embedding(), timed), self._part(timed.head(), timed)

    def _layer(self, layer: Layer, part: TimedPart, timed: TimedModel) -> _PartSeconds:
        columns = timed.columns
        found = self._part(part, timed, layer)
        host = found.host * (1 + columns.recomputed(self.architecture.depth) / 3)
        return self._sharded(layer, replace(found, host=host), columns)

    def _graphed(self, columns: PlanTable) -> Floats:
        """Share of the host's launches that CUDA graphs leave, 1 without them."""
        return np.where(columns.cuda_graph > 0, self.framework.graph_share, 1.0)

    def _part(self, part: TimedPart, timed: TimedModel, layer: Layer | None = None) -> _PartSeconds:
        columns, framework, listed = timed.columns, self.framework, part.blocks
        forward = backward = exchanged = np.zeros(len(columns))
        rerun = columns.recomputed(self.architecture.depth)
        prices = [timed.pricer.together(each) for each in part.prices]
        nothing = timed.pricer.together(())
        for block, price, before, after in zip(
            listed, prices, (nothing, *prices), (*prices[1:], nothing), strict=False
        ):
            sent = self._exchanged(block.forward, after.forward, columns)
            forward = forward + price.forward + sent
            back = self._exchanged(block.backward, before.backward + before.again, columns)
            back = np.maximum(back - self._beside_weights(block, price), 0.0)
            again = price.again
            if block.module is not None:
                again = np.maximum(again, columns.drops(block.module) * (price.forward + sent))
            backward = backward + price.backward + back
            exchanged = exchanged + sent + back
            if layer is not None:
                backward = backward + again * (1 - rerun)
        if layer is not None:
            again = rerun * forward
            again = again + framework.operator_recompute * columns.recompute_operators * forward
            backward = backward + again
            if columns.paired_share.any():
                hidden = self._hidden_in_pairs(listed, prices, columns)
                backward = backward - columns.paired_share * hidden
                exchanged = exchanged - columns.paired_share * hidden
        return _PartSeconds(
            forward=forward,
            backward=backward,
            host=part.host_ps / PS_PER_S,
            exchanged=exchanged,
            waited=np.sum(part.waits_ps, axis=0) / PS_PER_S,
        )

    def _beside_weights(self, block: Block, price: PhaseSeconds) -> Floats:
        """Weight gradients of a block that run beside the exchanges of its input gradients."""
        return price.weight_grad * block.beside_weights * self.framework.overlaps_input_gradient

    def _hidden_in_pairs(
        self, blocks: Sequence[Block], prices: Sequence[PhaseSeconds], columns: PlanTable
    ) -> Floats:
        """What of a layer's exchanges between experts hides where two microbatches run as one.

        Of each pass experts run between its two exchanges, attention around them. The two halves
        take turns: the way back of the backward runs beside attention of the forward, the way to
        the experts beside these in the backward, their gradients' way beside them in the forward
        (and their own delayed weight gradients), and the way back beside attention's backward.
        """
        forward = self._turns(blocks, prices, columns, is_backward=False)
        backward = self._turns(blocks[::-1], prices[::-1], columns, is_backward=True)
        if not forward.ways or not backward.ways:
            return np.zeros(len(columns))
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
        *,
        is_backward: bool,
    ) -> _Turns:
        """A pass of a layer in the order of its blocks, cut at its exchanges between experts."""
        zero = np.zeros(len(columns))
        parts, visible, delayed = [zero, zero], zero, zero
        ways: list[Floats] = []
        nothing = replace(prices[0], forward=zero, input_grad=zero, weight_grad=zero)
        for block, price, after in zip(blocks, prices, (*prices[1:], nothing), strict=True):
            sent = block.backward if is_backward else block.forward
            beside = after.backward if is_backward else after.forward
            others = [each for each in sent if each.group is not Group.EP]
            own = [each for each in sent if each.group is Group.EP]
            late = self._beside_weights(block, price) if own and is_backward else zero
            computed = price.backward - late if is_backward else price.forward
            inside = len(ways) % 2
            parts[inside] = parts[inside] + computed + self._exchanged(others, beside, columns)
            if own:
                ways.append(
                    np.sum([each.alone_s(columns, self.interconnect) for each in own], axis=0)
                )
                plain = self._exchanged(own, beside, columns)
                visible = visible + np.maximum(plain - late, 0.0)
                delayed = delayed + late
        return _Turns(
            around=parts[0],
            inside=parts[1],
            ways=tuple(ways),
            visible=visible,
            delayed=delayed,
        )

    def _exchanged(
        self, exchanges: Sequence[Exchange], computed: Floats, columns: PlanTable
    ) -> Floats:
        """Visible time of a block's exchanges; some run beside what is `computed` in the next."""
        visible = beside = np.zeros(len(columns))
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
        sharded = columns.zero >= 2.5
        if not sharded.any() and not (columns.zero >= 1.5).any():
            return part
        gather, scatter = self._fsdp(layer, columns)
        forward, backward = part.forward, part.backward
        gather_back = gather * (columns.reshard * sharded)
        slow = self.framework.fsdp_slowdown
        gather = gather * (sharded | (columns.pp == 1))  # stage 2 of a pipeline: once a step
        use = (columns.zero >= 1.5) & (columns.dp > 1)
        f = np.maximum(forward + slow * np.minimum(gather, forward), gather)
        b_comm = gather_back + scatter
        b = np.maximum(backward + slow * np.minimum(b_comm, backward), b_comm)
        shown = np.where(use, f - forward + b - backward, 0.0)
        return replace(
            part,
            forward=np.where(use, f, forward),
            backward=np.where(use, b, backward),
            exchanged=part.exchanged + shown,
        )

    def _fsdp(self, layer: Layer, columns: PlanTable) -> tuple[Floats, Floats]:
        parameters = dense_parameters(layer, self.architecture, columns)
        parameters = parameters + routed_parameters(layer, self.architecture, columns)
        gather = self.interconnect.seconds(
            CollectiveKind.ALL_GATHER, 2.0 * parameters, columns.shards, columns.tp
        )
        scatter = self.interconnect.seconds(
            CollectiveKind.REDUCE_SCATTER,
            float(self.framework.sharded_gradient_bytes) * parameters,
            columns.shards,
            columns.tp,
        )
        return gather, scatter

    def _send(self, message: Floats, columns: PlanTable) -> Floats:
        near = columns.tp * columns.cp * columns.dp < self.interconnect.domain
        bandwidth = np.where(near, self.interconnect.inner, self.interconnect.outer)
        delay = (self.interconnect.launch_ps + self.interconnect.outer_ps) / PS_PER_S
        return np.where(columns.pp > 1, message / bandwidth + delay, 0.0)

    # ranks of a pipeline

    def _ranks(self, plans: Sequence[Plan], table: Floats) -> tuple[Floats, Floats]:
        """Time of a microbatch on the slowest rank, and on all ranks together."""
        slowest, total = np.empty(len(plans)), np.empty(len(plans))
        groups: dict[object, list[int]] = {}
        for i, plan in enumerate(plans):
            groups.setdefault((plan.pp, plan.chunks, plan.layout, plan.order), []).append(i)
        for chosen in groups.values():
            first = plans[chosen[0]]
            by_chunk = counts_by_chunk(self.architecture, first.layout, plan_places(first))
            counts = by_chunk.sum(axis=2)
            times = table[chosen] @ counts
            slowest[chosen], total[chosen] = times.max(axis=1), times.sum(axis=1)
        return slowest, total

    # once per step

    def _rank_parameters(self, columns: PlanTable) -> tuple[Floats, Floats]:
        """Dense and routed parameters of the fullest rank, before sharding."""
        a = self.architecture
        layers = sum(
            n * layer.parameters(a.hidden, a.norm) for layer, n in a.layer_counts().items()
        )
        routed = sum(
            n * layer.mlp.routed_parameters(a.hidden)
            for layer, n in a.layer_counts().items()
            if isinstance(layer.mlp, ExpertMlp)
        )
        ends = np.where(
            columns.pp > 1,
            max(a.first_parameters, a.vocabulary * a.hidden),
            a.first_parameters + a.head_parameters,
        )
        dense = (layers - routed) / columns.pp + ends
        return dense / columns.tp, routed / (columns.pp * columns.ep * columns.expert_tp)

    def _data_parallel(self, columns: PlanTable, backward: Floats, forward: Floats) -> Floats:
        dense, routed = self._rank_parameters(columns)
        replicas = columns.dp * columns.cp
        expert_replicas = np.maximum(replicas * columns.tp / (columns.ep * columns.expert_tp), 1.0)
        size = float(self.framework.gradient_bytes)
        reduce = gather = np.zeros(len(columns))
        for parameters, ranks in ((dense, replicas), (routed, expert_replicas)):
            stride = columns.stage_ranks / ranks
            reduced = self.interconnect.seconds(
                CollectiveKind.REDUCE_SCATTER, size * parameters, ranks, stride
            )
            gathered = self.interconnect.seconds(
                CollectiveKind.ALL_GATHER, 2.0 * parameters, ranks, stride
            )
            doubled = self.interconnect.seconds(
                CollectiveKind.ALL_GATHER, size * parameters, ranks, stride
            )
            reduce = reduce + reduced
            gather = gather + np.where(columns.zero >= 1, gathered, doubled)
        overlapped = columns.dp_overlap > 0
        exposed_reduce = np.where(
            overlapped, np.maximum(reduce - backward, reduce / self.architecture.depth), reduce
        )
        exposed_gather = np.where(
            overlapped, np.maximum(gather - forward, gather / self.architecture.depth), gather
        )
        sharded = columns.zero >= 1.5
        depth = float(self.architecture.depth)
        shown = exposed_reduce + exposed_gather
        exposed = np.where(sharded, (reduce + gather) / depth, shown)
        return exposed * (1 - columns.adapters)

    def _optimizer(self, columns: PlanTable) -> Floats:
        """30 bytes per owned parameter where sharded, else 26, and 8 per parameter."""
        dense, routed = self._rank_parameters(columns)
        replicas = columns.dp * columns.cp
        shards = np.where(columns.zero >= 1, replicas, 1.0)
        own = dense / shards + routed / np.where(
            columns.zero >= 1,
            np.maximum(replicas * columns.tp / (columns.ep * columns.expert_tp), 1),
            1.0,
        )
        per_own = np.where(columns.zero >= 1, 30.0, 26.0)
        every = np.where(columns.zero >= 1.5, 0.0, 8.0)
        moved = (per_own * own + every * (dense + routed)) * (1 - columns.adapters)
        return self.device.update_seconds(moved)


def _part_table(layers: list[_PartSeconds], embedding: _PartSeconds, head: _PartSeconds) -> Floats:
    """Seconds of parts as columns; shape (plans, kinds + 2)."""
    return np.stack([*(part.total for part in layers), embedding.total, head.total], axis=1)
