"""What stands below the timeline of a step: bars of parts and of memory, equal calls joined."""

from collections.abc import Iterable, Iterator, Sequence

from stepsim.base.structs import replace
from stepsim.base.units import format_size_bytes
from stepsim.explain.memory import MemoryPart
from stepsim.explain.report import CommUse, Report, StageMemory
from stepsim.show.tables.model import BAR, SHARE, SIZE, TEXT, Piece, Table, share_of

_UNKNOWN = "#868686"
_MEMORY = dict(
    zip(
        map(str, MemoryPart),
        ("#426b9d", "#7887eb", "#36a17e", "#816b00", "#8c8c8c", "#db750e", "#b72b41", "#dc25ab"),
        strict=True,
    )
)
"""Colours of what bytes are for."""

_CAPACITY, _LIMIT, _MARK = "the device's memory", "#d1242f", 0.005


def memory_bars(result: Report) -> Table:
    """A bar per stage of what a rank holds at its peak; stages in a line that are equal are one.

    The whole length is what the device has, or the most that a rank holds where that is more.
    """
    held = [(stage.stage, stage.memory) for stage in result.stages if stage.memory]
    rates = result.throughput
    capacity = (rates.capacity_bytes if rates else None) or 0
    longest = max([capacity, *(memory.total_bytes for _, memory in held)])
    rows = tuple(
        (
            f"{first} to {last}" if last > first else str(first),
            memory.total_bytes,
            share_of(memory.total_bytes, capacity) if capacity else None,
            tuple(_pieces(memory, longest, capacity)),
        )
        for first, last, memory in _runs(held)
    )
    used = dict.fromkeys(name for _, memory in held for name, size in memory.parts.items() if size)
    over = ((_CAPACITY, _LIMIT),) if capacity < longest and capacity else ()
    length = "mark" if over else "length of a bar"
    of = f"; the {length} is what the device has" if capacity else ""
    return Table(
        caption=f"peak of a rank per stage{of}",
        columns={"stage": TEXT, "peak": SIZE, "share": SHARE, "memory": BAR},
        rows=rows,
        legend=(*((name, _MEMORY.get(name, _UNKNOWN)) for name in used), *over),
    )


def _runs(held: Iterable[tuple[int, StageMemory]]) -> Iterator[tuple[int, int, StageMemory]]:
    """First and last of stages in a line that hold the same, and what that is."""
    run: list[int] = []
    before: StageMemory | None = None
    for stage, memory in held:
        if before is not None and (memory.parts != before.parts or memory.kept != before.kept):
            yield run[0], run[-1], before
            run = []
        run.append(stage)
        before = memory
    if before is not None:
        yield run[0], run[-1], before


def _pieces(memory: StageMemory, longest: int, capacity: int) -> Iterator[Piece]:
    """What bytes are for, as shares of the longest bar, and where the device's memory ends."""
    at = 0.0
    for name, size in memory.parts.items():
        share = share_of(size, longest)
        if share:
            words = f"{name}: {format_size_bytes(size)}"
            yield Piece(at, share, _MEMORY.get(name, _UNKNOWN), words)
            at += share
    if 0 < capacity < longest:
        words = f"{_CAPACITY}: {format_size_bytes(capacity)}"
        yield Piece(share_of(capacity, longest), _MARK, _LIMIT, words)


def joined_comms(comms: Sequence[CommUse]) -> Iterator[CommUse]:
    """Calls that are equal as a table shows them, as one with all their calls.

    Their sizes differ by less than a table shows, or they are of other rows of the workload.
    """
    alike: dict[tuple[object, ...], list[CommUse]] = {}
    for use in comms:
        shown = (use.group, use.kind, use.ranks, format_size_bytes(use.size_bytes))
        alike.setdefault((*shown, use.algorithms), []).append(use)
    for uses in alike.values():
        if len(uses) == 1:
            yield uses[0]
            continue
        count = sum(use.count for use in uses)
        time = round(sum(use.count * use.time_ps for use in uses) / count)
        alone = round(sum(use.count * (use.alone_ps or 0) for use in uses) / count)
        known = all(use.alone_ps is not None for use in uses)
        yield replace(uses[0], count=count, time_ps=time, alone_ps=alone if known else None)
