"""Memory of a rank: weights, gradients, optimizer, activations, logits, buffers; bytes.

What each operator keeps for its backward follows Korthikanti et al. 2022; how many microbatches a
rank keeps is the schedule's (`kept_by`).
"""

import numpy as np

from stepsim.base.arrays import Bools, Floats, Ints
from stepsim.base.structs import Noun
from stepsim.workload.model.architecture import Architecture
from stepsim.workload.model.blocks import tower_bytes
from stepsim.workload.model.device import Device
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.held import (
    Places,
    counts_by_chunk,
    layer_bytes,
    layer_parameters,
    mlp_weights,
    plan_places,
    rank_parameters,
)
from stepsim.workload.plan import PIPELINE, PipelineOrder, Plans, PlanTable, as_table

TIGHT_SHARE = 0.92  # of the capacity, from which retries of the allocator cost 20 to 30 %
_GATHERED_LAYERS = 2
_MASTER_BYTES = 6  # of a parameter in the optimizer: master weights and two moments of a byte


class RankMemory(Noun):
    """Bytes of the fullest rank of each plan, arrays over plans.

    `buffers` are gathered parameters and a layer's weight gradients before they are added up,
    `reserved` contexts and communication buffers.
    """

    weights: Floats
    gradients: Floats
    optimizer: Floats
    activations: Floats
    logits: Floats
    buffers: Floats
    reserved: Floats

    @property
    def allocated(self) -> Floats:
        """Bytes that the framework's allocator holds."""
        states = self.weights + self.gradients + self.optimizer
        return states + self.activations + self.logits + self.buffers

    @property
    def total(self) -> Floats:
        """Bytes in use on the rank: what the allocator holds and what is reserved."""
        return self.allocated + self.reserved

    def share_of(self, device: Device) -> Floats:
        """Share of the device's capacity in use; above 1 a plan does not fit."""
        return self.total / device.memory_bytes


def kept_by(order: PipelineOrder, pp: int, chunks: int, microbatches: Ints) -> Ints:
    """Microbatches that each rank keeps of each chunk under a schedule when it holds most.

    Shape (plans, pp, chunks), for `microbatches` per plan. ZB-H1 keeps as many on every rank as
    1F1B on the first; ZB-V as many, in chunks of half a stage: 2 pp - 1 - rank on the way down and
    rank + 1 on the way up.
    Under 1F1B, or its interleaved form, a rank runs its warm-up forwards and one more before its
    first backward: pp - rank of one chunk, 2 (pp - rank - 1) + (v - 1) pp + 1 of v chunks, in
    groups of pp. Of 4 ranks and 2 chunks the second rank runs 9 forwards before, in groups of 4, 4
    and 1: it keeps 5 microbatches of its first chunk and 4 of its second.
    """
    rank = np.arange(pp)
    if order is PipelineOrder.ALTERNATING:
        warm = pp - rank if chunks == 1 else 2 * (pp - 1 - rank) + (chunks - 1) * pp + 1
        rounds, rest = np.divmod(np.minimum(warm, microbatches[:, None] * chunks), pp * chunks)
        last = np.clip(rest[:, :, None] - pp * np.arange(chunks), 0, pp)
        kept: Ints = pp * rounds[:, :, None] + last
    else:
        way = [2 * pp - 1 - rank, rank + 1] if order is PipelineOrder.ZB_V else [np.full(pp, pp)]
        kept = np.minimum(np.stack(way, axis=1), microbatches[:, None, None])
    return kept


def which_fit(share: Floats) -> Bools:
    """Which plans fit well by the shares of the memory that they take; if none does, which fit."""
    well: Bools = share < TIGHT_SHARE
    return well if well.any() else share <= 1


def rank_memory(
    architecture: Architecture,
    device: Device,
    framework: Framework,
    plans: Plans,
) -> RankMemory:
    """Memory of the fullest rank of each plan."""
    columns = as_table(plans)
    parts = np.empty((6, len(plans)))
    for chosen, plan in columns.alike(*PIPELINE):
        some = columns.take(chosen)
        held = rank_parts(architecture, framework, some, plan_places(plan))
        count = some.microbatches.astype(np.int64)
        alive = kept_by(plan.order, plan.pp, plan.chunks, count).astype(np.float64)
        live = np.einsum("gpc,gpc->gp", held.activations, alive) + held.working
        logits = held.logits.max(axis=2)
        states = (held.weights, held.gradients, held.optimizer)
        found = np.stack([*states, live, logits, held.buffers])
        fullest = found.sum(axis=0).argmax(axis=1)
        parts[:, chosen] = np.take_along_axis(found, fullest[None, :, None], axis=2)[:, :, 0]
    reserved = columns.nothing + device.reserved_bytes
    names = RankMemory.__struct_fields__
    return RankMemory(**dict(zip(names, (*parts, reserved), strict=True)))


