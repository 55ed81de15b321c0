"""Exact simulations of plans: here or by workers, kept in a file as they come.

A search asks for the result of one plan after the other and takes the same ones whoever computes:
workers only find those of the next candidates before they are asked for.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from itertools import islice
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

import msgspec
from msgspec import Meta, Struct

from stepsim import __version__
from stepsim.base.digest import content_hash
from stepsim.base.errors import PlanError, StepsimError
from stepsim.base.process import paused
from stepsim.base.structs import Entry, Names, Noun, Picoseconds, Share
from stepsim.base.units import PS_PER_S
from stepsim.core.timeline import Timeline
from stepsim.explain.make_report import make_totals
from stepsim.explore.executors import (
    ExecutorKind,
    Pool,
    check_executor,
    dask_pool,
    local_pool,
    pack,
    unpack,
)
from stepsim.explore.store import IDENTITY, Store, StoreKind, write_store
from stepsim.network.prices import Known
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.step.plans import handicap, plan_kind, plan_words, step_options_of
from stepsim.step.prepared import PreparedStep, prepare
from stepsim.workload.axes import Part
from stepsim.workload.model.evidence import Throughput
from stepsim.workload.model.model import Model
from stepsim.workload.plan import Plan

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

    def __post_init__(self) -> None:
        if not (self.error or self.step_time_ps):
            raise ValueError("a step without a time")
        if self.breakdown_ps and self.breakdown_ps.keys() != {part.key for part in Part}:
            raise ValueError("parts of a step")

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
    version=1,
    tables={**IDENTITY, "plan": "CREATE TABLE plan (hash TEXT PRIMARY KEY, run BLOB NOT NULL)"},
    begun="--resume continues the same search",
)


class PlanRuns(Struct, kw_only=True):
    """Results of plans, those that are known."""

    packed: bytes
    pool: Pool
    store: Store | None
    known: dict[Plan, PlanRun] = {}

    def result(self, plan: Plan, *later: Plan) -> PlanRun:
        """The result of a plan; raises SweepError where workers keep dying.

        Where there is none yet, workers beside find those of plans that are asked for `later`.
        """
        if not self._is_known(plan):
            others = (each for each in later if not self._is_known(each))
            wanted = [plan, *islice(others, self.pool.workers - 1)]
            task = partial(_run_packed, self.packed)
            for each, run in self.pool.results(task, wanted, plan_words):
                self._keep(each, run)
        return self.known[plan]

    def whole(self, plan: Plan) -> PlanRun:
        """The result of a plan with the parts of its step, which is simulated again without them.

        A file of another search of the same job may have it without.
        """
        run = self.result(plan)
        if not (run.breakdown_ps or run.error):
            run = simulator(self.packed).run(plan, whole=True)
            self._keep(plan, run)
        return run

    def _is_known(self, plan: Plan) -> bool:
        """Whether there is a result, which the file may have; raises SweepError."""
        if plan in self.known or self.store is None:
            return plan in self.known
        for (found,) in self.store.each("SELECT run FROM plan WHERE hash = ?", content_hash(plan)):
            try:
                self.known[plan] = msgspec.json.decode(found, type=PlanRun)
            except msgspec.MsgspecError as error:
                raise self.store.damaged(error) from None
        return plan in self.known

    def _keep(self, plan: Plan, run: PlanRun) -> None:
        self.known[plan] = run
        if self.store is not None:
            with self.store.transaction() as connection:
                row = content_hash(plan), msgspec.json.encode(run)
                connection.execute("INSERT OR REPLACE INTO plan VALUES (?, ?)", row)


@contextmanager
def open_runs(job: PlanJob, workers: Workers) -> Iterator[PlanRuns]:
    """Results of a search's plans; workers end with the block.

    Raises SweepError where the options contradict each other or the file holds something else.
    """
    check_executor(workers.executor, workers.jobs, workers.scheduler)
    if workers.resume and workers.store is None:
        raise PlanError("resume: expected the file with the results (--store)")
    with ExitStack() as opened:
        store = None
        if path := workers.store:
            found = write_store(path, SEARCH, job.identity(), resume=workers.resume)
            store = opened.enter_context(found)
        address = workers.scheduler
        pool = opened.enter_context(
            dask_pool(address) if address else local_pool(workers.jobs or 1)
        )
        opened.callback(unpack.cache_clear)
        opened.callback(simulator.cache_clear)
        yield PlanRuns(packed=pack(job), pool=pool, store=store)


class _Simulator(Struct, kw_only=True):
    """Simulates plans of a job, one after the other.

    The fastest step is kept for its report, prices for other plans on the network, and the least
    time of each kind of plans.
    """

    job: PlanJob
    fastest: tuple[Plan, PreparedStep, Timeline] | None = None
    least_ps: float = inf
    least_of: dict[tuple[float, ...], float] = {}
    known: Known = {}

    def run(self, plan: Plan, *, whole: bool = False) -> PlanRun:
        """The result of a plan; a user's mistake is the error of its result.

        A `whole` one has the breakdown of its step whether it may be the first of its kind or not.
        """
        job = self.job
        try:
            with paused():
                ready = self._ready(plan)
                timeline, drawn = ready.timeline(), None
                if job.drawn:
                    options = step_options_of(plan, job.base)
                    steps = job.drawn.of(job.model, job.topology, options)
                    drawn = DrawnSteps.of(steps, plan.step_tokens)
                kind = *plan_kind(plan), handicap(plan)
                judged_ps = drawn.full_ps if drawn else timeline.step_time_ps
                least_ps = min(judged_ps, self.least_of.get(kind, inf))
                may_be_first = judged_ps == least_ps or not job.fastest_alone
                found = make_totals(timeline, ready.workload, breakdown=whole or may_be_first)
                self.least_of[kind] = least_ps
        except StepsimError as error:
            return PlanRun(error=str(error))
        if found.step_time_ps < self.least_ps:
            self.least_ps, self.fastest = found.step_time_ps, (plan, ready, timeline)
        parts = found.breakdown_ps or {}
        return PlanRun.taken_from(found, drawn=drawn, breakdown_ps=parts, error="")

    def warnings(self, plan: Plan) -> Names:
        """What a whole report of a plan warns of; it is simulated unless it was the fastest."""
        with paused():
            if self.fastest is None or self.fastest[0] != plan:
                return self._ready(plan).simulated().report.said
            _, ready, timeline = self.fastest
            return ready.reported(timeline).report.said

    def _ready(self, plan: Plan) -> PreparedStep:
        options = step_options_of(plan, self.job.base)
        return prepare(self.job.model, self.job.topology, options, known=self.known, quick=True)


def _run_packed(packed: bytes, plan: Plan) -> tuple[Plan, PlanRun]:
    """What a worker does: a plan of a packed job, and its result."""
    return plan, simulator(packed).run(plan)


@lru_cache(maxsize=1)
def simulator(packed: bytes) -> _Simulator:
    """What simulates the plans of a packed job, made once per worker."""
    return _Simulator(job=unpack(packed))
