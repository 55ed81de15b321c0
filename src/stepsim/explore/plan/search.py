"""Memory refuses plans, a bound rules them out, prices order the rest, and the best are simulated.

Exact simulations run here or by workers, and are kept in a file as they come. A search asks for the
result of one plan after the other and takes the same ones whoever computes: workers only find those
of the next candidates before they are asked for.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from functools import partial
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import msgspec
import numpy as np
from msgspec import Meta, Struct
from msgspec.structs import asdict

from stepsim import __version__
from stepsim.base.axes import Part, PartKind, parts_of
from stepsim.base.digest import content_hash
from stepsim.base.errors import PlanError, StepsimError
from stepsim.base.executors import (
    ExecutorKind,
    Pool,
    check_executor,
    dask_pool,
    local_pool,
    pack,
    unpack,
)
from stepsim.base.process import paused
from stepsim.base.structs import Entry, Names, Noun, Numbers, Picoseconds, replace
from stepsim.base.units import PS_PER_S
from stepsim.explain.make_report import StepTotals, make_totals
from stepsim.explore.plan.budget import what_would_do
from stepsim.files.models.launch import refused_by
from stepsim.files.store import IDENTITY, Store, StoreKind, write_store
from stepsim.network.prices import Known
from stepsim.step.plans import (
    KNOWN_APART,
    PlanSpace,
    handicap,
    plan_kind,
    plan_words,
    price_plans,
)
from stepsim.step.prepared import PreparedStep, prepare
from stepsim.workload.model.memory import which_fit
from stepsim.workload.model.parts import NO_NETWORK
from stepsim.workload.model.step_time import StepModel
from stepsim.workload.plan import Plan, PlanTable

if TYPE_CHECKING:
    from stepsim.explore.batches.draws import BatchSteps, DrawnBatches


class DrawnSteps(Entry):
    """Steps of drawn documents under a plan; `full_ps` is the mean step for as many real tokens.

    That is, for the tokens of a step of full sequences: packers fill plans' microbatches unlike.
    `fullest` is the largest microbatch in parts of a full one.
    """

    mean_ps: Picoseconds
    p90_ps: Picoseconds
    full_ps: Picoseconds
    waiting: Annotated[float, Meta(description="share of the steps, for the longest microbatches")]
    tokens_per_s: Annotated[float, Meta(description="net of padding, of all ranks")]
    fullest: float

    @classmethod
    def of(cls, steps: "BatchSteps", tokens: int) -> Self:
        """What a search needs of drawn steps, where full ones have so many tokens."""
        full_ps = round(tokens / steps.tokens_per_s * PS_PER_S)
        return cls.taken_from(steps, **steps.rounded(90), full_ps=full_ps)


class PlanRun(StepTotals):
    """What a search needs of a simulated plan.

    `drawn` are its steps of documents, where plans are judged by them.
    """

    drawn: DrawnSteps | None = None

    def mean_breakdown_ps(self) -> dict[Part, int]:
        """Parts of the step, mean over ranks."""
        return {part: self.breakdown_ps[part.key] for part in Part}


# What there is of a plan that was tried: its run, or why there is none.
_Result = PlanRun | str


class PlanJob(Noun):
    """What all plans of a search share; `drawn` are the batches that they are judged by.

    `known` are prices of all that ran: 60 plans of llama-3-70b on 512 GPUs take 3.1 s so, 5.1 where
    each is alone.
    """

    space: PlanSpace
    drawn: "DrawnBatches | None" = None
    known: Known = {}

    def prepared(self, plan: Plan) -> PreparedStep:
        """A plan of the search, ready to run."""
        return prepare(self.space.step(plan), known=self.known, quick=True)

    def run(self, plan: Plan) -> _Result:
        """The result of a plan; of a user's mistake the error."""
        drawn = None
        try:
            with paused():
                ready = self.prepared(plan)
                found = make_totals(ready.timeline(), ready.workload, breakdown=True)
                if self.drawn:
                    from stepsim.explore.batches.draws import simulate_batches

                    (steps,) = simulate_batches(self.space.step(plan), self.drawn).packed
                    drawn = DrawnSteps.of(steps, plan.step_tokens)
        except StepsimError as error:
            return str(error)
        return PlanRun(**asdict(found), drawn=drawn)

    def identity(self) -> dict[str, str]:
        """What must be the same for results to belong together, by what the user calls it."""
        shown = {"stepsim": __version__, **self.space.asked.identity()}
        if self.drawn:
            shown["lengths"] = f"{self.drawn.source} {content_hash(self.drawn)}"
        return shown


