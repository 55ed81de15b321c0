"""Chakra execution traces: one file of nodes per rank, with what each depends on.

Source: `schema/protobuf/et_def.proto` and `src/feeder` of github mlcommons/chakra (0.0.4 and
1.0.0). A file is a message of metadata, then one per node. Replayed are the data dependencies, as
the feeder does, and the order on the threads and streams that nodes name. A file that stepsim wrote
has its times in ps.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from heapq import heappop, heappush
from io import BytesIO
from itertools import pairwise
from os.path import isdir, isfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from google.protobuf.message import DecodeError
from google.protobuf.proto import parse_length_prefixed

from stepsim.base.arrays import Ints, ints, rows_of
from stepsim.base.errors import TraceError
from stepsim.base.structs import Noun, Numbers, replace
from stepsim.files.reading import read_bytes
from stepsim.files.traces.chakra_messages import MetadataMessage, NodeMessage
from stepsim.files.traces.forms import CHAKRA_ENDS, is_chakra
from stepsim.files.traces.joined import RankOperations, join_ranks
from stepsim.files.traces.packed import packed_files, rank_in_name
from stepsim.measured.profile.events import Following, Profile, other_end
from stepsim.measured.profile.pipeline import pipeline_waits
from stepsim.measured.run import PS_PER_US
from stepsim.run.spans import COMMUNICATIONS, UNKNOWN, TaskKind

GROUPS_FILE = "comm_groups.json"
"""Ranks of the process groups, beside the traces: ASTRA-sim's communicator groups."""
_MOST_PLACES = 1 << 20
PLACES = ("stage", "replica")
"""Attributes that stepsim's own traces have of their rank, in the metadata."""
STEP = "step"
"""Attribute that numbers the steps of stepsim's own traces of several."""
TOLD = ("stream", "phase", "chunk", "microbatch")
"""Columns of a profile that stepsim's own traces hold as attributes."""


class ChakraNode(IntEnum):
    """Type of a node."""

    MEM_LOAD = 2
    MEM_STORE = 3
    COMP = 4
    COMM_SEND = 5
    COMM_RECV = 6
    COMM_COLL = 7


class _Node(Noun):
    """A node's message and its attributes, which are numbers or texts."""

    message: Any
    attributes: Mapping[str, int | str]

    def number_of(self, name: str, default: int = UNKNOWN) -> int:
        """An attribute that is a number."""
        value = self.attributes.get(name, default)
        return value if isinstance(value, int) else default

    def ps(self, name: str) -> int:
        """Start or duration in ps: as stepsim wrote it, else from microseconds."""
        exact = self.number_of(f"{name}_ps")
        return exact if exact >= 0 else getattr(self.message, f"{name}_us") * PS_PER_US

    @property
    def event(self) -> TaskKind:
        """What kind of operation it is; a call of the host that asks for a transfer is none."""
        kind = self.message.type
        if kind in (ChakraNode.COMM_SEND, ChakraNode.COMM_RECV):
            return TaskKind.SEND if kind == ChakraNode.COMM_SEND else TaskKind.RECV
        described = {"comm_type", "comm_size"} & {*self.attributes}
        if kind == ChakraNode.COMM_COLL and (described or not self.number_of("is_cpu_op", 1)):
            return TaskKind.COLLECTIVE
        if kind in (ChakraNode.MEM_LOAD, ChakraNode.MEM_STORE):
            return TaskKind.COPY
        on_device = kind == ChakraNode.COMP and not self.number_of("is_cpu_op", 0)
        return TaskKind.COMPUTE if on_device else TaskKind.HOST


def _is_recorded(nodes: Sequence[_Node]) -> bool | None:
    """Whether nodes began by a rank's own clock, or by one of all ranks; None without times."""
    if all("start_ps" in node.attributes for node in nodes):
        return False
    return True if any(node.message.start_us for node in nodes) else None


def read_chakra(path: Path, progress: Callable[[int, int], None] | None = None) -> Profile:
    """Read the traces of one rank or of several; raises TraceError naming file and place."""
    groups = _groups_beside(path)
    parts, clocks = [], set()
    for place, (name, data) in enumerate(packed_files(path, CHAKRA_ENDS, is_chakra, progress)):
        try:
            stream = BytesIO(data)
            places, nodes = _places(parse_length_prefixed(MetadataMessage, stream)), _nodes(stream)
            part = _of_rank(name, nodes, rank_in_name(name, place), groups)
            parts.append(replace(part, **places))
            clocks.add(_is_recorded(nodes))
        except (ValueError, OverflowError, DecodeError) as error:
            raise TraceError(f"{name}: not a Chakra trace: {error}") from None
    profile = join_ranks(str(path), parts, "Chakra", one_clock=True not in clocks)
    return _scheduled(profile) if clocks == {None} else profile


