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

from collections.abc import Collection, Hashable, Iterable, Mapping
from numbers import Integral, Real
from typing import Any, TypeGuard, cast

import networkx as nx
from msgspec import Struct

from stepsim.base.errors import TopologyError, bad_value, errors_at, one_line
from stepsim.base.units import MAX_INT64, Quantity
from stepsim.files.topology.toml import NPU, algorithm_names, class_name
from stepsim.network.topology.cabled import listed_topology
from stepsim.network.topology.dimension import (
    LAUNCH_LATENCY,
    LINK_FIELDS,
    PLAIN,
    Library,
    LinkClass,
    LinkField,
)
from stepsim.network.topology.listed import ListedTopology
from stepsim.network.topology.network import MAX_NPUS

_MOST_PARALLEL = 1024
_EXPECTED = {
    Quantity.BANDWIDTH: "a text such as '400 Gbps', or bytes/s above 0",
    Quantity.TIME: "a text such as '500 ns', or whole picoseconds as {}",
    Quantity.FACTOR: "above 0, at most 1",
}


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
    return listed_topology(plain, classes.found(), **_of_graph(graph.graph, npus))


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
    """Classes of links found so far: each with the place of its first edge."""

    named: dict[str, tuple[dict[str, float], str]] = {}
    unnamed: dict[tuple[str, tuple[float, ...]], str] = {}

    def read(self, place: str, ends: tuple[str, str], data: Mapping[str, Any]) -> tuple[str, int]:
        """Class of an edge, and its number of links."""
        numbers = _numbers(place, data, LINK_FIELDS, extra=("link_class", "count"))
        count = data.get("count", 1)
        if not _is_whole(count) or not 1 <= count <= _MOST_PARALLEL:
            raise TopologyError(bad_value(place, "count", count, f"1 to {_MOST_PARALLEL} links"))
        if "link_class" in data:
            name = class_name(place, "link_class", data["link_class"])
        else:
            kind = ("gpulink", "nic", "fabric")[sum(not end.startswith("npu") for end in ends)]
            same = kind, tuple(numbers.values())
            if same not in self.unnamed:
                alike = sum(each == kind for each, _ in self.unnamed)
                self.unnamed[same] = f"{kind}-{alike + 1}" if alike else kind
            name = self.unnamed[same]
        before, first = self.named.setdefault(name, (numbers, place))
        for key in numbers:
            if numbers[key] != before[key]:
                what = f"{key} is {numbers[key]:g} here and {before[key]:g} for {first}"
                raise TopologyError(f"{place}: {what}: expected one for link_class {name!r}")
        return name, int(count)

    def found(self) -> list[LinkClass]:
        """The classes in the order in which they were found."""
        return [
            LinkClass(name=name, **cast(Any, numbers)) for name, (numbers, _) in self.named.items()
        ]


def _numbers(
    place: str, data: Mapping[str, Any], fields: Iterable[LinkField], extra: Collection[str]
) -> dict[str, float]:
    """The values of fields, each given as a text by its name or as a number by its attribute."""
    keys = [key for each in fields for key in dict.fromkeys((each.name, each.attribute))]
    _refuse_unknown(place, data, (*keys, *extra))
    found: dict[str, float] = {}
    for each in fields:
        given = [key for key in dict.fromkeys((each.name, each.attribute)) if key in data]
        if len(given) > 1:
            raise TopologyError(f"{place}: {' and '.join(given)} say the same: expected one")
        if given:
            found[each.attribute] = _number(place, each, given[0], data[given[0]])
        elif each.default is None:
            expected = _EXPECTED[each.quantity].format(each.attribute)
            raise TopologyError(f"{place}: {each.name} is missing: expected {expected}")
        else:
            found[each.attribute] = each.default
    return found


def _number(place: str, each: LinkField, key: str, value: object) -> float:
    """A value in the program's unit; raises TopologyError for what a link cannot have."""
    number: Any = value
    if isinstance(value, str) and key == each.name:
        with errors_at(f"{place}: {key}", TopologyError):
            number = each.quantity.parse(value)
    elif isinstance(value, str) or key != each.attribute:
        number = None
    if each.quantity is Quantity.TIME and _is_whole(number) and 0 <= number <= MAX_INT64:
        return int(number)
    most = 1 if each.quantity is Quantity.FACTOR else float("inf")
    is_real = isinstance(number, Real) and not isinstance(number, bool)
    if each.quantity is not Quantity.TIME and is_real and 0 < number <= most:
        return float(number)
    expected = _EXPECTED[each.quantity].format(each.attribute)
    raise TopologyError(bad_value(place, key, value, expected))


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _refuse_unknown(place: str, data: Mapping[Any, Any], allowed: Collection[str]) -> None:
    for key in data:
        if key not in allowed:
            raise TopologyError(
                f"{place}: {key!r} is no attribute of it: expected {', '.join(allowed)}"
            )


# Attributes of a graph: of which type they are, and what errors call it.
_OF_GRAPH: Mapping[str, tuple[Any, str]] = {
    "name": (str, "a text"),
    "source": (str, "a text"),
    "npus_forward": (bool, "True or False"),
    "algorithms": (list | tuple, "a list of names"),
    "library": (Library, "a stepsim library"),
}


def _of_graph(data: Mapping[str, Any], npus: int) -> dict[str, Any]:
    """What the graph's own attributes say of the topology."""
    place = "the graph"
    known: dict[str, Any] = {
        "name": "graph",
        "source": "a networkx graph",
        "npus_forward": False,
        "node_size": npus,
        "algorithms": (),
        "library": PLAIN,
    }
    found = known | _numbers(place, data, (LAUNCH_LATENCY,), extra=tuple(known))
    found |= {key: value for key, value in data.items() if key in known}
    for key, (kind, expected) in _OF_GRAPH.items():
        if not isinstance(found[key], kind):
            raise TopologyError(bad_value(place, key, found[key], expected))
    found |= {key: one_line(found[key]) for key in ("name", "source")}
    if not _is_whole(found["node_size"]) or not 1 <= found["node_size"] <= npus:
        raise TopologyError(bad_value(place, "node_size", found["node_size"], f"1 to {npus}"))
    return found | {"algorithms": algorithm_names(place, found["algorithms"])}
