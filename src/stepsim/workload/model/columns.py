"""Plans as columns: one array per field, so that thousands are priced together."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import asdict

from stepsim.base.arrays import Floats
from stepsim.base.structs import Noun
from stepsim.workload.model.plan import (
    AttentionKernel,
    ContextParallelKind,
    ExpertDispatch,
    GraphScope,
    ModelPlan,
    Recompute,
    RecomputeModule,
)

_DISPATCHERS = tuple(ExpertDispatch)
_MODULES = tuple(RecomputeModule)
_SCOPES = tuple(GraphScope)


class PlanColumns(Noun):
    """Fields of plans as arrays of shape (plans,), and the sizes that operators are made of.

    `tokens` (t) are those of a rank in products, `shard_tokens` (s) those outside of them, fewer
    with sequence parallelism; `element_bytes` are those of an operand, `microbatch_size` is in
    samples, `attended` are tokens within which attention runs. `drops_*` are the modules whose
    outputs are recomputed, `graphs` the parts of layers that CUDA graphs hold, `graphs_step` is
    that of a whole step, `graphs_unsaid` what jobs of the framework have;
    `dispatcher` is the number of the dispatch in the list of them. `paired_share` that of the
    forwards that run with a backward as one. Choices are 0 or 1.
    """

    tp: Floats
    cp: Floats
    dp: Floats
    pp: Floats
    ep: Floats
    expert_tp: Floats
    chunks: Floats
    microbatch_size: Floats
    microbatches: Floats
    sequence: Floats
    tokens: Floats
    shard_tokens: Floats
    sequence_parallel: Floats
    shards: Floats
    zero: Floats
    reshard: Floats
    element_bytes: Floats
    casts: Floats
    flash: Floats
    recompute_full: Floats
    recompute_selective: Floats
    recompute_operators: Floats
    recompute_layers: Floats
    drops: Mapping[RecomputeModule, Floats]
    offload_layers: Floats
    context_all_to_all: Floats
    context_ring: Floats
    tp_comm_overlap: Floats
    dp_overlap: Floats
    cuda_graph: Floats
    graphs_step: Floats
    graphs_unsaid: Floats
    graphs: Mapping[GraphScope, Floats]
    attended: Floats
    adapters: Floats
    sends_once: Floats
    dispatch_bytes: Floats
    dispatcher: Floats
    paired_share: Floats
    shared_overlap: Floats
    delay_wgrad: Floats

    def __len__(self) -> int:
        return len(self.tp)

    def take(self, chosen: Sequence[int]) -> "PlanColumns":
        """The columns of some of the plans."""
        fields: dict[str, Any] = {
            name: {key: each[chosen] for key, each in column.items()}
            if isinstance(column, Mapping)
            else column[chosen]
            for name, column in asdict(self).items()
        }
        return PlanColumns(**fields)

    @property
    def stage_ranks(self) -> Floats:
        """Ranks of one pipeline stage."""
        return self.tp * self.cp * self.dp

    def recomputed(self, depth: int) -> Floats:
        """Share of a model's layers that run forward again, the same in all its stages.

        With `recompute_layers` 1 it is a quarter of 80 layers on 4 stages of 5 chunks.
        """
        stages = self.pp * self.chunks
        return self.recompute_full * np.minimum(1.0, self.recompute_layers * stages / depth)


_MADE = ("tokens", "shard_tokens", "drops", "graphs")
_NAMES = tuple(name for name in PlanColumns.__struct_fields__ if name not in _MADE)
"""Columns that are one number of a plan each."""


def plan_columns(plans: Sequence[ModelPlan]) -> PlanColumns:
    """The columns of some plans, in their order."""
    rows = np.array([_numbers(plan) for plan in plans], np.float64).T
    modules, scopes = np.split(rows[len(_NAMES) :], [len(_MODULES)])
    own: dict[str, Any] = dict(zip(_NAMES, rows, strict=False))
    tokens = own["microbatch_size"] * own["sequence"] / own["cp"]
    return PlanColumns(
        tokens=tokens,
        shard_tokens=np.where(own["sequence_parallel"] > 0, tokens / own["tp"], tokens),
        drops=dict(zip(_MODULES, modules, strict=True)),
        graphs=dict(zip(_SCOPES, scopes, strict=True)),
        **own,
    )


def _numbers(plan: ModelPlan) -> tuple[float, ...]:
    """What `_NAMES` name of a plan, in their order, then which modules and scopes it has."""
    recompute, exchanges = plan.recompute, plan.ep > 1
    dispatch = plan.dispatch if exchanges else ExpertDispatch.ALL_TO_ALL
    scopes = plan.graph_scopes if plan.cuda_graph and plan.graph_scopes else ()
    return (
        plan.tp,
        plan.cp,
        plan.dp,
        plan.pp,
        plan.ep,
        plan.expert_degree,
        plan.chunks,
        plan.microbatch_size,
        plan.microbatches,
        plan.sequence,
        plan.sequence_parallel and plan.tp > 1,
        plan.shards,
        plan.zero,
        plan.reshard,
        plan.precision.element_bytes,
        plan.precision.casts,
        plan.attention is AttentionKernel.FLASH,
        recompute is Recompute.FULL,
        recompute is Recompute.SELECTIVE,
        recompute is Recompute.OPERATORS,
        plan.recompute_layers or np.inf,
        plan.offload_layers,
        plan.context is ContextParallelKind.ALL_TO_ALL,
        plan.context is ContextParallelKind.RING,
        plan.tp_comm_overlap,
        plan.dp_overlap,
        plan.cuda_graph,
        plan.cuda_graph and plan.graph_scopes == (),
        plan.cuda_graph and plan.graph_scopes is None,
        plan.attended,
        plan.adapters,
        dispatch.once,
        dispatch.element_bytes,
        _DISPATCHERS.index(dispatch),
        plan.paired_share,
        plan.shared_overlap and exchanges,
        plan.delay_wgrad and exchanges,
        *map(plan.recompute_modules.__contains__, _MODULES),
        *map(scopes.__contains__, _SCOPES),
    )