class Workers(Noun):
    """Who simulates: `jobs` processes, or a Dask `scheduler`; `store` is a file for results.

    With `resume` the results that the file holds are taken.
    """

    jobs: int | None = None
    executor: str = ExecutorKind.LOCAL
    scheduler: str | None = None
    store: Path | None = None
    resume: bool = False


HERE = Workers()
"""This process alone."""

SEARCH = StoreKind(
    name="search of plans",
    number=0x57E9_51B,
    version=2,
    tables={**IDENTITY, "plan": "CREATE TABLE plan (hash TEXT PRIMARY KEY, run BLOB NOT NULL)"},
    begun="--resume continues the same search",
)


class PlanRuns(Struct, kw_only=True):
    """Results of plans: `known` are those there are, by the hash of the plan."""

    packed: bytes
    pool: Pool
    store: Store | None
    known: dict[str, _Result] = {}

    def result(self, plan: Plan, *later: Plan) -> _Result:
        """The result of a plan; raises SweepError where workers keep dying.

        Where there is none yet, workers beside find those of plans that are asked for `later`.
        """
        if content_hash(plan) not in self.known:
            others = (each for each in later if content_hash(each) not in self.known)
            wanted = [plan, *islice(others, self.pool.workers - 1)]
            task = partial(_run_packed, self.packed)
            for key, run in self.pool.results(task, wanted, plan_words):
                self.known[key] = run
                if self.store is not None:
                    with self.store.transaction() as connection:
                        row = key, msgspec.json.encode(run)
                        connection.execute("INSERT OR REPLACE INTO plan VALUES (?, ?)", row)
        return self.known[content_hash(plan)]


@contextmanager
def open_runs(job: PlanJob, workers: Workers) -> Iterator[PlanRuns]:
    """Results of a search's plans; workers end with the block.

    Raises SweepError where the options contradict each other or the file holds something else.
    """
    check_executor(workers.executor, workers.jobs, workers.scheduler)
    if workers.resume and workers.store is None:
        raise PlanError("resume: expected the file with the results (--store)")
    with ExitStack() as opened:
        store, known = None, dict[str, _Result]()
        if path := workers.store:
            found = write_store(path, SEARCH, job.identity(), resume=workers.resume)
            store = opened.enter_context(found)
            for key, run in store.each("SELECT hash, run FROM plan"):
                try:
                    known[key] = msgspec.json.decode(run, type=_Result)
                except msgspec.MsgspecError as error:
                    raise store.damaged(error) from None
        address = workers.scheduler
        pool = opened.enter_context(
            dask_pool(address) if address else local_pool(workers.jobs or 1)
        )
        opened.callback(unpack.cache_clear)
        yield PlanRuns(packed=pack(job), pool=pool, store=store, known=known)


def _run_packed(packed: bytes, plan: Plan) -> tuple[str, _Result]:
    """What a worker does: the hash of a plan of a packed job, and its result."""
    job: PlanJob = unpack(packed)
    return content_hash(plan), job.run(plan)


OnPlan = Callable[[int, int, int], None]
"""Called after every simulated plan with (plans done, plans to do, best step so far in ps)."""


