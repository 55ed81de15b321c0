"""Traces in the Trace Event Format, which Perfetto and chrome://tracing open.

The format is described in "Trace Event Format" (Google, 2016,
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU), the colours in
the trace viewer of the Catapult project. Times are microseconds with six decimals, so whole ps.

Slices are pairs of begin and end, not "complete" events: Perfetto rounds times to ns, and would
round a start and a duration apart, find that neighbours overlap, and drop one.
"""

import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import cache
from itertools import count, islice
from pathlib import Path
from typing import Any

from stepsim import __version__
from stepsim.base.arrays import rows_of
from stepsim.base.errors import OutputError
from stepsim.base.structs import shipped
from stepsim.base.writing import check_writable, whole_file
from stepsim.documents.trace import Category, Curves, Label, Process, Slice

_SUFFIXES = (".json", ".json.gz")

COLOURS = shipped(__file__, "perfetto.toml", dict[Category, str])
"""Names of colours that Catapult's trace viewer reserves, by what they are used for here."""

_LINES_AT_ONCE = 4096
_SLICE_BYTES = 350
_PACKED_BYTES = 19
_PS_PER_US = 1_000_000
_SURROGATES = "backslashreplace"  # of a file's name that is no UTF-8: `\\udc80` is JSON too


def check_trace_path(path: Path) -> None:
    """Raise OutputError where it cannot be written, or its name does not end as a trace's."""
    check_writable(path)
    if not path.name.lower().endswith(_SUFFIXES):
        raise OutputError(
            f"{path}: cannot write a trace: expected a name in {' or '.join(_SUFFIXES)}"
        )


def trace_bytes(slices: int, path: Path) -> int:
    """About how large a trace of so many slices is: all take the same (docs/performance.md)."""
    return slices * (_PACKED_BYTES if _is_packed(path) else _SLICE_BYTES)


def _is_packed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def write_trace(processes: Iterable[Process], path: Path, command: str = "") -> None:
    """Write processes as one trace, compressed if the name ends in .gz; raises OutputError.

    `command` is kept in the trace. Events are written as they are made, a process at a time.
    """
    check_trace_path(path)
    with whole_file(path) as file, ExitStack() as opened:
        out: Any = file
        if _is_packed(path):  # without name and date
            packed = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
            out = opened.enter_context(packed)
        lines = trace_lines(processes, command)
        while some := list(islice(lines, _LINES_AT_ONCE)):
            out.write("".join(some).encode(errors=_SURROGATES))


def trace_lines(processes: Iterable[Process], command: str = "") -> Iterator[str]:
    """The lines of a trace in the JSON Object Format, an event each.

    No process or thread has the number of another, for Perfetto knows threads by theirs, and takes
    one with its process's number for the main thread, and 0 for the idle one.
    """
    numbers = count(1)
    about = {"program": "stepsim", "version": __version__}
    about |= {"command": command} if command else {}
    yield f'{{"displayTimeUnit":"ms","otherData":{_quoted(about)},"traceEvents":[\n'
    before = ""
    for process in processes:
        for event in _events(process, numbers):
            yield f"{before}{{{event}}}"
            before = ",\n"
    yield "\n]}\n"


# JSON; only what must be is escaped, for Perfetto shows other escapes as they are written.
_quoted = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _head(label: Label) -> str:
    """Name, category and colour of a slice."""
    colour = COLOURS[label.category]
    return f'"name":{_quoted(label.name)},"cat":"{label.category}","cname":"{colour}"'


def _args(each: Slice, facts: Callable[[Label], str]) -> str:
    """The `facts` about a slice, those of its action, what it waited for, what slowed it."""
    text = facts(each.label)
    if each.action:
        text += "," + facts(each.action)
    if each.waited_for:
        text += ',"waited_for":' + _quoted(each.waited_for)
    if each.alone_ps >= 0:
        beside = each.end_ps - each.start_ps
        text += f',"slowed_by":"communication","alone_ps":{each.alone_ps},"beside_ps":{beside}'
    return text


def _us(time_ps: int) -> str:
    return f"{time_ps // _PS_PER_US}.{time_ps % _PS_PER_US:06d}"


def _events(process: Process, numbers: Iterator[int]) -> Iterator[str]:
    """The members of a process's events: names first, then counters, then slices.

    What slices share is written once for all of a process.
    """
    head = cache(_head)
    facts = cache(lambda label: _quoted(label.facts)[1:-1])
    number = next(numbers)
    yield from _named("process", f'"pid":{number}', process.name, number)
    for name, curves in process.counters.items():
        yield from _counts(number, name, curves)
    for thread in process.threads:
        place = next(numbers)
        where = f'"pid":{number},"tid":{place}'
        yield from _named("thread", where, thread.name, place)
        for each in thread.slices:
            args = _args(each, facts)
            yield f'"ph":"B",{where},"ts":{_us(each.start_ps)},{head(each.label)},"args":{{{args}}}'
            if each.message:
                yield _arrow(each, where)
            yield f'"ph":"E",{where},"ts":{_us(each.end_ps)}'


def _named(what: str, where: str, name: str, place: int) -> Iterator[str]:
    """Name of a process or thread, and its place among the others."""
    yield f'"ph":"M",{where},"name":"{what}_name","args":{{"name":{_quoted(name)}}}'
    yield f'"ph":"M",{where},"name":"{what}_sort_index","args":{{"sort_index":{place}}}'


def _arrow(each: Slice, where: str) -> str:
    """An end of a message's arrow: where the send starts, or the last ps of the receipt."""
    sends = each.label.category is Category.SEND
    time_ps = each.start_ps if sends else max(each.start_ps, each.end_ps - 1)
    kind = '"ph":"s"' if sends else '"ph":"f","bp":"e"'
    return (
        f'{kind},{where},"ts":{_us(time_ps)},"id":{each.message},"name":"message","cat":"message"'
    )


def _counts(process: int, name: str, curves: Curves) -> Iterator[str]:
    """Events of a counter, where what it shows changes."""
    head = f'"ph":"C","pid":{process},"name":{_quoted(name)}'
    series = [_quoted(each) for each in curves.names]
    shown = ""
    for time_ps, row in rows_of(curves.time_ps, curves.values):
        values = ",".join(
            f"{key}:{max(value, 0):.7g}" for key, value in zip(series, row, strict=True)
        )
        if values != shown:
            yield f'{head},"ts":{_us(time_ps)},"args":{{{values}}}'
            shown = values
