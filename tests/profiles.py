"""Made profiles of pipelined jobs, as NDTimeline writes them."""

from pathlib import Path
from typing import Any

import numpy as np

from stepsim.base.arrays import Bools, Floats
from stepsim.base.structs import replace
from stepsim.measured.profile.events import Profile
from stepsim.measured.profile.pipeline import pipeline_waits
from stepsim.parallel.schedules import ActionKind, Schedule, build

HOP = 0.25
"""Seconds of a message once both ends are there."""

Rows = list[dict[str, Any]]


def made_rows(
    *,
    stages: int,
    replicas: int,
    microbatches: int,
    chunks: int = 1,
    steps: int = 1,
    slow: int = -1,
    schedule: str = "",
    share: float = 1,
) -> Rows:
    """Rows of every worker: forwards take 1 s, backwards 2 s, twice that on the stage `slow`.

    They take a `share` of that. The schedule is 1F1B, or interleaved, if none is named.

    Operations start as soon as they can; parameters are gathered and gradients reduced in 0.5 s. A
    message is received from when its rank is free, and takes `HOP` from when it was sent.
    """
    rows: Rows = []
    for step in range(steps):
        for replica in range(replicas):
            name = schedule or ("interleaved" if chunks > 1 else "1f1b")
            order = build(name, ranks=stages, microbatches=microbatches, chunks=chunks)
            rows += _replica_rows(order, replica, step, slow, share)
    return rows


def _replica_rows(schedule: Schedule, replica: int, step: int, slow: int, share: float) -> Rows:
    stages, chunks = schedule.placement.ranks, schedule.placement.chunks
    rows: Rows = []
    count: dict[tuple[str, int], int] = {}

    def add(rank: int, name: str, start: float, duration: float, **more: int) -> None:
        place = count.setdefault((name, rank), 0)
        count[name, rank] += 1
        plain = {"mc": -1, "mb_id": -1, "gmc": -1}
        rows.append(
            {
                "dp_rank": replica,
                "stage": rank,
                "rank": rank * 100 + replica,
                "step": 10 + step,
                "optype": name,
                "start_ts": start,
                "duration": duration,
                "seq_id": place,
                **plain,
                **more,
            }
        )

    waiting = [list(schedule.actions(rank))[::-1] for rank in range(stages)]
    last = stages * chunks - 1
    clock = [0.5] * stages
    arrived: dict[tuple[str, int, int], float] = {}
    for rank in range(stages):
        for chunk in range(chunks):
            start, took = (0.5, 0.0) if chunk else (0.0, 0.5)
            add(rank, "params-all-gather", start, took, mc=chunk)
    while any(waiting):
        for rank, actions in enumerate(waiting):
            while actions:
                action = actions[-1]
                way = "forward" if action.kind is ActionKind.FORWARD else "backward"
                ahead = 1 if way == "forward" else -1
                source, target = action.stage - ahead, action.stage + ahead
                arrival = 0.0
                if 0 <= source <= last:
                    if (way, source, action.microbatch) not in arrived:
                        break
                    arrival = arrived[way, source, action.microbatch] + HOP
                    add(rank, f"{way}-recv", clock[rank], max(arrival - clock[rank], 0))
                took = (1.0 if way == "forward" else 2.0) * (2 if rank == slow else 1) * share
                start = max(clock[rank], arrival)
                clock[rank] = start + took
                add(
                    rank,
                    f"{way}-compute",
                    start,
                    took,
                    mc=action.chunk,
                    mb_id=action.microbatch,
                    gmc=action.stage,
                )
                if 0 <= target <= last:
                    arrived[way, action.stage, action.microbatch] = clock[rank]
                    add(rank, f"{way}-send", clock[rank], HOP)
                actions.pop()
    for rank in range(stages):
        for chunk in range(chunks):
            start, took = (0.5, 0.0) if chunk else (0.0, 0.5)
            add(rank, "grads-reduce-scatter", clock[rank] + start, took, mc=chunk)
    end = max(clock) + 0.5
    for rank in range(stages):
        add(rank, "optimizer-clip-main-grad", clock[rank] + 0.5, end - clock[rank] - 0.25)
        add(rank, "optimizer", end + 0.25, 1.0)
    return rows


def write_rows(rows: Rows, path: Path) -> Path:
    """The rows as Parquet."""
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def computes_of(profile: Profile) -> Bools:
    """Which operations are forwards and backwards of microbatches."""
    return profile.named("forward-compute", "backward-compute")


def with_works(
    profile: Profile, works: Floats, *, share: Floats | None = None, factor: Floats | None = None
) -> Profile:
    """A made profile as it runs where microbatches have works (steps, replicas, microbatches).

    A stage has a `share` of the work, 1 without it; `factor` is one for every operation.
    """
    waits, events = pipeline_waits(profile, posted=True), profile.events
    stage, replica = profile.column_of_ranks("stage"), profile.column_of_ranks("replica")
    more = works[events.step, replica, events.microbatch] - 1
    scale = 1 + more * (1 if share is None else share[stage])
    scale = scale * (1 if factor is None else factor)
    own = np.where(computes_of(profile), np.rint(waits.own_ps * scale), waits.own_ps)
    ends = waits.ends_ps(own.astype(np.int64), waits.delay_ps)
    ran = replace(waits, profile=waits.retimed(ends - own.astype(np.int64), ends))
    arrived = np.minimum(ran.ready_ps + waits.delay_ps, ends)
    start = np.where(events.meeting < 0, ran.profile.events.start_ps, arrived)
    return ran.retimed(start, ends)
