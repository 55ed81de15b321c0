"""PyTorch profiler traces (Kineto, Chrome's JSON): kernels, copies and NCCL of every rank.

A file is one rank, plain or gzip; a folder, or a .tar or .tar.gz, holds several of one run. An NCCL
kernel begins when its rank arrives and ends with the slowest, so ranks meet in it; newer traces
name its collective and group, in older ones the n-th kernel of a name is the same on all ranks.
"""

import re
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from stepsim.base.arrays import Ints
from stepsim.base.errors import TraceError
from stepsim.base.units import MAX_INT64
from stepsim.files.traces.forms import TRACE_ENDS, is_kineto
from stepsim.files.traces.packed import packed_files, rank_in_name
from stepsim.measured.profile.events import UNKNOWN, EventKind, Profile, other_end
from stepsim.measured.profile.joined import RankOperations, join_ranks

_PS_PER_US = 10**6
_KERNELS = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCHES = ("cuda_runtime", "cuda_driver")
_STEP = re.compile(r"ProfilerStep#(\d{1,18})")
_NCCL = re.compile(r"nccl(?:Dev)?Kernel_?([A-Za-z]+)")
_BYTES = {
    "half": 2,
    "bfloat16": 2,
    "float": 4,
    "int": 4,
    "double": 8,
    "long": 8,
    "char": 1,
    "byte": 1,
    "bool": 1,
}


class _Event(msgspec.Struct):
    """An entry of `traceEvents`; its arguments are read where they matter."""

    ph: str = ""
    cat: str | None = None
    name: str | None = None
    ts: int | float = 0
    dur: int | float = 0
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Arguments(msgspec.Struct):
    """Arguments of a kernel, a copy or a launch."""

    stream: int = UNKNOWN
    correlation: int = UNKNOWN
    bytes: int = UNKNOWN
    collective: str = msgspec.field(default="", name="Collective name")
    elements_in: int = msgspec.field(default=UNKNOWN, name="In msg nelems")
    elements_out: int = msgspec.field(default=UNKNOWN, name="Out msg nelems")
    dtype: str = ""
    group: str = msgspec.field(default="", name="Process Group Name")
    described: str = msgspec.field(default="", name="Process Group Description")
    ranks: str = msgspec.field(default="", name="Process Group Ranks")
    sender: int = msgspec.field(default=UNKNOWN, name="Src Rank")
    receiver: int = msgspec.field(default=UNKNOWN, name="Dst Rank")
    number: int | str = msgspec.field(default=0, name="Comms Id")

    @property
    def group_name(self) -> str:
        """The group's name and what the program calls it."""
        return " ".join(filter(None, (self.group, self.described)))


class _Distributed(msgspec.Struct):
    """`distributedInfo`."""

    rank: int | None = None
    world_size: int | None = None


class _Trace(msgspec.Struct):
    """A whole file."""

    events: list[_Event] = msgspec.field(name="traceEvents")
    distributed: _Distributed | None = msgspec.field(default=None, name="distributedInfo")
    devices: list[msgspec.Raw] = msgspec.field(default_factory=list, name="deviceProperties")
    base_ns: int | None = msgspec.field(default=None, name="baseTimeNanoseconds")


def read_kineto(path: Path) -> Profile:
    """Read the traces of one rank or of several; raises TraceError naming file and place."""
    parts = []
    for name, data in packed_files(path, TRACE_ENDS, is_kineto):
        try:
            parts.append(_read_rank(name, data))
        except (OverflowError, RecursionError):
            raise TraceError(
                f"{name}: a time or a number is too large, or its lists are nested too deeply"
            ) from None
    if not parts:
        raise TraceError(f"{path}: no PyTorch trace in it: expected files that end in .json or .gz")
    return join_ranks(str(path), parts, "PyTorch profiler")


