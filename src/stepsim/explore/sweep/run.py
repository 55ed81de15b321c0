"""Runs the scenarios of a study that a database lacks, and what a worker does for it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.errors import StepsimError, SweepError
from stepsim.base.executors import (
    ExecutorKind,
    Pool,
    check_executor,
    cpus,
    dask_pool,
    local_pool,
    pack,
    unpack,
)
from stepsim.base.structs import File, replace
from stepsim.base.units import Value
from stepsim.explore.sweep.study import Outcomes, ScenarioGroup, Study
from stepsim.files.axes import Grid
from stepsim.files.store import Store
from stepsim.files.sweep_table import (
    SweepProgress,
    SweepTable,
    missing_spans,
    open_for_writing,
    progress_of,
    write_span,
)
from stepsim.network.topology.nested import with_uplinks
from stepsim.step.prepared import prepare

_ProgressCall = Callable[[SweepProgress], None]
_SECONDS_PER_JOB, _MANY_SECONDS = 4, 4000
_GROUPS_KEPT = 4
_GROUPS_TRIED = 32


@contextmanager
def swept(
    study: Study,
    database: File,
    *,
    resume: bool = False,
    force: bool = False,
    jobs: int | None = None,
    executor: str = ExecutorKind.LOCAL,
    scheduler: str | None = None,
    progress: _ProgressCall | None = None,
) -> Iterator[SweepTable]:
    """Compute every scenario of a study that `database` lacks, and store each as it comes.

    What has been found is there within the block, as long as nobody else can write the database.
    With `resume` an existing database is continued, with `force` begun anew. `jobs` are local
    processes (default: as many as are worth starting), or the workers of a Dask `scheduler`. A
    scenario that fails is stored with its reason. A lost worker's scenarios are given to others.
    Raises SweepError before any work when the options, the scheduler or the database are wrong,
    and when workers keep dying. An error that is no StepsimError ends the sweep; what is stored is
    kept.
    """
    check_executor(executor, jobs, scheduler)
    with ExitStack() as opened:
        opened.callback(unpack.cache_clear)
        opened.callback(_group.cache_clear)
        _check_options(study)
        # a scheduler that cannot be reached must not leave a database behind
        pool = opened.enter_context(dask_pool(scheduler)) if scheduler else None
        store = opened.enter_context(
            open_for_writing(
                Path(database), study.grid, study.identity(), resume=resume, force=force
            )
        )
        if spans := missing_spans(store, study.grid.size):
            with ExitStack() as started:
                if not pool:
                    local = local_pool(jobs or _worth_starting(study, spans))
                    pool = started.enter_context(local)
                _run(study, store, pool, spans, progress)
        yield SweepTable(store=store)


def run_sweep(study: Study, database: File, **how: Any) -> SweepProgress:
    """Compute what a database lacks of a study and close it; takes and raises what `swept` does."""
    with swept(study, database, **how) as table:
        return table.progress


def _check_options(study: Study) -> None:
    """Refuse options that keep every scenario from running, before any of them is tried.

    They do where the first scenarios of groups, and the job without axes, fail for the same reason.
    Raises SweepError.
    """
    groups = study.grid.size // study.grid.group_size
    tried = map(study.grid.settings, range(0, groups, -(-groups // _GROUPS_TRIED)))
    why = _refusal(study, next(tried))
    if why and all(_refusal(study, settings) == why for settings in chain(tried, [{}])):
        raise SweepError(f"no scenario can run: {why}")


def _refusal(study: Study, settings: Mapping[str, Value]) -> str:
    """Why a job cannot be prepared; empty if it can."""
    try:
        prepare(study.job(settings))
    except StepsimError as error:
        return str(error)
    return ""


def _run(
    study: Study,
    store: Store,
    pool: Pool,
    spans: Sequence[range],
    progress: _ProgressCall | None,
) -> None:
    seen = progress_of(store)
    if progress:
        progress(seen)
    task = partial(evaluate_span, pack(study))
    cut = study.grid.cut(spans, lambda group: study.group(group).chunk)
    for span, found in pool.results(task, cut, partial(_first_missing, study.grid)):
        write_span(store, span, found)
        failed = seen.failed + sum(map(bool, found.get("error", ())))
        seen = replace(seen, done=seen.done + len(span), failed=failed)
        if progress:
            progress(seen)


def _worth_starting(study: Study, spans: Iterable[range]) -> int:
    """Local workers for which there is work: starting one takes about a second."""
    size, seconds = study.grid.group_size, 0.0
    for span in study.grid.cut(spans, lambda _: size):
        seconds += study.group(span.start // size).seconds(len(span))
        if seconds >= _MANY_SECONDS:
            break
    wanted = int(seconds / _SECONDS_PER_JOB)
    return min(wanted, cpus()) if wanted > 1 else 1


def _first_missing(grid: Grid, span: range) -> str:
    first = grid.values(span.start)
    shown = ", ".join(f"{name}={text}" for name, text in first.items())
    return f"the first missing scenario is {shown}. What is stored is kept: --resume continues"


def evaluate_span(packed: bytes, span: range) -> tuple[range, Outcomes]:
    """A span, and results of its scenarios, which all belong to one group.

    A user's mistake is the reason of its scenarios; an error of our own is raised.
    """
    study: Study = unpack(packed)
    group = _group(packed, span.start // study.grid.group_size)
    columns = with_uplinks(group.network, study.grid.columns(span))
    count = len(span) if columns else 1
    bandwidth: Floats = np.full(count, np.inf)
    try:
        bandwidth[:] = group.total_bandwidth(columns)
        outcomes = group.evaluate(columns)
    except StepsimError as error:
        outcomes = {"error": [str(error)] * count}
    known = np.where(np.isinf(bandwidth), np.nan, bandwidth)
    return span, outcomes | {"total_bandwidth": known.tolist()}


@lru_cache(maxsize=_GROUPS_KEPT)
def _group(packed: bytes, number: int) -> ScenarioGroup:
    study: Study = unpack(packed)
    return study.group(number)
