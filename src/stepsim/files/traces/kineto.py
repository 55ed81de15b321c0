"""PyTorch profiler traces (Kineto, Chrome's JSON): kernels, copies and NCCL of every rank.

A file is one rank, plain or gzip; a folder, or a .tar or .tar.gz, holds several of one run. An NCCL
kernel begins when its rank arrives and ends with the slowest, so ranks meet in it; newer traces
name its collective and group, in older ones the n-th kernel of a name is the same on all ranks.
"""

import re
import zlib
from collections.abc import Callable, Sequence
from math import inf
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
import numpy as np
from msgspec import Struct, field

from stepsim.base import garbage as collector
from stepsim.base.arrays import Ints
from stepsim.base.errors import TraceError
from stepsim.base.units import MAX_INT64
from stepsim.files.traces.forms import TRACE_ENDS, is_kineto
from stepsim.files.traces.packed import packed_files, rank_in_name
from stepsim.measured.profile.events import KernelForm, Profile, other_end
from stepsim.measured.profile.joined import RankOperations, join_ranks
from stepsim.tables.spans import UNKNOWN, TaskKind

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


_Each = TypeVar("_Each")
"""Entries of a trace, with their arguments read or not."""


class _Arguments(msgspec.Struct, gc=False):
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
    external: int = msgspec.field(default=UNKNOWN, name="External id")
    grid: list[int] = []
    block: list[int] = []
    registers: int = msgspec.field(default=0, name="registers per thread")
    shared_bytes: int = msgspec.field(default=0, name="shared memory")
    shape: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input Dims")

    @property
    def group_name(self) -> str:
        """The group's name and what the program calls it."""
        return " ".join(filter(None, (self.group, self.described)))


class _Event(msgspec.Struct, gc=False):
    """An entry of `traceEvents`."""

    ph: str = ""
    cat: str | None = None
    name: str | None = None
    ts: int | float = 0
    dur: int | float = 0
    args: _Arguments | None = None


class _RawEvent(_Event, gc=False):
    """An entry whose arguments are read where they matter: others may have any form."""

    # a struct is never taken for its base here, so the field may have another type
    args: msgspec.Raw = msgspec.Raw(b"{}")  # type: ignore[assignment]


class _Gpu(msgspec.Struct):
    """An entry of `deviceProperties`."""

    name: str = ""


class _Distributed(msgspec.Struct):
    """`distributedInfo`."""

    rank: int | None = None
    world_size: int | None = None


class _Trace(msgspec.Struct, Generic[_Each]):
    """A whole file."""

    events: list[_Each] = msgspec.field(name="traceEvents")
    distributed: _Distributed | None = msgspec.field(default=None, name="distributedInfo")
    devices: list[_Gpu] = msgspec.field(default_factory=list, name="deviceProperties")
    base_ns: int | None = msgspec.field(default=None, name="baseTimeNanoseconds")


@collector.paused()
def read_kineto(path: Path, progress: Callable[[int, int], None] | None = None) -> Profile:
    """Read the traces of one rank or of several; raises TraceError naming file and place."""
    parts = []
    for name, data in packed_files(path, TRACE_ENDS, is_kineto, progress):
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
    trace = _decoded(name, data)
    known = trace.distributed or _Distributed()
    rank = known.rank if known.rank is not None else rank_in_name(name) or 0
    ours = _sorted_out(trace.events, name)
    if not ours.kernels:
        raise TraceError(f"{name}: no kernel in the trace: record CUDA activities")
    arguments = [event.args or _Arguments() for event in ours.kernels]
    start = _since([event.ts for event in ours.kernels], ours.base)
    took = _since([event.dur for event in ours.kernels], 0)
    begins = dict(zip(ours.launched, _since(ours.launch_us, ours.base).tolist(), strict=True))
    begins.pop(UNKNOWN, None)
    launch = np.array([begins.get(a.correlation, UNKNOWN) for a in arguments], dtype=np.int64)
    steps, step = _steps(ours, np.where(launch >= 0, launch, start))
    kinds = _kinds(ours.kernels, arguments)
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
    groups: dict[tuple[str, str, str], tuple[str, tuple[int, ...]]] = {}
    return RankOperations(
        rank=rank,
        world=known.world_size,
        file=name,
        steps=tuple(steps[place] for place in used.tolist()),
        names=[kinds[i][1] for i in kept.tolist()],
        groups=[_group(arguments[i], groups) for i in kept.tolist()],
        columns={key: column[kept] for key, column in columns.items()},
        left_out=len(ours.kernels) - len(kept),
        base_ps=ours.base * _PS_PER_US + (trace.base_ns or 0) * 1000,
        node=rank // len(trace.devices) if len(trace.devices) > 1 else None,
        gpu=trace.devices[0].name if trace.devices else "",
        forms=_forms([arguments[i] for i in kept.tolist()], ours.shapes),
    )


