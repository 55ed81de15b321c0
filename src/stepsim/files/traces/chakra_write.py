"""Writing a profile as Chakra execution traces, one file per rank, for the tools that run them.

Source: `schema/protobuf/et_def.proto` of github mlcommons/chakra; attributes as its feeder reads
them. Microseconds are rounded; attributes `start_ps` and `duration_ps` hold the times whole.
"""

import json
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import numpy as np

from stepsim import __version__
from stepsim.base.arrays import Bools, Ints, Lists, bounds, lists_of, spans
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
from stepsim.measured.profile.events import Events, Profile, RankPlace, counted
from stepsim.measured.profile.pipeline import pipeline_waits
from stepsim.measured.run import PS_PER_US
from stepsim.run.spans import COMMUNICATIONS, UNKNOWN, TaskKind

_NODES = {
    TaskKind.COMPUTE: ChakraNode.COMP,
    TaskKind.HOST: ChakraNode.COMP,
    TaskKind.COPY: ChakraNode.COMP,
    TaskKind.COLLECTIVE: ChakraNode.COMM_COLL,
    TaskKind.SEND: ChakraNode.COMM_SEND,
    TaskKind.RECV: ChakraNode.COMM_RECV,
}
# Collectives by their numbers (CollectiveCommType).
_COLLECTIVES = (
    *("all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "all_to_all"),
    *("reduce_scatter", "reduce_scatter_block", "barrier"),
)

# Columns of events that tell one kind of node from the others, on any rank.
_KIND = ("kind", "name", "step", "size_bytes", *TOLD)


def write_chakra(profile: Profile, folder: Path) -> list[Path]:
    """Write `stepsim.RANK.et` of every rank and the ranks of groups; returns the files.

    Steps lie side by side, each from 0 on. Raises OutputError for a folder that is not empty or
    cannot be written.
    """
    return write_folder(folder, _files(profile))


def _files(profile: Profile) -> Iterator[tuple[str, bytes]]:
    """The name and the content of every file: ranks in turn that do the same share their nodes.

    Of nodes that are linked to other ranks they share what comes before the link.
    """
    known, alike, before = list[bytes](), list[bytes](), _waits(profile)
    every = before.counts
    for places, rank in zip(profile.places_of_ranks(), profile.ranks, strict=True):
        events = profile.events.taken(places)
        is_linked = events.of_kind(*COMMUNICATIONS) | (events.peer != UNKNOWN)
        counts = every[places]
        waits = Lists(bounds(counts), before.values[spans(before.starts[places], counts)])
        columns = (getattr(events, name) for name in (*_KIND, "start_ps", "end_ps"))
        look = [each.tobytes() for each in (*columns, counts, waits.values, is_linked)]
        if look != known:
            known, alike = look, [*_nodes(profile, events, waits.tolist(), is_linked)]
        nodes = _linked(profile, rank.rank, events, np.flatnonzero(is_linked), alike)
        yield f"stepsim.{rank.rank}.et", b"".join((_metadata(rank), *nodes))
    groups = {str(i): each.ranks for i, each in enumerate(profile.groups)}
    yield GROUPS_FILE, json.dumps(groups).encode()


def _waits(profile: Profile) -> Lists:
    """What every operation waits for, by places in their rank."""
    waits, inside = pipeline_waits(profile), counted(profile.events.rank)
    return lists_of(waits.after << 32 | inside[waits.before], len(inside))


def _metadata(rank: RankPlace) -> bytes:
    version = _attribute("schema", AttributeField.STRING, f"stepsim {__version__}")
    told = [(name, getattr(rank, name)) for name in PLACES]
    places = [_attribute(k, AttributeField.INT64, n) for k, n in told if n is not None]
    fields = [write_field(2, each) for each in (version, *places)]
    return write_message(write_field(1, "0.0.4") + b"".join(fields))


def _linked(
    profile: Profile, rank: int, events: Events, linked: Ints, alike: list[bytes]
) -> list[bytes]:
    """The nodes of a rank, with the ends of the transfers among them, whose places are `linked`."""
    nodes, ends_of = alike.copy(), cache(partial(_ends, profile, rank))
    columns = (events.kind, events.group, events.peer, events.meeting)
    rows = zip(linked.tolist(), *(column[linked].tolist() for column in columns), strict=True)
    for number, kind, group, peer, meeting in rows:
        link = ends_of(kind, group, peer)
        if kind != TaskKind.COLLECTIVE and UNKNOWN not in (peer, meeting):
            link += _told("comm_tag", meeting, AttributeField.INT32)  # which both ends have
        nodes[number] = write_message(nodes[number] + link)
    return nodes


def _nodes(
    profile: Profile, events: Events, waits: list[tuple[int, ...]], is_linked: Bools
) -> Iterator[bytes]:
    """The nodes of a rank, those that are linked to others up to the link."""
    shared = cache(partial(_shared, profile))
    rows = zip(
        zip(*(getattr(events, name).tolist() for name in _KIND), strict=True),
        events.start_ps.tolist(),
        events.duration_ps.tolist(),
        waits,
        is_linked.tolist(),
        strict=True,
    )
    for number, (kind, start, took, before, links) in enumerate(rows):
        name, host, told = shared(kind)
        after = write_integers(NodeField.DATA_DEPS, tuple(sorted(set(before))))
        rounded = write_field(NodeField.START_US, round(start / PS_PER_US))
        rounded += write_field(NodeField.DURATION_US, round(took / PS_PER_US))
        exact = _told("start_ps", start) + _told("duration_ps", took)
        node = write_field(NodeField.ID, number) + name + after + rounded + host + exact + told
        yield node if links else write_message(node)


def _shared(profile: Profile, columns: tuple[int, ...]) -> tuple[bytes, bytes, bytes]:
    """Of a kind of node: name and type, where it runs, and what else is told of it."""
    kind = dict(zip(_KIND, columns, strict=True))
    task, called = TaskKind(kind["kind"]), profile.names[kind["name"]]
    name = write_field(NodeField.NAME, called) + write_field(NodeField.TYPE, _NODES[task])
    host = _told("is_cpu_op", int(task is TaskKind.HOST), AttributeField.BOOL)
    told = {name: kind[name] for name in TOLD} | {"comm_size": kind["size_bytes"]}
    if len(profile.steps) > 1:
        told = {STEP: profile.steps[kind["step"]]} | told
    if task is TaskKind.COLLECTIVE:
        numbers = (i for i, each in enumerate(_COLLECTIVES) if each in called)
        told["comm_type"] = next(numbers, UNKNOWN)
    return name, host, b"".join(_told(k, n) for k, n in told.items() if n != UNKNOWN)


def _ends(profile: Profile, rank: int, kind: int, group: int, peer: int) -> bytes:
    """Attributes of the ends of a transfer: the group of a collective, or both ranks.

    A collective of unknown ranks has its own rank as tag: it meets no other when it is read again.
    """
    if kind == TaskKind.COLLECTIVE:
        if group == UNKNOWN:
            return _told("comm_tag", rank + 1, AttributeField.INT32)
        named = _told("pg_name", str(group), AttributeField.STRING)
        return named + _told("pg_desc", profile.groups[group].name, AttributeField.STRING)
    if peer == UNKNOWN:
        return b""
    other = profile.ranks[peer].rank
    sender, receiver = (rank, other) if kind == TaskKind.SEND else (other, rank)
    sent = _told("comm_src", sender, AttributeField.INT32)
    return sent + _told("comm_dst", receiver, AttributeField.INT32)


def _told(name: str, value: int | str, kind: AttributeField = AttributeField.INT64) -> bytes:
    """An attribute as a field of its node."""
    return write_field(NodeField.ATTRIBUTE, _attribute(name, kind, value))


def _attribute(name: str, kind: AttributeField, value: int | str) -> bytes:
    return write_field(AttributeField.NAME, name) + write_field(kind, value)
