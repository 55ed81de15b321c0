"""A model under a plan on a device, as a workload: the rows of all its layers, ends and steps.

Blocks become rows, priced by `stepsim.workload.model.pricing`; the engine runs their exchanges on
the network. What hides behind what is left to the engine wherever a row can say it.

Tensor-parallel collectives may be pipelined with the products beside them: most of an overlapped
collective runs beside a product, a share stays visible. An all-gather feeds the next block, a
reduction ends the block itself: their hidden parts lie in rows of no compute between blocks, which
the forward passes one block early, and the backward one block late.

What the host takes to launch a layer's kernels is on the rows with which the layer begins. Who
holds which part of parameters and gradients is that of ZeRO 0 to 3, FSDP and HSDP.

What the kernels of a model's rows ask of a GPU, operator by operator.

Products have blocks by their shapes, as many as the device's processors make waves
of. Attention, scans and what moves bytes have more blocks than anybody counts.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from math import ceil, log2
from typing import Any

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.axes import CollectiveKind, Group, ParallelAxis, Phase, degrees_of
from stepsim.base.structs import Names, Numbers, Same, replace
from stepsim.base.units import PS_PER_S, format_time_ps
from stepsim.workload.model.architecture import (
    ExpertMlp,
    GroupedAttention,
    Layer,
    Mixer,
)
from stepsim.workload.model.choices import Recompute
from stepsim.workload.model.device import Device
from stepsim.workload.model.evidence import Effort
from stepsim.workload.model.framework import Framework, error_band
from stepsim.workload.model.held import layer_parameters, stage_slices
from stepsim.workload.model.model import Model
from stepsim.workload.model.operators import linear
from stepsim.workload.model.parts import (
    NO_NETWORK,
    Block,
    Exchange,
    Interconnect,
    Operator,
    OperatorKind,
)
from stepsim.workload.model.pricing import PhaseSeconds, TimedModel, TimedPart
from stepsim.workload.overlap import Kernel, KernelDemand, KernelKind, Kernels
from stepsim.workload.plan import Plan, PlanTable
from stepsim.workload.rows import (
    CommOp,
    CommOps,
    Microbatch,
    PerParameter,
    Role,
    Row,
    Rows,
    Shards,
    StepItem,
    Work,
    Workload,
)


def build_workload(
    model: Model,
    plan: Plan,
    device: Device,
    framework: Framework,
    interconnect: Interconnect = NO_NETWORK,
    known: dict[Any, Any] | None = None,
) -> Workload:
    """The workload of a whole model; its layers are shared out by the plan's layout.

    `interconnect` tells how much of a layer's communication the host's launches hide behind, and
    how long gathered parameters slow compute; without it neither is known. `known` has the rows
    that plans before had, which plans share that differ in how layers are shared out alone: of
    `stepsim plan llama-3-70b --gpus 512 --runs 60`, 1.77 s of processor time, it saves 0.10. Raises
    PlanError where plan, model and device do not go together.
    """
    builder = _Builder(
        model=model,
        plan=plan,
        architecture=model.architecture,
        device=device,
        framework=framework,
        interconnect=interconnect,
        columns=PlanTable([plan]),
    )
    if known is not None:
        others = {"layout", "recompute_layers"}  # on which rows do not depend
        others |= set() if plan.runs_pairs else {"chunks", "microbatches"}
        names = (name for name in plan.__struct_fields__ if name not in others)
        key = Same(model), tuple(getattr(plan, name) for name in names)
        other = known.setdefault(key, builder)
        found = other.device, other.framework, other.interconnect
        builder = other if found == (device, framework, interconnect) else builder
    return builder.workload(plan)


# Width of the widest heads that flash attention's own kernels take.
_WIDEST = 256
# Bytes of a gathered parameter.
_PARAMETER = 2
# Bytes that an optimizer moves per owned parameter in shards, or whole, and per parameter.
_OWNED, _OWNED_WHOLE, _EVERY = 30.0, 26.0, 8.0


def _shards(plan: Plan, framework: Framework, dense: int, routed: int) -> Shards | None:
    """How so many parameters are brought together; None where ranks have them.

    From ZeRO's stage 2 on parameters are gathered layer by layer, in a pipeline at stage 2 once a
    step, for ranks keep them whole until the last microbatch (`stage.py` of torch's pipelining);
    with `dp_overlap` stage 1 gathers each layer's before its first forward, else all at the end of
    the step. Ranks that hold the same shard sum its gradients (HSDP).
    """
    counts, gather, reduce = (
        (dense, routed),
        CollectiveKind.ALL_GATHER,
        CollectiveKind.REDUCE_SCATTER,
    )
    if plan.zero == 1 and plan.dp_overlap:
        return Shards(
            gather=_of_parts(gather, Group.DP_CP, ParallelAxis.DP, _PARAMETER, counts), once=True
        )
    if plan.zero < 2:
        return None
    size = framework.sharded_gradient_bytes
    reduced = _of_parts(reduce, Group.FSDP, ParallelAxis.DP, size, counts)
    if plan.fsdp < plan.replicas:
        summed = CommOp(
            kind=CollectiveKind.ALL_REDUCE,
            group=Group.DP_FSDP,
            axis=ParallelAxis.DP,
            size_bytes=size * dense // plan.fsdp,
        )
        reduced = (*reduced, summed)
    return Shards(
        gather=_of_parts(gather, Group.FSDP, ParallelAxis.FSDP, _PARAMETER, counts),
        reduce=reduced,
        again=plan.zero == 3 and plan.reshard,
        once=plan.zero == 2 and plan.pp > 1,
    )


def _of_parts(
    kind: CollectiveKind, group: Group, axis: ParallelAxis, size: int, counts: tuple[int, int]
) -> CommOps:
    """Collectives of dense parameters in a group, and of routed ones; each has `size` bytes."""
    return tuple(
        CommOp(kind=kind, group=members, axis=axis, size_bytes=size * count)
        for members, count in zip((group, Group.DP_EP), counts, strict=True)
        if count
    )


def _per_parameter(plan: Plan, framework: Framework, device: Device) -> Iterator[PerParameter]:
    """What a step ends with: gradients reduced, parameters updated and gathered."""
    whole, sharded = plan.zero == 0, plan.zero >= 2
    for name, group in (("", Group.DP_CP), ("expert_", Group.DP_EP)):
        item = partial(PerParameter, experts=bool(name), group=group)
        ranks = plan.fsdp if sharded else plan.group_size(group)
        moved = (_OWNED_WHOLE if whole else _OWNED / ranks) + (0.0 if sharded else _EVERY)
        yield item(
            name=f"{name}optimizer",
            phase=Phase.FORWARD,
            role=Role.UPDATE,
            compute_ps=device.update_seconds(moved) * PS_PER_S,
        )
        if sharded:
            continue
        yield item(
            name=f"{name}gradients",
            phase=Phase.WEIGHT_GRAD,
            role=Role.GRADIENTS,
            kind=CollectiveKind.ALL_REDUCE if whole else CollectiveKind.REDUCE_SCATTER,
            size_bytes=framework.gradient_bytes,
        )
        if not whole and not plan.dp_overlap:
            yield item(
                name=f"{name}parameters",
                phase=Phase.FORWARD,
                role=Role.PARAMETERS,
                kind=CollectiveKind.ALL_GATHER,
                size_bytes=_PARAMETER,
            )


# Operations of the forward, of both passes, and how many fewer than twice the forward's these are.
#
# They are those of a rank's microbatch.
_Operations = tuple[float, float, float]


# Rows of a part of the model, its operations, and what is said of it.
_Made = tuple[Rows, _Operations, Names]


class _Builder(TimedModel):
    """Makes rows of the blocks of a model under a plan, once for all that are alike."""

    model: Model
    plan: Plan
    notes: list[str] = []
    made: dict[object, _Made] = {}

    def _once(self, key: object, make: Callable[[], tuple[Rows, _Operations]]) -> _Made:
        if key not in self.made:
            self.notes.clear()
            self.made[key] = (*make(), tuple(self.notes))
        return self.made[key]

    def workload(self, plan: Plan) -> Workload:
        """The workload of a plan that differs in how layers are shared out alone."""
        architecture, most = self.architecture, plan.recompute_layers
        stages = stage_slices(architecture, plan)
        # whether each layer runs forward again before its backward
        again = [
            plan.recompute is Recompute.FULL and (most is None or number < most)
            for stage in stages
            for number in range(stage.layers)
        ]
        first, last = self._once("first", self._embedding), self._once("last", self._head)
        layers = [
            self._once((layer, twice), partial(self._layer, layer, again=twice))
            for layer, twice in zip(architecture.layers, again, strict=True)
        ]
        ahead = [
            self._once(("ahead", layer), partial(self._prediction, layer))
            for layer in architecture.prediction_layers
        ]
        parts = (first, *layers, last, *ahead)
        block = Microbatch(
            embedding=first[0],
            layers=tuple(rows for rows, *_ in layers),
            head=last[0],
            prediction=tuple(rows for rows, *_ in ahead),
        )
        tokens = plan.microbatch_size * plan.sequence // plan.cp
        sparse = (each.mlp for each in architecture.layers if isinstance(each.mlp, ExpertMlp))
        experts = next(sparse, None)
        # host time that every step costs besides; a graph of the step leaves a share of it
        host = self.framework.host_step_ps
        work = Work(host_ps=round(host * self.framework.graph_share) if plan.cuda_graph else host)
        step = StepItem(name="host_step", phase=Phase.FORWARD, work=work, role=Role.SCALARS)
        return Workload(
            source=self.model.source,
            microbatches=(block,),
            degrees=degrees_of(tp=plan.tp, cp=plan.cp, ep=plan.ep, fsdp=plan.fsdp, pp=plan.pp),
            expert_tp=plan.expert_degree,
            npus=plan.npus,
            pipeline_microbatches=plan.microbatches,
            experts=experts.experts if experts else None,
            top_k=experts.top_k if experts else 1,
            per_step=(step,) if work.host_ps else (),
            pp_comm_bytes=2 * tokens * architecture.hidden * architecture.streams // plan.tp,
            layout=plan.layout,
            per_parameter=tuple(_per_parameter(plan, self.framework, self.device)),
            effort=self._effort(plan, (*parts, *(last for _ in ahead))),
            # what hides behind the network's exchanges, and what gathers take of compute
            reads_network=plan.ep > 1 or (plan.fsdp > 1 and self.framework.fsdp_slowdown > 0),
            warnings=(
                *self.model.warnings,
                *dict.fromkeys(note for *_, notes in parts for note in notes),
            ),
        )

    def _effort(self, plan: Plan, parts: Iterable[_Made]) -> Effort:
        """What a step of all ranks is worth; `parts` are all that a rank's microbatch runs."""
        architecture, device = self.architecture, self.device
        forward, hardware, spared = map(
            sum, zip(*(operations for _, operations, _ in parts), strict=True)
        )
        copies = plan.stage_ranks * plan.microbatches
        return Effort(
            parameters=architecture.parameters()
            + architecture.first_parameters
            - architecture.embedding_parameters,
            tokens=plan.step_tokens,
            sequence=plan.sequence,
            global_batch=plan.global_batch,
            microbatch_size=plan.microbatch_size,
            model_flops=(3 * forward - spared) * copies,
            hardware_flops=hardware * copies,
            peak_flops=device.rate_of(plan.precision).peak,
            device=device.name,
            framework=self.framework.name,
            price_per_hour=device.price_per_hour,
            watts=device.watts,
            # no run with images was compared
            band=None
            if architecture.seeing
            else error_band(self.framework, device, plan, architecture),
        )

    def _embedding(self) -> tuple[Rows, _Operations]:
        architecture, part = self.architecture, self.embedding
        rows, host = self._rows(part, pipelined=False), round(_one(part.host_ps))
        if (tower := architecture.seeing) is not None:
            self.notes.append(
                f"{architecture.name}: a sample has {tower.tokens} tokens of one image; no "
                "published run with images was compared: the error of the step is unknown"
            )
            if tower.frozen:
                first = replace(rows[0].forward, host_ps=host)
                rows = (replace(rows[0], forward=first), *rows[1:])
            else:
                rows = with_launches(rows, host)
        *seen, _ = part.blocks  # what sees is before the embedding
        owned = self._owned(rows, architecture.first_parameters // self.plan.tp, 0)
        return owned, _flops(seen, self.plan)

    def _head(self) -> tuple[Rows, _Operations]:
        architecture, part = self.architecture, self.head
        once, both, _ = _flops(part.blocks, self.plan)
        held = architecture.head_parameters
        if architecture.tied and self.plan.pp > 1:
            held += architecture.vocabulary * architecture.hidden
        return self._owned(self._rows(part), held // self.plan.tp, 0), (once, both, 0.0)

    def _layer(self, layer: Layer, *, again: bool) -> tuple[Rows, _Operations]:
        if isinstance(layer.attention, GroupedAttention) and layer.attention.head_dim > _WIDEST:
            self.notes.append(
                f"{self.device.name}: no attention with heads {layer.attention.head_dim} wide was "
                "timed: it is assumed to reach the rate of those 128 wide"
            )
        if isinstance(layer.attention, Mixer):
            self.notes.append(
                f"{self.device.name}: no time of {layer.attention.called} in training is known: "
                f"it is assumed to {layer.attention.assumption}"
            )
            if not error_band(self.framework, self.device, self.plan, self.architecture):
                self.notes.append(
                    "no published run with such layers was compared: the error of the step is "
                    "unknown"
                )
        part = self.layer(layer)
        once, both, spared = _flops(part.blocks, self.plan)
        owned = self._owned(self._rows(part), *self._parameters(layer))
        rows = self._held_up(layer, owned, _one(part.host_ps), again=again)
        if again:
            nothing = Work()
            last = Row(
                name="recompute",
                forward=nothing,
                input_grad=nothing,
                weight_grad=nothing,
                recompute=True,
            )
            rows = (replace(rows[0], checkpoint=True), *rows[1:], last)
        return rows, (once, both + once * again, spared)

    def _prediction(self, layer: Layer) -> tuple[Rows, _Operations]:
        """A layer that predicts a further token: a product of two hidden, the layer, the head.

        The operations are those of the layer alone.
        """
        h = self.architecture.hidden
        columns = self.columns
        joint = linear("joint projection", columns, columns.tokens, 2 * h, h)
        first = self.part([Block("prediction", (joint,))])
        own, operations = self._layer(layer, again=False)
        rows = (*self._rows(first, pipelined=False), *own)
        dense, routed = self._parameters(layer)
        owned = self._owned(tuple(replace(r, shards=None) for r in rows), dense + 2 * h * h, routed)
        return (*owned, *self._rows(self.head)), operations

    def _parameters(self, layer: Layer) -> tuple[int, int]:
        """Dense parameters of a rank, and those of routed experts."""
        held = layer_parameters(layer, self.architecture, self.columns)
        dense, routed = (int(_one(each)) for each in held)
        return dense, routed

    def _owned(self, rows: Rows, dense: int, routed: int) -> Rows:
        """Rows that hold parameters, all of them counted with the first row."""
        shards = _shards(self.plan, self.framework, dense, routed)
        first = replace(rows[0], parameters=dense, expert_parameters=routed, shards=shards)
        return (first, *(replace(row, parameters=0, expert_parameters=0) for row in rows[1:]))

    def _rows(self, part: TimedPart, *, pipelined: bool = True) -> Rows:
        """A row for each block that does anything; collectives of tp may be `pipelined`.

        Of what kernels wait for the host a phase has a third.
        """
        waits = (round(_one(each) / _PASSES) for each in part.waits_ps)
        every = map(self._row, part.blocks, part.prices, waits)
        rows = [r for r in every if any(w.compute_ps or w.comms or w.wait_ps for _, w in r.works())]
        if pipelined and self.plan.tp_comm_overlap and self.plan.tp > 1:
            return with_gaps(rows, exposed=self.framework.exposed_tp)
        return tuple(rows)

    def _row(self, block: Block, prices: Sequence[PhaseSeconds], waited: int) -> Row:
        """A block as a row; what runs beside the next block is waited for at its end.

        In each phase its kernels wait for the host for `waited` ps.
        """
        priced = [*zip(block.operators, prices, strict=True)]
        price = self.together(prices)
        forward, back = _one(price.forward), _one(price.input_grad)
        partly = self.plan.recompute is not Recompute.FULL
        again = partly and block.module in self.plan.recompute_modules
        if partly:
            back += forward if again else _one(price.again)
        if self.plan.recompute is Recompute.OPERATORS:
            back += self.framework.operator_recompute * forward
        sent = (*block.forward, *block.backward) if again else block.backward
        kernels = self._kernels(priced, again=again)
        seconds = forward, back, _one(price.weight_grad)
        works = [
            Work(compute_ps=round(each * PS_PER_S), kernels=run, wait_ps=waited)
            for each, run in zip(seconds, kernels, strict=True)
        ]
        # exchanges that run beside the block that follows: all of a block do, or none does
        lags = [
            int(any(_one(each.size_bytes) and _one(each.beside) for each in exchanges))
            for exchanges in (block.forward, block.backward)
        ]
        return Row(
            name=block.name.replace(" ", "_"),
            forward=replace(works[0], comms=tuple(self._ops(block.forward))),
            input_grad=replace(works[1], comms=tuple(self._ops(sent))),
            weight_grad=works[2],
            forward_lag=lags[0],
            backward_lag=lags[1],
            routed=block.routed,
            weights_first=not _one(block.beside_weights),
            weights_last=not self.framework.overlaps_input_gradient,
        )

    def _kernels(
        self, priced: Sequence[tuple[Operator, PhaseSeconds]], *, again: bool
    ) -> list[Kernels]:
        """What a block runs in each phase: forwards in order, and backwards in reverse.

        What the backward computes `again`, as a whole or in parts, is before it.
        """
        sms, free = self.device.tile_processors, self.framework.free_sms
        forward, back, weights, first = (
            [_kernel_of(each, phase, _one(price[number]), sms, free) for each, price in priced]
            for number, phase in enumerate((0, 1, 2, 0))  # the forward's once more, run again
        )
        if self.plan.recompute is Recompute.FULL:
            first = []
        elif again:
            first = forward
        if self.plan.recompute is Recompute.OPERATORS:
            share = self.framework.operator_recompute  # launched in part
            first = [
                *first,
                *(
                    replace(each, weight=share * each.weight, launches=share * each.launches)
                    for each in forward
                ),
            ]
        runs = forward, [*first, *back[::-1]], weights[::-1]
        return [tuple(each for each in run if each.weight > 0) for run in runs]

    def _ops(self, exchanges: Iterable[Exchange]) -> Iterator[CommOp]:
        """Exchanges as collectives; those of no bytes do not exist."""
        network = self.interconnect
        for each in exchanges:
            size, least, notices = map(_one, each.asks(self.columns, network))
            if round(size):
                yield CommOp(
                    kind=each.kind,
                    group=each.group,
                    axis=ParallelAxis("tp" if each.group is Group.ETP else each.group),
                    size_bytes=round(size),
                    process_ps=round(notices * network.launch_ps),
                    least_ps=round(least * PS_PER_S),
                )

    def _held_up(self, layer: Layer, rows: Rows, launched: float, *, again: bool) -> Rows:
        """Rows slowed by gathers beside them and by stragglers, with the host's launches."""
        works = [[getattr(row, phase) for row in rows] for phase in Phase]
        computed = [sum(work.compute_ps + work.wait_ps for work in phase) for phase in works]
        slow_f, slow_b = self._gather_slowdown(rows[0].shards, computed[0], sum(computed[1:]))

        def slower(phase: Phase, work: Work) -> Work:
            slow = slow_f if phase is Phase.FORWARD else slow_b
            compute_ps, wait_ps = round(work.compute_ps * slow), round(work.wait_ps * slow)
            return replace(work, compute_ps=compute_ps, wait_ps=wait_ps)

        alone = slow_f * computed[0] * (2 if again else 1)
        alone += slow_b * (computed[1] + computed[2])
        if launched * (4 / 3 if again else 1) > alone:
            experts = " with experts" if layer.is_sparse else ""
            self.notes.append(
                f"the host launches a layer{experts} in {format_time_ps(round(launched))} "
                f"({self.framework.name}), longer than its kernels run: the host sets the time"
            )
        return with_launches([row.with_works(slower) for row in rows], round(launched))

    def _gather_slowdown(
        self, shards: Shards | None, forward: int, backward: int
    ) -> tuple[float, float]:
        """Factors on both passes: kernels and collectives share the device; ranks drift apart."""
        nodes = max(self.plan.stage_ranks / self.interconnect.domain, 1.0)
        skew = 1 + self.framework.skew * log2(nodes)
        if shards is None or self.plan.fsdp == 1:
            return skew, skew
        gather, reduce = (sum(map(self._alone_ps, ops)) for ops in (shards.gather, shards.reduce))
        both = reduce + gather * shards.again
        gather *= not shards.once
        slow = self.framework.fsdp_slowdown
        return (
            skew * (1 + slow * min(gather / max(forward, 1), 1.0)),
            skew * (1 + slow * min(both / max(backward, 1), 1.0)),
        )

    def _alone_ps(self, op: CommOp) -> float:
        """A collective with the network to itself, by the closed form."""
        low, high = self.plan.span(op.group)
        size, ranks, stride = np.array([[op.size_bytes], [high // low], [low]], np.float64)
        return float(self.interconnect.seconds(op.kind, size, ranks, stride)[0]) * PS_PER_S


def _flops(blocks: Iterable[Block], plan: Plan) -> _Operations:
    forward = backward = spared = 0.0
    for operator in (each for block in blocks for each in block.operators):
        if operator.kind is not OperatorKind.MEMORY:
            once, inputs, weights = operator.flops[:, 0].tolist()
            weights *= not plan.adapters
            if plan.recompute is Recompute.SELECTIVE and operator.core:
                backward += once
            forward += once
            backward += inputs
            backward += weights
            spared += max(2 * once - inputs - weights, 0.0)
    return forward, forward + backward, spared


def _one(values: Floats | float) -> float:
    """The value of the only plan."""
    return float(values.item(0) if isinstance(values, np.ndarray) else values)


def with_gaps(rows: Sequence[Row], *, exposed: float) -> Rows:
    """Rows whose tp collectives keep the `exposed` share, the rest in rows between them."""
    found: list[Row] = []
    for before, after in pairwise([None, *rows, None]):
        forward = _hidden(before, "forward", exposed, gathers=True)
        forward += _hidden(after, "forward", exposed, gathers=False)
        back = _hidden(after, "input_grad", exposed, gathers=True)
        back += _hidden(before, "input_grad", exposed, gathers=False)
        gap_here = bool(forward or back)
        if gap_here:
            if found and found[-1].forward_lag:
                found[-1] = replace(found[-1], forward_lag=found[-1].forward_lag + 1)
            gap = Row(
                name="overlapped_tp",
                forward=Work(comms=tuple(forward)),
                input_grad=Work(comms=tuple(back)),
                weight_grad=Work(),
                forward_lag=1,
                backward_lag=1 if before else 2,  # past the last gap of the layer before
            )
            found.append(gap)
        if after is not None:
            later = gap_here and bool(after.backward_lag)
            shown = after.with_works(partial(_visible, exposed))
            found.append(replace(shown, backward_lag=shown.backward_lag + later))
    return tuple(found)


def _hidden(row: Row | None, phase: str, exposed: float, *, gathers: bool) -> list[CommOp]:
    """The hidden parts of a row's gathers, or of its reductions."""
    work = getattr(row, phase, Work())
    return [
        replace(op, size_bytes=op.size_bytes - round(op.size_bytes * exposed))
        for op in work.comms
        if op.group is Group.TP and (op.kind is CollectiveKind.ALL_GATHER) == gathers
    ]


def _visible(exposed: float, _: Phase, work: Work) -> Work:
    comms = (
        replace(op, size_bytes=round(op.size_bytes * exposed)) if op.group is Group.TP else op
        for op in work.comms
    )
    return replace(work, comms=tuple(comms))


_WEIGHT_GRAD = 2
# A forward, input gradients and weight gradients take about as many kernels, and as long.
_PASSES = 3


def with_launches(rows: Sequence[Row], host_ps: int) -> Rows:
    """A layer's rows with `host_ps` of launches, a third in each phase.

    The forward begins with its first row that computes, the backward with its last: those rows
    hold the time. A forward that runs again in the backward launches its kernels again.
    """
    found = list(rows)
    share = host_ps // _PASSES
    first = next((i for i, row in enumerate(rows) if row.forward.compute_ps), 0)
    last = next((i for i in range(len(rows) - 1, 0, -1) if rows[i].input_grad.compute_ps), 0)
    forward = replace(found[first].forward, host_ps=host_ps - 2 * share)
    found[first] = replace(found[first], forward=forward)
    found[last] = replace(
        found[last],
        input_grad=replace(found[last].input_grad, host_ps=share),
        weight_grad=replace(found[last].weight_grad, host_ps=share),
    )
    return tuple(found)


# Rows and columns of results of a block of a product, and blocks that an SM runs at a time.
#
# Tiles in names of kernels of A100 (`hta`), the large ones first: the first that fills the device
# is taken, a guess at what libraries choose.
_TILES = ((256, 128, 1), (128, 128, 1), (64, 64, 2))


def _kernel_of(
    operator: Operator, phase: int, seconds: float, processors: int, free_sms: int
) -> Kernel:
    """An operator's kernel of one plan in a phase: 0 forward, 1 input gradient, 2 weight gradient.

    Products have tiles for a device of so many `processors`, and leave `free_sms` of its SMs free.
    """
    blocks, most, sides = 0, 1, _multiplied(operator, phase)
    if operator.groups is not None:
        blocks, most = int(operator.groups.tiles()[phase, 0]), 2
    elif sides:
        (rows, _), (_, columns) = sides
        # in the largest tiles of which there is one for every SM
        tiles = [(ceil(rows / high) * ceil(columns / wide), most) for high, wide, most in _TILES]
        blocks, most = next((each for each in tiles if each[0] >= processors), tiles[-1])
    demand = KernelDemand(blocks=blocks, per_sm=(most,), free_sms=free_sms)
    if operator.kind is OperatorKind.MEMORY:
        demand = KernelDemand(kind=KernelKind.STREAM)
    return Kernel(
        name=operator.name,
        operator=operator.pytorch,
        weight=seconds,
        sides=sides,
        demand=demand,
        launches=float(operator.launches[phase, 0]),
    )


def _multiplied(operator: Operator, phase: int) -> tuple[Numbers, ...]:
    """Shapes of the operands of a product in a phase, with those of all experts side by side."""
    if operator.sides is None:
        return ()
    t, k, n = (round(_one(side)) for side in operator.sides)
    rows, depth, columns = ((t, k, n), (t, n, k), (k, t, n))[phase]
    if operator.groups is None:
        return (rows, depth), (depth, columns)
    count = round(_one(operator.groups.count))
    if phase == _WEIGHT_GRAD:
        return (rows, count * depth), (count * depth, columns)
    return (count * rows, depth), (count, depth, columns)