class _RankParts(Noun, eq=False):
    """Bytes of every rank of plans that share a layout.

    `weights`, `gradients`, `optimizer` and `buffers` are of shape (plans, pp) and held throughout;
    `activations` and `logits`, of shape (plans, pp, chunks), of each microbatch that a chunk keeps;
    `working`, of shape (plans, pp), while a backward recomputes: beyond logits, which are gone.
    """

    weights: Floats
    gradients: Floats
    optimizer: Floats
    activations: Floats
    logits: Floats
    working: Floats
    buffers: Floats


def rank_parts(
    architecture: Architecture,
    framework: Framework,
    plans: Plans,
    places: Places,
) -> _RankParts:
    """Bytes of every rank of plans of one layout whose virtual stages lie as `places` say."""
    columns = as_table(plans)
    counts = counts_by_chunk(architecture, columns.plans[0].layout, places)
    logits = np.multiply.outer(columns.tokens / columns.tp, counts[-1] > 0)
    logits = _logit_bytes(columns, framework)[:, None, None] * architecture.vocabulary * logits
    dense, routed = rank_parameters(architecture, columns, counts)
    first = np.array([0 in stages for stages in places], np.float64)
    weights, gradients, optimizer = _states(architecture, framework, columns, dense, routed, first)
    whole = dense + routed
    kinds = [
        layer_bytes(kind, architecture, columns, framework) for kind in architecture.layer_kinds()
    ]
    kept, working = (np.stack(each) for each in zip(*kinds, strict=True))
    # torch's pipelines share gradients of FSDP out once (`torch/distributed/pipelining/stage.py`):
    # until the last microbatch they add up whole, and parameters stay gathered
    several = (columns.pp > 1) & (columns.microbatches > 1)
    unsharded = (columns.zero >= 3) & (columns.reshard == 0) & several
    spread, ranks = framework.fragmentation, counts.sum(axis=2)
    own = optimizer / framework.optimizer_bytes
    return _RankParts(
        weights=weights,
        gradients=gradients,
        optimizer=optimizer,
        activations=spread * _activations(architecture, framework, columns, counts, kept),
        logits=spread * logits,
        working=spread * np.maximum(working.max(axis=0)[:, None] - logits.max(axis=2), 0.0),
        buffers=_buffers(architecture, columns, framework, ranks, whole, own)
        + framework.gradient_bytes * unsharded[:, None] * whole
        + framework.unsummed_bytes * whole
        + framework.workspace_bytes,
    )


def _activations(
    architecture: Architecture,
    framework: Framework,
    columns: PlanTable,
    counts: Floats,
    kept: Floats,
) -> Floats:
    """Bytes that each chunk keeps of a microbatch, its layers those by kind; (plans, pp, chunks).

    Of the layers of a rank as many as are offloaded keep theirs elsewhere, from every chunk the
    same share.
    """
    layers = np.maximum(counts[:-2].sum(axis=(0, 2)), 1.0)
    away = np.minimum(np.multiply.outer(columns.offload_layers, 1 / layers), 1.0)
    activations = np.einsum("kg,kpc->gpc", kept, counts[:-2]) * (1 - away)[:, :, None]
    if architecture.seeing is not None and not architecture.seeing.frozen:
        seen = tower_bytes(architecture.seeing, columns, framework)
        activations = activations + np.multiply.outer(seen, counts[-2] > 0)
    if framework.keeps_outputs:
        output = 2.0 * columns.shard_tokens * architecture.hidden * architecture.streams
        activations = activations + np.multiply.outer(output, counts[-1] == 0)
    return np.asarray(activations)


