"""A search as people ask for it: sizes such as `256..1024`, and options with fixed values."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from stepsim.base.errors import PlanError
from stepsim.base.structs import Names, Noun, replace
from stepsim.explore.plan.document import PlanDocument, wider_values
from stepsim.explore.plan.explain import explain_plan
from stepsim.explore.plan.runs import HERE, Workers
from stepsim.explore.plan.search import Objective, OnPlan, PlanSearch, search_plans
from stepsim.files.asked import StepInputs
from stepsim.network.topology import Topology
from stepsim.network.two_levels import interconnect_of
from stepsim.options import OPTIONS, StepOptions
from stepsim.step.model_plan import (
    DEFAULT_SEQUENCE,
    SEQUENCE_ASSUMED,
    as_jobs_run,
    default_batch,
    setup_of,
)
from stepsim.step.plans import MOST_NPUS, SEARCHED, SHORT_NAMES, PlanSpace
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
        if self.objective not in list(Objective):
            expected = ", ".join(Objective)
            raise PlanError(f"objective is {self.objective!r}: expected one of {expected}")


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
        from stepsim.explore.plan.explain import said_of_plans

        best = self.search.best_kinds(min(top, _WITH_OVERLAP))
        said = said_of_plans(self.model, self.topology, self.space.base, best)
        return PlanDocument.of(
            self.search,
            self.space,
            topology=self.topology.name,
            top=top,
            notes=(*said, *self.notes),
            drawn=self.question.drawn,
        )

    def explain(self, plan: str) -> str:
        """Why a plan such as `tp=8,pp=4` is not the best: simulated, whether it fits or not.

        Raises PlanError where plans were judged by drawn batches.
        """
        if self.question.drawn:
            raise PlanError("explain compares steps of full sequences: leave out lengths")
        fixed, limit = parse_fixed(plan.split(",")), self.question.memory_share
        return explain_plan(self.model, self.space, self.topology, self.search, fixed, limit=limit)


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
