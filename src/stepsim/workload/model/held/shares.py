"""What a rank holds of a model: parameters of its layers and ends, by plan."""

from functools import lru_cache

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.workload.model.architecture import Architecture, ExpertMlp, Layer
from stepsim.workload.model.columns import PlanColumns
from stepsim.workload.model.layout import LayerLayout, layer_ranges


@lru_cache(maxsize=4096)
def counts_by_chunk(
    architecture: Architecture, layout: LayerLayout, pp: int, chunks: int
) -> Floats:
    """Layers of each kind, then embeddings and heads; shape (kinds + 2, pp, chunks).

    Prediction layers count as layers of their kind, and each as a head: it predicts one token more.
    """
    slices = layout.resolve(architecture.depth, len(architecture.prediction_layers), pp * chunks)
    number = {kind: i for i, kind in enumerate(architecture.layer_kinds())}
    counts = np.zeros((len(number) + 2, pp, chunks))
    for stage, (each, layers) in enumerate(zip(slices, layer_ranges(slices), strict=True)):
        chunk, rank = divmod(stage, pp)
        held = [architecture.layers[i] for i in layers]
        held += architecture.prediction_layers[: each.prediction_layers]
        for layer in held:
            counts[number[layer], rank, chunk] += 1
        counts[-2, rank, chunk] += each.embedding
        counts[-1, rank, chunk] += each.head + each.prediction_layers
    return counts


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
    architecture: Architecture, columns: PlanColumns, layout: LayerLayout, pp: int, chunks: int
) -> tuple[Floats, Floats]:
    """Dense and routed parameters of each rank; shape (plans, pp). The plans share the layout.

    The last rank has a copy of a tied embedding where the first rank is another one.
    """
    counts = counts_by_chunk(architecture, layout, pp, chunks).sum(axis=2)
    kinds = architecture.layer_kinds()
    dense = np.stack([dense_parameters(each, architecture, columns) for each in kinds], axis=1)
    routed = np.stack([routed_parameters(each, architecture, columns) for each in kinds], axis=1)
    copied = architecture.vocabulary * architecture.hidden if architecture.tied and pp > 1 else 0
    ends = np.outer(1 / columns.tp, counts[-2] * architecture.embedding_parameters)
    ends += np.outer(1 / columns.tp, (counts[-1] > 0) * (architecture.head_parameters + copied))
    return dense @ counts[:-2] + ends, routed @ counts[:-2]
