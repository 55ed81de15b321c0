"""Writing a profile as Chakra execution traces, one file per rank, for the tools that run them.

Source: `schema/protobuf/et_def.proto` of github mlcommons/chakra; attributes as its feeder reads
them. Microseconds are rounded; attributes `start_ps` and `duration_ps` hold the times whole.
"""

import json
from collections.abc import Iterator
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.proto import serialize_length_prefixed

from stepsim import __version__
from stepsim.base.arrays import Bools, Ints, Lists, bounds, lists_of, rows_of, spans
from stepsim.base.structs import Numbers
from stepsim.base.writing import write_folder
from stepsim.files.traces.chakra import (
    GROUPS_FILE,
    PLACES,
    STEP,
    TOLD,
    ChakraNode,
)
from stepsim.files.traces.chakra_messages import AttributeMessage, MetadataMessage, NodeMessage
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
    known, alike, before = list[bytes](), list[Any](), _waits(profile)
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
        yield f"stepsim.{rank.rank}.et", b"".join((_packed(_metadata(rank)), *nodes))
    groups = {str(i): each.ranks for i, each in enumerate(profile.groups)}
    yield GROUPS_FILE, json.dumps(groups).encode()


def _waits(profile: Profile) -> Lists:
    """What every operation waits for, by places in their rank."""
    waits, inside = pipeline_waits(profile), counted(profile.events.rank)
    return lists_of(waits.after << 32 | inside[waits.before], len(inside))


def _metadata(rank: RankPlace) -> Any:
    told = [(name, getattr(rank, name)) for name in PLACES]
    places = [AttributeMessage(name=name, int64=place) for name, place in told if place is not None]
    version = AttributeMessage(name="schema", string=f"stepsim {__version__}")
    return MetadataMessage(version="0.0.4", attr=[version, *places])


def _packed(message: Any) -> bytes:
    """A message after its length."""
    out = BytesIO()
    serialize_length_prefixed(message, out)
    return out.getvalue()


def _linked(
    profile: Profile, rank: int, events: Events, linked: Ints, alike: list[Any]
) -> list[bytes]:
    """The nodes of a rank, with the ends of the transfers among them, whose places are `linked`."""
    nodes, ends_of = alike.copy(), cache(partial(_ends, profile, rank))
    ends = events.taken(linked)
    rows = rows_of(linked, ends.kind, ends.group, ends.peer, ends.meeting)
    for number, kind, group, peer, meeting in rows:
        node = NodeMessage()
        node.CopyFrom(alike[number])
        node.attr.extend(ends_of(kind, group, peer))
        if kind != TaskKind.COLLECTIVE and UNKNOWN not in (peer, meeting):
            node.attr.add(name="comm_tag", int32=meeting)  # which both ends have
        nodes[number] = _packed(node)
    return nodes


def _nodes(
    profile: Profile, events: Events, waits: list[Numbers], is_linked: Bools
) -> Iterator[Any]:
    """The nodes of a rank, packed but for those that are linked to others."""
    shared = cache(partial(_shared, profile))
    kinds = rows_of(*(getattr(events, name) for name in _KIND))
    rows = rows_of(kinds, events.start_ps, events.duration_ps, waits, is_linked)
    for number, (kind, start, took, before, links) in enumerate(rows):
        times = ("start_ps", start), ("duration_ps", took)
        node = NodeMessage(
            id=number,
            data_deps=sorted(set(before)),
            start_us=round(start / PS_PER_US),
            duration_us=round(took / PS_PER_US),
            attr=[AttributeMessage(name=name, int64=time) for name, time in times],
        )
        node.MergeFrom(shared(kind))
        yield node if links else _packed(node)


def _shared(profile: Profile, columns: Numbers) -> Any:
    """What nodes of a kind have in common: name, type, where they run, what else is told."""
    kind = dict(zip(_KIND, columns, strict=True))
    task, called = TaskKind(kind["kind"]), profile.names[kind["name"]]
    told = {name: kind[name] for name in TOLD} | {"comm_size": kind["size_bytes"]}
    if len(profile.steps) > 1:
        told = {STEP: profile.steps[kind["step"]]} | told
    if task is TaskKind.COLLECTIVE:
        numbers = (i for i, each in enumerate(_COLLECTIVES) if each in called)
        told["comm_type"] = next(numbers, UNKNOWN)
    known = [AttributeMessage(name=name, int64=n) for name, n in told.items() if n != UNKNOWN]
    host = AttributeMessage(name="is_cpu_op", bool=task is TaskKind.HOST)
    return NodeMessage(name=called, type=_NODES[task], attr=[host, *known])


def _ends(profile: Profile, rank: int, kind: int, group: int, peer: int) -> list[Any]:
    """Attributes of the ends of a transfer: the group of a collective, or both ranks.

    A collective of unknown ranks has its own rank as tag: it meets no other when it is read again.
    """
    if kind == TaskKind.COLLECTIVE:
        if group == UNKNOWN:
            return [AttributeMessage(name="comm_tag", int32=rank + 1)]
        named = ("pg_name", str(group)), ("pg_desc", profile.groups[group].name)
        return [AttributeMessage(name=name, string=text) for name, text in named]
    if peer == UNKNOWN:
        return []
    other = profile.ranks[peer].rank
    sender, receiver = (rank, other) if kind == TaskKind.SEND else (other, rank)
    ends = ("comm_src", sender), ("comm_dst", receiver)
    return [AttributeMessage(name=name, int32=end) for name, end in ends]
