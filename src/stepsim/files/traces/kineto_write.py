"""Writing a profile as PyTorch profiler traces, one file per rank, for the tools that open them.

An operation of a device is a kernel with its launch, one of the host an operator; communications
have the names and arguments that PyTorch writes for NCCL's kernels. Actions of a pipeline are
ranges on their streams. Times are exact to the ps. A
trace has one clock for all steps, and an operation belongs to the step in which it was launched:
steps whose times all count from their own begin are written one after another.
"""

from collections.abc import Iterator
from functools import cache, partial
from itertools import chain, zip_longest
from pathlib import Path

import msgspec
import numpy as np

from stepsim import __version__
from stepsim.base.arrays import Ints, rows_of
from stepsim.base.structs import Values, replace, shipped
from stepsim.base.writing import write_folder
from stepsim.measured.profile.events import Events, Profile
from stepsim.measured.profile.marks import ACTION_PHASES
from stepsim.measured.run import PS_PER_US
from stepsim.run.spans import COMMUNICATIONS, UNKNOWN, TaskKind, TaskPhase, extents, latest

# PyTorch's own streams begin there.
_FIRST_STREAM = 7
# In the text that ranks share: their own number, and what is known of a communication's ends.
_RANK, _TRANSFER = "\0", '"transfer":0'
_NUMBER = msgspec.Raw(_RANK.encode())
# Columns that ranks must have in common for their files to differ in numbers alone.
_SHARED = (
    *("kind", "name", "stream", "size_bytes", "operator", "step", "phase", "chunk", "microbatch"),
    *("start_ps", "end_ps", "launch_ps"),
)
_LETTERS = {phase: letter for letter, phase in ACTION_PHASES.items()}
_MESSAGES = {TaskKind.SEND: "send", TaskKind.RECV: "recv"}


def write_kineto(profile: Profile, folder: Path) -> list[Path]:
    """Write `stepsim.rankN.json` of every rank; returns the files.

    Raises OutputError for a folder that is not empty or cannot be written.
    """
    return write_folder(folder, _files(_on_one_clock(profile)))


def _files(profile: Profile) -> Iterator[tuple[str, bytes]]:
    """The name and the content of every file: ranks in turn that do the same share their text."""
    known, texts, marks = None, [""], _marks(profile)
    for place, own in enumerate(profile.places_of_ranks()):
        events, rank = profile.events.taken(own), profile.ranks[place].rank
        look = marks[place], *(getattr(events, name).tobytes() for name in _SHARED)
        if look != known:
            known, texts = look, _trace(profile, events, marks[place]).split(_TRANSFER)
        pieces = zip_longest(texts, _transfers(profile, events), fillvalue="")
        content = "".join(chain.from_iterable(pieces)).replace(_RANK, str(rank)).encode()
        yield f"stepsim.rank{rank}.json", content


def _launches(events: Events) -> Ints:
    """When every operation was launched, in ps; when it started where that is not told."""
    return np.where(events.launch_ps == UNKNOWN, events.start_ps, events.launch_ps)


def _bounds(profile: Profile) -> tuple[Ints, Ints]:
    """The first launch of every step, and the last until its end: of shape (ranks, steps), in ps.

    The first of a rank without operations in a step is the largest number.
    """
    events, launch = profile.events, _launches(profile.events)
    ranks, steps = len(profile.ranks), len(profile.steps)
    place = events.rank * steps + events.step
    first, last = extents(place, ranks * steps, launch, launch)
    so_far = np.maximum.accumulate(last.reshape(ranks, steps), axis=1)
    return first.reshape(ranks, steps), so_far


def _on_one_clock(profile: Profile) -> Profile:
    """The profile as it is if every rank launched its steps in turn, else with steps in a row.

    For example steps from 0 to 5 ps and from 0 to 3 ps are then from 0 to 5 and from 6 to 9 ps.
    """
    first, so_far = _bounds(profile)
    if (first[:, 1:] > so_far[:, :-1]).all():
        return profile
    events = profile.events
    begin, end = first.min(axis=0), latest(events.step, events.end_ps, len(profile.steps))
    lengths = end - begin + 1
    moved = (np.cumsum(lengths) - lengths - begin)[events.step]
    return replace(profile, events=events.later(moved))


def _marks(profile: Profile) -> list[list[list[int]]]:
    """Begin and end in ps of the mark of every step, for every rank.

    A mark goes from the first launch of the step on any rank to just after its last end, but only
    over launches of this step on its own rank.
    """
    first, so_far = _bounds(profile)
    begin = first.min(axis=0)
    end = latest(profile.events.step, profile.events.end_ps + 1, len(profile.steps))
    begins, ends = (np.tile(times, (len(profile.ranks), 1)) for times in (begin, end))
    begins[:, 1:] = np.maximum(begin[1:], so_far[:, :-1] + 1)
    later = np.minimum.accumulate(first[:, :0:-1], axis=1)[:, ::-1]
    ends[:, :-1] = np.minimum(end[:-1], later)
    marks: list[list[list[int]]] = np.stack((begins, ends), axis=2).tolist()
    return marks