class Objective(StrEnum):
    """What the best plan has least of: step time, NPU time per token, or memory of a rank.

    All NPUs cost the same, so that NPU time per token is the inverse of tokens per dollar.
    """

    STEP = "step"
    TOKENS_PER_DOLLAR = "tokens-per-dollar"
    MEMORY = "memory"

    def cost(self, plan: Plan) -> float:
        """What a second of a plan's step costs."""
        return float(plan.npus) if self is Objective.TOKENS_PER_DOLLAR else 1.0


_LEAST_GAIN = 0.0005  # what is printed as 0.1 %


class SearchedPlan(Noun):
    """A plan that was simulated: its step, what it was priced at, and memory of its fullest rank.

    `memory_share` is of the device's capacity.
    """

    plan: Plan
    run: PlanRun
    priced_s: float
    memory_bytes: int
    memory_share: float

    @property
    def step_ps(self) -> int:
        """The simulated step time."""
        return self.run.step_time_ps

    @property
    def judged_ps(self) -> int:
        """The time that plans are compared by: of drawn steps, if any, for as many real tokens."""
        return self.run.drawn.full_ps if self.run.drawn else self.step_ps


class PlanSearch(Noun):
    """What a search found: simulated plans, the best first, and how many there were of others.

    An uneven layout comes before an even one only where it gains more than `KNOWN_APART`.
    `looked_at` plans divide, `too_large` do not fit, `ruled_out` cannot be faster than the best
    by their bound, `not_run` could be but are priced slower, `passed_over` break a rule of the
    framework. `refused` could not be simulated. `binds` says what stands in the way of a faster
    plan, `warnings` are those of the best.
    """

    plans: tuple[SearchedPlan, ...]
    looked_at: int
    too_large: int
    ruled_out: int
    not_run: int
    binds: str
    passed_over: int = 0
    objective: Objective = Objective.STEP
    refused: Names = ()
    warnings: Names = ()

    def best_kinds(self, most: int) -> list[SearchedPlan]:
        """The best plan of each kind, at most so many: the best of all, then by what is wanted."""
        found: dict[Numbers, SearchedPlan] = {}
        for plan in self.plans:
            found.setdefault(plan_kind(plan.plan), plan)
        first, *others = found.values()
        return [first, *sorted(others, key=self._wanted)][:most]

    def equal(self, plans: Sequence[SearchedPlan]) -> int:
        """How many of these, from the first on, are equal to it within what is known."""
        first = self._wanted(plans[0])
        near = (abs(self._wanted(plan) / first - 1) <= KNOWN_APART for plan in plans)
        return sum(1 for _ in takewhile(bool, near))

    def _wanted(self, one: SearchedPlan) -> float:
        """What the best plan has least of."""
        if self.objective is Objective.MEMORY:
            return float(one.memory_bytes)
        return one.judged_ps * self.objective.cost(one.plan)

    @property
    def equal_lengths_first(self) -> SearchedPlan:
        """The plan that full sequences of one document would set first, of those simulated."""
        cost = self.objective.cost
        return min(self.plans, key=lambda one: one.step_ps * cost(one.plan) * handicap(one.plan))


