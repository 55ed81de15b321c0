"""The figure of a topology: where its nodes go, and how they are drawn.

NPUs are laid out dimension by dimension: rings, fully connected and cabled ones as circles, tori
and meshes as grids, switched ones in rows, racks as circles around their switches. Switches of a
node stand below its NPUs, all others in layers above; the routers of a dragonfly stand within a
circle of its NPUs. Of a network that is too large to draw, a smaller one of the same build is.
"""

from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from math import cos, inf, pi, prod, sin
from typing import TYPE_CHECKING

from msgspec import Struct

from stepsim.base.structs import replace
from stepsim.base.units import format_bandwidth, format_time_ps
from stepsim.network.topology import DimensionKind, LinkClass, NestedTopology, Topology
from stepsim.network.topology.dimension import Dimension
from stepsim.network.topology.wirings import DragonflyShape, TreeShape
from stepsim.show.figures.drawing import drawn, legend
from stepsim.show.figures.style import FigureStyle
from stepsim.show.palette import series_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEGEND_IN = 2.2
_MOST_UNIT_EM = 5.0  # of the distance between neighbours
_LEAST_IN, _MOST_IN = 1.2, 9.0
_LEAST_NUMBER_PT = 3.5
_MOST_THICK = 200


@drawn
def draw_topology(topology: Topology, style: FigureStyle) -> "Figure":
    """NPUs, switches and cables."""
    drawn = picture(topology)
    xs, ys = zip(*drawn.places.values(), strict=True)
    figure = style.figure(0.0)
    width = style.width_in - (0 if style.narrow else _LEGEND_IN)
    unit = min(width / (max(xs) - min(xs) + 2), _MOST_UNIT_EM * style.font_pt / 72)
    height = min(_MOST_IN, max(_LEAST_IN, unit * (max(ys) - min(ys) + 2)))
    figure.set_figheight(height + (0.9 if style.narrow else 0.5))
    _draw(figure, topology, drawn, style, unit * 72)
    return figure


Point = tuple[float, float]
_ROUND = (
    DimensionKind.RING,
    DimensionKind.FULLY_CONNECTED,
    DimensionKind.CABLES,
    DimensionKind.DRAGONFLY,
)
_GAP = 1.6
_MOST_NODES = 160
_MOST_ABOVE = 16
_ARC = 0.25
_APART = 1.5  # switches that are nearer are spread over the width


class Edge(Struct, frozen=True, kw_only=True):
    """Cables between two nodes: of which link class, how many, and whether to draw an arc."""

    ends: tuple[str, str]
    link_class: int
    cables: int
    arc: bool

    def apex(self, places: dict[str, Point]) -> Point:
        """The point of the cable farthest from the straight line between its ends."""
        (ax, ay), (bx, by) = (places[end] for end in self.ends)
        bend = self.bend / 2
        return (ax + bx) / 2 + bend * (by - ay), (ay + by) / 2 - bend * (bx - ax)

    @property
    def bend(self) -> float:
        """Distance of the control point from the straight line, as a share of its length."""
        return _ARC if self.arc else 0.0


class Picture(Struct, frozen=True, kw_only=True):
    """Nodes with their places, cables between them, and what was left out."""

    places: dict[str, Point]
    edges: tuple[Edge, ...]
    note: str


def picture(topology: Topology) -> Picture:
    """Lay out a topology; large ones are drawn in part."""
    note = ""
    if isinstance(topology, NestedTopology):
        topology, note = outline(topology)
        places = _npu_places(topology)
        cables = _cables(topology)
    else:
        cables = _cables(topology)
        shown, note = _part(topology, cables)
        cables = {
            key: count for key, count in cables.items() if key[0] in shown and key[1] in shown
        }
        places = _rows(topology, shown, cables)
    _place_switches(topology, places, cables)
    racks = _has_racks(topology)
    edges = tuple(
        Edge(ends=(a, b), link_class=c, cables=count, arc=not racks and _blocked(places, a, b))
        for (a, b, c), count in cables.items()
    )
    return Picture(places=places, edges=edges, note=note)


