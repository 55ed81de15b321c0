"""A plan as Megatron-LM's arguments, which `read_megatron` reads back (core 0.14)."""

from collections.abc import Iterator

from stepsim.workload.model.layout import StageSlice, layout_text
from stepsim.workload.model.plan import ModelPlan, Precision, Recompute


def megatron_plan(plan: ModelPlan, slices: tuple[StageSlice, ...]) -> tuple[str, ...]:
    """Arguments of a plan whose virtual stages run `slices`, one text each with its value."""
    return tuple(_arguments(plan, slices))


def _arguments(plan: ModelPlan, slices: tuple[StageSlice, ...]) -> Iterator[str]:
    yield f"--tensor-model-parallel-size {plan.tp}"
    yield f"--pipeline-model-parallel-size {plan.pp}"
    if plan.cp > 1:
        yield f"--context-parallel-size {plan.cp}"
    if plan.ep > 1:
        yield f"--expert-model-parallel-size {plan.ep}"
        yield f"--expert-tensor-parallel-size {plan.expert_degree}"
    yield from _stages(plan, slices)
    yield f"--micro-batch-size {plan.microbatch_size}"
    yield f"--global-batch-size {plan.global_batch}"
    yield f"--seq-length {plan.sequence}"
    if plan.sequence_parallel and plan.tp > 1:
        yield "--sequence-parallel"
    if plan.zero:
        yield "--use-distributed-optimizer"
    if plan.dp_overlap:
        yield "--overlap-grad-reduce"
        yield "--overlap-param-gather"
    if plan.tp_comm_overlap:
        yield "--tp-comm-overlap"
    yield from _compute(plan)


def _stages(plan: ModelPlan, slices: tuple[StageSlice, ...]) -> Iterator[str]:
    """Virtual stages, and who runs the ends where that is not an equal share of the layers."""
    counts = [each.layers for each in slices]
    with_ends = [counts[0] + 1, *counts[1:-1], counts[-1] + 1]
    if len(set(counts)) > 1 and len(set(with_ends)) == 1:
        yield "--account-for-embedding-in-pipeline-split"
        yield "--account-for-loss-in-pipeline-split"
    elif len(set(counts)) > 1:
        yield f"--pipeline-model-parallel-layout '{layout_text(slices)}'"
    if plan.chunks > 1:
        yield f"--num-virtual-stages-per-pipeline-rank {plan.chunks}"


def _compute(plan: ModelPlan) -> Iterator[str]:
    match plan.recompute:
        case Recompute.FULL:
            yield "--recompute-granularity full"
            yield "--recompute-method uniform"
            yield "--recompute-num-layers 1"
        case Recompute.SELECTIVE:
            yield "--recompute-granularity selective"
    match plan.precision:
        case Precision.FP16:
            yield "--fp16"
        case Precision.BF16:
            yield "--bf16"
        case _:
            yield "--bf16"
            yield "--fp8-format hybrid"
