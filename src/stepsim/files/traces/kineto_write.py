"""Writing a profile as PyTorch profiler traces, one file per rank, for the tools that open them.

An operation of a device is a kernel with its launch, one of the host an operator; communications
have the names and arguments that PyTorch writes for NCCL's kernels. Times are exact to the ps.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stepsim import __version__
from stepsim.files.writing import write_folder
from stepsim.measured.profile.events import Profile
from stepsim.tables.spans import COMMUNICATIONS, UNKNOWN, TaskKind

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


def write_kineto(profile: Profile, folder: Path) -> list[Path]:
    """Write `stepsim.rankN.json` of every rank; returns the files.

    Raises OutputError for a folder that is not empty or cannot be written.
    """
    return write_folder(
        folder,
        (
            (f"stepsim.rank{rank.rank}.json", json.dumps(_trace(profile, place)).encode())
            for place, rank in enumerate(profile.ranks)
        ),
    )


def _trace(profile: Profile, place: int) -> dict[str, Any]:
    rank = profile.ranks[place].rank
    events = [*_steps(profile, rank), *_operations(profile, place)]
    return {
        "schemaVersion": 1,
        "stepsim_version": __version__,
        "distributedInfo": {
            "backend": "nccl",
            "rank": rank,
            "world_size": len(profile.ranks),
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


def _steps(profile: Profile, rank: int) -> Iterator[dict[str, Any]]:
    """A mark of every step, from its first operation on any rank to just after its last."""
    events = profile.events
    for place, number in enumerate(profile.steps):
        inside = events.step == place
        begin, end = int(events.start_ps[inside].min()), int(events.end_ps[inside].max()) + 1
        yield _event("user_annotation", f"ProfilerStep#{number}", rank, rank, begin, end, {})


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
        yield _event("cuda_runtime", "cudaLaunchKernel", rank, rank, begin, begin, told)
        stream = int(events.stream[i]) + _FIRST_STREAM
        told = told | {"device": rank, "stream": stream}
        if kind in COMMUNICATIONS:
            name, more = _communication(profile, i, name)
            told |= more
        category = "gpu_memcpy" if kind is TaskKind.COPY else "kernel"
        yield _event(category, name, 0, stream, start, end, told)


def _communication(profile: Profile, i: int, name: str) -> tuple[str, dict[str, Any]]:
    """The name of a communication's kernel, and its arguments."""
    events = profile.events
    known = next((each for each in _CALLED if name.rsplit(" ", maxsplit=1)[-1] == each), "")
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
