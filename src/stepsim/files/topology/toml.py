"""Topology files: TOML with `[[dimension]]` tables, or `[[link_class]]` and `[[link]]` tables.

The tables stand first: what may be written, with defaults, and what it means, with what the readers
of all forms of topologies share (classes of links, names of algorithms). What is wrong in a
dimension is named by its table and option. `[[protocol]]` and `[[accuracy]]` are those of the
machine's communication library.
"""

import re
from collections.abc import Iterable
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from stepsim.base.axes import CollectiveKind
from stepsim.base.errors import TopologyError, bad_value, errors_at, within
from stepsim.base.fields import Bandwidth, Size, Time
from stepsim.base.structs import Count, Names, Positive, Share, TomlTable, Values, replace, shipped
from stepsim.files.reading import named_file, read_toml
from stepsim.network.collectives import Algorithm
from stepsim.network.topology import Dimension, DimensionKind, LinkClass, NestedTopology, Topology
from stepsim.network.topology.dimension import (
    LINK_FIELDS,
    Accuracy,
    Library,
    OwnNumbers,
    Protocol,
)
from stepsim.network.topology.network import MAX_NPUS
from stepsim.network.topology.wirings import DragonflyShape, Ports, TreeShape

if TYPE_CHECKING:
    import networkx as nx

    from stepsim.network.topology.listed import ListedTopology


_ALGORITHMS = [name.value for name in Algorithm if name is not Algorithm.AUTO]
NPU = re.compile(r"npu(0|[1-9][0-9]{0,8})")
"""What NPUs are called in files of links, and in graphs where they have numbers."""
_Positive = Annotated[int, Meta(ge=1, le=MAX_NPUS)]
_AlgorithmName = Annotated[str, Meta(extra_json_schema={"enum": _ALGORITHMS})]
_Extent = Annotated[
    int | str,
    Meta(
        description='NPUs, or blocks of the dimensions inside; "auto": what the job needs',
        extra_json_schema={"minimum": 1, "pattern": "^auto$"},
    ),
]


class CollectiveTable(TomlTable):
    """`[collective]`: what is paid once per collective, and which algorithms its library has.

    Without `algorithms` it has all. `reach` is the most links of a name that the ranks of a node
    use together.
    """

    launch_latency_ps: Time = 0
    algorithms: tuple[_AlgorithmName, ...] = ()
    reach: Annotated[
        dict[str, _Positive], Meta(description="by links outside a node: NICs that a group reaches")
    ] = {}


class DimensionTable(LinkClass):
    """`[[dimension]]`, innermost first; which options go with which kind is in docs/formats.md."""

    kind: Annotated[DimensionKind, Meta(description="how a dimension joins its NPUs")]
    size: _Extent | None = None
    nics: Annotated[_Positive, Meta(description="links of each NPU, used evenly")] = 1
    npus_per_nic: Annotated[_Positive, Meta(description="neighbours that share a NIC")] = 1
    reduces: Annotated[bool, Meta(description="whether the switch reduces in flight")] = False
    reduce_efficiency: Annotated[
        Share, Meta(description="of the links' capacity when the switch reduces")
    ] = 1.0
    used: Annotated[
        _Positive | None,
        Meta(description="switch inside others: NPUs of it that jobs of more than one take"),
    ] = None
    shape: Annotated[tuple[_Positive, ...] | None, Meta(description="sides of a torus or mesh")] = (
        None
    )
    cables: Annotated[
        tuple[tuple[int, int], ...] | None,
        Meta(description="pairs of NPUs; repeated where cables are parallel"),
    ] = None
    rails: Annotated[
        bool | None, Meta(description="fat tree: whether it joins equal inner coordinates only")
    ] = None
    radix: Annotated[
        _Positive | None, Meta(description="fat tree: ports of a switch; three layers")
    ] = None
    leaf: Annotated[_Positive | None, Meta(description="fat tree: NPUs of a leaf switch")] = None
    spines: Annotated[_Positive | None, Meta(description="fat tree: links up from a leaf")] = None
    oversubscription: Annotated[
        Positive | None, Meta(description="fat tree: bandwidth down over bandwidth up of a leaf")
    ] = None
    pod: Annotated[
        _Positive | None, Meta(description="fat tree: NPUs below one group of spines; three layers")
    ] = None
    cores: Annotated[_Positive | None, Meta(description="fat tree: links up from a spine")] = None
    up_bandwidth: Annotated[
        Bandwidth | None, Meta(description="fat tree: of a link between switches, with its unit")
    ] = None
    routers: Annotated[_Positive | None, Meta(description="dragonfly: routers of a group")] = None
    npus_per_router: Annotated[
        _Positive | None, Meta(description="dragonfly: NPUs of a router")
    ] = None
    global_links: Annotated[
        _Positive | None, Meta(description="dragonfly: links of a router to other groups")
    ] = None
    global_bandwidth: Annotated[
        Bandwidth | None, Meta(description="dragonfly: of a link between groups, with its unit")
    ] = None
    global_latency_ps: Annotated[
        Time | None, Meta(description="dragonfly: of a link between groups, with its unit")
    ] = None


