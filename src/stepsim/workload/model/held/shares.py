"""What a rank holds of a model: parameters of its layers and ends, by plan."""

from functools import lru_cache

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.workload.model.architecture import Architecture, ExpertMlp, Layer
from stepsim.workload.model.columns import PlanColumns
from stepsim.workload.model.layout import LayerLayout, layer_ranges
from stepsim.workload.model.plan import ModelPlan

Places = tuple[tuple[int, ...], ...]
"""Virtual stage of each rank's chunks."""


def loop_places(pp: int, chunks: int) -> Places:
    """Virtual stages handed round: stage s on rank s mod pp."""
    return tuple(tuple(chunk * pp + rank for chunk in range(chunks)) for rank in range(pp))


def plan_places(plan: ModelPlan) -> Places:
    """Virtual stages where a plan's schedule has them: handed round, or down and back up."""
    if plan.order.folded:
        return tuple((rank, 2 * plan.pp - 1 - rank) for rank in range(plan.pp))
    return loop_places(plan.pp, plan.chunks)


@lru_cache(maxsize=4096)
def counts_by_chunk(architecture: Architecture, layout: LayerLayout, places: Places) -> Floats:
    """Layers of each kind, then embeddings and heads; shape (kinds + 2, pp, chunks).

    Prediction layers count as layers of their kind, and each as a head: it predicts one token more.
    """
    stages = 1 + max(max(held) for held in places)
    slices = layout.resolve(architecture.depth, len(architecture.prediction_layers), stages)
    number = {kind: i for i, kind in enumerate(architecture.layer_kinds())}
    by_stage = np.zeros((len(number) + 2, stages))
    for stage, (each, layers) in enumerate(zip(slices, layer_ranges(slices), strict=True)):
        held = [architecture.layers[i] for i in layers]
        held += architecture.prediction_layers[: each.prediction_layers]
        for layer in held:
            by_stage[number[layer], stage] += 1
        by_stage[-2, stage] = each.embedding
        by_stage[-1, stage] = each.head + each.prediction_layers
    return by_stage[:, np.array(places)]


def dense_parameters(layer: Layer, architecture: Architecture, columns: PlanColumns) -> Floats:
    """Parameters of a layer on a rank but those of routed experts, before sharding."""
    whole = layer.parameters(architecture.hidden, architecture.norm)
    return (whole - _routed(layer, architecture)) / columns.tp


def routed_parameters(layer: Layer, architecture: Architecture, columns: PlanColumns) -> Floats:
    """Parameters of a layer's routed experts on a rank, before sharding."""
    return _routed(layer, architecture) / (columns.ep * columns.expert_tp)


def _routed(layer: Layer, architecture: Architecture) -> int:
    if not isinstance(layer.mlp, ExpertMlp):
        return 0
    return layer.mlp.routed_parameters(architecture.hidden)


def rank_parameters(
    architecture: Architecture, columns: PlanColumns, layout: LayerLayout, places: Places
) -> tuple[Floats, Floats]:
    """Dense and routed parameters of each rank; shape (plans, pp). The plans share the layout.

    The rank of the head has a copy of a tied embedding where that is on another rank.
    """
    counts = counts_by_chunk(architecture, layout, places).sum(axis=2)
    kinds = architecture.layer_kinds()
    dense = np.stack([dense_parameters(each, architecture, columns) for each in kinds], axis=1)
    routed = np.stack([routed_parameters(each, architecture, columns) for each in kinds], axis=1)
    tied = architecture.vocabulary * architecture.hidden * architecture.tied
    copied = np.where(counts[-2] > 0, 0, tied)
    ends = np.outer(1 / columns.tp, counts[-2] * architecture.embedding_parameters)
    ends += np.outer(1 / columns.tp, (counts[-1] > 0) * (architecture.head_parameters + copied))
    return dense @ counts[:-2] + ends, routed @ counts[:-2]
