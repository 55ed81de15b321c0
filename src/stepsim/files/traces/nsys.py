"""Nsight Systems, exported as SQLite: kernels and copies of every device.

A device stands for a rank where one process drives several; else a process does. Kernels that
communicate tell neither group nor bytes: the n-th one of a name is the same on all ranks. NVTX
ranges that are named as steps are steps: what a process launched inside of one belongs to it.
"""

import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.parse import quote

from stepsim.base.arrays import ints
from stepsim.base.errors import TraceError
from stepsim.base.structs import replace
from stepsim.base.units import MAX_INT64, PS_PER_NS
from stepsim.files.reading import open_file
from stepsim.files.traces.joined import RankOperations, inside_steps, join_ranks
from stepsim.measured.profile.events import Profile
from stepsim.measured.profile.kernels import communication_kernel
from stepsim.measured.profile.marks import Mark, read_mark
from stepsim.run.spans import UNKNOWN, TaskKind

_MOST_BYTES = 16 << 30
_MOST_ROWS = 50_000_000
_TABLE = "CUPTI_ACTIVITY_KIND_"
# What a thread's number has in common with that of its process.
_PROCESS = ~0xFFFFFF

_STEP = re.compile(
    r"(?:profiler|train(?:ing)?)?[\s_]*(?:step|iteration|iter)[\s_#:=]*(\d{1,18})", re.IGNORECASE
)
_FORM = (
    *("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"),
    *("registersPerThread", "staticSharedMemory", "dynamicSharedMemory"),
)
# Numbers of a row before its name and kind.
_NAMED = 7
# CUPTI_ACTIVITY_MEMCPY_KIND_PTOP.
_PEER_TO_PEER = 10

_Row = tuple[Any, ...]
# Process, begin and end in ns of an NVTX range; the step that it names, or what it marks.
_Range = tuple[int, int, int, int | None, Mark | None]


def read_nsys(path: Path) -> Profile:
    """Read the operations of all devices; raises TraceError naming the file."""
    try:
        open_file(path, _MOST_BYTES).close()
        address = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as database:
            rows = sorted(_operations(database, path), key=itemgetter(0, 1, 4, 5))
            gpus = _gpus(database)
            launches = dict(_launches(database))
            ranges = list(_ranges(database))
    except OSError as error:
        raise TraceError(f"{path}: cannot read the profile: {error.strerror}") from None
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: not an export of Nsight Systems: {error}") from None
    if not rows:
        raise TraceError(f"{path}: no kernel in the profile: record CUDA activities")
    single = len({row[0] for row in rows}) == 1
    parts = []
    for place, ((_, device), mine) in enumerate(groupby(rows, itemgetter(0, 1))):
        rank = device if single else place
        try:
            found = _rank(rank, mine, launches, ranges, path)
            parts.append(replace(found, gpu=gpus.get(device, "")))
        except OverflowError:
            raise TraceError(f"{path}: a time of device {rank} is too large") from None
    return join_ranks(str(path), parts, "Nsight Systems", one_clock=True)


def _operations(database: sqlite3.Connection, path: Path) -> Iterator[_Row]:
    """Process, device, stream, correlation, start and end in ns, bytes, name and kind of each.

    What follows is how it was launched: grid and block, registers and shared memory of a kernel.
    """
    tables = _tables(database)
    for needed in (f"{_TABLE}KERNEL", "StringIds"):
        if needed not in tables:
            raise TraceError(f"{path}: no table {needed}: expected an export with CUDA kernels")
    kind_of = cache(_kind)
    for name, query in _queries(database).items():
        if f"{_TABLE}{name}" not in tables:
            continue
        (count,) = database.execute(f"SELECT count(*) FROM {_TABLE}{name}").fetchone()
        if count > _MOST_ROWS:
            raise TraceError(f"{path}: {count} rows of {name}: expected at most {_MOST_ROWS}")
        for short, whole, *row in database.execute(query):
            named, form = row[:_NAMED], row[_NAMED:]
            if not all(isinstance(each, int) for each in named) or not isinstance(short, str):
                raise TraceError(
                    f"{path}: a row of {name} is {(*named, short)}: expected numbers and a name"
                )
            yield (*named, *kind_of(short, whole), tuple(form) or None)


def _queries(database: sqlite3.Connection) -> dict[str, str]:
    """What to ask of each table: the short name, what tells its kind, its numbers and its form.

    That is the whole name of a kernel, where the export has it; of a copy, its kind in CUPTI.
    """
    common = "globalPid, deviceId, streamId, correlationId, start, end"
    columns = {
        name: {row[1] for row in database.execute(f"PRAGMA table_info({_TABLE}{name})")}
        for name in ("KERNEL", "MEMCPY")
    }
    form = "".join(f", {name}" for name in _FORM) if columns["KERNEL"] >= {*_FORM} else ""
    whole = "demangledName" if "demangledName" in columns["KERNEL"] else "shortName"
    kind = "copyKind" if "copyKind" in columns["MEMCPY"] else "NULL"
    return {
        "KERNEL": f"SELECT short.value, whole.value, {common}, {UNKNOWN}{form} FROM {_TABLE}KERNEL "
        f"JOIN StringIds AS short ON short.id = shortName "
        f"LEFT JOIN StringIds AS whole ON whole.id = {whole}",
        "MEMCPY": f"SELECT 'memcpy', {kind}, {common}, bytes FROM {_TABLE}MEMCPY",
        "MEMSET": f"SELECT 'memset', NULL, {common}, bytes FROM {_TABLE}MEMSET",
    }


