"""Variants of plans that a search tries: stages balanced by cost, fewer layers recomputed."""

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.errors import PlanError
from stepsim.base.structs import replace
from stepsim.workload.model.architecture import Architecture
from stepsim.workload.model.columns import PlanColumns
from stepsim.workload.model.layout import LayerLayout, balanced_layout
from stepsim.workload.model.memory import TIGHT_SHARE, rank_memory
from stepsim.workload.model.plan import ModelPlan
from stepsim.workload.model.step_time import StepModel

_PER_LAYER = 16
"""Costs of the ends are rounded to this part of a layer: most plans share their layout."""

_OF_LAYERS = (
    *("tp", "cp", "dp", "ep", "expert_tp", "microbatch_size"),
    *("recompute", "zero", "precision", "dispatch", "cuda_graph", "tp_comm_overlap"),
)
"""What decides how long a layer and the ends take."""


def balanced_plans(plans: Sequence[ModelPlan], steps: StepModel) -> Iterator[ModelPlan]:
    """Plans whose slowest rank is faster with another layout than their own, with that layout.

    The ends count as many layers as they take time, by `steps`. Frameworks that share layers out
    by cost themselves have none.
    """
    if steps.framework.balances_stages:
        return
    piped = [plan for plan in plans if plan.pp > 1 and not plan.order.folded]
    depth, ahead = steps.architecture.depth, len(steps.architecture.prediction_layers)
    balanced = cache(_balanced)
    alike = {(plan.layout, plan.pp * plan.chunks): plan for plan in piped}
    own = {key: plan.stage_slices(steps.architecture) for key, plan in alike.items()}
    for plan, ends in zip(piped, _end_costs(piped, steps), strict=True):
        layout = balanced(depth, ahead, plan.pp, plan.chunks, ends)
        if layout and layout.slices != own[plan.layout, plan.pp * plan.chunks]:
            yield replace(plan, layout=layout)


def eased_plans(
    plans: Sequence[ModelPlan], columns: PlanColumns, share: Floats, steps: StepModel
) -> list[ModelPlan]:
    """Plans that recompute whole layers, with as few of each virtual stage as fit well.

    `columns` are the plans', `share` what they take of the memory; those that do not fit well, say
    how many layers recompute, or fit well with none, stay as they are. What a rank holds is convex
    in their number: a straight line from one layer to all is not below it.
    """
    found, depth = list(plans), steps.architecture.depth
    stages = columns.pp * columns.chunks
    layers = np.ceil(depth / stages)
    able = (columns.recompute_full > 0) & (columns.recompute_layers == np.inf)
    eased = np.flatnonzero(able & (layers > 1) & (share < TIGHT_SHARE)).tolist()
    if not eased:
        return found
    few = columns.take(eased)
    few = replace(few, recompute_layers=np.ones(len(eased)))
    chosen = [plans[i] for i in eased]
    most, without = (
        rank_memory(steps.architecture, steps.device, steps.framework, chosen, each).share_of(
            steps.device
        )
        for each in (few, replace(few, recompute_full=np.zeros(len(eased))))
    )
    least, layers = share[eased], layers[eased]
    room = np.maximum(TIGHT_SHARE - least, 0) / np.maximum(most - least, 1e-12)
    kept = np.ceil(layers - 1 - (layers - 1) * np.minimum(room, 1.0))
    count = np.where(without < TIGHT_SHARE, layers, 1 + kept).astype(int)
    for i, one, layer_count in zip(eased, chosen, count.tolist(), strict=True):
        if layer_count < -(-depth // (one.pp * one.chunks)):
            found[i] = replace(one, recompute_layers=layer_count)
    return found


def _end_costs(plans: Sequence[ModelPlan], steps: StepModel) -> list[tuple[int, int]]:
    """What the embedding, and head and prediction layers, take, in parts of a mean layer."""
    keys = [tuple(getattr(plan, name) for name in _OF_LAYERS) for plan in plans]
    one = dict(zip(keys, plans, strict=True))
    costs: dict[tuple[object, ...], tuple[int, int]] = {}
    for precision in {plan.precision for plan in plans}:
        chosen = [key for key, plan in one.items() if plan.precision is precision]
        table = steps.part_seconds([one[key] for key in chosen], precision)
        costs.update(zip(chosen, _in_layers(table, steps.architecture), strict=True))
    return [costs[key] for key in keys]


def _in_layers(table: Floats, architecture: Architecture) -> list[tuple[int, int]]:
    """The ends of each row of seconds, in parts of the row's mean layer."""
    counts = architecture.layer_counts()
    weights = np.array([counts[kind] for kind in architecture.layer_kinds()], float)
    layer = table[:, :-2] @ weights / architecture.depth
    ahead = len(architecture.prediction_layers)
    kinds = [architecture.layer_kinds().index(each) for each in architecture.prediction_layers]
    last = table[:, -1] * (1 + ahead) + table[:, kinds].sum(axis=1)
    ends = np.rint(np.stack([table[:, -2], last], axis=1) / layer[:, None] * _PER_LAYER)
    return [(int(embedding), int(head)) for embedding, head in ends.tolist()]


def _balanced(
    depth: int, ahead: int, pp: int, chunks: int, ends: tuple[int, int]
) -> LayerLayout | None:
    """The layout for ends that cost so many parts of a layer; None where there is none."""
    embedding, last = (each / _PER_LAYER for each in ends)
    try:
        return balanced_layout(depth, ahead, pp, chunks, embedding=embedding, last=last)
    except PlanError:
        return None