class LinkTable(TomlTable, rename={"start": "from"}):
    """`[[link]]`: a cable between `npu0`, `npu1`, ... and switches of any other name."""

    start: Annotated[str, Meta(description="a node")]
    to: Annotated[str, Meta(description="a node")]
    link_class: Annotated[str, Meta(description="name of a `[[link_class]]`")]
    oneway: Annotated[bool, Meta(description="one direction only")] = False


class AccuracyTable(
    TomlTable,
    rename={"kind": "collective", "most_ranks": "ranks", "first_bytes": "from", "last_bytes": "to"},
):
    """`[[accuracy]]`: how far times are from measured ones, of collectives and sizes."""

    kind: CollectiveKind
    nodes: Annotated[Count, Meta(description="the most measured: 1, or several")]
    most_ranks: Annotated[Count, Meta(description="the most measured")]
    first_bytes: Annotated[Size, Meta(description="smallest size, with its unit")]
    last_bytes: Annotated[Size, Meta(description="largest size, with its unit")]
    mean: Annotated[Share, Meta(description="mean of |ours / measured - 1|")]
    largest: Annotated[Share, Meta(description="largest of |ours / measured - 1|")]
    samples: Annotated[Count, Meta(description="times measured")]
    source: Annotated[str, Meta(description="where the measurements come from")]


class TopologyFile(TomlTable):
    """A topology: nested `[[dimension]]` tables, or `[[link_class]]` and `[[link]]` tables."""

    name: Annotated[str, Meta(description="of the topology, in reports")]
    source: Annotated[str, Meta(description="where the numbers come from")] = ""
    base: Annotated[str, Meta(description="whose library, efficiency and launch it has")] = ""
    device: Annotated[str, Meta(description="accelerator of its NPUs, name or file")] = ""
    dimension: list[DimensionTable] = []
    link_class: list[LinkClass] = []
    link: list[LinkTable] = []
    npus: Annotated[_Positive | None, Meta(description="NPUs of a topology of links")] = None
    node_size: Annotated[
        _Positive | None, Meta(description="consecutive NPUs that share a node, of links; or all")
    ] = None
    npus_forward: Annotated[
        bool, Meta(description="whether NPUs pass on others' traffic, of links")
    ] = False
    collective: CollectiveTable = CollectiveTable()
    protocol: tuple[Protocol, ...] = ()
    accuracy: list[AccuracyTable] = []


def class_name(place: str, field: str, name: object) -> str:
    """A name of a class of links; raises TopologyError for what axes could not name."""
    if not isinstance(name, str) or not re.fullmatch(r"(?!npu)[A-Za-z][\w-]*", name):
        expected = "letters, digits, _ and -, not starting with 'npu'"
        raise TopologyError(bad_value(place, field, name, expected))
    return name


def algorithm_names(place: str, names: Iterable[object]) -> Names:
    """Names of collective algorithms; raises TopologyError for one that does not exist."""
    found = []
    for name in names:
        if name not in _ALGORITHMS:
            expected = f"of {', '.join(_ALGORITHMS)}"
            raise TopologyError(bad_value(place, "algorithms", name, expected))
        found.append(str(name))
    return tuple(found)


def read_topology_toml(path: Path) -> Topology:
    """Topology in a TOML file; an outermost `size = "auto"` starts with two innermost blocks.

    Raises TopologyError naming the file and the entry at fault.
    """
    file = read_toml(path, TopologyFile, TopologyError, "topology")
    with errors_at(path, TopologyError):
        if file.base:
            file = _on_base(file)
        if bool(file.dimension) == bool(file.link):
            raise TopologyError("expected either [[dimension]] or [[link]] tables")
        for i, each in enumerate((*file.dimension, *file.link_class)):
            class_name(f"{'dimension' if file.dimension else 'link_class'}[{i}]", "name", each.name)
        algorithm_names("collective", file.collective.algorithms)
        if file.link:
            return _listed(file)
        for option in ("npus", "node_size", "npus_forward", "link_class"):
            if getattr(file, option):
                raise TopologyError(f"{option} belongs to topologies made of [[link]] tables")
        topology = NestedTopology(
            dimensions=dimensions_of(file.dimension),
            grows=file.dimension[-1].size == AUTO,
            **_of_any_form(file),
        )
        return topology.fit(topology.default_npus) if topology.grows else topology


_OF_BASE = {each.field: each.default for each in LINK_FIELDS if each.default is not None}


