"""Whether a plan divides a model, and how a framework that balances stages shares out layers."""

from stepsim.base.errors import PlanError
from stepsim.workload.model.architecture import (
    Architecture,
    DenseMlp,
    ExpertMlp,
    GroupedAttention,
    LatentAttention,
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
    attentions = [layer.attention for layer in architecture.layer_kinds()]
    counts = [
        attention.heads
        for attention in attentions
        if isinstance(attention, GroupedAttention | LatentAttention)
    ]
    for attention in attentions:
        if isinstance(attention, Mixer):
            counts += attention.shared_out().values()
    return all(count % tp == 0 for count in counts)


def check_plan(architecture: Architecture, plan: Plan) -> None:
    """Raise PlanError where the plan does not divide the model."""
    plan.check_sequence()
    kinds = {id(layer): layer for layer in architecture.layers}
    for layer in dict.fromkeys(kinds.values()):
        attention, mlp = layer.attention, layer.mlp
        if isinstance(attention, GroupedAttention | LatentAttention):
            _need_divisor("heads", attention.heads, "tp", plan.tp)
            if plan.context is ContextParallelKind.ALL_TO_ALL:
                _need_divisor("heads / tp", attention.heads // plan.tp, "cp", plan.cp)
        if isinstance(attention, Mixer):
            if plan.attention is AttentionKernel.UNFUSED:
                raise PlanError(
                    "attention is unfused: this model's mixers are fused: expected flash"
                )
            for what, count in attention.shared_out().items():
                _need_divisor(what, count, "tp", plan.tp)
            _need_divisor("heads of mixers / tp", attention.turned_heads // plan.tp, "cp", plan.cp)
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
