"""A search as people ask for it, and why a plan that they name is not the best.

Sizes are such as `256..1024`, and options may have fixed values. A plan does not fit, cannot run,
or its step has longer parts; of the best ones it is said what overlap would cost them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from stepsim.base.errors import PlanError, StepsimError, member
from stepsim.base.structs import Names, Noun, replace
from stepsim.base.units import format_time_ps
from stepsim.explore.plan.document import PlanDocument, why_slower, wider_values
from stepsim.explore.plan.runs import HERE, Workers
from stepsim.explore.plan.search import Objective, OnPlan, PlanSearch, SearchedPlan, search_plans
from stepsim.files.asked import StepInputs
from stepsim.network.topology import Topology
from stepsim.options import OPTIONS, StepOptions
from stepsim.step.doubts import FREE, WORTH_SAYING, with_overlap_cost
from stepsim.step.model_plan import (
    DEFAULT_SEQUENCE,
    SEQUENCE_ASSUMED,
    as_jobs_run,
    default_batch,
    interconnect_of,
    setup_of,
)
from stepsim.step.plans import (
    MOST_NPUS,
    SEARCHED,
    SHORT_NAMES,
    PlanSpace,
    plan_words,
    step_options_of,
)
from stepsim.step.prepared import prepare
from stepsim.workload.model.memory import TIGHT_SHARE
from stepsim.workload.model.model import Model

if TYPE_CHECKING:
    from stepsim.explore.batches.draws import DrawnBatches


_WITH_OVERLAP = 5
"""Plans of a search of which it is said what overlap would cost."""
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
        for name, value in (("runs", self.runs), ("max_pp", self.max_pp)):
            if value is not None and value < 1:
                raise PlanError(f"{name} is {value}: expected at least 1")
        if self.memory_share is not None and not 0 < self.memory_share <= 1:
            raise PlanError(f"memory_share is {self.memory_share}: expected above 0, at most 1")
        member(Objective, self.objective, "objective")


class _PlanAnswer(Noun):
    """A search that was made: what was asked of which model and topology, and what was found."""

    question: PlanQuestion
    model: Model
    topology: Topology
    space: PlanSpace
    search: PlanSearch
    notes: Names

    def document(self, top: int) -> PlanDocument:
        """The best plans, one of a kind, at most `top` of them."""
        best = self.search.best_kinds(min(top, _WITH_OVERLAP))
        return PlanDocument.of(
            self.search,
            self.space,
            topology=self.topology.name,
            top=top,
            notes=(*self._costs_of_overlap(best), *self.notes),
            drawn=self.question.drawn,
        )

    def _costs_of_overlap(self, plans: Sequence[SearchedPlan]) -> Iterator[str]:
        """What overlap would cost the first of some plans, and whether another is then faster."""
        best, least, own, known = plans[0], inf, 0, dict[Any, Any]()
        for each in plans:
            if each.step_ps >= least:
                continue
            asked = with_overlap_cost(step_options_of(each.plan, self.space.base))
            if asked is None:
                return
            ready = prepare(self.model, self.topology, asked, known=known, quick=True)
            slowed_ps = ready.step_time_ps()
            if not own:
                own = slowed_ps
                if own <= each.step_ps * (1 + WORTH_SAYING):
                    return
            if slowed_ps < least:
                least, best = slowed_ps, each
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
            found = search_plans(self.model, one, self.topology, runs=1, memory_limit=inf)
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
    if not isinstance(job.workload, Model):
        raise PlanError(f"{job.workload.source}: a workload file has one plan: expected a model")
    npus = parse_npu_counts(question.gpus)
    notes: list[str] = []
    options = _with_job(job.options, max(npus), notes)
    framework = str(getattr(options.framework, "name", ""))
    space = make_space(
        job.workload,
        job.topology,
        options,
        npus,
        fixed={**wider_values(question.search, framework), **parse_fixed(question.fix)},
        most={"pp": question.max_pp} if question.max_pp else {},
    )
    search = search_plans(
        job.workload,
        space,
        job.topology,
        runs=question.runs,
        memory_limit=question.memory_share,
        objective=Objective(question.objective),
        progress=progress,
        workers=workers,
        drawn=question.drawn,
    )
    return _PlanAnswer(
        question=question,
        model=job.workload,
        topology=job.topology,
        space=space,
        search=search,
        notes=tuple(notes),
    )


def _with_job(options: StepOptions, npus: int, notes: list[str]) -> StepOptions:
    """The options with a sequence and a batch, which `notes` tell where nobody said them.

    They are what simulate assumes, the batch that of a replica on each of the NPUs.
    """
    if options.sequence is None:
        notes.append(SEQUENCE_ASSUMED)
        options = replace(options, sequence=DEFAULT_SEQUENCE)
    if options.global_batch is None:
        assert options.sequence is not None
        batch = default_batch(npus, 1, options.sequence)
        notes.append(
            f"no global_batch given: stepsim assumes {batch} samples (--global-batch sets it)"
        )
        options = replace(options, global_batch=batch)
    return options


def parse_npu_counts(text: str) -> tuple[int, ...]:
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


def parse_fixed(texts: Iterable[str]) -> dict[str, tuple[object, ...]]:
    """Options and their values of texts such as `tp=8` or `recompute=none,full`.

    Raises PlanError naming the option.
    """
    found: dict[str, tuple[object, ...]] = {}
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


def make_space(
    model: Model,
    topology: Topology,
    options: StepOptions,
    npus: Sequence[int],
    *,
    fixed: Mapping[str, tuple[object, ...]],
    most: Mapping[str, int],
) -> PlanSpace:
    """The space of a search under options with a batch and a sequence; raises PlanError."""
    assert options.global_batch is not None
    assert options.sequence is not None
    setup = setup_of(topology, options, model.architecture)
    setup = replace(setup, interconnect=interconnect_of(topology.fit(max(npus))))
    run, _ = as_jobs_run(options, setup)
    return PlanSpace(
        setup=setup,
        npus=tuple(npus),
        global_batch=options.global_batch,
        sequence=options.sequence,
        base=replace(run, npus=None),
        asked=options,
        fixed=fixed,
        most=most,
    )