def _on_base(file: TopologyFile) -> TopologyFile:
    """The file with what a base has where the file says nothing.

    That is the library with its accuracy, what a collective costs once, the device, and of links of
    the same name how efficient they are and what a message costs.
    """
    base = read_toml(
        named_file("topology", file.base, TopologyError), TopologyFile, TopologyError, "topology"
    )
    alike = {table.name: table for table in base.dimension}

    def filled(table: DimensionTable) -> DimensionTable:
        same = alike.get(table.name, table)
        unsaid = [name for name, usual in _OF_BASE.items() if getattr(table, name) == usual]
        return replace(table, **{name: getattr(same, name) for name in unsaid})

    said = bool(file.protocol)
    return replace(
        file,
        dimension=[filled(table) for table in file.dimension],
        collective=base.collective if file.collective == CollectiveTable() else file.collective,
        device=file.device or base.device,
        protocol=file.protocol if said else base.protocol,
        accuracy=file.accuracy if said else base.accuracy,
    )


def _listed(file: TopologyFile) -> "ListedTopology":
    from stepsim.network.topology.cabled import listed_topology

    links = len(file.link)
    if file.npus is None:
        raise TopologyError(bad_value("npus", "value", file.npus, f"1 to {MAX_NPUS}"))
    within("node_size", file.node_size, 1, file.npus, TopologyError)
    within(f"{links} links cannot join them: npus", file.npus, 1, 2 * links, TopologyError)
    return listed_topology(
        _graph(file, file.npus),
        file.link_class,
        node_size=file.node_size or file.npus,
        npus_forward=file.npus_forward,
        **_of_any_form(file),
    )


def _of_any_form(file: TopologyFile) -> Values:
    """What a file says of its topology, whether it has dimensions or links.

    Raises TopologyError naming the entry of the library at fault.
    """
    table = file.collective
    for i, each in enumerate(file.protocol):
        algorithm_names(f"protocol[{i}] ({each.name})", each.algorithms)
    accuracy = tuple(map(Accuracy.taken_from, file.accuracy))
    return {
        "name": file.name,
        "source": file.source,
        "device": file.device,
        "launch_latency_ps": table.launch_latency_ps,
        "algorithms": table.algorithms,
        "library": Library(
            protocols=file.protocol, reach=tuple(table.reach.items()), accuracy=accuracy
        ),
    }


def _graph(file: TopologyFile, npus: int) -> "nx.MultiDiGraph":
    """The links, and NPUs and switches that they join."""
    import networkx as nx

    classes: list[str] = []
    for i, each in enumerate(file.link_class):
        if each.name in classes:
            expected = "a name of its own"
            raise TopologyError(bad_value(f"link_class[{i}]", "name", each.name, expected))
        classes.append(each.name)
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(f"npu{i}" for i in range(npus))
    for i, table in enumerate(file.link):
        place = f"link[{i}]"
        if table.link_class not in classes:
            expected = f"one of {', '.join(classes) or 'the [[link_class]] names (there are none)'}"
            raise TopologyError(bad_value(place, "link_class", table.link_class, expected))
        for field, node in (("from", table.start), ("to", table.to)):
            number = NPU.fullmatch(node)
            if node.startswith("npu") and not (number and int(number[1]) < npus):
                raise TopologyError(bad_value(place, field, node, f"npu0 to npu{npus - 1}"))
        if table.start == table.to:
            raise TopologyError(f"{place}: a link joins {table.start} to itself")
        graph.add_edge(table.start, table.to, link_class=table.link_class)
        if not table.oneway:
            graph.add_edge(table.to, table.start, link_class=table.link_class)
    return graph


AUTO = "auto"


def dimensions_of(tables: list[DimensionTable]) -> tuple[Dimension, ...]:
    """The dimensions, innermost first; an outermost `auto` size is the least its kind has.

    Raises TopologyError naming the table and the entry at fault.
    """
    found: list[Dimension] = []
    for i, table in enumerate(tables):
        with errors_at(f"dimension[{i}] ({table.name})", TopologyError):
            if table.size == AUTO and i + 1 < len(tables):
                raise _wrong("size", AUTO, "a number: only the outermost dimension is auto")
            if table.used is not None and (i > 0 or len(tables) == 1):
                expected = "nothing: only an innermost dimension inside others has it"
                raise _wrong("used", table.used, expected)
            inside = prod(dimension.size for dimension in found)
            found.append(_dimension(table, inside))
            npus = inside * found[-1].size
            if npus > MAX_NPUS:
                raise _wrong("product of sizes", npus, f"at most {MAX_NPUS}")
            found[-1].wirings(inside)
    return tuple(found)


