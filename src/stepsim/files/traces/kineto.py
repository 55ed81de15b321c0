"""PyTorch profiler traces (Kineto, Chrome's JSON): kernels, copies and NCCL of every rank.

A file is one rank, plain or gzip; a folder, or a .tar or .tar.gz, holds several of one run. A
kernel that communicates begins when its rank arrives and ends with the slowest, so ranks meet in
it; newer traces name the collective and group of NCCL's, in others the n-th kernel of a name is the
same on all ranks. A copy to another device, or in a range of NCCL, is what copy engines carry of a
collective: a message whose other end is not told.
"""

import re
import zlib
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from math import inf
from operator import methodcaller
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stepsim.base.arrays import Ints, ints, rows_of
from stepsim.base.errors import TraceError
from stepsim.base.process import paused
from stepsim.base.structs import Numbers, Values, replace
from stepsim.base.units import MAX_INT64
from stepsim.files.traces.forms import TRACE_ENDS, element_bytes, is_kineto
from stepsim.files.traces.joined import RankOperations, inside_steps, join_ranks
from stepsim.files.traces.packed import packed_files, rank_in_name
from stepsim.measured.profile.events import HostOperator, Profile, other_end
from stepsim.measured.profile.kernels import communication_kernel, is_peer_copy
from stepsim.measured.profile.marks import Mark, read_mark
from stepsim.measured.run import PS_PER_US
from stepsim.run.spans import UNKNOWN, TaskKind

_COMPUTES = ("kernel", "mtia_ccp_events")
_KERNELS = (*_COMPUTES, "gpu_memcpy", "gpu_memset")
# What ends the names of categories of launches: of CUDA, HIP, XPU, MTIA and of other devices.
_LAUNCHES = ("runtime", "driver")
_RANGES = ("user_annotation", "gpu_user_annotation", "cpu_op")
_STEP = re.compile(r"ProfilerStep#(\d{1,18})")
_NO_DIMS = msgspec.Raw(b"[]")
# Of an event of the allocator.
_ON_GPU = 1


class _Arguments(msgspec.Struct, gc=False, rename=methodcaller("replace", "_", " ")):
    """Arguments of a kernel, a copy or a launch: a field is called as its key, `_` for a space."""

    stream: Any = UNKNOWN
    correlation: int = UNKNOWN
    bytes: Any = UNKNOWN
    Collective_name: str = ""
    In_msg_nelems: int = UNKNOWN
    Out_msg_nelems: int = UNKNOWN
    dtype: str = ""
    Process_Group_Name: str = ""
    Process_Group_Description: str = ""
    Process_Group_Ranks: str = ""
    Src_Rank: int = UNKNOWN
    Dst_Rank: int = UNKNOWN
    Comms_Id: int | str = 0
    External_id: Any = UNKNOWN
    Input_Dims: msgspec.Raw = _NO_DIMS
    Device_Type: Any = UNKNOWN
    Total_Allocated: Any = 0
    grid: Numbers = ()
    block: Numbers = ()
    registers_per_thread: int = 0
    shared_memory: int = 0

    def __post_init__(self) -> None:
        """An operator that is told by another value than a number is not known."""
        if type(self.External_id) is not int:
            self.External_id = UNKNOWN


_READ = msgspec.json.Decoder(_Arguments | None, strict=False)


class _Event(msgspec.Struct, gc=False):
    """An entry of `traceEvents`; its arguments are read where they matter."""

    ph: str = ""
    cat: str | None = None
    name: str | None = None
    tid: int | str = UNKNOWN
    ts: int | float = 0
    dur: int | float = 0
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _Distributed(msgspec.Struct):
    """`distributedInfo`."""

    rank: int | None = None
    world_size: int | None = None


class _Trace(msgspec.Struct, rename="camel"):
    """A whole file."""

    trace_events: list[_Event]
    distributed_info: _Distributed | None = None
    device_properties: list[Values] = []
    base_time_nanoseconds: int | None = None


