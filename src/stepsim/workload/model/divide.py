"""Whether a plan divides a model, and how a framework that balances stages shares out layers."""

from collections.abc import Mapping

from stepsim.base.errors import PlanError
from stepsim.workload.model.architecture import (
    Architecture,
    DenseMlp,
    ExpertMlp,
    GroupedAttention,
    LatentAttention,
    Layer,
    Mixer,
)
from stepsim.workload.model.choices import AttentionKernel, ContextParallelKind
from stepsim.workload.model.layout import LayerLayout, StageSlice, layout_by_cost
from stepsim.workload.plan import Plan


def stage_slices(architecture: Architecture, plan: Plan) -> tuple[StageSlice, ...]:
    """What each virtual stage runs, in the model's order; raises PlanError."""
    return plan.layout.resolve(
        architecture.depth, len(architecture.prediction_layers), plan.pp * plan.chunks
    )


def layout_of_costs(architecture: Architecture, stages: int) -> LayerLayout:
    """The layout of a framework that shares blocks out by cost: a matrix costs its weights.

    The embedding looks up and costs nothing (nanotron's `get_block_compute_costs`).
    """
    costs = [
        layer.parameters(architecture.hidden, architecture.norm) for layer in architecture.layers
    ]
    head, ahead = architecture.vocabulary * architecture.hidden, architecture.prediction_layers
    return layout_by_cost(costs, head, stages, len(ahead))


def heads_divide(architecture: Architecture, tp: int) -> bool:
    """Whether every layer's attention heads can be split over so many ranks."""
    counts = (_shared_out(layer).values() for layer in architecture.layer_kinds())
    return all(count % tp == 0 for each in counts for count in each)


def _shared_out(layer: Layer) -> Mapping[str, int]:
    """Counts of a layer's attention that tp must divide, by the name that an error gives them."""
    if isinstance(layer.attention, Mixer):
        return layer.attention.shared_out()
    if isinstance(layer.attention, GroupedAttention | LatentAttention):
        return {"heads": layer.attention.heads}
    return {}


def check_plan(architecture: Architecture, plan: Plan) -> None:
    """Raise PlanError where the plan does not divide the model."""
    plan.check_sequence()
    kinds = {id(layer): layer for layer in architecture.layers}
    for layer in dict.fromkeys(kinds.values()):
        attention, mlp = layer.attention, layer.mlp
        if isinstance(attention, Mixer) and plan.attention is AttentionKernel.UNFUSED:
            raise PlanError("attention is unfused: this model's mixers are fused: expected flash")
        shared = _shared_out(layer)
        for what, count in shared.items():
            _need_divisor(what, count, "tp", plan.tp)
        if isinstance(attention, Mixer):
            _need_divisor("heads of mixers / tp", attention.turned_heads // plan.tp, "cp", plan.cp)
        elif shared and plan.context is ContextParallelKind.ALL_TO_ALL:
            _need_divisor("heads / tp", shared["heads"] // plan.tp, "cp", plan.cp)
        if isinstance(mlp, DenseMlp):
            _need_divisor("ffn", mlp.width, "tp", plan.tp)
        if isinstance(mlp, ExpertMlp):
            _need_divisor("experts", mlp.experts, "ep", plan.ep)
            _need_divisor("expert ffn", mlp.width, "expert_tp", plan.expert_degree)
    if plan.ep > 1 and not architecture.is_sparse:
        raise PlanError(f"ep is {plan.ep}: {architecture.name} has no experts: expected 1")
    ahead = len(architecture.prediction_layers)
    plan.layout.check(architecture.depth, ahead, plan.pp * plan.chunks)


def _need_divisor(what: str, value: int, name: str, degree: int) -> None:
    if value % degree:
        raise PlanError(f"{what} is {value}: expected a multiple of {name}, {degree}")
