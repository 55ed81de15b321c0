"""What a search of plans found, as a document: `stepsim plan --json`."""

from typing import Annotated, Self

from msgspec import Meta

from stepsim.base.documents import Document, Entry, Names
from stepsim.base.fields import Bytes, Count, Picoseconds, Seconds, Share
from stepsim.base.units import format_time_ps
from stepsim.explore.plan.runs import step_options_of
from stepsim.explore.plan.search import PlanSearch, SearchedPlan
from stepsim.explore.plan.space import PlanSpace
from stepsim.files.models.megatron_plan import megatron_plan
from stepsim.workload.axes import Part
from stepsim.workload.model.architecture import Architecture
from stepsim.workload.model.layout import layout_text
from stepsim.workload.model.plan import ModelPlan


class PlanEntry(Entry, frozen=True, kw_only=True):
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
    recompute: str
    zero: Count
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


class PlanDocument(Document, frozen=True, kw_only=True):
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
    megatron_arguments: Names
    warnings: Names

    @classmethod
    def of(
        cls,
        found: PlanSearch,
        space: PlanSpace,
        *,
        topology: str,
        top: int,
    ) -> Self:
        """The best plans of a search of a space, at most `top`, and the arguments of the first."""
        plans, base = found.best_kinds(top), space.base
        best = plans[0]
        return cls(
            model=best.run.workload,
            topology=topology,
            device=str(getattr(base.device, "name", base.device)),
            global_batch=best.plan.global_batch,
            sequence=best.plan.sequence,
            looked_at=found.looked_at,
            too_large=found.too_large,
            ruled_out=found.ruled_out,
            simulated=len(found.plans),
            not_run=found.not_run,
            binds=found.binds,
            plans=tuple(_plan_entry(each, best, space) for each in plans),
            megatron_arguments=_megatron(best.plan, space.architecture),
            warnings=(*found.warnings, *found.refused),
        )


def _megatron(plan: ModelPlan, architecture: Architecture) -> tuple[str, ...]:
    """Megatron-LM's arguments; none where it has no such schedule."""
    if plan.order.chunks:
        return ()
    return tuple(megatron_plan(plan, plan.stage_slices(architecture)))


def _plan_entry(found: SearchedPlan, best: SearchedPlan, space: PlanSpace) -> PlanEntry:
    """A plan beside the best one."""
    plan, run = found.plan, found.run
    parts = run.mean_breakdown_ps()
    options = step_options_of(plan, space.base)
    return PlanEntry(
        options={o.name: o.text(getattr(options, o.field)) for o in options.changed()},
        npus=plan.npus,
        tp=plan.tp,
        cp=plan.cp,
        pp=plan.pp,
        dp=plan.dp,
        ep=plan.ep,
        expert_tp=plan.expert_degree,
        chunks=plan.chunks,
        microbatch_size=plan.microbatch_size,
        microbatches=plan.microbatches,
        schedule=plan.order.value,
        layout=layout_text(plan.stage_slices(space.architecture)),
        recompute=str(plan.recompute),
        zero=plan.zero,
        step_time_ps=found.step_ps,
        priced_s=found.priced_s,
        tokens_per_s_per_npu=found.tokens_per_npu,
        memory_bytes=found.memory_bytes,
        memory_share=found.memory_share,
        mfu=run.mfu,
        error=run.band,
        error_runs=run.band_runs,
        bubble_fraction=run.bubble_fraction,
        exposed_ps=sum(time for part, time in parts.items() if part.key.startswith("exposed")),
        why="" if found is best else why_slower(found, best),
    )


def why_slower(found: SearchedPlan, best: SearchedPlan) -> str:
    """The parts of a mean rank's step that grew most against the best plan's, and what shrank."""
    parts, least = (each.run.mean_breakdown_ps() for each in (found, best))
    grown = {part: parts[part] - least[part] for part in Part}
    order = sorted((p for p in Part if grown[p]), key=lambda part: -grown[part])
    said = [f"{_name(p)} +{format_time_ps(grown[p])}" for p in order[:2] if grown[p] > 0]
    less = [p for p in reversed(order) if grown[p] < 0][:1]
    return ", ".join([*said, *(f"{_name(p)} -{format_time_ps(-grown[p])}" for p in less)])


def _name(part: Part) -> str:
    bubble = part in (Part.HEAD, Part.INNER, Part.TAIL)
    words = part.key.replace("_", " ")
    return f"bubble, {words}" if bubble else words
