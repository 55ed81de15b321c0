"""A networkx graph of a user as a topology.

| of | attributes |
|---|---|
| nodes | `kind`: `npu` or `switch` |
| edges | `bandwidth`, `latency`, `endpoint_latency`, `efficiency`; `link_class`; `count` |
| the graph | `name`, `source`, `node_size`, `npus_forward`, `launch_latency`, `algorithms` |

An edge is a link in one direction, or `count` equal ones; an undirected graph has one each way.
Quantities are texts with a unit (`bandwidth="400 Gbps"`, `latency="500 ns"`), or numbers: bandwidth
in bytes/s, times in ps as `latency_ps`, `endpoint_latency_ps`, `launch_latency_ps`. Bandwidth and
latency are needed. Edges of one `link_class` have the same numbers; edges without are classed by
what they join (`gpulink` between NPUs, `nic` from NPU to switch, `fabric` between switches), with a
number at the end where their numbers differ. A `MultiDiGraph` may have several edges between two
nodes.

NPUs are numbered in the order of the graph's nodes, unless all are called `npu0`, `npu1`, ...: then
by these names. Every NPU must reach every other, through others only with `npus_forward`.

`library` of the graph is that of a topology: its protocols, see `network.topology.library`.
`topology.graph()` is such a graph, so that any topology can be changed and loaded again. Nested
topologies route dimension by dimension, graphs over all shortest paths (least latency, then fewest
links). These are the same where one switched dimension joins all inside it, and on one ring. On
rails, tori and meshes routes have as many links of every class, but what moves along several
dimensions spreads over their orders; NPUs that share a NIC reach each other through it. A graph
has two levels, nodes and all outside, and does not say which switches reduce: `nvls` is left out,
and rings follow cables between NPUs as far as a search finds them.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from itertools import chain
from numbers import Integral
from typing import Any, TypeGuard

import networkx as nx
from msgspec import Struct

from stepsim.base.errors import TopologyError, bad_value, errors_at, one_line, within
from stepsim.base.fields import value_of_kind
from stepsim.base.option import Option
from stepsim.base.structs import Values, replace
from stepsim.base.units import MAX_INT64, Quantity
from stepsim.files.topology.toml import NPU, algorithm_names, class_name
from stepsim.network.topology.cabled import listed_topology
from stepsim.network.topology.dimension import (
    LAUNCH_LATENCY,
    LINK_FIELDS,
    Library,
    LinkClass,
)
from stepsim.network.topology.listed import ListedTopology
from stepsim.network.topology.network import MAX_NPUS

_MOST_PARALLEL = 1024


def topology_of_graph(graph: object) -> ListedTopology:
    """The topology that a networkx graph describes: see this module.

    Raises TopologyError naming node or edge, attribute, value and what is allowed.
    """
    if not isinstance(graph, nx.Graph):
        raise TopologyError(
            f"topology is {type(graph).__name__}: expected a name, a file, a networkx graph or a "
            "topology"
        )
    names = _names(graph)
    npus = sum(name.startswith("npu") for name in names.values())
    plain = nx.MultiDiGraph()
    plain.add_nodes_from(f"npu{npu}" for npu in range(npus))
    plain.add_nodes_from((name, {"label": str(node)}) for node, name in names.items())
    classes = _Classes()
    for u, v, data in graph.edges(data=True):
        place = f"edge {u!r} to {v!r}"
        if u == v:
            raise TopologyError(f"{place}: a link joins {u!r} to itself")
        link, count = classes.read(place, (names[u], names[v]), data)
        plain.add_edge(names[u], names[v], link_class=link, count=count)
        if not graph.is_directed():
            plain.add_edge(names[v], names[u], link_class=link, count=count)
    found = [link for link, _ in classes.named.values()]
    return listed_topology(plain, found, **_of_graph(graph.graph, npus))


def _names(graph: nx.Graph) -> dict[Hashable, str]:
    """What the topology calls every node."""
    npus: list[Hashable] = []
    names: dict[Hashable, str] = {}
    for node, data in graph.nodes(data=True):
        place = f"node {node!r}"
        if not isinstance(node, str | int | tuple):
            raise TopologyError(f"{place}: expected a text, a number or a tuple as node")
        _refuse_unknown(place, data, ("kind",))
        match data.get("kind"):
            case "npu":
                npus.append(node)
                names[node] = ""
            case "switch":
                name = str(node)
                if not name.strip() or one_line(name) != name:
                    raise TopologyError(f"{place}: expected one line of text as a switch's name")
                if name.startswith("npu"):
                    raise TopologyError(
                        f"{place}: kind is 'switch': a name that begins with npu is an NPU's"
                    )
                names[node] = name
            case kind:
                raise TopologyError(bad_value(place, "kind", kind, "npu or switch"))
    if not 1 <= len(npus) <= MAX_NPUS:
        raise TopologyError(
            f"the graph has {len(npus)} NPUs: expected 1 to {MAX_NPUS} nodes of kind npu"
        )
    texts: dict[str, Hashable] = {}
    for node, name in names.items():
        if name and texts.setdefault(name, node) is not node:
            raise TopologyError(
                f"nodes {texts[name]!r} and {node!r}: expected nodes of different text"
            )
    return names | {node: f"npu{i}" for i, node in enumerate(_in_order(npus))}


def _in_order(npus: list[Hashable]) -> list[Hashable]:
    """NPUs by their numbers, if they are called by numbers, else as they are."""
    called = [NPU.fullmatch(node) if isinstance(node, str) else None for node in npus]
    if not any(called):
        return npus
    numbers = {node: int(match[1]) for node, match in zip(npus, called, strict=True) if match}
    for node in npus:
        if numbers.get(node, len(npus)) >= len(npus):
            expected = f"all NPUs called npu0 to npu{len(npus) - 1}, or none npu and a number"
            raise TopologyError(f"node {node!r}: expected {expected}")
    return sorted(npus, key=numbers.__getitem__)


class _Classes(Struct, kw_only=True):
    """Classes of links found so far: each with the place of its first edge.

    `seen` are class and number of links by what edges join and say: most edges are alike, and
    `load_topology` takes a graph of 8,192 edges in 0.25 s so, 0.79 without.
    """

    seen: dict[str, tuple[str, int]] = {}
    named: dict[str, tuple[LinkClass, str]] = {}
    unnamed: dict[LinkClass, str] = {}

    def read(self, place: str, ends: tuple[str, str], data: Mapping[str, Any]) -> tuple[str, int]:
        """Class of an edge, and its number of links."""
        kind = ("gpulink", "nic", "fabric")[sum(not end.startswith("npu") for end in ends)]
        said = f"{kind} {data}"
        if said in self.seen:
            return self.seen[said]
        numbers: Any = _numbers(place, data, LINK_FIELDS, extra=("link_class", "count"))
        with errors_at(place, TopologyError):
            link = LinkClass(name=kind, **numbers)
        count = data.get("count", 1)
        if not _is_whole(count) or not 1 <= count <= _MOST_PARALLEL:
            raise TopologyError(bad_value(place, "count", count, f"1 to {_MOST_PARALLEL} links"))
        if "link_class" in data:
            name = class_name(place, "link_class", data["link_class"])
        else:
            alike = sum(each.name == kind for each in self.unnamed)
            name = self.unnamed.setdefault(link, f"{kind}-{alike + 1}" if alike else kind)
        before, first = self.named.setdefault(name, (replace(link, name=name), place))
        for key, number in numbers.items():
            known = getattr(before, key)
            if number != known:
                what = f"{key} is {number:g} here and {known:g} for {first}"
                raise TopologyError(f"{place}: {what}: expected one for link_class {name!r}")
        self.seen[said] = name, int(count)
        return self.seen[said]


def _numbers(
    place: str, data: Mapping[str, Any], fields: Iterable[Option], extra: Collection[str]
) -> dict[str, object]:
    """The values of fields, each given by its name, or a time in ps by its attribute."""
    keys = {each: dict.fromkeys((each.name, each.field)) for each in fields}
    _refuse_unknown(place, data, (*chain.from_iterable(keys.values()), *extra))
    found: dict[str, object] = {}
    for each, names in keys.items():
        given = [name for name in names if name in data]
        if len(given) > 1:
            raise TopologyError(f"{place}: {' and '.join(given)} say the same: expected one")
        if given or each.default is None:
            key = [*given, each.name][0]
            found[each.field] = _number(place, each, key, data.get(key))
        else:
            found[each.field] = each.default
    return found


def _number(place: str, each: Option, key: str, value: object) -> object:
    """A value in the program's unit; a time is a text by its name, else whole picoseconds."""
    if key != each.name and _is_whole(value) and 0 <= value <= MAX_INT64:
        return int(value)
    if key != each.name or (each.quantity is Quantity.TIME and not isinstance(value, str)):
        expected = f"a text such as '500 ns', or whole picoseconds as {each.field}"
        raise TopologyError(bad_value(place, key, value, expected))
    with errors_at(f"{place}: {key}", TopologyError):
        return each.quantity.read(value)


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _refuse_unknown(place: str, data: Mapping[Any, Any], allowed: Collection[str]) -> None:
    for key in data:
        if key not in allowed:
            raise TopologyError(
                f"{place}: {key!r} is no attribute of it: expected {', '.join(allowed)}"
            )


# Attributes of a graph beside its launch latency.
_OF_GRAPH: Mapping[str, Any] = {
    "name": str,
    "source": str,
    "npus_forward": bool,
    "node_size": int,
    "algorithms": Sequence[str],
    "library": Library,
}


def _of_graph(data: Mapping[str, Any], npus: int) -> Values:
    """What the graph's own attributes say of the topology."""
    place = "the graph"
    found: Values = {"name": "graph", "source": "a networkx graph", "node_size": npus}
    found |= _numbers(place, data, (LAUNCH_LATENCY,), extra=_OF_GRAPH)
    for key, kind in _OF_GRAPH.items():
        if key in data:
            found[key] = value_of_kind(place, key, data[key], kind, TopologyError)
    within(f"{place}: node_size", found["node_size"], 1, npus, TopologyError)
    found |= {key: one_line(found[key]) for key in ("name", "source")}
    return found | {"algorithms": algorithm_names(place, found.get("algorithms", ()))}
