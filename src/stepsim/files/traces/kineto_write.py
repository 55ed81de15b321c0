"""Writing a profile as PyTorch profiler traces, one file per rank, for the tools that open them.

An operation of a device is a kernel with its launch, one of the host an operator; communications
have the names and arguments that PyTorch writes for NCCL's kernels. Actions of a pipeline are
ranges on their streams. Times are exact to the ps. A
trace has one clock for all steps, and an operation belongs to the step in which it was launched:
steps whose times all count from their own begin are written one after another.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stepsim import __version__
from stepsim.base.arrays import Ints
from stepsim.base.structs import replace
from stepsim.files.writing import write_folder
from stepsim.measured.profile.events import HostOperator, Profile
from stepsim.measured.profile.marks import ACTION_PHASES
from stepsim.tables.spans import COMMUNICATIONS, UNKNOWN, TaskKind, TaskPhase

_PS_PER_US = 10**6
_FIRST_STREAM = 7
"""PyTorch's own streams begin there."""
_CALLED = {
    "all_reduce": ("allreduce", "AllReduce_Sum_f32_RING_LL"),
    "all_gather": ("_allgather_base", "AllGather_RING_LL"),
    "reduce_scatter": ("_reduce_scatter_base", "ReduceScatter_Sum_f32_RING_LL"),
    "all_to_all": ("all_to_allv", "SendRecv"),
    "broadcast": ("broadcast", "Broadcast_RING_LL"),
    "reduce": ("reduce", "Reduce_Sum_f32_RING_LL"),
    "gather": ("gather", "SendRecv"),
    "scatter": ("scatter", "SendRecv"),
    "send": ("send", "SendRecv"),
    "recv": ("recv", "SendRecv"),
}
"""Of a communication: its name in PyTorch, and the rest of its kernel's name."""
_LETTERS = {phase: letter for letter, phase in ACTION_PHASES.items()}
_MESSAGES = {TaskKind.SEND: "send", TaskKind.RECV: "recv"}


def write_kineto(profile: Profile, folder: Path) -> list[Path]:
    """Write `stepsim.rankN.json` of every rank; returns the files.

    Raises OutputError for a folder that is not empty or cannot be written.
    """
    profile = _on_one_clock(profile)
    marks = _marks(profile)
    return write_folder(
        folder,
        (
            (
                f"stepsim.rank{rank.rank}.json",
                json.dumps(_trace(profile, place, marks[place])).encode(),
            )
            for place, rank in enumerate(profile.ranks)
        ),
    )


def _launches(profile: Profile) -> Ints:
    """When every operation was launched, in ps; when it started where that is not told."""
    events = profile.events
    return np.where(events.launch_ps == UNKNOWN, events.start_ps, events.launch_ps)


def _bounds(profile: Profile) -> tuple[Ints, Ints]:
    """The first and the last launch of every step on every rank, in ps: of shape (ranks, steps).

    Of a rank without operations in a step they are the largest and the smallest number.
    """
    events, launch = profile.events, _launches(profile)
    shape, limits = (len(profile.ranks), len(profile.steps)), np.iinfo(np.int64)
    first, last = np.full(shape, limits.max), np.full(shape, limits.min)
    np.minimum.at(first, (events.rank, events.step), launch)
    np.maximum.at(last, (events.rank, events.step), launch)
    return first, last


def _on_one_clock(profile: Profile) -> Profile:
    """The profile as it is if every rank launched its steps in turn, else with steps in a row.

    For example steps from 0 to 5 ps and from 0 to 3 ps are then from 0 to 5 and from 6 to 9 ps.
    """
    first, last = _bounds(profile)
    so_far = np.maximum.accumulate(last, axis=1)
    if (first[:, 1:] > so_far[:, :-1]).all():
        return profile
    events, count = profile.events, len(profile.steps)
    begin, end = first.min(axis=0), np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(end, events.step, events.end_ps)
    lengths = end - begin + 1
    moved = (np.cumsum(lengths) - lengths - begin)[events.step]
    launch = np.where(events.launch_ps == UNKNOWN, UNKNOWN, events.launch_ps + moved)
    later = replace(
        events, start_ps=events.start_ps + moved, end_ps=events.end_ps + moved, launch_ps=launch
    )
    return replace(profile, events=later)


def _marks(profile: Profile) -> list[list[tuple[int, int]]]:
    """Begin and end in ps of the mark of every step, for every rank.

    A mark goes from the first launch of the step on any rank to just after its last end, but only
    over launches of this step on its own rank.
    """
    first, last = _bounds(profile)
    so_far = np.maximum.accumulate(last, axis=1)
    begin, end = first.min(axis=0), np.zeros(len(profile.steps), dtype=np.int64)
    np.maximum.at(end, profile.events.step, profile.events.end_ps + 1)
    begins, ends = (np.tile(times, (len(profile.ranks), 1)) for times in (begin, end))
    begins[:, 1:] = np.maximum(begin[1:], so_far[:, :-1] + 1)
    later = np.minimum.accumulate(first[:, :0:-1], axis=1)[:, ::-1]
    ends[:, :-1] = np.minimum(end[:-1], later)
    return [
        list(zip(starts, stops, strict=True))
        for starts, stops in zip(begins.tolist(), ends.tolist(), strict=True)
    ]