_NEEDED = {
    "shape": "the length of every side, e.g. [4, 4, 4]",
    "cables": "pairs of numbers, e.g. [[0, 1]]",
    "routers": f"1 to {MAX_NPUS}",
    "npus_per_router": f"1 to {MAX_NPUS}",
    "global_links": f"1 to {MAX_NPUS}",
}
"""What kinds that have such an option cannot do without."""


def _dimension(table: DimensionTable, inside: int) -> Dimension:
    kind = table.kind
    link = LinkClass(**{name: getattr(table, name) for name in LinkClass.__struct_fields__})
    owners = shipped(__file__, "options.toml", dict[str, tuple[DimensionKind, ...]])
    for option, kinds in owners.items():
        value = getattr(table, option)
        if value is not None and kind not in kinds:
            belongs = f"belongs to kind {' and '.join(kinds)}, not to {kind}"
            raise TopologyError(f"{option} {belongs}")
        if kind in kinds and option in _NEEDED and not value:
            raise _wrong(option, value, _NEEDED[option])
    ports, shape = Ports(nics=table.nics, npus_per_nic=table.npus_per_nic), table.shape or ()
    dragonfly = None
    if table.routers and table.npus_per_router and table.global_links:
        dragonfly = DragonflyShape(
            routers=table.routers, npus=table.npus_per_router, global_links=table.global_links
        )
    dimension = Dimension(
        kind=kind,
        size=prod(shape),
        link=link,
        shape=shape,
        cables=table.cables or (),
        ports=ports,
        tree=_tree(table, link, ports) if kind is DimensionKind.FAT_TREE else None,
        rails=bool(table.rails),
        dragonfly=dragonfly,
        outer=OwnNumbers(
            bandwidth=table.up_bandwidth or table.global_bandwidth,
            latency_ps=table.global_latency_ps,
        ),
        reduces=table.reduces,
        reduce_efficiency=table.reduce_efficiency,
    )
    return _with_size(table, dimension, inside)


def _wrong(field: str, value: object, allowed: str) -> TopologyError:
    """The error of an option of a dimension, which its reader names."""
    return TopologyError(bad_value("", field, value, allowed).removeprefix(": "))


def _with_size(table: DimensionTable, dimension: Dimension, inside: int) -> Dimension:
    """The dimension with the size that its table says, or that its shape or cables imply."""
    size, shape = table.size, dimension.tree or dimension.dragonfly
    if size is None and dimension.shape:
        size = dimension.size
    elif size is None:
        npus = shape.most if shape else 1 + max(map(max, dimension.cables), default=-1)
        blocks, left = divmod(npus, inside if dimension.joins_inside else 1)
        size = blocks if blocks and not left else None
    if size == AUTO and dimension.kind is not DimensionKind.CABLES:
        return dimension.grown(1, inside)
    if not isinstance(size, int) or size < 1:
        raise _wrong("size", size, 'a positive integer or "auto"')
    return replace(dimension, size=size, used=table.used or 0)


def _tree(table: DimensionTable, link: LinkClass, ports: Ports) -> TreeShape:
    match table.radix, table.leaf:
        case int(radix), None:
            for option in ("spines", "oversubscription", "pod", "cores"):
                if getattr(table, option) is not None:
                    raise TopologyError(f"{option} does not go with radix")
            return TreeShape.k_ary(radix)
        case None, int(leaf):
            pass
        case _:
            raise TopologyError(
                "a fat_tree needs one of leaf, the NPUs below a leaf switch (e.g. leaf = 32) "
                "and radix, the ports of every switch (e.g. radix = 64, three layers)"
            )
    whole = ports.capacity(leaf, (link.bandwidth,)) / (table.up_bandwidth or link.bandwidth)
    below, above = [leaf], [_spines(table, leaf, whole)]
    if table.pod is not None:
        if table.pod % leaf:
            raise _wrong("pod", table.pod, f"whole leaves of {leaf} NPUs")
        below.append(table.pod // leaf)
        above.append(table.cores or below[1])
    elif table.cores is not None:
        raise TopologyError("cores needs pod: the NPUs below one group of spines")
    return TreeShape(down=tuple(below), up=tuple(above))


def _spines(table: DimensionTable, leaf: int, whole: float) -> int:
    """Links up from a leaf; `whole` are as many as keep up with its NPUs."""
    if table.spines is not None:
        if table.oversubscription is not None:
            raise TopologyError("spines and oversubscription exclude each other")
        return table.spines
    over = table.oversubscription or 1.0
    links = whole / over
    if not (links >= 0.5 and abs(links - round(links)) < 1e-6 * links):
        raise TopologyError(
            f"oversubscription is {over:g}: a leaf of {leaf} NPUs would need {links:g} "
            f"links up: expected a whole number: a leaf that {over:g} divides, or spines"
        )
    return round(links)