def _has_racks(topology: Topology) -> bool:
    """Whether NPUs stand in circles around the switches of their racks."""
    return isinstance(topology, NestedTopology) and is_rack(topology.dimensions[0])


def _cables(topology: Topology) -> dict[tuple[str, str, int], int]:
    """Edges of its graph, per unordered pair of nodes and class: both directions count once."""
    numbers = {link.name: c for c, link in enumerate(topology.link_classes)}
    both: dict[tuple[str, str, int], list[int]] = defaultdict(lambda: [0, 0])
    for start, end, edge in topology.graph().edges(data=True):
        backward = start > end
        key = (end, start) if backward else (start, end)
        both[*key, numbers[edge["link_class"]]][backward] += edge["count"]
    return {key: max(counts) for key, counts in both.items()}


def _npu_places(topology: NestedTopology) -> dict[str, Point]:
    """Places of the NPUs: each dimension puts copies of what is inside side by side."""
    places: list[Point] = [(0.0, 0.0)]
    for k, dimension in enumerate(topology.dimensions):
        if dimension.kind in (DimensionKind.TORUS, DimensionKind.MESH):
            shifts = _grid(dimension.shape or (dimension.size,), _extent(places))
        elif (dimension.kind in _ROUND and dimension.size > 2) or (k == 0 and is_rack(dimension)):
            shifts = _circle(dimension.size, _extent(places))
        elif k > 1:
            shifts = [(0.0, i * (_extent(places)[1] + 4 * _GAP)) for i in range(dimension.size)]
        else:
            step = _extent(places)[0] + (_GAP if len(places) > 1 else 1.0)
            shifts = [(i * step, 0.0) for i in range(dimension.size)]
        places = [(x + dx, y + dy) for dx, dy in shifts for x, y in places]
    return {f"npu{i}": place for i, place in enumerate(places)}


def _extent(places: list[Point]) -> Point:
    xs, ys = zip(*places, strict=True)
    return max(xs) - min(xs), max(ys) - min(ys)


def _circle(size: int, extent: Point) -> list[Point]:
    around = size * (max(extent) + (_GAP if max(extent) else 1.0))
    turns = [2 * pi * i / size for i in range(size)]
    return [(around / 2 / pi * sin(turn), around / 2 / pi * cos(turn)) for turn in turns]


def _grid(shape: tuple[int, ...], extent: Point) -> list[Point]:
    """Sides to the right, upwards, and for the third one aslant."""
    step_x, step_y = extent[0] + 1.0, extent[1] + 1.0
    width, height = step_x * shape[0], step_y * (shape[1] if len(shape) > 1 else 1)
    steps = [(step_x, 0.0), (0.0, step_y), (0.32 * step_x, 0.24 * step_y)]
    if len(shape) == 3:
        steps = [(1.5 * step_x, 0.0), (0.0, 1.3 * step_y), (0.36 * step_x, 0.28 * step_y)]
    steps += [(k * 1.8 * width, k * 0.4 * height) for k in range(1, len(shape) - 2)]
    shifts: list[Point] = [(0.0, 0.0)]
    for side, (dx, dy) in zip(shape, steps, strict=False):
        shifts = [(x + i * dx, y + i * dy) for i in range(side) for x, y in shifts]
    return shifts


def _part(topology: Topology, cables: dict[tuple[str, str, int], int]) -> tuple[set[str], str]:
    """Nodes of a list of links to draw: all, or the first NPUs and switches near them."""
    everything = {node for a, b, _ in cables for node in (a, b)}
    if len(everything) <= _MOST_NODES:
        return everything, ""
    npus = min(topology.npus, max(8, min(32, 2 * topology.node_size)))
    shown = {f"npu{i}" for i in range(npus)}
    for _ in range(2):
        near = sorted({b for pair in cables for a, b in (pair[:2], pair[1::-1]) if a in shown})
        switches = [node for node in near if node not in shown and not node.startswith("npu")]
        switches.sort(key=lambda node: (len(node), node))
        shown |= set(switches[: 2 * _MOST_ABOVE])
    return shown, (
        f"part: {npus} of {topology.npus:,} NPUs are drawn, "
        f"and {len(shown) - npus} of {len(everything) - topology.npus:,} switches"
    )