def _tables(database: sqlite3.Connection) -> set[str]:
    """Tables with rows of their own: those of a view are computed, and may never end."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"
    return {name for (name,) in database.execute(query)}


def _gpus(database: sqlite3.Connection) -> dict[int, str]:
    """What every device is called, by its number."""
    try:
        rows = list(database.execute("SELECT id, name FROM TARGET_INFO_GPU"))
    except sqlite3.OperationalError:
        return {}
    return {number: name for number, name in rows if isinstance(name, str)}


def _launches(database: sqlite3.Connection) -> Iterator[tuple[tuple[int, int], int]]:
    """When a process called what a correlation names, in ns."""
    if f"{_TABLE}RUNTIME" not in _tables(database):
        return
    rows = database.execute(f"SELECT globalTid, correlationId, start FROM {_TABLE}RUNTIME")
    for thread, correlation, start in rows:
        if all(isinstance(each, int) for each in (thread, correlation, start)):
            yield (thread & _PROCESS, correlation), start


def _steps(ranges: Sequence[_Range]) -> dict[int, tuple[int, int]]:
    """Begin and end in ns of every step by its number, from ranges named so; threads share them."""
    found: dict[int, tuple[int, int]] = {}
    for _, start, end, step, _ in ranges:
        if step is not None:
            first, last = found.get(step, (start, end))
            found[step] = min(first, start), max(last, end)
    return dict(sorted(found.items()))


def _ranges(database: sqlite3.Connection) -> Iterator[_Range]:
    """NVTX ranges that are named as steps, or that name a phase."""
    try:
        rows = database.execute(
            "SELECT globalTid, start, end, coalesce(text, value) FROM NVTX_EVENTS "
            "LEFT JOIN StringIds ON StringIds.id = textId WHERE end > start"
        )
    except sqlite3.OperationalError:
        return
    for thread, start, end, text in rows:
        told, mark = _STEP.fullmatch(str(text)), read_mark(str(text))
        if (told or mark) and all(isinstance(each, int) for each in (thread, start, end)):
            yield thread & _PROCESS, start, end, int(told[1]) if told else None, mark


def _since(at: int, base: int) -> int:
    """A time in ns as ps from `base` on, as far as a column has numbers."""
    return max(-MAX_INT64, min((at - base) * PS_PER_NS, MAX_INT64))


def _rank(
    rank: int,
    rows: Iterable[_Row],
    launches: dict[tuple[int, int], int],
    ranges: Sequence[_Range],
    path: Path,
) -> RankOperations:
    """One rank's operations, from `rows` in order of their start."""
    every = zip(*rows, strict=True)
    processes, _, streams, correlations, starts, ends, sizes, names, kinds, forms = every
    base = int(starts[0])
    called = map(launches.get, zip(processes, correlations, strict=True))
    named = [each for each in ranges if each[0] == processes[0] & _PROCESS]
    found = RankOperations(
        rank=rank,
        file=str(path),
        columns={
            "name": names,
            "group": [("", ())] * len(names),
            "form": forms,
            "kind": ints(kinds),
            "stream": ints(streams),
            "start_ps": ints([(at - base) * PS_PER_NS for at in starts]),
            "end_ps": ints([(at - base) * PS_PER_NS for at in ends]),
            "launch_ps": ints([UNKNOWN if at is None else _since(at, base) for at in called]),
            "size_bytes": ints(sizes),
        },
        base_ps=base * PS_PER_NS,
        node=0,
    )
    steps = _steps(named)
    bounds = ints([[_since(at, base) for at in each] for each in steps.values()])
    marks = [
        replace(mark, start_ps=_since(start, base), end_ps=_since(end, base))
        for _, start, end, _, mark in named
        if mark
    ]
    return inside_steps(found, [*steps], bounds, marks)


def _kind(short: str, whole: object) -> tuple[str, TaskKind]:
    """What an operation is called, and what it is; a copy to another device is a message."""
    if short in ("memcpy", "memset"):
        return short, TaskKind.SEND if whole == _PEER_TO_PEER else TaskKind.COPY
    if communication_kernel(short):
        return short, TaskKind.COLLECTIVE
    name = whole if isinstance(whole, str) else short
    called = communication_kernel(name)
    return (called, TaskKind.COLLECTIVE) if called else (name, TaskKind.COMPUTE)
