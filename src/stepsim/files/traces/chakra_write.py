"""Writing a profile as Chakra execution traces, one file per rank, for the tools that run them.

Source: `schema/protobuf/et_def.proto` of github mlcommons/chakra; attributes as its feeder reads
them. Microseconds are rounded; attributes `start_ps` and `duration_ps` hold the times whole.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stepsim import __version__
from stepsim.base.arrays import Bools, Ints, Lists, bounds, spans
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
from stepsim.measured.profile.events import Events, Profile
from stepsim.measured.profile.pipeline import pipeline_waits
from stepsim.run.spans import COMMUNICATIONS, UNKNOWN, TaskKind

_PS_PER_US = 10**6
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
        inside = np.empty(len(events), np.int32)
        for places in self.of_rank:
            inside[places] = np.arange(len(places))
        order = np.argsort(waits.after, kind="stable")
        self.before = inside[waits.before[order]]
        self.first = np.searchsorted(waits.after[order], np.arange(len(events) + 1))
        self.kinds: dict[tuple[int, ...], tuple[bytes, bytes, bytes]] = {}
        self.look: tuple[bytes, ...] = ()
        self.nodes: list[bytes] = []

    def rank(self, place: int) -> Iterator[bytes]:
        """Metadata and nodes of one rank."""
        version = _attribute("schema", AttributeField.STRING, f"stepsim {__version__}")
        rank = self.profile.ranks[place]
        told = [(name, getattr(rank, name)) for name in PLACES]
        places = [_attribute(k, AttributeField.INT64, n) for k, n in told if n is not None]
        fields = [write_field(2, each) for each in (version, *places)]
        yield write_message(write_field(1, "0.0.4") + b"".join(fields))
        yield from self._nodes(self.of_rank[place], rank.rank)

    def _nodes(self, places: Ints, rank: int) -> list[bytes]:
        """The nodes of a rank, whose operations are at these places."""
        events, ends = self.profile.events.taken(places), dict[tuple[int, ...], bytes]()
        is_linked = events.of_kind(*COMMUNICATIONS) | (events.peer != UNKNOWN)
        nodes = self._alike(events, places, is_linked).copy()
        linked = np.flatnonzero(is_linked)
        columns = [column[linked].tolist() for column in (events.kind, events.group, events.peer)]
        rows = zip(
            linked.tolist(),
            zip(*columns, strict=True),
            events.meeting[linked].tolist(),
            strict=True,
        )
        for number, end, meeting in rows:
            if end not in ends:
                ends[end] = b"".join(self._ends(rank, *end))
            nodes[number] = write_message(nodes[number] + ends[end] + _tag(rank, end, meeting))
        return nodes

    def _alike(self, events: Events, places: Ints, is_linked: Bools) -> list[bytes]:
        """The nodes of a rank, those of before if it does the same as the rank before it.

        Of those that are linked to other ranks it is what comes before the link.
        """
        first = self.first[places]
        counts = self.first[places + 1] - first
        waits = Lists(bounds(counts), self.before[spans(first, counts)])
        names = (*_Kind._fields, "start_ps", "end_ps")
        columns = [getattr(events, name) for name in names]
        look = tuple(each.tobytes() for each in (*columns, counts, waits.values, is_linked))
        if look != self.look:
            self.look, self.nodes = look, [*self._made(events, waits.tolist(), is_linked)]
        return self.nodes

    def _made(
        self, events: Events, waits: list[tuple[int, ...]], is_linked: Bools
    ) -> Iterator[bytes]:
        rows = zip(
            zip(*(getattr(events, name).tolist() for name in _Kind._fields), strict=True),
            zip(events.start_ps.tolist(), events.duration_ps.tolist(), strict=True),
            waits,
            is_linked.tolist(),
            strict=True,
        )
        for number, (kind, times, before, links) in enumerate(rows):
            name, host, told = self._shared(kind)
            rounded, exact = _timed(*times)
            after = write_integers(NodeField.DATA_DEPS, tuple(sorted(set(before))))
            node = write_field(NodeField.ID, number) + name + after + rounded + host + exact + told
            yield node if links else write_message(node)

    def _shared(self, columns: tuple[int, ...]) -> tuple[bytes, bytes, bytes]:
        """Of a kind of node: name and type, where it runs, and what else is told of it."""
        if columns not in self.kinds:
            kind = _Kind(*columns)
            name = write_field(NodeField.NAME, self.profile.names[kind.name])
            kind_of = write_field(NodeField.TYPE, _NODES[TaskKind(kind.kind)])
            on_host = _told("is_cpu_op", int(kind.kind == TaskKind.HOST), AttributeField.BOOL)
            self.kinds[columns] = name + kind_of, on_host, b"".join(self._told(kind))
        return self.kinds[columns]

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


def _timed(start: int, took: int) -> tuple[bytes, bytes]:
    """A start and a duration in ps, as microseconds and whole."""
    return (
        write_field(NodeField.START_US, round(start / _PS_PER_US))
        + write_field(NodeField.DURATION_US, round(took / _PS_PER_US)),
        _told("start_ps", start) + _told("duration_ps", took),
    )


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