def _trace(profile: Profile, place: int, marks: list[tuple[int, int]]) -> dict[str, Any]:
    rank = profile.ranks[place].rank
    events = [
        *_steps(profile, rank, marks),
        *_actions(profile, place),
        *_operations(profile, place),
    ]
    return {
        "schemaVersion": 1,
        "stepsim_version": __version__,
        "distributedInfo": {
            "backend": "nccl",
            "rank": rank,
            "world_size": profile.world or len(profile.ranks),
            "pg_count": len(profile.groups),
            "pg_config": [
                {"pg_name": str(i), "pg_desc": group.name, "pg_size": len(group.ranks)}
                for i, group in enumerate(profile.groups)
            ],
        },
        "deviceProperties": [],
        "baseTimeNanoseconds": 0,
        "displayTimeUnit": "ms",
        "traceEvents": events,
    }


def _steps(profile: Profile, rank: int, marks: list[tuple[int, int]]) -> Iterator[dict[str, Any]]:
    """A mark of every step that the rank has a part in."""
    for number, (begin, end) in zip(profile.steps, marks, strict=True):
        if begin < end:
            yield _event("user_annotation", f"ProfilerStep#{number}", rank, rank, begin, end, {})


def _actions(profile: Profile, place: int) -> Iterator[dict[str, Any]]:
    """A range of every action on every stream, named as torch's pipelines name it: `PP:2F0`."""
    events, rank = profile.events, profile.ranks[place].rank
    told = (events.microbatch != UNKNOWN) & (events.chunk != UNKNOWN)
    told &= np.isin(events.phase, [*_LETTERS]) & (events.kind != TaskKind.HOST)
    order = np.flatnonzero((events.rank == place) & (events.kind != TaskKind.HOST))
    order = order[np.lexsort((events.end_ps[order], events.start_ps[order], events.stream[order]))]
    columns = np.stack(
        [events.stream, events.step, events.phase, events.chunk, events.microbatch, told]
    )[:, order]
    changes = np.any(np.diff(columns, prepend=-2) != 0, axis=0)
    for run in np.split(order, np.flatnonzero(changes)[1:]):
        first = int(run[0])
        if told[first]:
            letter = _LETTERS[TaskPhase(int(events.phase[first]))]
            name = f"PP:{events.chunk[first]}{letter}{events.microbatch[first]}"
            # a range holds what starts before its end, also a kernel that takes no time
            start, last = int(events.start_ps[first]), int(events.start_ps[run].max())
            end = max(int(events.end_ps[run].max()), last + 1)
            stream = int(events.stream[first]) + _FIRST_STREAM
            yield _event("gpu_user_annotation", name, rank, stream, start, end, {})


def _operations(profile: Profile, place: int) -> Iterator[dict[str, Any]]:
    events, rank = profile.events, profile.ranks[place].rank
    for correlation, i in enumerate(np.flatnonzero(events.rank == place).tolist(), 1):
        kind, name = TaskKind(int(events.kind[i])), profile.names[events.name[i]]
        start, end = int(events.start_ps[i]), int(events.end_ps[i])
        if kind is TaskKind.HOST:
            yield _event("cpu_op", name, rank, rank, start, end, {})
            continue
        launched = int(events.launch_ps[i])
        begin = start if launched == UNKNOWN else launched
        told: dict[str, Any] = {"correlation": correlation}
        if events.operator[i] != UNKNOWN:
            number = len(events) + correlation
            yield _called(profile.operators[events.operator[i]], rank, begin, number)
            told["External id"] = number
        yield _event("cuda_runtime", "cudaLaunchKernel", rank, rank, begin, begin, told)
        stream = int(events.stream[i]) + _FIRST_STREAM
        told = told | {"device": rank, "stream": stream}
        if kind in COMMUNICATIONS:
            name, more = _communication(profile, i, name)
            told |= more
        category = "gpu_memcpy" if kind is TaskKind.COPY else "kernel"
        yield _event(category, name, 0, stream, start, end, told)


def _called(operator: HostOperator, rank: int, begin: int, number: int) -> dict[str, Any]:
    """The operator that launches a kernel, as the host calls it, by a number that both have."""
    arguments: dict[str, Any] = {"External id": number}
    if operator.sides:
        arguments["Input Dims"] = operator.sides
    return _event("cpu_op", operator.name, rank, rank, begin, begin, arguments)


def _communication(profile: Profile, i: int, name: str) -> tuple[str, dict[str, Any]]:
    """The name of a communication's kernel, and its arguments."""
    events = profile.events
    known = _MESSAGES.get(TaskKind(int(events.kind[i])), name.rsplit(" ", maxsplit=1)[-1])
    called, kernel = _CALLED.get(known, (name, name))
    size, group = int(events.size_bytes[i]), int(events.group[i])
    members = profile.groups[group].ranks if group != UNKNOWN else ()
    share = size // max(len(members), 1)
    told: dict[str, Any] = {
        "Collective name": called,
        "In msg nelems": share if known == "all_gather" else size,
        "Out msg nelems": share if known == "reduce_scatter" else size,
        "dtype": "Byte",
    }
    if group != UNKNOWN:
        told |= {
            "Group size": len(members),
            "Process Group Name": str(group),
            "Process Group Description": profile.groups[group].name,
            "Process Group Ranks": str(list(members)),
        }
    if events.meeting[i] != UNKNOWN:
        told["Comms Id"] = int(events.meeting[i])
    if events.peer[i] != UNKNOWN:
        peer = profile.ranks[int(events.peer[i])].rank
        told["Dst Rank" if known == "send" else "Src Rank"] = peer
    return f"ncclDevKernel_{kernel}", told


def _event(
    category: str, name: str, pid: int, tid: int, start: int, end: int, told: dict[str, Any]
) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": start / _PS_PER_US,
        "dur": (end - start) / _PS_PER_US,
        "args": told,
    }
