"""Looped breadth-first: every chunk runs all its forwards before the next chunk starts.

Lamy-Poirier, "Breadth-first pipeline parallelism", MLSys 2023; torch `ScheduleLoopedBFS`.
"""

from stepsim.parallel.schedules.base import Action, ActionKind, Placement, Schedule, check_shape
from stepsim.parallel.schedules.interleaved import ChunkTable, actions, forward_table


def looped_bfs(*, ranks: int, microbatches: int, chunks: int = 2) -> Schedule:
    """Looped breadth-first for any shape; backwards run in exactly the reverse order."""
    check_shape("looped-bfs", ranks=ranks, microbatches=microbatches, chunks=chunks)
    table = forward_table(chunks, microbatches, group_size=microbatches)
    return Schedule(
        name="looped-bfs",
        placement=Placement(ranks=ranks, chunks=chunks),
        microbatches=microbatches,
        fills_once=True,
        orders=tuple(_order(rank, ranks, table) for rank in range(ranks)),
        warm_up=(len(table),) * ranks,
    )


def _order(rank: int, ranks: int, table: ChunkTable) -> tuple[Action, ...]:
    return (
        *actions(ActionKind.FORWARD, rank, ranks, table),
        *actions(ActionKind.BACKWARD, rank, ranks, table[::-1]),
    )
