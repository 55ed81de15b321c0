"""Traces read back: the schema of the format, exact times, and what belongs together."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import Any

import fastjsonschema

Event = dict[str, Any]

TIME = {"type": "number", "minimum": 0}
NUMBER = {"type": "integer", "minimum": 1}
NAMES = {"process_name", "thread_name"}
PLACES = {"process_sort_index", "thread_sort_index"}
# names reserved in Catapult's trace viewer, tracing/base/color_scheme.html
COLOURS = [
    "background_memory_dump",
    "bad",
    "black",
    "detailed_memory_dump",
    "generic_work",
    "good",
    "grey",
    "light_memory_dump",
    "olive",
    "rail_animation",
    "rail_idle",
    "rail_load",
    "rail_response",
    "startup",
    "terrible",
    "thread_state_iowait",
    "thread_state_runnable",
    "thread_state_running",
    "thread_state_sleeping",
    "thread_state_uninterruptible",
    "thread_state_unknown",
    "vsync_highlight_color",
    "white",
    "yellow",
]


def _event(phase: str, properties: dict[str, Any], optional: dict[str, Any]) -> dict[str, Any]:
    """An event with these members and no others."""
    return {
        "type": "object",
        "properties": {"ph": {"const": phase}} | properties | optional,
        "required": ["ph", *properties],
        "additionalProperties": False,
    }


def _named(kinds: set[str], argument: str, value: dict[str, Any]) -> dict[str, Any]:
    args = {
        "type": "object",
        "properties": {argument: value},
        "required": [argument],
        "additionalProperties": False,
    }
    named = {"pid": NUMBER, "name": {"enum": sorted(kinds)}, "args": args}
    return _event("M", named, {"tid": NUMBER})


ON_THREAD = {"pid": NUMBER, "tid": NUMBER, "ts": TIME}
TEXT = {"type": "string", "minLength": 1}
FLOW = ON_THREAD | {"id": NUMBER, "name": TEXT, "cat": TEXT}
FACT = {"type": ["string", "number", "array"], "items": {"type": "string"}}
SLICE = ON_THREAD | {
    "name": TEXT,
    "cat": TEXT,
    "cname": {"enum": COLOURS},
    "args": {"type": "object", "additionalProperties": FACT},
}
VALUES = {"type": "object", "additionalProperties": {"type": "number"}, "minProperties": 1}
EVENTS = {
    "B": _event("B", SLICE, {}),
    "E": _event("E", ON_THREAD, {}),
    "s": _event("s", FLOW, {}),
    "f": _event("f", FLOW | {"bp": {"const": "e"}}, {}),
    "C": _event("C", {"pid": NUMBER, "ts": TIME, "name": TEXT, "args": VALUES}, {}),
    "M": {
        "oneOf": [
            _named(NAMES, "name", TEXT),
            _named(PLACES, "sort_index", {"type": "integer"}),
        ]
    },
}
"""What events are like, by their phase; a trace has many, so each is held against its own only."""

SCHEMA = {
    "title": "Trace Event Format, JSON Object Format, as far as stepsim writes it",
    "$comment": "docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU",
    "type": "object",
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "otherData": {"type": "object", "additionalProperties": {"type": "string"}},
        "traceEvents": {"type": "array"},
    },
    "required": ["displayTimeUnit", "otherData", "traceEvents"],
    "additionalProperties": False,
}


@cache
def _check(phase: str | None = None) -> Callable[[Any], object]:
    """A function that raises where a trace, or an event of this phase, is not as it should be."""
    schema: dict[str, Any] = SCHEMA if phase is None else EVENTS[phase]
    check: Callable[[Any], object] = fastjsonschema.compile(schema)
    return check


def check_schema(text: str) -> None:
    """Fail if a text is no trace by the schema."""
    document = json.loads(text, parse_constant=_refuse)
    _check()(document)
    for event in document["traceEvents"]:
        _check(event["ph"])(event)


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSlice:
    """A slice read back, in ps, and the numbers of the arrows at it."""

    name: str
    category: str
    args: dict[str, Any]
    start: int
    end: int
    arrows: list[tuple[str, int]]


@dataclass(slots=True, kw_only=True)
class ReadProcess:
    """A process read back: slices by thread name, counter values by counter and series."""

    name: str = ""
    order: int = 0
    threads: dict[str, list[ReadSlice]] = field(default_factory=dict)
    counters: dict[str, list[tuple[int, dict[str, float]]]] = field(default_factory=dict)

    def tasks(self) -> Iterator[tuple[str, ReadSlice]]:
        """Slices of all streams, each with its stream's name."""
        for name, slices in self.threads.items():
            if name not in ("schedule", "step"):
                stream = "eager" if name.startswith("eager") else name
                yield from ((stream, each) for each in slices)


def read_trace(text: str) -> list[ReadProcess]:
    """The processes of a trace in order of their number.

    Fails where the slices of a thread overlap, go back in time or do not end, and where an arrow's
    end lies outside of the slice it stands in.
    """
    events = json.loads(text, parse_float=Decimal)["traceEvents"]
    processes: dict[int, ReadProcess] = defaultdict(ReadProcess)
    names: dict[int, str] = {}
    open_slices: dict[int, ReadSlice] = {}
    last: dict[int, int] = {}
    for event in events:
        process = processes[event["pid"]]
        if event["ph"] == "M":
            _name(process, event, names)
        elif event["ph"] == "C":
            values = {key: float(value) for key, value in event["args"].items()}
            process.counters.setdefault(event["name"], []).append((_ps(event["ts"]), values))
        else:
            _on_thread(process.threads[names[event["tid"]]], event, open_slices, last)
    assert not open_slices
    return [processes[number] for number in sorted(processes)]


def _name(process: ReadProcess, event: Event, names: dict[int, str]) -> None:
    match event["name"]:
        case "process_name":
            process.name = event["args"]["name"]
        case "process_sort_index":
            process.order = event["args"]["sort_index"]
        case "thread_name":
            assert event["tid"] not in names, "numbers of threads are unique in the trace"
            names[event["tid"]] = event["args"]["name"]
            process.threads[event["args"]["name"]] = []


def _on_thread(
    slices: list[ReadSlice], event: Event, open_slices: dict[int, ReadSlice], last: dict[int, int]
) -> None:
    thread, now = event["tid"], _ps(event["ts"])
    assert now >= last.get(thread, 0)
    last[thread] = now
    match event["ph"]:
        case "B":
            assert thread not in open_slices
            open_slices[thread] = ReadSlice(
                name=event["name"],
                category=event["cat"],
                args=event["args"],
                start=now,
                end=-1,
                arrows=[],
            )
        case "E":
            begun = open_slices.pop(thread)
            slices.append(
                ReadSlice(
                    name=begun.name,
                    category=begun.category,
                    args=begun.args,
                    start=begun.start,
                    end=now,
                    arrows=begun.arrows,
                )
            )
        case phase:
            open_slices[thread].arrows.append((phase, event["id"]))


def _ps(time_us: Decimal | int) -> int:
    whole = Decimal(time_us) * 1_000_000
    assert whole == int(whole)
    return int(whole)
