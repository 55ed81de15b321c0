"""Writing a profile as Chakra execution traces, one file per rank, for the tools that run them.

Source: `schema/protobuf/et_def.proto` of github mlcommons/chakra; attributes as its feeder reads
them. Microseconds are rounded; attributes `start_ps` and `duration_ps` hold the times whole.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from stepsim import __version__
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


class _Writing:
    """The messages of a profile; its columns as lists, its dependencies by rank."""

    def __init__(self, profile: Profile) -> None:
        waits, events = pipeline_waits(profile), profile.events
        self.profile = profile
        self.columns: dict[str, list[int]] = {
            name: getattr(events, name).tolist()
            for name in (
                *(
                    "kind",
                    "name",
                    "start_ps",
                    "end_ps",
                    "size_bytes",
                    "group",
                    "peer",
                    "meeting",
                    "step",
                ),
                *TOLD,
            )
        }
        self.of_rank = [np.flatnonzero(events.rank == i) for i in range(len(profile.ranks))]
        inside = np.empty(len(events), dtype=np.int64)
        for places in self.of_rank:
            inside[places] = np.arange(len(places))
        order = np.argsort(waits.after, kind="stable")
        self.before = inside[waits.before[order]].tolist()
        self.first = np.searchsorted(waits.after[order], np.arange(len(events) + 1)).tolist()
        self.inside = inside.tolist()
        self.known: dict[tuple[str, object], bytes] = {}

    def rank(self, place: int) -> Iterator[bytes]:
        """Metadata and nodes of one rank."""
        version = _attribute("schema", AttributeField.STRING, f"stepsim {__version__}")
        rank = self.profile.ranks[place]
        told = [(name, getattr(rank, name)) for name in PLACES]
        places = [_attribute(k, AttributeField.INT64, n) for k, n in told if n is not None]
        fields = [write_field(2, each) for each in (version, *places)]
        yield write_message(write_field(1, "0.0.4") + b"".join(fields))
        number = rank.rank
        for event in self.of_rank[place].tolist():
            yield write_message(b"".join(self._node(event, number)))

    def _node(self, event: int, rank: int) -> Iterator[bytes]:
        columns = {name: column[event] for name, column in self.columns.items()}
        kind, start = TaskKind(columns["kind"]), columns["start_ps"]
        took = columns["end_ps"] - start
        yield write_field(NodeField.ID, self.inside[event])
        yield write_field(NodeField.NAME, self.profile.names[columns["name"]])
        yield write_field(NodeField.TYPE, _NODES[kind])
        before = self.before[self.first[event] : self.first[event + 1]]
        yield write_integers(NodeField.DATA_DEPS, tuple(sorted(set(before))))
        yield write_field(NodeField.START_US, round(start / _PS_PER_US))
        yield write_field(NodeField.DURATION_US, round(took / _PS_PER_US))
        on_host = int(kind is TaskKind.HOST)
        attributes = [
            self._attribute("is_cpu_op", AttributeField.BOOL, on_host),
            _attribute("start_ps", AttributeField.INT64, start),
            _attribute("duration_ps", AttributeField.INT64, took),
            *self._told(columns, rank, kind),
        ]
        for attribute in attributes:
            yield write_field(NodeField.ATTRIBUTE, attribute)

    def _attribute(self, name: str, kind: AttributeField, value: int | str) -> bytes:
        """An attribute; those whose values come again and again are made once."""
        key = name, value
        if key not in self.known:
            self.known[key] = _attribute(name, kind, value)
        return self.known[key]

    def _told(self, columns: dict[str, int], rank: int, kind: TaskKind) -> Iterator[bytes]:
        """Attributes of what is known: bytes, ends and tag of a transfer, part of the step."""
        if len(self.profile.steps) > 1:
            step = self.profile.steps[columns["step"]]
            yield self._attribute(STEP, AttributeField.INT64, step)
        for name in TOLD:
            if columns[name] != UNKNOWN:
                yield self._attribute(name, AttributeField.INT64, columns[name])
        if columns["size_bytes"] != UNKNOWN:
            yield self._attribute("comm_size", AttributeField.INT64, columns["size_bytes"])
        if kind is TaskKind.COLLECTIVE:
            words = self.profile.names[columns["name"]]
            number = next((i for i, each in enumerate(_COLLECTIVES) if each in words), None)
            if number is not None:
                yield self._attribute("comm_type", AttributeField.INT64, number)
            if columns["group"] != UNKNOWN:
                group = columns["group"]
                yield self._attribute("pg_name", AttributeField.STRING, str(group))
                called = self.profile.groups[group].name
                yield self._attribute("pg_desc", AttributeField.STRING, called)
        elif columns["peer"] != UNKNOWN:
            peer = self.profile.ranks[columns["peer"]].rank
            ends = (rank, peer) if kind is TaskKind.SEND else (peer, rank)
            for name, value in zip(("comm_src", "comm_dst"), ends, strict=True):
                yield self._attribute(name, AttributeField.INT32, value)
            if columns["meeting"] != UNKNOWN:
                yield _attribute("comm_tag", AttributeField.INT32, columns["meeting"])


def _attribute(name: str, kind: AttributeField, value: int | str) -> bytes:
    return write_field(AttributeField.NAME, name) + write_field(kind, value)
