"""Writing a profile as Chakra execution traces, one file per rank, for the tools that run them.

Source: `schema/protobuf/et_def.proto` of github mlcommons/chakra; attributes as its feeder reads
them. Microseconds are rounded; attributes `start_ps` and `duration_ps` hold the times whole.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec.structs import asdict

from stepsim import __version__
from stepsim.base.arrays import Ints
from stepsim.files.traces.chakra import (
    GROUPS_FILE,
    PLACES,
    STEP,
    TOLD,
    AttributeField,
    ChakraNode,
    NodeField,
)
from stepsim.files.traces.protobuf import write_field, write_integers, write_message
from stepsim.files.writing import write_folder
from stepsim.measured.profile.events import Profile
from stepsim.measured.profile.pipeline import pipeline_waits
from stepsim.tables.spans import UNKNOWN, TaskKind

_PS_PER_US = 10**6
_MOST_TIMES = 1 << 16
"""Times whose bytes are kept: ranks that do the same follow each other."""
_NODES = {
    TaskKind.COMPUTE: ChakraNode.COMP,
    TaskKind.HOST: ChakraNode.COMP,
    TaskKind.COPY: ChakraNode.COMP,
    TaskKind.COLLECTIVE: ChakraNode.COMM_COLL,
    TaskKind.SEND: ChakraNode.COMM_SEND,
    TaskKind.RECV: ChakraNode.COMM_RECV,
}
_COLLECTIVES = (
    *("all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "all_to_all"),
    *("reduce_scatter", "reduce_scatter_block", "barrier"),
)
"""Collectives by their numbers (CollectiveCommType)."""


def write_chakra(profile: Profile, folder: Path) -> list[Path]:
    """Write `stepsim.RANK.et` of every rank and the ranks of groups; returns the files.

    Steps lie side by side, each from 0 on. Raises OutputError for a folder that is not empty or
    cannot be written.
    """
    return write_folder(folder, _files(profile))


def _files(profile: Profile) -> Iterator[tuple[str, bytes]]:
    writing = _Writing(profile)
    for place, rank in enumerate(profile.ranks):
        yield f"stepsim.{rank.rank}.et", b"".join(writing.rank(place))
    groups = {str(i): each.ranks for i, each in enumerate(profile.groups)}
    yield GROUPS_FILE, json.dumps(groups).encode()


class _Kind(NamedTuple):
    """What tells one kind of node from the others, on any rank: columns of its events."""

    kind: int
    name: int
    step: int
    size_bytes: int
    stream: int
    phase: int
    chunk: int
    microbatch: int


class _Writing:
    """The messages of a profile: what many nodes share is made once, for all ranks."""

    def __init__(self, profile: Profile) -> None:
        waits, events = pipeline_waits(profile), profile.events
        self.profile = profile
        self.of_rank = profile.places_of_ranks()
        inside = np.empty(len(events), dtype=np.int64)
        for places in self.of_rank:
            inside[places] = np.arange(len(places))
        order = np.argsort(waits.after, kind="stable")
        self.before = inside[waits.before[order]].tolist()
        self.first = np.searchsorted(waits.after[order], np.arange(len(events) + 1)).tolist()
        self.kinds: dict[tuple[int, ...], tuple[bytes, bytes, bytes]] = {}
        self.times: dict[tuple[int, int], tuple[bytes, bytes]] = {}

    def rank(self, place: int) -> Iterator[bytes]:
        """Metadata and nodes of one rank."""
        version = _attribute("schema", AttributeField.STRING, f"stepsim {__version__}")
        rank = self.profile.ranks[place]
        told = [(name, getattr(rank, name)) for name in PLACES]
        places = [_attribute(k, AttributeField.INT64, n) for k, n in told if n is not None]
        fields = [write_field(2, each) for each in (version, *places)]
        yield write_message(write_field(1, "0.0.4") + b"".join(fields))
        yield from self._nodes(self.of_rank[place], rank.rank)

    def _nodes(self, places: Ints, rank: int) -> Iterator[bytes]:
        """The nodes of a rank, whose operations are at these places."""
        events, ends = self.profile.events.taken(places), dict[tuple[int, ...], bytes]()
        columns = {name: column.tolist() for name, column in asdict(events).items()}
        rows = zip(
            places.tolist(),
            zip(*(columns[name] for name in _Kind._fields), strict=True),
            zip(columns["start_ps"], events.duration_ps.tolist(), strict=True),
            zip(columns["kind"], columns["group"], columns["peer"], strict=True),
            columns["meeting"],
            strict=True,
        )
        for number, (event, kind, times, end, meeting) in enumerate(rows):
            if end not in ends:
                ends[end] = b"".join(self._ends(rank, *end))
            name, host, told = self._shared(kind)
            rounded, exact = self._timed(times)
            before = sorted(set(self.before[self.first[event] : self.first[event + 1]]))
            waits = write_integers(NodeField.DATA_DEPS, tuple(before))
            node = (write_field(NodeField.ID, number), name, waits, rounded, host, exact, told)
            yield write_message(b"".join((*node, ends[end], _tag(rank, end, meeting))))

    def _shared(self, columns: tuple[int, ...]) -> tuple[bytes, bytes, bytes]:
        """Of a kind of node: name and type, where it runs, and what else is told of it."""
        if columns not in self.kinds:
            kind = _Kind(*columns)
            name = write_field(NodeField.NAME, self.profile.names[kind.name])
            kind_of = write_field(NodeField.TYPE, _NODES[TaskKind(kind.kind)])
            on_host = _told("is_cpu_op", int(kind.kind == TaskKind.HOST), AttributeField.BOOL)
            self.kinds[columns] = name + kind_of, on_host, b"".join(self._told(kind))
        return self.kinds[columns]

    def _timed(self, times: tuple[int, int]) -> tuple[bytes, bytes]:
        """A start and a duration in ps, as microseconds and whole."""
        if times not in self.times:
            if len(self.times) >= _MOST_TIMES:
                self.times.clear()
            start, took = times
            self.times[times] = (
                write_field(NodeField.START_US, round(start / _PS_PER_US))
                + write_field(NodeField.DURATION_US, round(took / _PS_PER_US)),
                _told("start_ps", start) + _told("duration_ps", took),
            )
        return self.times[times]

    def _told(self, kind: _Kind) -> Iterator[bytes]:
        """Attributes of what is known: part of the step, bytes of a transfer, its collective."""
        if len(self.profile.steps) > 1:
            yield _told(STEP, self.profile.steps[kind.step])
        for name in TOLD:
            if getattr(kind, name) != UNKNOWN:
                yield _told(name, getattr(kind, name))
        if kind.size_bytes != UNKNOWN:
            yield _told("comm_size", kind.size_bytes)
        if kind.kind == TaskKind.COLLECTIVE:
            words = self.profile.names[kind.name]
            number = next((i for i, each in enumerate(_COLLECTIVES) if each in words), None)
            if number is not None:
                yield _told("comm_type", number)

    def _ends(self, rank: int, kind: int, group: int, peer: int) -> Iterator[bytes]:
        """Attributes of the ends of a transfer: the group of a collective, or both ranks."""
        if kind == TaskKind.COLLECTIVE:
            if group != UNKNOWN:
                yield _told("pg_name", str(group), AttributeField.STRING)
                yield _told("pg_desc", self.profile.groups[group].name, AttributeField.STRING)
        elif peer != UNKNOWN:
            other = self.profile.ranks[peer].rank
            both = (rank, other) if kind == TaskKind.SEND else (other, rank)
            for name, value in zip(("comm_src", "comm_dst"), both, strict=True):
                yield _told(name, value, AttributeField.INT32)


def _tag(rank: int, end: tuple[int, int, int], meeting: int) -> bytes:
    """The tag of a message, which both of its ends have; nothing for what is none.

    A collective of unknown ranks has its own rank's: it meets no other when it is read again.
    """
    kind, group, peer = end
    if kind == TaskKind.COLLECTIVE:
        alone = group == UNKNOWN
        return _told("comm_tag", rank + 1, AttributeField.INT32) if alone else b""
    if UNKNOWN in (peer, meeting):
        return b""
    return _told("comm_tag", meeting, AttributeField.INT32)


def _told(name: str, value: int | str, kind: AttributeField = AttributeField.INT64) -> bytes:
    """An attribute as a field of its node."""
    return write_field(NodeField.ATTRIBUTE, _attribute(name, kind, value))


def _attribute(name: str, kind: AttributeField, value: int | str) -> bytes:
    return write_field(AttributeField.NAME, name) + write_field(kind, value)
