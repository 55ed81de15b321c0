"""What a search of plans found, as a document: `stepsim plan --json`."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Self

from msgspec import Meta

from stepsim.base.errors import PlanError
from stepsim.base.structs import Bytes, Count, Document, Entry, Names, Picoseconds, Seconds, Share
from stepsim.base.units import PS_PER_S, format_time_ps
from stepsim.explore.plan.runs import DrawnSteps
from stepsim.explore.plan.search import PlanSearch, SearchedPlan
from stepsim.files.models.launch import LaunchForm, launch_form, launch_of
from stepsim.files.models.megatron_plan import model_arguments
from stepsim.options import OPTIONS
from stepsim.step.model_plan import plan_fields
from stepsim.step.plans import KNOWN_APART, PlanSpace, plan_words, step_options_of
from stepsim.workload.axes import Part
from stepsim.workload.model.choices import ExpertDispatch, Recompute
from stepsim.workload.model.evidence import Throughput
from stepsim.workload.model.held import stage_slices
from stepsim.workload.model.layout import layout_text
from stepsim.workload.plan import Plan

if TYPE_CHECKING:
    from stepsim.explore.batches.draws import DrawnBatches


class PlanEntry(Entry):
    """A plan: its options as people type them, what it takes, and why it is behind the best."""

    options: dict[str, str]
    plan: Plan
    npus: Count
    layout: Annotated[str, Meta(description="layers of virtual stages, in Megatron-LM's letters")]
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


def _connections(plan: Plan, device: object) -> str:
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
        launch = launch_of(best.plan, space.setup.architecture, space.setup.framework.name)
        megatron = launch.form is LaunchForm.MEGATRON_LM
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
            framework=space.setup.framework.name,
            launch_form=launch.form.value,
            launch=launch.lines,
            launch_refused=launch.refused,
            environment=_connections(best.plan, base.device) if launch.lines else "",
            megatron_arguments=launch.lines if megatron else (),
            model_arguments=model_arguments(space.setup.architecture) if megatron else (),
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
        found,
        npus=plan.npus,
        options={o.name: o.text(getattr(options, o.field)) for o in options.changed()},
        layout=layout_text(stage_slices(space.setup.architecture, plan)),
        step_time_ps=found.step_ps,
        tokens_per_s_per_npu=plan.step_tokens / (found.judged_ps / PS_PER_S) / plan.npus,
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


# what plans share, and what a search varies

_Values = Mapping[str, tuple[object, ...]]

_WIDER: Mapping[str, _Values] = MappingProxyType(
    {
        "zero": {"zero": (1, 3)},
        "recompute": {"recompute": (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)},
        "overlap": {"dp_overlap": (False, True), "tp_comm_overlap": (False, True)},
        "dispatch": {"dispatch": tuple(ExpertDispatch)},
        "graphs": {"cuda_graph": (False, True)},
    }
)
_OF_TORCH: Mapping[str, _Values] = MappingProxyType(
    {
        "zero": {"zero": (0, 3)},
        "recompute": {"recompute": (Recompute.NONE, Recompute.OPERATORS, Recompute.FULL)},
    }
)
"""Of these torchtitan has others."""

_HELD = (
    *("zero", "recompute", "dp_overlap", "tp_comm_overlap", "dispatch", "cuda_graph"),
    *("schedule", "precision", "cp_comm", "sequence_parallel", "attention"),
)


def wider_values(names: Iterable[str], framework: str) -> dict[str, tuple[object, ...]]:
    """Values of the options that a search varies beside degrees, by the names of the options.

    `names` are groups of options: zero, recompute, overlap, dispatch, graphs. Raises PlanError.
    """
    torch = launch_form(framework) is LaunchForm.TORCHTITAN
    groups = {**_WIDER, **_OF_TORCH} if torch else _WIDER
    values: dict[str, tuple[object, ...]] = {}
    for name in names:
        if name not in groups:
            raise PlanError(f"search is {name!r}: expected one of {', '.join(groups)}")
        values.update(groups[name])
    return values


def held_values(space: PlanSpace) -> dict[str, str]:
    """Options that all plans of a space share, with their values as people type them."""
    idle = () if space.setup.architecture.is_sparse else ("dispatch",)
    known = {"cp_comm": (plan_fields(space.base)["context"],)}
    values = {name: known.get(name) or space.values(name) for name in _HELD if name not in idle}
    return {n: OPTIONS[n].text(each[0]) for n, each in values.items() if len(each) == 1}