def _read_rank(name: str, data: bytes) -> RankOperations:
    try:
        trace = msgspec.json.decode(data, type=_Trace)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceError(f"{name}: not a PyTorch trace: {error}") from None
    known = trace.distributed or _Distributed()
    rank = known.rank if known.rank is not None else rank_in_name(name) or 0
    kernels = [e for e in trace.events if e.ph == "X" and e.cat in _KERNELS]
    arguments = [_arguments(event, name) for event in kernels]
    if not kernels:
        raise TraceError(f"{name}: no kernel in the trace: record CUDA activities")
    base = int(min(event.ts for event in trace.events if event.ph == "X"))
    launches = _launches(trace.events, base, name)
    start = np.array([_since(event.ts, base) for event in kernels], dtype=np.int64)
    took = np.array([round(event.dur * _PS_PER_US) for event in kernels], dtype=np.int64)
    launch = np.array([launches.get(a.correlation, UNKNOWN) for a in arguments], dtype=np.int64)
    steps, step = _steps(trace.events, base, np.where(launch >= 0, launch, start))
    kinds = [_kind(event, a) for event, a in zip(kernels, arguments, strict=True)]
    columns = {
        "step": step,
        "kind": np.array([kind for kind, _ in kinds], dtype=np.int64),
        "stream": np.array([a.stream for a in arguments], dtype=np.int64),
        "start_ps": start,
        "end_ps": start + took,
        "launch_ps": launch,
        "size_bytes": np.array([_size(a) for a in arguments], dtype=np.int64),
        "peer": np.array(
            [other_end(rank, a.sender, a.receiver) for a in arguments], dtype=np.int64
        ),
        "tag": np.array([_tag(a.number) for a in arguments], dtype=np.int64),
    }
    kept = np.flatnonzero(step != UNKNOWN)
    kept = kept[np.argsort(start[kept], kind="stable")]
    if not len(kept):
        raise TraceError(f"{name}: no kernel was launched inside of the recorded steps")
    used, columns["step"][kept] = np.unique(step[kept], return_inverse=True)
    return RankOperations(
        rank=rank,
        world=known.world_size,
        file=name,
        steps=tuple(steps[place] for place in used.tolist()),
        names=[kinds[i][1] for i in kept.tolist()],
        groups=[(arguments[i].group_name, _ranks(arguments[i].ranks)) for i in kept.tolist()],
        columns={key: column[kept] for key, column in columns.items()},
        left_out=len(kernels) - len(kept),
        base_ps=base * _PS_PER_US + (trace.base_ns or 0) * 1000,
        node=rank // len(trace.devices) if len(trace.devices) > 1 else None,
    )


def _since(time_us: float, base_us: int) -> int:
    """Picoseconds from a whole microsecond on: those since 1970 are too many."""
    return round((time_us - base_us) * _PS_PER_US)


def _launches(events: Sequence[_Event], base: int, name: str) -> dict[int, int]:
    """When the host launched what a correlation names, in ps."""
    found = {}
    for event in events:
        if event.cat in _LAUNCHES and event.ph == "X":
            found[_arguments(event, name).correlation] = _since(event.ts, base)
    found.pop(UNKNOWN, None)
    return found


def _arguments(event: _Event, name: str) -> _Arguments:
    try:
        return msgspec.json.decode(event.args, type=_Arguments, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceError(f"{name}: arguments of {event.name!r}: {error}") from None


def _steps(events: Sequence[_Event], base: int, times: Ints) -> tuple[tuple[int, ...], Ints]:
    """Numbers of the steps, and the place of each operation's: by when it was launched.

    A trace without steps is one step, number 0.
    """
    spans = sorted(
        (int(told[1]), _since(e.ts, base), _since(e.ts + e.dur, base))
        for e in events
        if e.cat == "user_annotation" and (told := _STEP.fullmatch(e.name or ""))
    )
    if not spans:
        return (0,), np.zeros(len(times), dtype=np.int64)
    found = np.full(len(times), UNKNOWN, dtype=np.int64)
    for place, (_, begin, end) in enumerate(spans):
        found[(times >= begin) & (times < end)] = place
    return tuple(number for number, _, _ in spans), found


def _kind(event: _Event, arguments: _Arguments) -> tuple[EventKind, str]:
    """What an operation is, and what it is called: NCCL kernels by their collective."""
    name = event.name or ""
    if event.cat != "kernel":
        return EventKind.COPY, name
    nccl = _NCCL.match(name)
    if not nccl and not arguments.collective:
        return EventKind.COMPUTE, name
    called = arguments.collective or (nccl[1].rstrip("_") if nccl else "")
    kinds = {"send": EventKind.SEND, "recv": EventKind.RECV}
    return kinds.get(called.lower(), EventKind.COLLECTIVE), f"nccl {called}"


def _size(arguments: _Arguments) -> int:
    elements = max(arguments.elements_in, arguments.elements_out)
    each = _BYTES.get(arguments.dtype.lower(), 0)
    return elements * each if elements >= 0 and each else arguments.bytes


def _ranks(text: str) -> tuple[int, ...]:
    """Ranks of a group as a trace writes them: `[0, 1]`; none where it is cut short."""
    return () if "..." in text else tuple(map(int, re.findall(r"\d{1,9}", text)))


def _tag(number: int | str) -> int:
    """What `Comms Id` tells apart, equal for equal ones; 0 where there is none."""
    told = number if isinstance(number, int) else zlib.crc32(number.encode())
    return told & MAX_INT64