def _trace(profile: Profile, events: Events, marks: list[list[int]]) -> str:
    """The file of a rank, from its own operations and the marks of its steps.

    `_RANK` stands for its number, `_TRANSFER` for what `_transfers` gives.
    """
    head = {
        "schemaVersion": 1,
        "stepsim_version": __version__,
        "distributedInfo": {
            "backend": "nccl",
            "rank": _NUMBER,
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
    }
    texts = (*_steps(profile, marks), *_actions(events), *_operations(profile, events))
    return f'{_text(head)[:-1]},"traceEvents":[{",".join(texts)}]}}'


def _steps(profile: Profile, marks: list[list[int]]) -> Iterator[str]:
    """A mark of every step that the rank has a part in."""
    for number, (begin, end) in zip(profile.steps, marks, strict=True):
        if begin < end:
            name, times = f"ProfilerStep#{number}", (begin / PS_PER_US, (end - begin) / PS_PER_US)
            yield _event("user_annotation", name, *times)


def _actions(events: Events) -> Iterator[str]:
    """A range of every action on every stream, named as torch's pipelines name it: `PP:2F0`."""
    run = events.taken(events.kind != TaskKind.HOST)
    run = run.taken(np.lexsort((run.end_ps, run.start_ps, run.stream)))
    told = (run.microbatch != UNKNOWN) & (run.chunk != UNKNOWN) & np.isin(run.phase, [*_LETTERS])
    columns = np.stack([run.stream, run.step, run.phase, run.chunk, run.microbatch, told])
    firsts = np.flatnonzero(np.any(np.diff(columns, prepend=-2) != 0, axis=0))
    # a range holds what starts before its end, also a kernel that takes no time
    last, end = (np.maximum.reduceat(times, firsts) for times in (run.start_ps, run.end_ps))
    start = run.start_ps[firsts]
    took = np.maximum(end, last + 1) - start
    for first, begin, lasts in rows_of(firsts, _microseconds(start), _microseconds(took)):
        if told[first]:
            letter = _LETTERS[TaskPhase(int(run.phase[first]))]
            name = f"PP:{run.chunk[first]}{letter}{run.microbatch[first]}"
            stream = int(run.stream[first]) + _FIRST_STREAM
            yield _event("gpu_user_annotation", name, begin, lasts, tid=stream)


def _operations(profile: Profile, events: Events) -> Iterator[str]:
    """The events of every operation: its own, and before it those of its launch."""
    times = map(_microseconds, (events.start_ps, events.duration_ps, _launches(events)))
    rows = rows_of(events.kind, events.name, events.stream, events.operator, *times)
    for correlation, (kind, name, stream, operator, start, took, launched) in enumerate(rows, 1):
        task, called = TaskKind(kind), profile.names[name]
        if task is TaskKind.HOST:
            yield _event("cpu_op", called, start, took)
            continue
        told: Values = {"correlation": correlation}
        if operator != UNKNOWN:
            caller = profile.operators[operator]
            outside = {"External id": len(profile.events) + correlation}
            sides = {"Input Dims": caller.sides} if caller.sides else {}
            yield _event("cpu_op", caller.name, launched, 0.0, outside | sides)
            told |= outside
        yield _event("cuda_runtime", "cudaLaunchKernel", launched, 0.0, told)
        told |= {"device": _NUMBER, "stream": stream + _FIRST_STREAM}
        if task in COMMUNICATIONS:
            called = f"ncclDevKernel_{_called(task, called)[2]}"
            told["transfer"] = 0
        category = "gpu_memcpy" if task is TaskKind.COPY else "kernel"
        yield _event(category, called, start, took, told, 0, stream + _FIRST_STREAM)


def _called(task: TaskKind, name: str) -> tuple[str, str, str]:
    """What a communication is, its name in PyTorch, and the rest of its kernel's name."""
    known = _MESSAGES.get(task, name.rsplit(" ", maxsplit=1)[-1])
    names = shipped(__file__, "nccl_names.toml", dict[str, tuple[str, str]])
    return known, *names.get(known, (name, name))


def _transfers(profile: Profile, events: Events) -> Iterator[str]:
    """The last arguments of the communications of a rank, in order."""
    text_of = cache(partial(_communication, profile))
    run = events.taken(events.of_kind(*COMMUNICATIONS))
    columns = (run.kind, run.name, run.size_bytes, run.group, run.peer, run.meeting)
    for *kind, meeting in rows_of(*columns):
        text = text_of(*kind)
        yield text if meeting == UNKNOWN else f'{text},"Comms Id":{meeting}'


def _communication(profile: Profile, kind: int, name: int, size: int, group: int, peer: int) -> str:
    """The arguments of a communication's kernel, without braces."""
    known, called, _ = _called(TaskKind(kind), profile.names[name])
    members = profile.groups[group].ranks if group != UNKNOWN else ()
    share = size // max(len(members), 1)
    told: Values = {
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
    if peer != UNKNOWN:
        told["Dst Rank" if known == "send" else "Src Rank"] = profile.ranks[peer].rank
    return _text(told)[1:-1]


def _microseconds(times_ps: Ints) -> list[float]:
    """Times in ps as microseconds, exact to the ps."""
    return [time / PS_PER_US for time in times_ps.tolist()]


def _text(told: Values) -> str:
    """An object in JSON."""
    return msgspec.json.encode(told).decode()


def _event(
    category: str,
    name: str,
    start_us: float,
    took_us: float,
    told: Values | None = None,
    pid: int | msgspec.Raw = _NUMBER,
    tid: int | msgspec.Raw = _NUMBER,
) -> str:
    """The text of an event; it is one of the rank itself by default."""
    head = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid}
    return _text({**head, "ts": start_us, "dur": took_us, "args": told or {}})
