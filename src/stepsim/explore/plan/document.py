"""What a search of plans found, as a document: `stepsim plan --json`."""

from typing import TYPE_CHECKING, Annotated, Self

from msgspec import Meta

from stepsim.base.structs import Bytes, Count, Document, Entry, Names, Picoseconds, Seconds, Share
from stepsim.base.units import format_time_ps
from stepsim.explain.throughput import Throughput
from stepsim.explore.plan.held import held_values
from stepsim.explore.plan.runs import DrawnSteps
from stepsim.explore.plan.search import PlanSearch, SearchedPlan
from stepsim.files.models.launch import LaunchForm, launch_of
from stepsim.files.models.megatron_plan import model_arguments
from stepsim.step.plan_space import KNOWN_APART, PlanSpace, plan_words, step_options_of
from stepsim.workload.model.choices import ExpertDispatch, Recompute
from stepsim.workload.model.layout import layout_text
from stepsim.workload.model.plan import ModelPlan
from stepsim.workload.rows import Part

if TYPE_CHECKING:
    from stepsim.explore.batches.draws import DrawnBatches


class PlanEntry(Entry):
    """A plan: its options as people type them, what it takes, and why it is behind the best."""

    options: dict[str, str]
    npus: Count
    tp: Count
    cp: Count
    pp: Count
    dp: Count
    ep: Count
    expert_tp: Count
    chunks: Count
    microbatch_size: Count
    microbatches: Count
    schedule: Annotated[str, Meta(description="1f1b is interleaved where there are chunks")]
    layout: Annotated[str, Meta(description="layers of virtual stages, in Megatron-LM's letters")]
    recompute: Recompute
    zero: Count
    dp_overlap: bool
    tp_comm_overlap: bool
    dispatch: ExpertDispatch
    cuda_graph: bool
    step_time_ps: Picoseconds
    priced_s: Seconds
    tokens_per_s_per_npu: Annotated[float, Meta(ge=0)]
    memory_bytes: Annotated[Bytes, Meta(description="of the fullest rank")]
    memory_share: Annotated[float, Meta(ge=0, description="of the device's capacity")]
    mfu: Annotated[float, Meta(ge=0)]
    error: Annotated[float | None, Meta(description="mean error of such predictions")]
    error_runs: Count
    bubble_fraction: Share
    exposed_ps: Picoseconds
    why: Annotated[str, Meta(description="what makes it slower than the first")]
    drawn: Annotated[
        DrawnSteps | None, Meta(description="steps of drawn documents, which plans are judged by")
    ] = None


def _connections(plan: ModelPlan, device: object) -> str:
    """The queues of a GPU that Megatron-LM asserts at its start (`validate_args`)."""
    generation = getattr(device, "generation", "")
    if plan.zero == 3:
        return "unset CUDA_DEVICE_MAX_CONNECTIONS"
    needed = generation in ("volta", "ampere", "hopper") and max(plan.tp, plan.cp) > 1
    return "export CUDA_DEVICE_MAX_CONNECTIONS=1" if needed else ""


