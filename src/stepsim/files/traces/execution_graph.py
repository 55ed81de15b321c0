"""PyTorch execution graphs (Chakra host traces, JSON): the operators that a rank's host called.

As `torch.profiler.ExecutionTraceObserver` writes them, schemas 1.0.1 to 1.1.1; field by field as
`et_replay` of github facebookresearch/param reads them. They tell operators, their order and
threads, and the bytes and process groups of communications, but no times.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from stepsim.base.errors import TraceError
from stepsim.base.units import MAX_INT64
from stepsim.files.traces.forms import TRACE_ENDS, is_execution_graph
from stepsim.files.traces.packed import packed_files, rank_in_name
from stepsim.measured.profile.events import Profile
from stepsim.measured.profile.joined import RankOperations, join_ranks
from stepsim.tables.spans import UNKNOWN, TaskKind

_NUMBER = re.compile(r"\d{1,9}")
_COMMUNICATION = "record_param_comms"
_GROUPS = "process_group:init"
_NO_TRANSFERS = ("wait", "init", "start_coalescing", "end_coalescing")
_TENSOR = 6
"""A tensor is listed as its id, storage, offset, elements, bytes of an element, and device."""
_DEFAULT = ""

_Groups = Mapping[str, tuple[int, ...]]


class _Attribute(msgspec.Struct):
    """An attribute of a node, since schema 1.0.2."""

    name: str = ""
    value: Any = None


class _Values(msgspec.Struct):
    """Arguments of a node since schema 1.0.2; earlier ones are a list."""

    values: list[Any] = []


class _Node(msgspec.Struct):
    """An operator or a range of the program; its arguments are read where they matter."""

    id: int
    name: str = ""
    parent: int = UNKNOWN
    ctrl_deps: int = UNKNOWN
    tid: int = UNKNOWN
    inputs: msgspec.Raw = msgspec.Raw(b"[]")
    outputs: msgspec.Raw = msgspec.Raw(b"[]")
    attrs: list[_Attribute] = []

    @property
    def caller(self) -> int:
        """The node that called it: `ctrl_deps` since schema 1.0.2."""
        return self.parent if self.parent != UNKNOWN else self.ctrl_deps

    @property
    def thread(self) -> int:
        """The thread that ran it."""
        told = next((each.value for each in self.attrs if each.name == "tid"), self.tid)
        return told if isinstance(told, int) else UNKNOWN


class _Graph(msgspec.Struct):
    """A whole file."""

    schema: str
    nodes: list[_Node]


class _GroupEntry(msgspec.Struct):
    """A process group, as `process_group:init` lists it; no ranks are all of them."""

    pg_name: str | int = ""
    uid: Any = None
    backend_id: Any = None
    ranks: list[int] | dict[str, int] = []
    group_size: int = 0
    pg_size: int = 0


class _Call(Struct, frozen=True, kw_only=True):
    """What a node says of its communication; `place` is a place in the group, `peer` a rank."""

    kind: TaskKind
    name: str
    group: str = _DEFAULT
    place: int = UNKNOWN
    peer: int = UNKNOWN
    size_bytes: int = UNKNOWN
    members: int = 0


def read_execution_graph(path: Path, progress: Callable[[int, int], None] | None = None) -> Profile:
    """Read the graphs of one rank or of several; raises TraceError naming file and place."""
    parts = []
    for place, (name, data) in enumerate(
        packed_files(path, TRACE_ENDS, is_execution_graph, progress)
    ):
        try:
            parts.append(_of_rank(name, msgspec.json.decode(data, type=_Graph), place))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise TraceError(f"{name}: not a PyTorch execution graph: {error}") from None
        except (OverflowError, RecursionError):
            raise TraceError(
                f"{name}: a number is too large, or its lists are nested too deeply"
            ) from None
    if not parts:
        raise TraceError(f"{path}: no execution graph in it: expected files that end in .json")
    return join_ranks(str(path), parts, "PyTorch execution graph", one_clock=True)


def _of_rank(name: str, graph: _Graph, place: int) -> RankOperations:
    groups, backends = _process_groups(graph.nodes)
    nodes = _called(graph.nodes)
    if not nodes:
        raise TraceError(f"{name}: no operator in the graph")
    calls = [_call(node, groups, backends) for node in nodes]
    ranks = [groups.get(call.group, ()) for call in calls]
    unknown = np.full(len(nodes), UNKNOWN, dtype=np.int64)
    columns = {
        "step": np.zeros(len(nodes), dtype=np.int64),
        "kind": np.array([call.kind for call in calls], dtype=np.int64),
        "stream": np.array([node.thread for node in nodes], dtype=np.int64),
        "size_bytes": np.array([call.size_bytes for call in calls], dtype=np.int64),
        "peer": np.array([call.peer for call in calls], dtype=np.int64),
        "order": np.arange(len(nodes), dtype=np.int64),
        "start_ps": unknown,
        "end_ps": unknown,
        "launch_ps": unknown,
    }
    return RankOperations(
        rank=_rank_of(name, calls, ranks, place),
        world=max((max(len(r), c.members) for c, r in zip(calls, ranks, strict=True)), default=0),
        file=name,
        steps=(0,),
        names=[call.name for call in calls],
        groups=[(call.group, held) for call, held in zip(calls, ranks, strict=True)],
        columns=columns,
        left_out=0,
        base_ps=0,
    )


def _called(nodes: Sequence[_Node]) -> list[_Node]:
    """Operators that call no other, in the order of their calls; a communication is one."""
    ordered = sorted(nodes, key=lambda node: node.id)
    communications = {node.id for node in ordered if node.name == _COMMUNICATION}
    callers = {node.caller for node in ordered} - communications
    return [
        node
        for node in ordered
        if node.id not in callers
        and node.caller not in communications
        and not node.name.startswith("[pytorch|")
        and _GROUPS not in node.name
    ]


def _process_groups(nodes: Sequence[_Node]) -> tuple[_Groups, Mapping[Any, str]]:
    """Ranks of the groups that a file lists, and their names by the number of their backend."""
    found: dict[str, tuple[int, ...]] = {}
    backends: dict[Any, str] = {}
    told = next((node for node in nodes if _GROUPS in node.name), None)
    if told is None:
        return found, backends
    text = next((each for each in _values(told.inputs) if isinstance(each, str)), "")
    try:
        entries = msgspec.json.decode(text, type=list[_GroupEntry])
    except msgspec.DecodeError:
        return found, backends
    for entry in entries:
        group = str(entry.pg_name)
        ranks = tuple(sorted(int(each) for each in entry.ranks if str(each).isdecimal()))
        found[group] = ranks or tuple(range(max(entry.group_size, entry.pg_size)))
        for backend in (entry.uid, entry.backend_id):
            if isinstance(backend, int | str):
                backends[backend] = group
    return found, backends


def _call(node: _Node, groups: _Groups, backends: Mapping[Any, str]) -> _Call:
    """What an operator is: `record_param_comms` lists tensor, request, group, rank and name.

    Without a tensor, as of a wait, the rest begins one place earlier.
    """
    values = _values(node.inputs) if node.name == _COMMUNICATION else []
    has_tensor = len(values) > 4 and isinstance(values[4], str)
    values = values[1:] if has_tensor else values
    if len(values) < 4 or not isinstance(values[3], str):
        return _Call(kind=TaskKind.HOST, name=node.name or "unnamed")
    name, told = values[3].lower(), values[1]
    if name in _NO_TRANSFERS:
        return _Call(kind=TaskKind.HOST, name=name)
    group = str(told[0]) if isinstance(told, list) and told else _DEFAULT
    if not isinstance(told, list):
        group = backends.get(told, str(told) if str(told) in groups else _DEFAULT)
    kinds = {"send": TaskKind.SEND, "recv": TaskKind.RECV}
    kind = next((kinds[each] for each in kinds if name.startswith(each)), TaskKind.COLLECTIVE)
    ranks, number = groups.get(group, ()), values[2] if isinstance(values[2], int) else UNKNOWN
    splits = max((len(each) for each in values[4:6] if isinstance(each, list)), default=0)
    if kind is not TaskKind.COLLECTIVE:
        peer = ranks[number] if 0 <= number < len(ranks) else UNKNOWN
        return _Call(kind=kind, name=name, group=group, peer=peer, size_bytes=_size(node))
    return _Call(
        kind=kind,
        name=name,
        group=group,
        place=number,
        size_bytes=_size(node),
        members=max(len(ranks), splits),
    )


def _values(arguments: msgspec.Raw) -> list[Any]:
    """Arguments of a node, whichever schema wrote them."""
    told = msgspec.json.decode(arguments, type=_Values | list[Any])
    return told.values if isinstance(told, _Values) else told


def _size(node: _Node) -> int:
    """Bytes of a communication: the larger of what goes in and what comes out."""
    first = _values(node.inputs)[:1], _values(node.outputs)[:1]
    size = max(_tensor_bytes(each) for each in first)
    return size if 0 < size <= MAX_INT64 else UNKNOWN


def _tensor_bytes(value: object) -> int:
    """Bytes of a tensor, or of all tensors in a list."""
    if not isinstance(value, list):
        return 0
    if len(value) == _TENSOR and isinstance(value[-1], str):
        count, each = value[3], value[4]
        return count * each if isinstance(count, int) and isinstance(each, int) else 0
    return sum(_tensor_bytes(each) for each in value)


def _rank_of(
    name: str, calls: Sequence[_Call], ranks: Sequence[tuple[int, ...]], place: int
) -> int:
    """The rank of a file: as its name says, as its collectives do, or the file's last number."""
    if (told := rank_in_name(name)) is not None:
        return told
    widest = max(chain((call.members for call in calls), [0]))
    for call, held in zip(calls, ranks, strict=True):
        if call.place != UNKNOWN and call.members == widest:
            return held[call.place] if call.place < len(held) else call.place
    numbers = _NUMBER.findall(Path(name).name)
    return int(numbers[-1]) if numbers else place