def _scheduled(profile: Profile) -> Profile:
    """The profile of a trace without times of day: everything begins once it can."""
    durations, waits = profile.events.duration_ps, pipeline_waits(profile)
    ends = waits.ends_ps(durations)
    warnings = [
        *profile.warnings,
        f"{profile.source}: nodes have no start: each begins once what it depends on has ended",
    ]
    silent = int(((durations == 0) & profile.events.of_kind(*COMMUNICATIONS)).sum())
    if silent:
        warnings.append(
            f"{profile.source}: {silent} communications have no duration: they take no time"
        )
    return replace(waits.retimed(ends - durations, ends), warnings=tuple(warnings))


def _groups_beside(path: Path) -> Mapping[str, Numbers]:
    """Ranks of process groups by name, from the file beside the traces, if there is one."""
    file = (path if isdir(path) else path.parent) / GROUPS_FILE
    if not isfile(file):
        return {}
    try:
        return msgspec.json.decode(read_bytes(file), type=dict[str, Numbers])
    except (msgspec.DecodeError, OSError) as error:
        raise TraceError(
            f"{file}: expected lists of ranks by the name of their group: {error}"
        ) from None


def _nodes(stream: BytesIO) -> list[_Node]:
    """The nodes of a file by their numbers; raises ValueError where it has none, or one twice."""
    found = iter(partial(parse_length_prefixed, NodeMessage, stream), None)
    nodes = [_Node(message=each, attributes=_attributes(each)) for each in found]
    if not nodes:
        raise ValueError("it has no nodes")
    if len({node.message.id for node in nodes}) < len(nodes):
        raise ValueError("two nodes have one id")
    return sorted(nodes, key=lambda node: node.message.id)


def _attributes(message: Any) -> dict[str, int | str]:
    """The attributes of a node or of metadata; `UNKNOWN` stands for lists and fractions."""
    return {
        each.name: getattr(each, kind) if (kind := each.WhichOneof("value")) else UNKNOWN
        for each in message.attr
    }


def _places(metadata: Any) -> dict[str, int]:
    """Stage and replica of a rank, where its metadata tell them."""
    return {
        name: place
        for name, place in _attributes(metadata).items()
        if name in PLACES and isinstance(place, int) and 0 <= place <= _MOST_PLACES
    }


def _of_rank(
    name: str, nodes: Sequence[_Node], rank: int, groups: Mapping[str, Numbers]
) -> RankOperations:
    def told(name: str, default: int = UNKNOWN) -> Ints:
        return ints([node.number_of(name, default) for node in nodes])

    start = ints([node.ps("start") for node in nodes])
    took = ints([node.ps("duration") for node in nodes])
    base = int(start.min()) if _is_recorded(nodes) else 0
    ends = rows_of(told("comm_src"), told("comm_dst"))
    groups_of = [
        [str(node.attributes.get(each, "")) for each in ("pg_name", "pg_desc")] for node in nodes
    ]
    columns = {
        "name": [node.message.name or f"node {node.message.id}" for node in nodes],
        "group": [(" ".join(filter(None, each)), groups.get(each[0], ())) for each in groups_of],
        "step": told(STEP, 0),
        "kind": ints([node.event for node in nodes]),
        "start_ps": start - base,
        "end_ps": start - base + took,
        "size_bytes": told("comm_size"),
        "peer": ints([other_end(rank, *each) for each in ends]),
        "meeting": told("comm_tag", 0),
        "order": np.arange(len(nodes), dtype=np.int64),
        **{name: told(name) for name in TOLD},
        "stream": ints([node.number_of("stream", node.number_of("tid")) for node in nodes]),
    }
    return RankOperations(
        rank=rank,
        file=name,
        columns=columns,
        base_ps=base,
        follows=_follows(nodes, told("tid")),
    )


def _follows(nodes: Sequence[_Node], stream: Ints) -> Following:
    """Dependencies, and one after the other what runs on one thread or stream."""
    place = {node.message.id: i for i, node in enumerate(nodes)}
    before = [[place[each] for each in node.message.data_deps if each in place] for node in nodes]
    pairs = [(each, i) for i, earlier in enumerate(before) for each in earlier]
    if (stream != UNKNOWN).any():
        order = ints(_issued(before))
        for each in sorted({*stream.tolist()} - {UNKNOWN}):
            pairs += pairwise(order[stream[order] == each].tolist())
    columns = ints(pairs).reshape(-1, 2)
    return columns[:, 0], columns[:, 1]


def _issued(before: Sequence[Sequence[int]]) -> list[int]:
    """The order in which nodes are issued: the first of those that wait for nothing, as the feeder.

    Nodes of a circle are left out.
    """
    after: list[list[int]] = [[] for _ in before]
    left = [len(earlier) for earlier in before]
    for i, earlier in enumerate(before):
        for each in earlier:
            after[each].append(i)
    ready = [i for i, count in enumerate(left) if not count]
    order = []
    while ready:
        order.append(heappop(ready))
        for i in after[order[-1]]:
            left[i] -= 1
            if not left[i]:
                heappush(ready, i)
    return order