def _rows(
    topology: Topology, shown: set[str], cables: dict[tuple[str, str, int], int]
) -> dict[str, Point]:
    """Places of listed NPUs: a circle where they are cabled to each other, else a row."""
    npus = sorted((node for node in shown if node.startswith("npu")), key=lambda n: int(n[3:]))
    direct = any(a.startswith("npu") and b.startswith("npu") for a, b, _ in cables)
    if direct and len(npus) > 2:
        return dict(zip(npus, _circle(len(npus), (0.0, 0.0)), strict=True))
    size = topology.node_size
    return {npu: (i + i // size * _GAP / 2, 0.0) for i, npu in enumerate(npus)}


def _place_switches(
    topology: Topology, places: dict[str, Point], cables: dict[tuple[str, str, int], int]
) -> None:
    """Layer by layer away from the NPUs; switches of one node go below it."""
    neighbours: dict[str, set[str]] = defaultdict(set)
    for a, b, _ in cables:
        neighbours[a].add(b)
        neighbours[b].add(a)
    inside = isinstance(topology, NestedTopology) and (
        topology.dimensions[-1].kind is DimensionKind.DRAGONFLY
    )
    racks = _has_racks(topology)
    level = 0
    frame = list(places.values())
    while waiting := [n for n in neighbours if n not in places and neighbours[n] & places.keys()]:
        level += 1
        found = {n: [places[m] for m in sorted(neighbours[n]) if m in places] for n in waiting}
        if inside:
            places |= {n: _shrunk(_mean(near), 0.8) for n, near in found.items()}
            continue
        below = [n for n in waiting if level == 1 and _in_one_node(topology, neighbours[n])]
        for node in below:
            x, y = _mean(found[node])
            places[node] = x, y if racks else min(y for _, y in found[node]) - 1.4
        wish = {n: _mean(near)[0] for n, near in found.items() if n not in below}
        places |= _layer(wish, frame, level)


def _layer(wish: dict[str, float], frame: list[Point], level: int) -> dict[str, Point]:
    """A row of switches over the NPUs: each where it wishes to be, or spread evenly."""
    order = sorted(wish, key=lambda node: (round(wish[node], 6), len(node), node))
    apart = all(wish[b] - wish[a] > _APART for a, b in pairwise(order))
    left, width = min(x for x, _ in frame), _extent(frame)[0]
    height = max(y for _, y in frame) + 2.2 * level
    even = [left + width * (i + 0.5) / len(order) for i in range(len(order))]
    return {n: (wish[n] if apart else x, height) for n, x in zip(order, even, strict=True)}


def _shrunk(point: Point, factor: float) -> Point:
    return point[0] * factor, point[1] * factor


def _in_one_node(topology: Topology, neighbours: set[str]) -> bool:
    npus = [int(node[3:]) // topology.node_size for node in neighbours if node.startswith("npu")]
    inside = len(npus) == len(neighbours) and len(set(npus)) == 1
    return inside and topology.npus > topology.node_size


def _mean(points: list[Point]) -> Point:
    return sum(x for x, _ in points) / len(points), sum(y for _, y in points) / len(points)


def _blocked(places: dict[str, Point], a: str, b: str) -> bool:
    """Whether a straight cable would run through another node."""
    (ax, ay), (bx, by) = places[a], places[b]
    length = (bx - ax) ** 2 + (by - ay) ** 2
    for node, (x, y) in places.items():
        if node in (a, b) or not length:
            continue
        along = ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / length
        off = (x - ax - along * (bx - ax)) ** 2 + (y - ay - along * (by - ay)) ** 2
        if 0 < along < 1 and off < 0.002:
            return True
    return False


_MOST_NPUS = 72
_MOST_IN_ROW = 32
_MOST_COUNTED = 4096
"""NPUs of the largest network whose switches are counted one by one."""
_MOST = {
    DimensionKind.RING: 16,
    DimensionKind.LINE: 16,
    DimensionKind.FULLY_CONNECTED: 12,
    DimensionKind.CABLES: 64,
}


def outline(topology: NestedTopology) -> tuple[NestedTopology, str]:
    """A topology small enough to draw, and a sentence that says what was left out; "" if nothing.

    Small topologies are returned as they are.
    """
    few = topology.npus <= (2 * _MOST_NPUS if is_rack(topology.dimensions[0]) else _MOST_NPUS)
    if few and max(topology.link_counts(), default=0) <= 400:
        return topology, ""
    dimensions: list[Dimension] = []
    for k, dimension in enumerate(topology.dimensions):
        inside = prod(each.size for each in dimensions)
        outermost = k == len(topology.dimensions) - 1
        dimensions.append(_smaller(dimension, inside, outermost))
    small = replace(topology, dimensions=tuple(dimensions), grows=False)
    if small.npus < topology.npus:
        return small, f"part of it: {small.npus} of {topology.npus:,} NPUs are drawn"
    return small, f"part of it: {_switches(small)} of {_switches(topology)} switches are drawn"


def is_rack(dimension: Dimension) -> bool:
    """Whether a node is a rack whose NPUs hang on one layer of switches, and is drawn whole."""
    return dimension.kind is DimensionKind.SWITCH and _MOST_IN_ROW < dimension.size <= _MOST_NPUS


def _switches(topology: NestedTopology) -> str:
    """How many there are, in words."""
    if topology.npus > _MOST_COUNTED:
        return "many more"
    nodes = topology.graph().nodes
    return f"{sum(not node.startswith('npu') for node in nodes):,}"


def _smaller(dimension: Dimension, inside: int, outermost: bool) -> Dimension:
    most = max(2, min(_MOST.get(dimension.kind, 8), _MOST_NPUS // (2 * inside)))
    if dimension.shape:
        limit = 8 if len(dimension.shape) == 2 else 4
        sides = [min(side, limit if outermost else 2) for side in dimension.shape]
        while prod(sides) * inside > _MOST_NPUS and max(sides) > 2:
            sides[sides.index(max(sides))] -= 1
        return replace(dimension, shape=tuple(sides), least_shape=(), size=prod(sides))
    if dimension.cables:
        return dimension
    if dimension.tree:
        return _smaller_tree(dimension, dimension.tree, inside)
    if dimension.dragonfly:
        return _smaller_dragonfly(dimension, dimension.dragonfly, inside)
    if inside == 1 and is_rack(dimension):
        return dimension
    return replace(dimension, size=min(dimension.size, most))


def _smaller_tree(dimension: Dimension, tree: TreeShape, inside: int) -> Dimension:
    """Two leaves or pods of few NPUs."""
    per_block = inside if dimension.joins_inside else 1
    down = tuple(min(count, 2) for count in tree.down)
    down = (down[0] * per_block, *down[1:])
    up = tuple(min(count, 2) for count in tree.up)
    whole = dimension.size * per_block > tree.pod
    size = (2 if whole else 1) * prod(down) // per_block
    return replace(dimension, size=size, tree=TreeShape(down=down, up=up))


def _smaller_dragonfly(dimension: Dimension, shape: DragonflyShape, inside: int) -> Dimension:
    """Up to five groups of up to four routers of one block or NPU."""
    per_block = inside if dimension.joins_inside else 1
    groups = -(-dimension.size * per_block // shape.group)
    small = DragonflyShape(
        routers=min(shape.routers, 4), npus=min(shape.npus, 2) * per_block, global_links=1
    )
    size = small.group * min(groups, 5) // per_block
    return replace(dimension, size=size, dragonfly=small)


def _draw(
    figure: "Figure", topology: Topology, drawn: Picture, style: FigureStyle, unit_pt: float
) -> None:
    """Nodes as large as their distance `unit_pt` allows, numbered where the numbers fit."""
    axes = figure.subplots()
    for edge in drawn.edges:
        _draw_cable(axes, drawn, edge)
    across = min(2.0 * style.font_pt, 0.62 * unit_pt)
    npus = {n: p for n, p in drawn.places.items() if n.startswith("npu")}
    switches = {n: p for n, p in drawn.places.items() if n not in npus}
    for nodes, marker, colour in ((npus, "o", "#ffffff"), (switches, "s", "#dddddd")):
        if nodes:
            xs, ys = zip(*nodes.values(), strict=True)
            axes.scatter(
                xs, ys, s=across**2, marker=marker, c=colour, edgecolors="#333333", zorder=3
            )
    digits = max((len(name) - 3 for name in npus), default=1)
    font = min(0.7 * style.font_pt, across / (0.65 * digits + 0.4))
    for name, (x, y) in npus.items() if font >= _LEAST_NUMBER_PT else ():
        axes.text(x, y, name[3:], ha="center", va="center", fontsize=font, zorder=4)
    if len(switches) <= 24:
        font = min(0.75 * style.font_pt, _fitting_pt(switches, unit_pt))
        if font >= _LEAST_NUMBER_PT:
            _name_switches(axes, switches, drawn.places, font, across)
    _finish(figure, axes, topology, drawn, style)


def _fitting_pt(switches: Mapping[str, Point], unit_pt: float) -> float:
    """Size of type at which the names of neighbours in a layer do not touch."""
    layers = sorted((y, x, name) for name, (x, y) in switches.items())
    room = [
        (right - left) * unit_pt / (0.62 * max(len(one), len(other)) + 0.5)
        for (y, left, one), (beside, right, other) in pairwise(layers)
        if y == beside
    ]
    return min(room, default=inf)


def _name_switches(
    axes: "Axes",
    switches: Mapping[str, Point],
    everything: Mapping[str, Point],
    font: float,
    across: float,
) -> None:
    """Names above the switches, or below the lowest ones, on white that hides cables."""
    lowest = min((y for _, y in everything.values()), default=0.0)
    for name, (x, y) in switches.items():
        below = y == lowest and len({y for _, y in everything.values()}) > 1
        axes.annotate(
            name,
            (x, y),
            (0, -across / 2 - 2 if below else across / 2 + 2),
            textcoords="offset points",
            ha="center",
            va="top" if below else "bottom",
            fontsize=font,
            zorder=4,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.8},
        )


def _draw_cable(axes: "Axes", drawn: Picture, edge: Edge) -> None:
    from matplotlib.patches import FancyArrowPatch

    crowded = len(drawn.edges) > _MOST_THICK
    axes.add_patch(
        FancyArrowPatch(
            drawn.places[edge.ends[0]],
            drawn.places[edge.ends[1]],
            arrowstyle="-",
            connectionstyle=f"arc3,rad={edge.bend}",
            color=_colour(edge.link_class),
            linewidth=min(4.0, 0.8 + 0.8 * (edge.cables - 1)) * (0.5 if crowded else 1),
            alpha=0.4 if edge.arc or crowded else 0.75,
            zorder=1,
            shrinkA=0,
            shrinkB=0,
        )
    )


def _finish(
    figure: "Figure", axes: "Axes", topology: Topology, drawn: Picture, style: FigureStyle
) -> None:
    from matplotlib.lines import Line2D

    used = sorted({edge.link_class for edge in drawn.edges})
    handles = [
        Line2D([], [], color=_colour(c), label=_label(topology.link_classes[c])) for c in used
    ]
    legend(figure, style, handles)
    title = f"{topology.name}: {topology.npus:,} NPUs", drawn.note
    figure.suptitle(style.wrapped(filter(None, title)), x=0.01, ha="left")
    axes.set_aspect("equal")
    axes.margins(x=0.03, y=0.03 + 0.25 / max(1.0, len({y for _, y in drawn.places.values()})))
    axes.update_datalim([edge.apex(drawn.places) for edge in drawn.edges])
    axes.autoscale_view()
    axes.set_axis_off()


def _colour(link_class: int) -> str:
    return series_colour(link_class)


def _label(link: LinkClass) -> str:
    return f"{link.name}\n{format_bandwidth(link.bandwidth)}, {format_time_ps(link.latency_ps)}"