def _decoded(name: str, data: bytes) -> _Trace[_Event] | _Trace[_RawEvent]:
    """A file; again with arguments as they are where one that does not matter has another form."""
    try:
        return msgspec.json.decode(data, type=_Trace[_Event], strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        return msgspec.json.decode(data, type=_Trace[_RawEvent])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceError(f"{name}: not a PyTorch trace: {error}") from None


class _Sorted(Struct, kw_only=True):
    """What matters of a file's events; times in microseconds, `base` the earliest, whole.

    `shapes` are the dimensions that operators worked on, by their external numbers.
    """

    kernels: list[_Event] = field(default_factory=list)
    launched: list[int] = field(default_factory=list)
    launch_us: list[float] = field(default_factory=list)
    steps: list[tuple[int, float, float]] = field(default_factory=list)
    shapes: dict[int, str] = field(default_factory=dict)
    base: int = 0


def _sorted_out(events: Sequence[_Event], name: str) -> _Sorted:
    found, earliest = _Sorted(), inf
    for event in events:
        if event.ph != "X":
            continue
        earliest = min(earliest, event.ts)
        if event.cat in _KERNELS:
            found.kernels.append(_with_arguments(event, name))
        elif event.cat in _LAUNCHES:
            launch = _with_arguments(event, name).args
            found.launched.append(launch.correlation if launch else UNKNOWN)
            found.launch_us.append(event.ts)
        elif event.cat == "cpu_op" and isinstance(event.args, _Arguments):
            if len(shape := bytes(event.args.shape)) > len(b"[]"):
                found.shapes[event.args.external] = shape.decode()
        elif event.cat == "user_annotation" and (step := _STEP.fullmatch(event.name or "")):
            found.steps.append((int(step[1]), event.ts, event.ts + event.dur))
    found.base = int(earliest) if found.kernels else 0
    return found


def _with_arguments(event: _Event, name: str) -> _Event:
    """An event whose arguments are read."""
    if not isinstance(event, _RawEvent):
        return event
    try:
        told = msgspec.json.decode(event.args, type=_Arguments, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceError(f"{name}: arguments of {event.name!r}: {error}") from None
    return _Event(cat=event.cat, name=event.name, ts=event.ts, dur=event.dur, args=told)


def _since(times_us: Sequence[float], base_us: int) -> Ints:
    """Picoseconds from a whole microsecond on: those since 1970 are too many."""
    apart = np.rint((np.array(times_us, dtype=np.float64) - base_us) * _PS_PER_US)
    if (np.abs(apart) > MAX_INT64 / 2).any():
        raise OverflowError
    return np.asarray(apart, dtype=np.int64)


def _forms(arguments: Sequence[_Arguments], shapes: dict[int, str]) -> list[KernelForm | None]:
    """How kernels were launched; equal ones are one object, None where a trace does not say it."""
    known: dict[KernelForm, KernelForm] = {}
    found: list[KernelForm | None] = []
    for kernel in arguments:
        form = KernelForm(
            grid=tuple(kernel.grid),
            block=tuple(kernel.block),
            registers=kernel.registers,
            shared_bytes=kernel.shared_bytes,
            shape=shapes.get(kernel.external, ""),
        )
        found.append(known.setdefault(form, form) if form.grid else None)
    return found


def _group(
    arguments: _Arguments, known: dict[tuple[str, str, str], tuple[str, tuple[int, ...]]]
) -> tuple[str, tuple[int, ...]]:
    """A group's name and ranks; `known` are those met before."""
    key = arguments.group, arguments.described, arguments.ranks
    if key not in known:
        known[key] = arguments.group_name, _ranks(arguments.ranks)
    return known[key]


def _steps(ours: _Sorted, times: Ints) -> tuple[tuple[int, ...], Ints]:
    """Numbers of the steps, and the place of each operation's: by when it was launched.

    A trace without steps is one step, number 0.
    """
    if not ours.steps:
        return (0,), np.zeros(len(times), dtype=np.int64)
    numbers, begins, ends = zip(*sorted(ours.steps), strict=True)
    found = np.full(len(times), UNKNOWN, dtype=np.int64)
    bounds = zip(_since(begins, ours.base), _since(ends, ours.base), strict=True)
    for place, (begin, end) in enumerate(bounds):
        found[(times >= begin) & (times < end)] = place
    return numbers, found


def _kinds(
    kernels: Sequence[_Event], arguments: Sequence[_Arguments]
) -> list[tuple[TaskKind, str]]:
    """What operations are; each form is looked at once."""
    known: dict[tuple[str | None, str | None, str], tuple[TaskKind, str]] = {}
    found = []
    for event, told in zip(kernels, arguments, strict=True):
        key = event.cat, event.name, told.collective
        if key not in known:
            known[key] = _kind(event, told)
        found.append(known[key])
    return found


def _kind(event: _Event, arguments: _Arguments) -> tuple[TaskKind, str]:
    """What an operation is, and what it is called: NCCL kernels by their collective."""
    name = event.name or ""
    if event.cat != "kernel":
        return TaskKind.COPY, name
    nccl = _NCCL.match(name)
    if not nccl and not arguments.collective:
        return TaskKind.COMPUTE, name
    called = arguments.collective or (nccl[1].rstrip("_") if nccl else "")
    kinds = {"send": TaskKind.SEND, "recv": TaskKind.RECV}
    return kinds.get(called.lower(), TaskKind.COLLECTIVE), f"nccl {called}"


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