def search_plans(
    space: PlanSpace,
    *,
    runs: int = 20,
    memory_limit: float | None = None,
    objective: Objective = Objective.STEP,
    progress: OnPlan | None = None,
    workers: Workers = HERE,
    drawn: "DrawnBatches | None" = None,
) -> PlanSearch:
    """Simulate the plans of a space that are priced best, at most `runs` of them.

    With `drawn` batches plans are judged by their steps; no bound rules them out then, since it is
    one of full sequences.

    A plan is left out where its memory is above `memory_limit` of the device's capacity
    (`fitting_plans`), or where its bound is above the best that was simulated. Equal plans keep the
    order of the space. Raises PlanError where no plan divides, or none fits.
    """
    priced, unfit = fitting_plans(space, memory_limit)
    weight = priced.of(lambda plan: objective.cost(plan) * handicap(plan))
    memory_first = objective is Objective.MEMORY
    wanted = priced.memory if memory_first else priced.seconds * weight
    order = np.lexsort((priced.seconds, wanted)).tolist()
    boundless = memory_first or drawn is not None
    bound = priced.nothing if boundless else priced.bound * weight
    job = PlanJob(space=space, drawn=drawn)
    priced = priced.other(weight=weight, bound=bound)
    race = _Race(priced=priced, space=space, order=order)
    with open_runs(job, workers) as opened:
        race.run(opened, runs, progress)
        if not race.done and race.passed:  # nothing else was asked for
            race.broken, race.judged = {}, False
            race.run(opened, runs, progress)
        if not race.done:
            raise PlanError(f"no plan could be simulated: {race.refused[0]}")
        found = race.done
        if memory_first:
            found.sort(key=lambda each: (each[1].memory_bytes, each[1].judged_ps, each[0]))
        else:
            found.sort(key=lambda each: (each[1].judged_ps * weight[each[0]], each[0]))
        best = found[0][1]
        warnings = unpack(opened.packed).prepared(best.plan).simulated().report.said
    done = {*race.passed, *(place for place, _ in found)}
    rest = [place for place in order if place not in done]
    out = sum(bool(bound[place] > race.best) for place in rest)
    return PlanSearch(
        plans=tuple(run for _, run in found),
        looked_at=len(priced) + len(unfit),
        too_large=len(unfit),
        ruled_out=out,
        not_run=len(rest) - out - len(race.refused),
        binds=_what_binds(unfit, best),
        passed_over=len(race.passed),
        objective=objective,
        refused=(*race.refused, *race.said_of_passed()),
        warnings=warnings,
    )


class _Race(Struct, kw_only=True):
    """Simulations of priced plans in an order, which stop where no other can be best.

    A column `weight` is what a second of each plan counts, `bound` the least of it. Plans that
    break a rule of the framework are passed over while it is `judged` by them; `broken` are the
    rules of each plan that was looked at.
    """

    priced: PlanTable
    space: PlanSpace
    order: Sequence[int]
    judged: bool = True
    best: float = np.inf
    done: list[tuple[int, SearchedPlan]] = []
    refused: list[str] = []
    broken: dict[int, Names] = {}

    @property
    def passed(self) -> dict[int, Names]:
        """Plans that were passed over, with the rules that they break."""
        return {index: rules for index, rules in self.broken.items() if rules}

    def run(self, opened: PlanRuns, runs: int, progress: OnPlan | None) -> None:
        """Simulate at most so many plans."""
        tried = 0
        for i, index in enumerate(self.order):
            if tried == runs:
                break
            if not self._may_win(index):
                continue
            left = (other for other in self.order[i:] if self._may_win(other))
            # the same plans are looked at, and counted, whoever computes
            most = min(runs - tried, len(self.order))
            tried += 1
            run = opened.result(*[self.priced.plans[other] for other in islice(left, most)])
            if isinstance(run, str):
                self.refused.append(f"{plan_words(self.priced.plans[index])}: {run}")
                continue
            one = searched(self.space, self.priced, index, run)
            self.done.append((index, one))
            self.best = min(self.best, one.judged_ps / PS_PER_S * self.priced.weight[index])
            if progress:
                progress(tried, runs, min(other.judged_ps for _, other in self.done))

    def _may_win(self, index: int) -> bool:
        """Whether a plan can be best by its bound and runs on the framework."""
        if self.priced.bound[index] > self.best:
            return False
        if self.judged and index not in self.broken:
            plan, space = self.priced.plans[index], self.space
            name = space.setup.framework.name
            self.broken[index] = refused_by(plan, space.setup.architecture, name)
        return not self.broken.get(index)

    def said_of_passed(self) -> Iterator[str]:
        """Why plans were passed over, a sentence for each rule."""
        rules = Counter(rule for broken in self.passed.values() for rule in broken)
        name = self.space.setup.framework.name
        for rule, count in rules.items():
            yield f"{count} plans were passed over, which {name} refuses: {rule}"