class PlanDocument(Document):
    """`stepsim plan --json`: the best plans, one of a kind, the best first."""

    model: str
    topology: str
    device: str
    global_batch: Count
    sequence: Count
    looked_at: Annotated[Count, Meta(description="plans that divide model and job")]
    too_large: Annotated[Count, Meta(description="plans that do not fit")]
    ruled_out: Annotated[Count, Meta(description="plans whose bound is above the best")]
    simulated: Count
    not_run: Annotated[Count, Meta(description="plans that are priced slower and could be faster")]
    binds: str
    plans: tuple[PlanEntry, ...]
    equal_plans: Annotated[
        Count, Meta(description="plans from the first on that are equal within what is known")
    ]
    known_apart: Annotated[
        float, Meta(ge=0, description="share of the step by which plans differ that are not equal")
    ]
    held: Annotated[dict[str, str], Meta(description="options that all plans share")]
    framework: str
    launch_form: Annotated[
        str, Meta(description="megatron-lm, megatron-bridge, torchtitan, or none that is known")
    ]
    launch: Annotated[Names, Meta(description="the first plan as its framework is launched")]
    launch_refused: Annotated[Names, Meta(description="why there is no such form of it")]
    environment: Annotated[str, Meta(description="what Megatron-LM stops without")] = ""
    megatron_arguments: Names
    model_arguments: Annotated[Names, Meta(description="the model in Megatron-LM's words")]
    warnings: Names
    throughput: Annotated[
        Throughput | None, Meta(description="of the first plan, and what it rests on")
    ] = None
    lengths: Annotated[str, Meta(description="law or file of documents, where plans had some")] = ""
    packer: str = ""
    equal_lengths: Annotated[
        str, Meta(description="the plan that full sequences would set first, where that is another")
    ] = ""

    @classmethod
    def of(
        cls,
        found: PlanSearch,
        space: PlanSpace,
        *,
        topology: str,
        top: int,
        notes: Names = (),
        drawn: "DrawnBatches | None" = None,
    ) -> Self:
        """The best plans of a search of a space, at most `top`, and how to launch the first."""
        plans, base = found.best_kinds(top), space.base
        best = plans[0]
        launch = launch_of(best.plan, space.architecture, space.framework)
        return cls.taken_from(
            found,
            model=best.run.workload,
            topology=topology,
            device=str(getattr(base.device, "name", base.device)),
            global_batch=best.plan.global_batch,
            sequence=best.plan.sequence,
            simulated=len(found.plans),
            plans=tuple(_plan_entry(each, best, space) for each in plans),
            equal_plans=found.equal(plans),
            known_apart=KNOWN_APART,
            held=held_values(space),
            framework=space.framework,
            launch_form=launch.form.value,
            launch=launch.lines,
            launch_refused=launch.refused,
            environment=_connections(best.plan, base.device) if launch.lines else "",
            megatron_arguments=launch.lines if launch.form is LaunchForm.MEGATRON_LM else (),
            model_arguments=model_arguments(space.architecture)
            if launch.form is LaunchForm.MEGATRON_LM
            else (),
            warnings=(*notes, *found.warnings, *found.refused),
            throughput=best.run.throughput,
            lengths=drawn.source if drawn else "",
            packer=drawn.packer if drawn else "",
            equal_lengths=_other_first(found, best) if drawn else "",
        )


def _other_first(found: PlanSearch, best: SearchedPlan) -> str:
    """The plan that full sequences would set first; empty where it is the best."""
    other = found.equal_lengths_first
    return "" if other.plan == best.plan else plan_words(other.plan)


def _plan_entry(found: SearchedPlan, best: SearchedPlan, space: PlanSpace) -> PlanEntry:
    """A plan beside the best one."""
    plan, run, rates = found.plan, found.run, found.run.throughput
    parts = run.mean_breakdown_ps()
    options = step_options_of(plan, space.base)
    return PlanEntry.taken_from(
        plan,
        options={o.name: o.text(getattr(options, o.field)) for o in options.changed()},
        expert_tp=plan.expert_degree,
        schedule=plan.order.value,
        layout=layout_text(plan.stage_slices(space.architecture)),
        step_time_ps=found.step_ps,
        priced_s=found.priced_s,
        tokens_per_s_per_npu=found.tokens_per_npu,
        memory_bytes=found.memory_bytes,
        memory_share=found.memory_share,
        mfu=rates.mfu if rates else 0.0,
        error=rates.error if rates else None,
        error_runs=rates.error_runs if rates else 0,
        bubble_fraction=run.bubble_fraction,
        exposed_ps=sum(time for part, time in parts.items() if part.key.startswith("exposed")),
        why="" if found is best else why_slower(found, best),
        drawn=run.drawn,
    )


def why_slower(found: SearchedPlan, best: SearchedPlan) -> str:
    """The parts of a mean rank's step that grew most against the best plan's, and what shrank."""
    parts, least = (each.run.mean_breakdown_ps() for each in (found, best))
    grown = {part: parts[part] - least[part] for part in Part}
    order = sorted((p for p in Part if grown[p]), key=lambda part: -grown[part])
    said = [f"{p.label} +{format_time_ps(grown[p])}" for p in order[:2] if grown[p] > 0]
    less = [p for p in reversed(order) if grown[p] < 0][:1]
    return ", ".join([*said, *(f"{p.label} -{format_time_ps(-grown[p])}" for p in less)])
