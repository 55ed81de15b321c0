"""A search as people ask for it, and its document: `stepsim plan --json`.

Sizes are such as `256..1024`, and options may have fixed values. Of every plan, and of one that
people name, it is said why it is not the best: it does not fit, cannot run, or its step has longer
parts; of the best ones also what overlap would cost them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from stepsim.base.axes import Part
from stepsim.base.errors import PlanError, StepsimError, member, within
from stepsim.base.structs import (
    Bytes,
    Count,
    Document,
    Entry,
    Names,
    Noun,
    Numbers,
    Picoseconds,
    Seconds,
    Share,
    replace,
)
from stepsim.base.units import PS_PER_S, format_time_ps
from stepsim.explain.report import exposed_ps
from stepsim.explore.plan.search import (
    HERE,
    DrawnSteps,
    Objective,
    OnPlan,
    PlanSearch,
    SearchedPlan,
    Workers,
    search_plans,
)
from stepsim.files.asked import StepInputs
from stepsim.files.models.launch import LaunchForm, launch_form, launch_of
from stepsim.files.models.megatron_plan import model_arguments
from stepsim.options import OPTIONS
from stepsim.step.doubts import FREE, WORTH_SAYING, slowed_ps
from stepsim.step.job import check_counts
from stepsim.step.model_plan import (
    DEFAULT_SEQUENCE,
    SEQUENCE_ASSUMED,
    assumed,
    default_batch,
    plan_fields,
)
from stepsim.step.plans import (
    KNOWN_APART,
    MOST_NPUS,
    SEARCHED,
    SHORT_NAMES,
    PlanSpace,
    make_space,
    plan_words,
    step_options_of,
)
from stepsim.workload.model.choices import ExpertDispatch, Recompute
from stepsim.workload.model.device import Device
from stepsim.workload.model.evidence import Throughput
from stepsim.workload.model.held import stage_slices
from stepsim.workload.model.layout import layout_text
from stepsim.workload.model.memory import TIGHT_SHARE
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


def _connections(plan: Plan, device: Device) -> str:
    """The queues of a GPU that Megatron-LM asserts at its start (`validate_args`)."""
    if plan.zero == 3:
        return "unset CUDA_DEVICE_MAX_CONNECTIONS"
    needed = device.generation in ("volta", "ampere", "hopper") and max(plan.tp, plan.cp) > 1
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


def _plan_entry(found: SearchedPlan, best: SearchedPlan, space: PlanSpace) -> PlanEntry:
    """A plan beside the best one."""
    plan, run, rates = found.plan, found.run, found.run.throughput
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
        exposed_ps=exposed_ps(run.breakdown_ps),
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

_WIDER: Mapping[str, _Values] = {
    "zero": {"zero": (1, 3)},
    "recompute": {"recompute": (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)},
    "overlap": {"dp_overlap": (False, True), "tp_comm_overlap": (False, True)},
    "dispatch": {"dispatch": tuple(ExpertDispatch)},
    "graphs": {"cuda_graph": (False, True)},
}
# Of these torchtitan has others.
_OF_TORCH: Mapping[str, _Values] = {
    "zero": {"zero": (0, 3)},
    "recompute": {"recompute": (Recompute.NONE, Recompute.OPERATORS, Recompute.FULL)},
}

_HELD = (
    *("zero", "recompute", "dp_overlap", "tp_comm_overlap", "dispatch", "cuda_graph"),
    *("schedule", "precision", "cp_comm", "sequence_parallel", "attention"),
)


def wider_values(names: Iterable[str], framework: str) -> dict[str, tuple[Any, ...]]:
    """Values of the options that a search varies beside degrees, by the names of the options.

    `names` are groups of options: zero, recompute, overlap, dispatch, graphs. Raises PlanError.
    """
    torch = launch_form(framework) is LaunchForm.TORCHTITAN
    groups = {**_WIDER, **_OF_TORCH} if torch else _WIDER
    values: dict[str, tuple[Any, ...]] = {}
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


# Plans of a search of which it is said what overlap would cost.
_WITH_OVERLAP = 5
_NAMES = {short: name for name, short in SHORT_NAMES.items()}


class PlanQuestion(Noun):
    """What a search is asked, as people type it: `gpus` as 256..1024, `fix` as tp=8.

    `search` names groups of options that are varied too (`wider_values`). `memory_share` is how
    much of the device's memory a plan may take (`price_plans` where it is None), `runs` how many
    plans are simulated at most. `drawn` are batches of documents that plans are judged by.
    """

    gpus: str
    fix: Names = ()
    search: Names = ()
    max_pp: int | None = None
    objective: str = "step"
    memory_share: float | None = None
    runs: int = 20
    drawn: "DrawnBatches | None" = None

    def __post_init__(self) -> None:
        within("runs", self.runs, 1)
        within("max_pp", self.max_pp, 1)
        if self.memory_share is not None and not 0 < self.memory_share <= 1:
            raise PlanError(f"memory_share is {self.memory_share}: expected above 0, at most 1")
        member(Objective, self.objective, "objective")


class _PlanAnswer(Noun):
    """A search that was made: what was asked, of which plans, and what was found."""

    question: PlanQuestion
    space: PlanSpace
    search: PlanSearch

    def document(self, top: int) -> PlanDocument:
        """The best plans, one of a kind, at most `top` of them, and how to launch the first."""
        found, space, drawn = self.search, self.space, self.question.drawn
        setup, plans = space.setup, found.best_kinds(top)
        best, full = plans[0], found.equal_lengths_first.plan
        launch = launch_of(best.plan, setup.architecture, setup.framework.name)
        megatron = launch.form is LaunchForm.MEGATRON_LM
        costs = self._costs_of_overlap(plans[:_WITH_OVERLAP])
        return PlanDocument.taken_from(
            found,
            model=best.run.workload,
            topology=space.asked.topology.name,
            device=setup.device.name,
            global_batch=best.plan.global_batch,
            sequence=best.plan.sequence,
            simulated=len(found.plans),
            plans=tuple(_plan_entry(each, best, space) for each in plans),
            equal_plans=found.equal(plans),
            known_apart=KNOWN_APART,
            held=held_values(space),
            framework=setup.framework.name,
            launch_form=launch.form.value,
            launch=launch.lines,
            launch_refused=launch.refused,
            environment=_connections(best.plan, setup.device) if launch.lines else "",
            megatron_arguments=launch.lines if megatron else (),
            model_arguments=model_arguments(setup.architecture) if megatron else (),
            warnings=(*costs, *found.warnings, *found.refused),
            throughput=best.run.throughput,
            lengths=drawn.source if drawn else "",
            packer=str(drawn.packers[0]) if drawn else "",
            equal_lengths=plan_words(full) if drawn and full != best.plan else "",
        )

    def _costs_of_overlap(self, plans: Sequence[SearchedPlan]) -> Iterator[str]:
        """What overlap would cost the first of some plans, and whether another is then faster."""
        best, least, own, known = plans[0], inf, 0, dict[Any, Any]()
        for each in plans:
            if each.step_ps >= least:
                continue
            slowed = slowed_ps(self.space.step(each.plan), known)
            if slowed is None:
                return
            if not own:
                own = slowed
                if own <= each.step_ps * (1 + WORTH_SAYING):
                    return
            if slowed < least:
                least, best = slowed, each
        words = f"{FREE} the first plan takes {format_time_ps(own)}"
        if least < own:
            words += f", and {plan_words(best.plan)} is faster: {format_time_ps(round(least))}"
        yield words

    def explain(self, plan: str) -> str:
        """A sentence about a plan such as `tp=8,pp=4`, simulated, against the best of the search.

        It may not fit: take more than the share of the device's memory that was asked for, all of
        it unless that was said, and then a plan that fills it nearly is said not to fit well.
        Raises PlanError where plans were judged by drawn batches.
        """
        if self.question.drawn:
            raise PlanError("explain compares steps of full sequences: leave out lengths")
        fixed, limit = parse_fixed(plan.split(",")), self.question.memory_share
        values = "; ".join(f"{name} {', '.join(map(str, each))}" for name, each in fixed.items())
        best, space = self.search.plans[0], self.space
        try:
            one = replace(space, fixed={**space.fixed, **fixed}, most={})
            found = search_plans(one, runs=1, memory_limit=inf)
        except PlanError as error:
            return f"{values}: {error}"
        except StepsimError as error:
            return f"{values}: it cannot be simulated: {error}"
        other = found.plans[0]
        words = f"{plan_words(other.plan)}: {format_time_ps(other.step_ps)}"
        if other.memory_share > (1 if limit is None else limit):
            capacity = other.memory_bytes / other.memory_share / 2**30
            taken = f"{other.memory_bytes / 2**30:.1f} of {capacity:.0f} GiB"
            return f"{words}, but it does not fit: it takes {taken}"
        if limit is None and other.memory_share >= TIGHT_SHARE > best.memory_share:
            words += f", which fits badly ({other.memory_share:.0%}; --memory-share 1 allows it)"
        if other.step_ps <= best.step_ps:
            return f"{words}, no slower than the best"
        more = other.step_ps / best.step_ps - 1
        return f"{words}, {more:.1%} slower than the best: {why_slower(other, best)}"


def answer(
    job: StepInputs,
    question: PlanQuestion,
    progress: OnPlan | None = None,
    workers: Workers = HERE,
) -> _PlanAnswer:
    """Search the plans of a model; raises PlanError where the question is wrong or nothing fits."""
    npus = parse_npu_counts(question.gpus)
    check_counts(job.options)
    framework = str(getattr(job.options.framework, "name", ""))
    space = make_space(
        _with_batch(job, max(npus)),
        npus,
        fixed={**wider_values(question.search, framework), **parse_fixed(question.fix)},
        most={"pp": question.max_pp} if question.max_pp else {},
    )
    search = search_plans(
        space,
        runs=question.runs,
        memory_limit=question.memory_share,
        objective=Objective(question.objective),
        progress=progress,
        workers=workers,
        drawn=question.drawn,
    )
    return _PlanAnswer(
        question=question,
        space=space,
        search=search,
    )


def _with_batch(asked: StepInputs, npus: int) -> StepInputs:
    """What is asked with a sequence and a batch, and notes of those that nobody said.

    They are what simulate assumes, the batch that of a replica on each of the NPUs.
    """
    if asked.options.sequence is None:
        asked = asked.asking(SEQUENCE_ASSUMED, sequence=DEFAULT_SEQUENCE)
    if asked.options.global_batch is not None:
        return asked
    batch = default_batch(npus, 1, asked.options.sequence or DEFAULT_SEQUENCE)
    return asked.asking(assumed("global_batch", f"{batch} samples"), global_batch=batch)


def parse_npu_counts(text: str) -> Numbers:
    """NPU counts of `256`, `256,512`, or `256..1024`, which doubles; raises PlanError."""
    wrong = PlanError(f"gpus is {text!r}: expected counts, such as 512, 256,512 or 256..1024")
    try:
        first, dots, last = text.partition("..")
        if not dots:
            found = tuple(int(each) for each in text.split(","))
        else:
            low, high = int(first), int(last)
            found = tuple(low << i for i in range(64) if 0 < low << i <= high)
    except ValueError:
        raise wrong from None
    if not found or min(found) < 1 or len(set(found)) < len(found):
        raise wrong
    if max(found) > MOST_NPUS:
        raise PlanError(f"gpus is {text}: expected at most {MOST_NPUS}")
    return found


def parse_fixed(texts: Iterable[str]) -> dict[str, tuple[Any, ...]]:
    """Options and their values of texts such as `tp=8` or `recompute=none,full`.

    Raises PlanError naming the option.
    """
    found: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip().replace("-", "_")
        name = _NAMES.get(name, name)
        if not equals or name not in SEARCHED:
            raise PlanError(f"fix {text!r}: expected NAME=VALUE with {', '.join(SEARCHED)}")
        if name in found:
            raise PlanError(f"fix: {name} is given twice")
        found[name] = tuple(OPTIONS[name].of(each.strip()) for each in values.split(","))
    return found