def _what_binds(unfit: PlanTable, best: SearchedPlan) -> str:
    """The best plan's largest loss, and memory where a plan that does not fit is priced lower.

    Losses are parts of a mean rank's step that are no compute.
    """
    parts = best.run.mean_breakdown_ps()
    waits = parts_of(PartKind.EXPOSED, PartKind.LAUNCH)
    losses = {part.label: parts[part] for part in (*waits, Part.HOST)}
    losses["waiting for the slowest rank"] = parts[Part.SKEW]
    losses["bubble"] = sum(parts[part] for part in parts_of(PartKind.IDLE))
    name, most = max(losses.items(), key=lambda item: item[1])
    loss = f"{name}: {most / best.step_ps:.1%} of the step" if most else "compute alone"
    faster = unfit.take(np.flatnonzero(unfit.seconds < (1 - _LEAST_GAIN) * best.priced_s))
    if not len(faster):
        return loss
    nearest = int(np.argmin(faster.memory))
    gain = 1 - float(faster.seconds[nearest]) / best.priced_s
    return (
        f"{loss}; memory: {plan_words(faster.plans[nearest])} would be about {gain:.1%} faster "
        f"and needs {faster.memory[nearest] / 2**30:.1f} GiB"
    )


def fitting_plans(
    space: PlanSpace, memory_limit: float | None = None
) -> tuple[PlanTable, PlanTable]:
    """The plans that fit and those that do not; raises PlanError where none does.

    They are `price_plans`; those that fit have a column `bound`, the least seconds of their steps.
    Plans take at most `memory_limit` of the device's capacity. Where that is None they fit well,
    as the plan of a step by default does; where none fits well, they fit.
    """
    setup, priced = space.setup, price_plans(space)
    limit = 1.0 if memory_limit is None else memory_limit
    fits = which_fit(priced.share) if memory_limit is None else priced.share <= limit
    if not fits.any():
        why = f"no plan divides the job: {space.why_empty()}"
        if len(priced):
            why = _none_fits(priced, setup, limit)
        raise PlanError(why + what_would_do(space, limit if len(priced) else np.inf))
    bare = replace(
        setup.framework,
        host_layer_ps=0,
        host_expert_layer_ps=0,
        host_step_ps=0,
        host_tp_ps=0,
        skew=0.0,
    )
    # compute of the busiest rank: no step is shorter, whatever network and schedule
    alone = replace(setup, framework=bare, interconnect=NO_NETWORK)
    some, others = (priced.take(np.flatnonzero(chosen)) for chosen in (fits, ~fits))
    bound, *_ = alone.parts(PlanTable(some.plans))
    return some.other(bound=bound), others


def _none_fits(priced: PlanTable, setup: StepModel, limit: float) -> str:
    """Which plan is nearest, and what most of its bytes are for."""
    least = priced.plans[int(np.argmin(priced.share))]
    memory, device = setup.memory([least]), setup.device
    taken = float(memory.total[0])
    parts = {name: float(each[0]) for name, each in asdict(memory).items()}
    name, most = max(parts.items(), key=lambda part: part[1])
    share = "" if limit == 1 else f"{limit:.0%} of "
    return (
        f"no plan of {len(priced)} fits in {share}{device.memory_bytes / 2**30:.0f} GiB of "
        f"{device.name}: the nearest, {plan_words(least)}, takes {taken / 2**30:.1f} GiB, "
        f"{most / 2**30:.1f} of them {name}"
    )


def searched(space: PlanSpace, priced: PlanTable, place: int, run: PlanRun) -> SearchedPlan:
    """A plan that was priced with what its simulation gave."""
    memory = int(priced.memory[place])
    return SearchedPlan(
        plan=priced.plans[place],
        run=run,
        priced_s=float(priced.seconds[place]),
        memory_bytes=memory,
        memory_share=memory / space.setup.device.memory_bytes,
    )