@paused()
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
    return join_ranks(str(path), parts, "PyTorch profiler")


def _read_rank(name: str, data: bytes) -> RankOperations:
    try:
        trace = msgspec.json.decode(data, type=_Trace, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceError(f"{name}: not a PyTorch trace: {error}") from None
    known = trace.distributed_info or _Distributed()
    rank = known.rank if known.rank is not None else rank_in_name(name, 0)
    done = [event for event in trace.trace_events if event.ph == "X"]
    base = int(min((event.ts for event in done), default=0))
    steps = sorted(
        (int(step[1]), event.ts, event.ts + event.dur)
        for event in done
        if event.cat == "user_annotation" and (step := _STEP.fullmatch(event.name or ""))
    )
    allocations = (event for event in trace.trace_events if event.name == "[memory]")
    devices = trace.device_properties
    found = RankOperations(
        rank=rank,
        world=known.world_size,
        file=name,
        columns=_columns(done, base, name, rank),
        base_ps=base * PS_PER_US + (trace.base_time_nanoseconds or 0) * 1000,
        peak_bytes=max(map(_allocated, allocations), default=0),
        node=rank // len(devices) if len(devices) > 1 else None,
        gpu=str(devices[0].get("name", "")) if devices else "",
    )
    bounds = _since([each[1:] for each in steps], base)
    return inside_steps(found, [number for number, _, _ in steps], bounds, _ranges(done, base))


# A call of an operator of the host, and its arguments.
_Call = tuple[_Event, _Arguments]
# The correlation of a launch, and the launch.
_Launch = tuple[int, _Event]


def _columns(done: Sequence[_Event], base: int, name: str, rank: int) -> Values:
    """What is told of every operation of the device, from `base` on, the earliest microsecond."""
    kernels = [event for event in done if event.cat in _KERNELS]
    if not kernels:
        raise TraceError(f"{name}: no kernel in the trace: record CUDA activities")
    arguments = [_arguments(event, name) for event in kernels]
    called = [(event, _readable(event)) for event in done if event.cat == "cpu_op"]
    launches = [
        (_arguments(event, name).correlation, event)
        for event in done
        if event.cat and event.cat.endswith(_LAUNCHES)
    ]
    called_ps = _since([event.ts for _, event in launches], base)
    begins = {each[0]: ps for each, ps in rows_of(launches, called_ps)}
    begins.pop(UNKNOWN, None)
    kinds, start = _kinds(done, kernels, arguments), _since([event.ts for event in kernels], base)
    bytes_of, group_of = element_bytes("kineto"), cache(_group)
    return {
        "name": [called for _, called in kinds],
        "group": [
            group_of(a.Process_Group_Name, a.Process_Group_Description, a.Process_Group_Ranks)
            for a in arguments
        ],
        "operator": _operators(arguments, launches, called),
        "form": _forms(arguments, called),
        "kind": ints([kind for kind, _ in kinds]),
        "stream": ints([*map(_stream, kernels, arguments)]),
        "start_ps": start,
        "end_ps": start + _since([event.dur for event in kernels], 0),
        "launch_ps": ints([begins.get(a.correlation, UNKNOWN) for a in arguments]),
        "size_bytes": ints([_size(a, bytes_of) for a in arguments]),
        "peer": ints([other_end(rank, a.Src_Rank, a.Dst_Rank) for a in arguments]),
        "meeting": ints([_tag(a.Comms_Id) for a in arguments]),
    }


def _ranges(done: Sequence[_Event], base: int) -> list[Mark]:
    """The ranges that name a phase; those of the device hold what ran on their stream."""
    ranges = (event for event in done if event.cat in _RANGES)
    marks = [(event, mark) for event in ranges if (mark := read_mark(event.name or ""))]
    begins = _since([event.ts for event, _ in marks], base)
    took = _since([event.dur for event, _ in marks], 0)
    found = []
    for (event, mark), begin, lasts in rows_of(marks, begins, took):
        on_device = event.cat == "gpu_user_annotation"
        stream = event.tid if on_device and isinstance(event.tid, int) else UNKNOWN
        if stream != UNKNOWN or not on_device:
            end = begin + lasts
            found.append(replace(mark, start_ps=begin, end_ps=end, stream=stream))
    return found


def _allocated(event: _Event) -> int:
    """What the allocator of the device held after an event, in bytes; 0 for that of the host."""
    arguments = _readable(event)
    is_told = arguments.Device_Type == _ON_GPU and type(arguments.Total_Allocated) is int
    return min(arguments.Total_Allocated, MAX_INT64) if is_told else 0


def _operators(
    arguments: Sequence[_Arguments], launches: Sequence[_Launch], called: Sequence[_Call]
) -> list[HostOperator | None]:
    """The operator that launched each kernel, None without one.

    A kernel and its operator have a number in common; in older traces, and for what no operator of
    its own launches, it is the innermost call that its thread was in.
    """
    numbered: dict[Any, _Call | None] = {call[1].External_id: call for call in called}
    numbered[UNKNOWN] = None
    calls = [
        None if kernel.External_id == kernel.correlation else numbered.get(kernel.External_id)
        for kernel in arguments
    ]
    pairs = list(zip(arguments, calls, strict=True))
    lacking = {kernel.correlation for kernel, call in pairs if call is None}
    inside = dict(_inside(launches, called, lacking - {UNKNOWN}))
    operator_of = cache(_operator)
    found = (call or inside.get(kernel.correlation) for kernel, call in pairs)
    return [call and operator_of(call[0].name or "", bytes(call[1].Input_Dims)) for call in found]


def _operator(name: str, dims: bytes) -> HostOperator:
    """An operator with the shapes of the tensors among its inputs, whose dimensions are written."""
    try:
        inputs = msgspec.json.decode(dims, type=list[Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        inputs = []
    sides = tuple(
        tuple(each)
        for each in inputs
        if isinstance(each, list)
        and each
        and all(type(side) is int and 0 <= side <= MAX_INT64 for side in each)
    )
    return HostOperator(name=name, sides=sides)


def _readable(event: _Event) -> _Arguments:
    """Arguments of an event; those that cannot be read say nothing."""
    try:
        return _arguments(event, "")
    except TraceError:
        return _Arguments()


def _inside(
    launches: Sequence[_Launch], called: Sequence[_Call], wanted: set[int]
) -> Iterator[tuple[int, _Call]]:
    """Correlations of launches, each with the innermost operator that it lies in."""
    threads: dict[int | str, list[tuple[float, int, float, int]]] = {}
    for correlation, event in launches:
        if correlation in wanted:
            threads.setdefault(event.tid, []).append((event.ts, 1, 0.0, correlation))
    for number, (event, _) in enumerate(called):
        if event.tid in threads:
            threads[event.tid].append((event.ts, 0, -event.ts - event.dur, number))
    for entries in threads.values():
        open_calls: list[tuple[float, int]] = []
        for at, is_launch, minus_end, number in sorted(entries):
            while open_calls and open_calls[-1][0] < at:
                open_calls.pop()
            if not is_launch:
                open_calls.append((-minus_end, number))
            elif open_calls:
                yield number, called[open_calls[-1][1]]


def _arguments(event: _Event, name: str) -> _Arguments:
    """Arguments of an event; raises TraceError naming the file for those that cannot be read."""
    try:
        return _READ.decode(event.args) or _Arguments()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceError(f"{name}: arguments of {event.name!r}: {error}") from None


def _since(times_us: Sequence[float | tuple[float, ...]], base_us: int) -> Ints:
    """Picoseconds from a whole microsecond on: those since 1970 are too many."""
    apart = np.rint((np.array(times_us, np.float64) - base_us) * PS_PER_US)
    if (np.abs(apart) > MAX_INT64 / 2).any():
        raise OverflowError
    return np.asarray(apart, np.int64)


def _forms(
    arguments: Sequence[_Arguments], called: Sequence[_Call]
) -> list[tuple[object, ...] | None]:
    """How kernels were launched, and the dimensions that their operators worked on, as written.

    None for a kernel whose grid a trace does not say.
    """
    dims = {call.External_id: bytes(call.Input_Dims) for _, call in called}
    dims[UNKNOWN] = nothing = bytes(_NO_DIMS)
    return [
        (
            kernel.grid,
            kernel.block,
            kernel.registers_per_thread,
            kernel.shared_memory,
            dims.get(kernel.External_id, nothing),
        )
        if kernel.grid
        else None
        for kernel in arguments
    ]


def _group(group: str, described: str, ranks: str) -> tuple[str, Numbers]:
    """A group's name, with what the program calls it, and ranks."""
    cut_short = "..." in ranks  # of ranks as a trace writes them: `[0, 1]`
    numbers = [] if cut_short else re.findall(r"\d{1,9}", ranks)
    return " ".join(filter(None, (group, described))), tuple(map(int, numbers))


def _kinds(
    done: Sequence[_Event], kernels: Sequence[_Event], arguments: Sequence[_Arguments]
) -> list[tuple[TaskKind, str]]:
    """What operations are; each form is looked at once, but for copies in a range of NCCL.

    Ranges of NCCL's collectives are on the threads that stand for streams.
    """
    kind_of, found = cache(_kind), []
    copied: dict[int | str, list[tuple[float, float]]] = {}
    for event in done:
        if event.cat == "gpu_user_annotation" and (event.name or "").startswith("nccl:"):
            insort(copied.setdefault(event.tid, []), (event.ts, event.ts + event.dur))
    for event, told in zip(kernels, arguments, strict=True):
        kind, name = kind_of(event.cat, event.name or "", told.Collective_name)
        if event.cat == "gpu_memcpy" and _is_inside(event, copied.get(event.tid, ())):
            kind = TaskKind.SEND
        found.append((kind, name))
    return found


def _is_inside(event: _Event, ranges: Sequence[tuple[float, float]]) -> bool:
    """Whether the last of the ranges that began before an event ends after it."""
    place = bisect_right(ranges, (event.ts, inf)) - 1
    return place >= 0 and event.ts + event.dur <= ranges[place][1]


def _kind(category: str | None, name: str, called: str) -> tuple[TaskKind, str]:
    """What an operation is, and what it is called: those of libraries by their collective."""
    if category not in _COMPUTES:
        is_message = category == "gpu_memcpy" and is_peer_copy(name)
        return TaskKind.SEND if is_message else TaskKind.COPY, name
    kinds = {"send": TaskKind.SEND, "recv": TaskKind.RECV}
    if called:
        return kinds.get(called.lower(), TaskKind.COLLECTIVE), f"nccl {called}"
    short = communication_kernel(name)
    return (TaskKind.COLLECTIVE, short) if short else (TaskKind.COMPUTE, name)


def _stream(event: _Event, arguments: _Arguments) -> int:
    """The stream of an operation; its thread where the device names no streams."""
    stream = _number(arguments.stream)
    return event.tid if stream == UNKNOWN and isinstance(event.tid, int) else stream


def _number(value: object) -> int:
    """A number of arguments, which ROCm writes as the text of a pointer; else unknown."""
    if isinstance(value, str):
        known = re.fullmatch("0x[0-9a-f]{1,15}|[1-9][0-9]{0,17}|0", value)
        return int(value, 0) if known else UNKNOWN
    return value if isinstance(value, int) else UNKNOWN


def _size(arguments: _Arguments, bytes_of: Mapping[str, int]) -> int:
    elements = max(arguments.In_msg_nelems, arguments.Out_msg_nelems)
    each = bytes_of.get(arguments.dtype.lower(), 0)
    return elements * each if elements >= 0 and each else _number(arguments.bytes)


def _tag(number: int | str) -> int:
    """What `Comms Id` tells apart, equal for equal ones; 0 where there is none."""
    told = number if isinstance(number, int) else zlib.crc32(number.encode())
    return told & MAX_INT64
