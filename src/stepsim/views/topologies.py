"""The figure of a topology: NPUs, switches and cables.

Switches stand in layers above the row of NPUs, those of one node below it; NPUs that are cabled to
each other alone stand in a circle, those of a torus or mesh as springs pull them. Of a network that
is too large to draw, a part is.
"""

from typing import TYPE_CHECKING

import networkx as nx

from stepsim.base.structs import Values
from stepsim.base.units import format_bandwidth, format_time_ps
from stepsim.network.topology import DimensionKind, NestedTopology, Topology
from stepsim.show.figures.drawing import above, drawn, legend
from stepsim.show.figures.style import FigureStyle
from stepsim.show.palette import series_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_NPUS = 72
_MOST_NODES = 160
_MOST_OF_PART, _MOST_ABOVE = 32, 4
_MOST_NAMED = 24
_GRIDS = (DimensionKind.TORUS, DimensionKind.MESH)
_SEED = 1


@drawn
def draw_topology(topology: Topology, style: FigureStyle) -> "Figure":
    """NPUs, switches and cables."""
    graph, places, note = picture(topology)
    figure = style.figure(0.0)
    layers = {layer for _, layer in graph.nodes(data="layer")}
    height = 1.3 * len(layers) + 0.6 if len(layers) > 1 else 0.8 * style.width_in
    figure.set_figheight(height + (0.9 if style.narrow else 0.0))
    axes = figure.subplots()
    _draw(axes, graph, places, style)
    _label(figure, topology, graph, style)
    above(figure, style, *filter(None, (f"{topology.name}: {topology.npus:,} NPUs", note)))
    axes.margins(0.03, 0.25 if len(layers) > 1 else 0.05)
    axes.set_axis_off()
    return figure


def picture(topology: Topology) -> tuple["nx.Graph[str]", Values, str]:
    """What is drawn: nodes with their layers, edges with class and count; places; what is not.

    Large topologies are drawn in part.
    """
    # without directions: links both ways are one cable
    graph: nx.Graph[str] = nx.Graph(topology.graph())
    note, classes = "", [link.name for link in topology.link_classes]
    for _, _, edge in graph.edges(data=True):
        edge["link_class"] = classes.index(edge["link_class"])
    if topology.npus > _MOST_NPUS or len(graph) > _MOST_NODES:
        graph, note = _part(graph, topology)
    _add_layers(graph, topology.node_size if topology.npus > topology.node_size else 0)
    if any(layer for _, layer in graph.nodes(data="layer")):
        places = _rows(graph)
    elif isinstance(topology, NestedTopology) and topology.dimensions[-1].kind in _GRIDS:
        places = nx.spring_layout(graph, seed=_SEED, iterations=200)
    else:
        places = nx.circular_layout(graph)
    return graph, places, note


def _rows(graph: "nx.Graph[str]") -> Values:
    """A row for each layer, all of them equally wide."""
    rows: dict[int, list[str]] = {}
    for node in sorted(graph, key=_natural):
        rows.setdefault(graph.nodes[node]["layer"], []).append(node)
    return {
        node: ((i + 0.5) / len(row), layer)
        for layer, row in rows.items()
        for i, node in enumerate(row)
    }


def _part(graph: "nx.Graph[str]", topology: Topology) -> tuple["nx.Graph[str]", str]:
    """The first NPUs of the first nodes of a large network, and some of the switches near them."""
    of_node = min(topology.node_size, _MOST_OF_PART // (1 + (topology.npus > topology.node_size)))
    nodes = range(0, topology.npus, topology.node_size)[: _MOST_OF_PART // of_node]
    shown = [f"npu{node + i}" for node in nodes for i in range(of_node)]
    npus = len(shown)
    for _ in range(2):
        others = (sorted({*graph[node]} - {*shown}, key=_natural) for node in shown)
        near = [[n for n in each if not n.startswith("npu")][:_MOST_ABOVE] for each in others]
        shown += dict.fromkeys(node for each in near for node in each)
    # not `graph.subgraph`, whose order is that of a set of texts, another one in every process
    part, kept = nx.Graph(), {*shown}
    part.add_nodes_from((node, graph.nodes[node]) for node in shown)
    part.add_edges_from((a, b, held) for a in shown for b, held in graph[a].items() if b in kept)
    return part, (
        f"part: {npus} of {topology.npus:,} NPUs are drawn, "
        f"and {len(shown) - npus} of {len(graph) - topology.npus:,} switches"
    )


def _natural(node: str) -> tuple[int, str]:
    return len(node), node


def _add_layers(graph: "nx.Graph[str]", node_size: int) -> None:
    """How far each node is from NPUs; -1 for the switches inside one of several nodes."""
    npus = [node for node in graph if node.startswith("npu")]
    far = nx.multi_source_dijkstra_path_length(graph, npus, weight=None)
    for node in graph:
        near = [int(n[3:]) // node_size for n in graph[node] if n in npus] if node_size else []
        inside = far[node] == 1 and len(near) == len(graph[node]) and len({*near}) == 1
        graph.nodes[node]["layer"] = -1 if inside else far[node]


def _draw(axes: "Axes", graph: "nx.Graph[str]", places: Values, style: FigureStyle) -> None:
    """Cables as thick as there are many, NPUs as numbered circles, switches as squares."""
    layer = dict(graph.nodes(data="layer"))
    for start, end, edge in graph.edges(data=True):
        bends = layer[start] == layer[end] and any(layer.values())
        nx.draw_networkx_edges(
            graph,
            places,
            [(start, end)],
            ax=axes,
            edge_color=series_colour(edge["link_class"]),
            width=min(4.0, 0.8 + 0.8 * (edge["count"] - 1)),
            alpha=0.6,
            arrows=True,
            arrowstyle="-",
            connectionstyle=f"arc3,rad={0.25 if bends else 0.0}",
            node_size=0,
        )
    npus = [node for node in graph if node.startswith("npu")]
    switches = [node for node in graph if not node.startswith("npu")]
    across = min(2.0 * style.font_pt, 60 * style.width_in / len(npus))
    look = {"ax": axes, "node_size": across**2, "edgecolors": "#333333"}
    nx.draw_networkx_nodes(graph, places, npus, node_color="#ffffff", **look)
    nx.draw_networkx_nodes(graph, places, switches, node_color="#dddddd", node_shape="s", **look)
    names = {node: node.removeprefix("npu") for node in npus}
    nx.draw_networkx_labels(graph, places, names, ax=axes, font_size=0.45 * across)
    if len(switches) <= _MOST_NAMED:
        names = {node: node for node in switches}
        nx.draw_networkx_labels(graph, places, names, ax=axes, font_size=0.6 * style.font_pt)


def _label(
    figure: "Figure", topology: Topology, graph: "nx.Graph[str]", style: FigureStyle
) -> None:
    """What each colour of cables is."""
    from matplotlib.lines import Line2D

    handles = []
    for number in sorted({number for _, _, number in graph.edges(data="link_class")}):
        link = topology.link_classes[number]
        words = (
            f"{link.name}\n{format_bandwidth(link.bandwidth)}, {format_time_ps(link.latency_ps)}"
        )
        handles.append(Line2D([], [], color=series_colour(number), label=words))
    legend(figure, style, handles)
