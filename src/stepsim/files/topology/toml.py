"""Topology files: TOML with `[[dimension]]` tables, or `[[link_class]]` and `[[link]]` tables."""

from pathlib import Path
from typing import TYPE_CHECKING

from stepsim.base.errors import TopologyError, bad_value
from stepsim.base.units import parse_time_ps
from stepsim.files.reading import read_toml
from stepsim.files.topology.dimensions import AUTO, dimensions_of
from stepsim.files.topology.library import library_of
from stepsim.files.topology.parts import algorithm_names, link_class, quantity
from stepsim.files.topology.tables import LinkTable, TopologyFile
from stepsim.network.topology import NestedTopology, Topology
from stepsim.network.topology.library import Library
from stepsim.network.topology.network import MAX_TOPOLOGY_NPUS

if TYPE_CHECKING:
    import networkx as nx

    from stepsim.network.topology.listed import ListedTopology


def read_topology_toml(path: Path) -> Topology:
    """Topology in a TOML file; an outermost `size = "auto"` starts with two innermost blocks.

    Raises TopologyError naming the file and the entry at fault.
    """
    file = read_toml(path, TopologyFile, TopologyError, "topology")
    try:
        if bool(file.dimension) == bool(file.link):
            raise TopologyError("expected either [[dimension]] or [[link]] tables")
        place = "collective.launch_latency"
        launch = quantity(parse_time_ps, place, file.collective.launch_latency)
        algorithms = algorithm_names("collective", file.collective.algorithms)
        library = library_of(file.protocol, file.collective.reach, file.accuracy)
        if file.dimension:
            return _nested(file, launch, algorithms, library)
        return _listed(file, launch, algorithms, library)
    except TopologyError as error:
        raise TopologyError(f"{path}: {error}") from None


def _nested(
    file: TopologyFile, launch: int, algorithms: tuple[str, ...], library: Library
) -> NestedTopology:
    for option in ("npus", "node_size", "npus_forward", "link_class"):
        if getattr(file, option):
            raise TopologyError(f"{option} belongs to topologies made of [[link]] tables")
    topology = NestedTopology(
        name=file.name,
        source=file.source,
        device=file.device,
        dimensions=dimensions_of(file.dimension),
        launch_latency_ps=launch,
        algorithms=algorithms,
        library=library,
        grows=file.dimension[-1].size == AUTO,
    )
    return topology.fit(topology.default_npus) if topology.grows else topology


def _listed(
    file: TopologyFile, launch: int, algorithms: tuple[str, ...], library: Library
) -> "ListedTopology":
    from stepsim.network.topology.graph import listed_topology

    most = 2 * len(file.link)
    if file.npus is None or not 1 <= file.npus <= MAX_TOPOLOGY_NPUS:
        raise TopologyError(bad_value("npus", "value", file.npus, f"1 to {MAX_TOPOLOGY_NPUS}"))
    if file.node_size is not None and not 1 <= file.node_size <= file.npus:
        raise TopologyError(bad_value("node_size", "value", file.node_size, f"1 to {file.npus}"))
    if file.npus > most:
        allowed = f"at most {most}: {len(file.link)} links cannot join more"
        raise TopologyError(bad_value("npus", "value", file.npus, allowed))
    graph = _graph(file, file.npus)
    return listed_topology(
        graph,
        [link_class(f"link_class[{i}]", table) for i, table in enumerate(file.link_class)],
        name=file.name,
        source=file.source,
        device=file.device,
        node_size=file.node_size or file.npus,
        npus_forward=file.npus_forward,
        launch_latency_ps=launch,
        algorithms=algorithms,
        library=library,
    )


def _graph(file: TopologyFile, npus: int) -> "nx.MultiDiGraph":
    """The links, and NPUs and switches that they join."""
    import networkx as nx

    classes: set[str] = set()
    for i, each in enumerate(file.link_class):
        if each.name in classes:
            expected = "a name of its own"
            raise TopologyError(bad_value(f"link_class[{i}]", "name", each.name, expected))
        classes.add(each.name)
    graph = nx.MultiDiGraph()
    graph.add_nodes_from((f"npu{i}" for i in range(npus)), kind="npu")
    for i, table in enumerate(file.link):
        _check_cable(f"link[{i}]", table, classes, npus)
        for node in (table.start, table.to):
            if node not in graph:
                graph.add_node(node, kind="switch")
        graph.add_edge(table.start, table.to, link_class=table.link_class)
        if not table.oneway:
            graph.add_edge(table.to, table.start, link_class=table.link_class)
    return graph


def _check_cable(place: str, table: LinkTable, classes: set[str], npus: int) -> None:
    if table.link_class not in classes:
        expected = f"one of {', '.join(classes) or 'the [[link_class]] names (there are none)'}"
        raise TopologyError(bad_value(place, "link_class", table.link_class, expected))
    for field, node in (("from", table.start), ("to", table.to)):
        if node.startswith("npu") and not _is_npu(node, npus):
            raise TopologyError(bad_value(place, field, node, f"npu0 to npu{npus - 1}"))
    if table.start == table.to:
        raise TopologyError(f"{place}: a link joins {table.start} to itself")


def _is_npu(node: str, npus: int) -> bool:
    number = node.removeprefix("npu")
    return (
        len(number) < 9 and number.isdecimal() and str(int(number)) == number and int(number) < npus
    )
