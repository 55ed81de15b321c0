"""Looped breadth-first: every chunk runs all its forwards before the next chunk starts.

Lamy-Poirier, "Breadth-first pipeline parallelism", MLSys 2023; torch `ScheduleLoopedBFS`.
"""

from stepsim.parallel.schedules.base import (
    Schedule,
    alternating,
    chunks_on_ranks,
    forward_table,
)


def looped_bfs(*, ranks: int, microbatches: int, chunks: int = 2) -> Schedule:
    """Looped breadth-first for any shape; backwards run in exactly the reverse order."""
    placement = chunks_on_ranks("looped-bfs", ranks, microbatches, chunks)
    table = forward_table(chunks, microbatches, group_size=microbatches)
    warm_up = (table.shape[1],) * ranks
    return Schedule(
        "looped-bfs",
        placement,
        microbatches,
        fills_once=True,
        orders=alternating(warm_up, table, table[:, ::-1]),
        warm_up=warm_up,
    )
