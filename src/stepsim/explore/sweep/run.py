"""Runs the scenarios of a study that a database does not hold yet."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import ParamSpec

from stepsim.base.errors import SweepError
from stepsim.explore.sweep.evaluate import ScenarioGroup
from stepsim.explore.sweep.executors import (
    ExecutorKind,
    Pool,
    check_executor,
    cpus,
    dask_pool,
    local_pool,
)
from stepsim.explore.sweep.grid import ScenarioSpan
from stepsim.explore.sweep.store import SweepProgress, SweepStore, open_for_writing
from stepsim.explore.sweep.study import Study, pack
from stepsim.explore.sweep.table import SweepTable
from stepsim.explore.sweep.work import (
    SpanResult,
    SweepJob,
    check_options,
    evaluate_span,
    forget_jobs,
)

_How = ParamSpec("_How")
_ProgressCall = Callable[[SweepProgress], None]
_AHEAD = 3  # spans given out per worker: enough to keep it busy while results are written
_POLL_S = 2.0
_LOSSES = 3
_SECONDS_PER_JOB, _MANY_SECONDS = 4, 4000


class _LostWorkerError(Exception):
    """A worker ended in the middle of a task."""


@contextmanager
def swept(
    study: Study,
    database: str | Path,
    *,
    resume: bool = False,
    force: bool = False,
    jobs: int | None = None,
    executor: ExecutorKind | str = ExecutorKind.LOCAL,
    scheduler: str | None = None,
    make: Callable[..., ScenarioGroup] = ScenarioGroup,
    progress: _ProgressCall | None = None,
) -> Iterator[SweepTable]:
    """Compute every scenario of a study that `database` lacks, and store each as it comes.

    What has been found is there within the block, as long as nobody else can write the database.
    With `resume` an existing database is continued, with `force` begun anew. `jobs` are local
    processes (default: as many as are worth starting), or the workers of a Dask `scheduler`. A
    scenario that fails is stored with its reason. A lost worker's scenarios are given to others.
    Raises SweepError before any work when the options, the scheduler or the database are wrong,
    and when workers keep dying. An error that is no StepsimError ends the sweep; what is stored is
    kept. `make` makes the groups of scenarios.
    """
    try:
        kind = ExecutorKind(executor)
    except ValueError:
        expected = ", ".join(ExecutorKind)
        raise SweepError(f"executor is {executor!r}: expected one of {expected}") from None
    check_executor(kind, jobs, scheduler)
    job = SweepJob(study=study, make=make)
    with ExitStack() as opened:
        opened.callback(forget_jobs)
        check_options(study)
        # a scheduler that cannot be reached must not leave a database behind
        pool = opened.enter_context(dask_pool(scheduler)) if scheduler else None
        store = opened.enter_context(
            open_for_writing(Path(database), study, resume=resume, force=force)
        )
        if missing := store.missing(study.grid.size):
            with ExitStack() as started:
                if not pool:
                    local = local_pool(jobs or _worth_starting(job, missing))
                    pool = started.enter_context(local)
                _run(job, store, pool, progress)
        yield SweepTable(store=store)


def _to_its_end(
    sweep: Callable[_How, AbstractContextManager[SweepTable]],
) -> Callable[_How, SweepProgress]:
    def run(*what: _How.args, **how: _How.kwargs) -> SweepProgress:
        with sweep(*what, **how) as table:
            return table.progress

    return run


run_sweep = _to_its_end(swept)
"""Compute what a database lacks of a study and close it; takes and raises what `swept` does."""


def _run(job: SweepJob, store: SweepStore, pool: Pool, progress: _ProgressCall | None) -> None:
    """Ask the store what is missing, compute it, and again if workers were lost meanwhile."""
    packed, losses = pack(job), 0
    seen = store.progress()
    if progress:
        progress(seen)
    while missing := store.missing(job.study.grid.size):
        try:
            for result in _results(pool, packed, _spans(job, missing)):
                store.write(result)
                losses = 0
                seen = _advanced(seen, result)
                if progress:
                    progress(seen)
        except _LostWorkerError as error:
            losses += 1
            if losses == _LOSSES:
                raise SweepError(_dying(job, missing, str(error))) from None


def _results(pool: Pool, packed: bytes, spans: Iterator[ScenarioSpan]) -> Iterator[SpanResult]:
    """Results as they come; never more spans given out than keep the workers busy."""

    def give(count: int) -> set[Future[SpanResult]]:
        return {pool.executor.submit(evaluate_span, packed, s) for s in islice(spans, count)}

    pending: set[Future[SpanResult]] = set()
    try:
        pending = give(1 if pool.workers == 1 else _AHEAD * pool.workers)
        while pending:
            done, pending = wait(pending, timeout=_POLL_S, return_when=FIRST_COMPLETED)
            pool.check()
            lost = [future for future in done if _is_lost(pool, future)]
            yield from (future.result() for future in done if future not in lost)
            if lost:
                raise _LostWorkerError(_why(lost[0]))
            pending |= give(len(done))
    except pool.losses as error:
        raise _LostWorkerError(str(error) or type(error).__name__) from None
    finally:
        for future in pending:
            future.cancel()


def _is_lost(pool: Pool, future: Future[SpanResult]) -> bool:
    return future.cancelled() or isinstance(future.exception(), pool.losses)


def _why(future: Future[SpanResult]) -> str:
    error = None if future.cancelled() else future.exception()
    return str(error) if error else "its task was cancelled"


def _spans(job: SweepJob, missing: Iterable[ScenarioSpan]) -> Iterator[ScenarioSpan]:
    return job.study.grid.cut(missing, lambda group: job.group(group).chunk)


def _worth_starting(job: SweepJob, missing: Iterable[ScenarioSpan]) -> int:
    """Local workers for which there is work: starting one takes about a second."""
    size, seconds = job.study.grid.group_size, 0.0
    for start, stop in job.study.grid.cut(missing, lambda _: size):
        seconds += job.group(start // size).seconds(stop - start)
        if seconds >= _MANY_SECONDS:
            break
    wanted = int(seconds / _SECONDS_PER_JOB)
    return min(wanted, cpus()) if wanted > 1 else 1


def _advanced(before: SweepProgress, result: SpanResult) -> SweepProgress:
    span = result.span
    return SweepProgress(
        size=before.size,
        done=before.done + span.stop - span.start,
        failed=before.failed + len(result.outcomes.errors),
    )


def _dying(job: SweepJob, missing: Sequence[ScenarioSpan], why: str) -> str:
    first = job.study.grid.values(missing[0].start)
    shown = ", ".join(f"{name}={text}" for name, text in first.items())
    return (
        f"workers were lost {_LOSSES} times without a result ({why.splitlines()[0]}); the first "
        f"missing scenario is {shown}. What is stored is kept: --resume continues"
    )
