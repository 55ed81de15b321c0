"""Exact simulations of plans: here or by workers, kept in a file as they come.

A search asks for the result of one plan after the other and takes the same ones whoever computes:
workers only begin with the next candidates before they are asked for.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from itertools import islice
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

import msgspec
from msgspec import Meta, Struct

from stepsim import __version__
from stepsim.base import garbage
from stepsim.base.digest import content_hash
from stepsim.base.errors import PlanError, StepsimError, SweepError
from stepsim.base.structs import Entry, Names, Noun, Picoseconds, Share, replace
from stepsim.base.units import PS_PER_S
from stepsim.explain.make_report import StepTotals
from stepsim.explain.throughput import Throughput
from stepsim.explore.plan.store import PlanStore, open_plans
from stepsim.explore.sweep.executors import (
    ExecutorKind,
    Pool,
    check_executor,
    dask_pool,
    local_pool,
)
from stepsim.explore.sweep.study import pack, unpack
from stepsim.network.prices import Known
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.parallel.schedules import forget_schedules
from stepsim.step.plans import handicap, plan_kind, step_options_of
from stepsim.step.totals import RunStep, run_step
from stepsim.workload.axes import Part
from stepsim.workload.model.model import Model
from stepsim.workload.plan import Plan

if TYPE_CHECKING:
    from stepsim.explore.batches.draws import BatchSteps, DrawnBatches

_POLL_S = 2.0
_LOSSES = 3
_AHEAD = 3
"""Plans that are given out for each worker."""
_Answer = TypeVar("_Answer")


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
        return cls(
            mean_ps=round(steps.mean_ps),
            p90_ps=round(steps.percentile_ps(90)),
            full_ps=round(tokens / steps.tokens_per_s * PS_PER_S),
            waiting=steps.waiting,
            tokens_per_s=steps.tokens_per_s,
            fullest=steps.fullest,
        )


class PlanRun(Entry):
    """What a search needs of a simulated plan; with an `error` it could not be simulated.

    `drawn` are its steps of documents, where plans are judged by them. `breakdown_ps` is empty
    where the plan was slower than another of its kind (`PlanJob.fastest_alone`).
    """

    workload: str = ""
    step_time_ps: Picoseconds = 0
    bubble_fraction: Share = 0.0
    throughput: Throughput | None = None
    breakdown_ps: dict[str, Picoseconds] = {}
    error: str = ""
    drawn: DrawnSteps | None = None

    def mean_breakdown_ps(self) -> dict[Part, int]:
        """Parts of the step, mean over ranks; of a plan that has them."""
        return {part: self.breakdown_ps[part.key] for part in Part}


class PlanJob(Noun):
    """What all plans of a search share; `drawn` are the batches that they are judged by.

    With `fastest_alone` the breakdown of a step is found where no earlier plan of its kind, with
    an even layout or without as it, was faster: the first of a kind is one of these.
    """

    model: Model
    topology: Topology
    base: StepOptions
    drawn: "DrawnBatches | None" = None
    fastest_alone: bool = False

    def identity(self) -> dict[str, str]:
        """What must be the same for results to belong together, by what the user calls it."""
        shown = {
            "stepsim": __version__,
            "model": f"{self.model.source} {content_hash(self.model)}",
            "topology": f"{self.topology.name} {content_hash(self.topology)}",
        }
        for option in self.base.changed():
            value = getattr(self.base, option.field)
            shown[f"option {option.name}"] = f"{option.text(value)} {content_hash(value)}"
        if self.drawn:
            shown["lengths"] = f"{self.drawn.source} {content_hash(self.drawn)}"
        return shown


class Workers(Noun):
    """Who simulates: `jobs` processes, or a Dask `scheduler`; `store` is a file for results.

    With `resume` the results that the file holds are taken.
    """

    jobs: int = 1
    executor: ExecutorKind | str = ExecutorKind.LOCAL
    scheduler: str | None = None
    store: Path | None = None
    resume: bool = False


HERE = Workers()
"""This process alone."""


class PlanRuns(Struct, kw_only=True):
    """Results of plans, known, begun or still to begin."""

    packed: bytes
    pool: Pool
    store: PlanStore | None
    known: dict[Plan, PlanRun] = {}
    begun: dict[Plan, Future[PlanRun]] = {}

    def ahead(self, plans: Iterator[Plan]) -> None:
        """Begin with the first plans, where there are workers for them beside this process.

        Each worker has one at work, one for when it ends before the first of them is known, and
        one more to choose from. The others are looked at, too: a search counts what it looks at,
        whoever computes.
        """
        if self.pool.workers > 1:
            first = islice(plans, _AHEAD * self.pool.workers)
            self._begin([plan for plan in first if plan not in self.known and not self._held(plan)])
        deque(plans, maxlen=0)

    def result(self, plan: Plan) -> PlanRun:
        """The result of a plan; raises SweepError where workers keep dying."""
        if plan not in self.known and not self._held(plan):
            self._keep(plan, self._answer(lambda: self._begin([plan])[0]))
        return self.known[plan]

    def whole(self, plan: Plan) -> PlanRun:
        """The result of a plan with the parts of its step, which is simulated again without them.

        A file of another search of the same job may have it without.
        """
        run = self.result(plan)
        if not (run.breakdown_ps or run.error):
            run = run_plan(replace(unpack(self.packed), fastest_alone=False), plan)
            self._keep(plan, run)
        return run

    def warnings(self, plan: Plan) -> Names:
        """What a whole report of a plan warns of."""
        return self._answer(lambda: self.pool.executor.submit(_warnings_packed, self.packed, plan))

    def _answer(self, ask: Callable[[], Future[_Answer]]) -> _Answer:
        """What a worker answers; raises SweepError where each of three workers was lost."""
        for _ in range(_LOSSES):
            future = ask()
            while not future.done():
                wait([future], timeout=_POLL_S)
                self.pool.check()
            if not self._is_lost(future):
                return future.result()
        raise SweepError(f"workers were lost {_LOSSES} times over one plan")

    def _begin(self, plans: Sequence[Plan]) -> list[Future[PlanRun]]:
        """Results to come of plans."""
        for plan in plans:
            if self._is_lost(self.begun.get(plan)):
                self.begun[plan] = self.pool.executor.submit(_run_packed, self.packed, plan)
        return [self.begun[plan] for plan in plans]

    def _is_lost(self, future: Future[Any] | None) -> bool:
        """Whether no worker is to give a result: none was asked, or it is lost."""
        if future is None or not future.done():
            return future is None
        return future.cancelled() or isinstance(future.exception(), self.pool.losses)

    def _held(self, plan: Plan) -> bool:
        """Whether the file has a result, which is then known."""
        found = self.store.get(content_hash(plan)) if self.store else None
        if self.store is None or found is None:
            return False
        try:
            run = msgspec.json.decode(found, type=PlanRun)
        except msgspec.MsgspecError as error:
            raise SweepError(f"{self.store.path}: the database is damaged: {error}") from None
        if not (run.error or run.step_time_ps):
            raise SweepError(f"{self.store.path}: the database is damaged: a step without a time")
        if run.breakdown_ps and run.breakdown_ps.keys() != {part.key for part in Part}:
            raise SweepError(f"{self.store.path}: the database is damaged: parts of a step")
        self.known[plan] = run
        return True

    def _keep(self, plan: Plan, run: PlanRun) -> None:
        self.known[plan] = run
        self.begun.pop(plan, None)
        if self.store is not None:
            self.store.put(content_hash(plan), msgspec.json.encode(run))


@contextmanager
def open_runs(job: PlanJob, workers: Workers) -> Iterator[PlanRuns]:
    """Results of a search's plans; workers end with the block.

    Raises SweepError where the options contradict each other or the file holds something else.
    """
    try:
        kind = ExecutorKind(workers.executor)
    except ValueError:
        expected = ", ".join(ExecutorKind)
        raise SweepError(f"executor is {workers.executor!r}: expected one of {expected}") from None
    jobs = None if kind is ExecutorKind.DASK and workers.jobs == 1 else workers.jobs
    check_executor(kind, jobs, workers.scheduler)
    if workers.resume and workers.store is None:
        raise PlanError("resume: expected the file with the results (--store)")
    with ExitStack() as opened:
        store = None
        if workers.store is not None:
            store = open_plans(workers.store, job.identity(), resume=workers.resume)
            opened.callback(store.close)
        address = workers.scheduler
        pool = opened.enter_context(dask_pool(address) if address else local_pool(workers.jobs))
        runs = PlanRuns(packed=pack(job), pool=pool, store=store)
        try:
            yield runs
        finally:
            deque((each.cancel() for each in runs.begun.values()), maxlen=0)
            _simulator.cache_clear()
            forget_schedules()


class _Simulator(Struct, kw_only=True):
    """Simulates plans of a job, one after the other.

    The fastest step is kept for its report, prices for other plans on the network, and the least
    time of each kind of plans.
    """

    job: PlanJob
    fastest: tuple[Plan, RunStep] | None = None
    least_ps: float = inf
    least_of: dict[tuple[float, ...], float] = {}
    known: Known = {}

    def run(self, plan: Plan) -> PlanRun:
        """The result of a plan; a user's mistake is the error of its result."""
        try:
            with garbage.paused():
                step = self._step(plan)
                drawn = self._drawn(plan)
                judged_ps = drawn.full_ps if drawn else step.timeline.step_time_ps
                found = step.totals(breakdown=self._may_be_first(plan, judged_ps))
        except StepsimError as error:
            return PlanRun(error=str(error))
        if found.step_time_ps < self.least_ps:
            self.least_ps, self.fastest = found.step_time_ps, (plan, step)
        return _plan_run(found, drawn)

    def _may_be_first(self, plan: Plan, judged_ps: int) -> bool:
        """Whether a plan may be the first of its kind."""
        like = *plan_kind(plan), handicap(plan)
        least_ps = self.least_of.get(like, inf)
        self.least_of[like] = min(least_ps, judged_ps)
        return judged_ps <= least_ps or not self.job.fastest_alone

    def _drawn(self, plan: Plan) -> DrawnSteps | None:
        """Its steps of documents, where plans are judged by them."""
        job = self.job
        if job.drawn is None:
            return None
        steps = job.drawn.of(job.model, job.topology, step_options_of(plan, job.base))
        return DrawnSteps.of(steps, plan.step_tokens)

    def warnings(self, plan: Plan) -> Names:
        """What a whole report of a plan warns of; it is simulated unless it was the fastest."""
        with garbage.paused():
            is_known = self.fastest is not None and self.fastest[0] == plan
            step = self.fastest[1] if self.fastest and is_known else self._step(plan)
            report = step.simulated().report
        return report.said

    def _step(self, plan: Plan) -> RunStep:
        options = step_options_of(plan, self.job.base)
        return run_step(self.job.model, self.job.topology, options, self.known)


def _run_packed(packed: bytes, plan: Plan) -> PlanRun:
    """What a worker does: the result of one plan of a packed job."""
    return _simulator(packed).run(plan)


def _warnings_packed(packed: bytes, plan: Plan) -> Names:
    """What a worker does: what a whole report of one plan of a packed job warns of."""
    return _simulator(packed).warnings(plan)


@lru_cache(maxsize=1)
def _simulator(packed: bytes) -> _Simulator:
    return _Simulator(job=unpack(packed))


def run_plan(job: PlanJob, plan: Plan) -> PlanRun:
    """Simulate a plan; a user's mistake is the error of its result."""
    return _Simulator(job=job).run(plan)


def _plan_run(found: StepTotals, drawn: DrawnSteps | None) -> PlanRun:
    return PlanRun(
        drawn=drawn,
        workload=found.workload,
        step_time_ps=found.step_time_ps,
        bubble_fraction=found.bubble_fraction,
        throughput=found.throughput,
        breakdown_ps=found.breakdown_ps or {},
    )