def _logit_bytes(columns: PlanTable, framework: Framework) -> Floats:
    """Bytes of an entry of the logits of a microbatch; shape (plans,).

    Where they are collected, those of the other microbatches are kept as well, in 2 bytes. A loss
    in chunks has the logits of one at a time, and makes them itself: nobody collects any.
    """
    whole, split = framework.logit_bytes, framework.split_logit_bytes
    entry = np.where(columns.tp > 1, whole if split is None else split, whole)
    collects = framework.collects_logits and framework.loss_chunks == 1
    others = (columns.microbatches - 1) * (columns.pp > 1) * collects
    return np.asarray(entry / framework.loss_chunks + 2.0 * others)


def _states(
    architecture: Architecture,
    framework: Framework,
    columns: PlanTable,
    dense: Floats,
    routed: Floats,
    first: Floats,
) -> tuple[Floats, Floats, Floats]:
    """Weights, gradients and optimizer of each rank; shape (plans, pp).

    `dense` and `routed` are the `rank_parameters`, `first` is 1 for the rank of the first stage.

    Weights are 2 bytes (and two copies at 8 or 4 bits) where they are whole, with `casts_weights`
    the two copies at 8 bits alone. Shards of parameters are the master weights, if there are any;
    their gradients take what the framework reduces them in. Frozen weights have neither gradients
    nor an optimizer: those of a tower are 2 bytes on every rank of the first stage, and what
    adapters have is left out.
    """
    whole = dense + routed
    shards = np.where(columns.zero >= 1, columns.shards, 1.0)
    expert_shards = np.where(columns.zero >= 1, columns.expert_replicas, 1.0)
    own = dense / shards[:, None] + routed / expert_shards[:, None]
    sharded = (columns.zero >= 3)[:, None]
    alone = framework.casts_weights * columns.casts * (columns.element_bytes == 1)
    copies = (2.0 * (1 - alone) + columns.casts * 2.0 * columns.element_bytes)[:, None]
    masters = framework.optimizer_bytes >= _MASTER_BYTES
    weights = np.where(sharded, 0.0 if masters else 2.0 * own, copies * whole)
    tower = architecture.seeing
    if tower is not None and tower.frozen:
        weights = weights + 2.0 * np.outer(tower.parameters() / columns.tp, first)
    reduced = np.where((columns.zero >= 2)[:, None], own, whole)
    trained = (columns.adapters == 0)[:, None]
    own = own * trained
    gradients = framework.gradient_bytes * np.where(sharded, own, reduced * trained)
    return weights, gradients, framework.optimizer_bytes * own


def _buffers(
    architecture: Architecture,
    columns: PlanTable,
    framework: Framework,
    counts: Floats,
    whole: Floats,
    own: Floats,
) -> Floats:
    """What a rank needs to gather parameters and to reduce gradients; shape (plans, pp).

    Weight gradients of one MLP in 2 bytes, and gathered parameters: those of two layers at a time,
    or the `whole` rank's, where they are not dropped after the forward. Those of the ends belong to
    no layer: they stay gathered for the whole step (FSDP's root module).

    A bucket where there are replicas. Of sharded optimizers also the largest gradient of a rank's
    `own` parameters once more, in `norm_bytes` an element, while the norm is taken. `counts` are of
    layers and ends by rank.
    """
    kinds, words = architecture.layer_kinds(), architecture.vocabulary * architecture.hidden
    weights = [mlp_weights(kind, architecture, columns) for kind in kinds]
    gradients, matrix = (np.max(each, axis=0)[:, None] for each in zip(*weights, strict=True))
    layers = [np.sum(layer_parameters(kind, architecture, columns), axis=0) for kind in kinds]
    embedding, head = counts[-2:] > 0
    matrices = embedding | head if architecture.tied else embedding + 1.0 * head
    gathered = _GATHERED_LAYERS * np.max(layers, axis=0)[:, None]
    gathered = gathered + np.outer(1 / columns.tp, words * matrices)
    gathered = np.where((columns.reshard > 0)[:, None], gathered, whole)
    buffers = 2.0 * gradients + np.where((columns.zero >= 3)[:, None], 2.0 * gathered, 0.0)
    largest = np.maximum(np.outer(1 / columns.tp, words * (embedding | head)), matrix)
    norm = framework.norm_bytes * np.minimum(largest, own) * (columns.zero >= 1)[:, None]
    replicas = (columns.stage_ranks > columns.tp)[:, None]
    bucket = framework.bucket_bytes * replicas
    return np.asarray(framework.fragmentation * buffers + norm + bucket)
