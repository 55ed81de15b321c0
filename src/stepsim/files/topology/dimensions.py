"""From a `[[dimension]]` table to a dimension: what is wrong is named by table and option."""

from math import prod

from stepsim.base.errors import TopologyError, bad_value
from stepsim.base.structs import replace
from stepsim.base.units import parse_bandwidth, parse_time_ps
from stepsim.files.topology.parts import link_class, quantity
from stepsim.files.topology.tables import DimensionTable
from stepsim.network.topology import Dimension, DimensionKind, LinkClass
from stepsim.network.topology.links import FollowingLinks
from stepsim.network.topology.network import MAX_TOPOLOGY_NPUS
from stepsim.network.topology.wirings import MAX_CABLED, DragonflyShape, Ports, TreeShape

AUTO = "auto"
_TREE = ("rails", "radix", "leaf", "spines", "oversubscription", "pod", "cores", "up_bandwidth")
_DRAGONFLY = (
    "routers",
    "npus_per_router",
    "global_links",
    "global_bandwidth",
    "global_latency",
)
_OPTIONS: dict[str, tuple[DimensionKind, ...]] = {
    "shape": (DimensionKind.TORUS, DimensionKind.MESH),
    "cables": (DimensionKind.CABLES,),
    **dict.fromkeys(_TREE, (DimensionKind.FAT_TREE,)),
    **dict.fromkeys(_DRAGONFLY, (DimensionKind.DRAGONFLY,)),
}


def dimensions_of(tables: list[DimensionTable]) -> tuple[Dimension, ...]:
    """The dimensions, innermost first; an outermost `auto` size is the least its kind has.

    Raises TopologyError naming the table and the entry at fault.
    """
    found: list[Dimension] = []
    for i, table in enumerate(tables):
        place = f"dimension[{i}] ({table.name})"
        if table.size == AUTO and i + 1 < len(tables):
            expected = "a number: only the outermost dimension is auto"
            raise TopologyError(bad_value(place, "size", AUTO, expected))
        inside = prod(dimension.size for dimension in found)
        if table.used is not None and (i > 0 or len(tables) == 1):
            expected = "nothing: only an innermost dimension inside others has it"
            raise TopologyError(bad_value(place, "used", table.used, expected))
        found.append(_dimension(place, link_class(f"dimension[{i}]", table), table, inside))
        npus = inside * found[-1].size
        if npus > MAX_TOPOLOGY_NPUS:
            allowed = f"at most {MAX_TOPOLOGY_NPUS}"
            raise TopologyError(bad_value("dimension", "product of sizes", npus, allowed))
        try:
            found[-1].wirings(inside)
        except TopologyError as error:
            reason = str(error).removeprefix(f"{table.name}: ")
            raise TopologyError(f"{place}: {reason}") from None
    return tuple(found)


def _dimension(place: str, link: LinkClass, table: DimensionTable, inside: int) -> Dimension:
    kind = _kind(place, table)
    _refuse_foreign(place, table, kind)
    try:
        dimension = Dimension(
            kind=kind,
            size=1,
            link=link,
            ports=Ports(nics=table.nics, npus_per_nic=table.npus_per_nic),
            rails=bool(table.rails),
            reduces=table.reduces,
            reduce_efficiency=table.reduce_efficiency,
        )
        match kind:
            case DimensionKind.TORUS | DimensionKind.MESH:
                dimension = _with_shape(place, table, dimension)
            case DimensionKind.FAT_TREE:
                dimension = _with_tree(place, table, dimension)
            case DimensionKind.DRAGONFLY:
                dimension = _with_dragonfly(place, table, dimension)
        return _with_size(place, table, dimension, inside)
    except TopologyError as error:
        text = str(error)
        raise TopologyError(text if text.startswith(place) else f"{place}: {text}") from None


def _kind(place: str, table: DimensionTable) -> DimensionKind:
    try:
        return DimensionKind(table.kind)
    except ValueError:
        expected = f"one of {', '.join(DimensionKind)}"
        raise TopologyError(bad_value(place, "kind", table.kind, expected)) from None


def _refuse_foreign(place: str, table: DimensionTable, kind: DimensionKind) -> None:
    for option, kinds in _OPTIONS.items():
        if getattr(table, option) is not None and kind not in kinds:
            belongs = " and ".join(kinds)
            raise TopologyError(f"{place}: {option} belongs to kind {belongs}, not to {kind}")


def _with_size(place: str, table: DimensionTable, dimension: Dimension, inside: int) -> Dimension:
    size = table.size
    if dimension.kind is DimensionKind.CABLES:
        dimension = _with_cables(place, table, dimension)
        size = dimension.size if size is None else size
    if size is None:
        size = _full_size(place, dimension, inside)
    if size == AUTO and dimension.kind is not DimensionKind.CABLES:
        return dimension.grown(1, inside)
    if isinstance(size, str) or size < 1:
        raise TopologyError(bad_value(place, "size", size, 'a positive integer or "auto"'))
    return replace(dimension, size=size, used=table.used or 0)


def _full_size(place: str, dimension: Dimension, inside: int) -> int:
    """The size that a shape implies."""
    npus = 0
    if dimension.shape:
        return dimension.size
    if dimension.tree and dimension.tree.most:
        npus = dimension.tree.most * dimension.tree.pod
    elif dimension.dragonfly:
        npus = dimension.dragonfly.most
    if not npus or npus % (inside if dimension.joins_inside else 1):
        raise TopologyError(bad_value(place, "size", None, 'a positive integer or "auto"'))
    return npus // inside if dimension.joins_inside else npus


def _with_shape(place: str, table: DimensionTable, dimension: Dimension) -> Dimension:
    sides = table.shape
    if not sides or min(sides) < 1 or prod(sides) > MAX_TOPOLOGY_NPUS:
        expected = "the length of every side, e.g. [4, 4, 4]"
        raise TopologyError(bad_value(place, "shape", sides, expected))
    return replace(dimension, shape=tuple(sides), size=prod(sides))


def _with_cables(place: str, table: DimensionTable, dimension: Dimension) -> Dimension:
    cables = table.cables
    if not cables:
        raise TopologyError(bad_value(place, "cables", cables, "pairs of numbers, e.g. [[0, 1]]"))
    size = table.size if isinstance(table.size, int) else 1 + max(map(max, cables))
    if not 1 <= size <= MAX_CABLED:
        raise TopologyError(bad_value(place, "size", size, f"1 to {MAX_CABLED}"))
    return replace(dimension, size=size, cables=tuple(cables))


def _with_tree(place: str, table: DimensionTable, dimension: Dimension) -> Dimension:
    link = dimension.link
    up = FollowingLinks(name=f"{link.name}-up")
    if table.up_bandwidth is not None:
        rate = quantity(parse_bandwidth, f"{place}: up_bandwidth", table.up_bandwidth)
        up = replace(up, bandwidth=rate)
    if (table.radix is None) == (table.leaf is None):
        raise TopologyError(f"{place}: expected radix (a k-ary tree) or leaf (NPUs of a leaf)")
    if table.radix is not None:
        for option in ("spines", "oversubscription", "pod", "cores"):
            if getattr(table, option) is not None:
                raise TopologyError(f"{place}: {option} does not go with radix")
        return replace(dimension, up=up, tree=TreeShape.k_ary(table.radix))
    tree = _leaves(place, table, dimension, up.behind(link))
    return replace(dimension, up=up, tree=tree)


def _leaves(place: str, table: DimensionTable, dimension: Dimension, up: LinkClass) -> TreeShape:
    leaf = _positive(place, "leaf", table.leaf)
    spines = _spines(
        place,
        table,
        leaf,
        dimension.ports.capacity(leaf, (dimension.link.bandwidth,)) / up.bandwidth,
    )
    if table.pod is None:
        if table.cores is not None:
            raise TopologyError(f"{place}: cores needs pod: the NPUs below one group of spines")
        return TreeShape(down=(leaf,), up=(spines,))
    pod = _positive(place, "pod", table.pod)
    if pod % leaf:
        raise TopologyError(bad_value(place, "pod", pod, f"whole leaves of {leaf} NPUs"))
    cores = _positive(place, "cores", pod // leaf if table.cores is None else table.cores)
    return TreeShape(down=(leaf, pod // leaf), up=(spines, cores))


def _spines(place: str, table: DimensionTable, leaf: int, whole: float) -> int:
    """Links up from a leaf; `whole` are as many as keep up with its NPUs."""
    if table.spines is not None:
        if table.oversubscription is not None:
            raise TopologyError(f"{place}: spines and oversubscription exclude each other")
        return _positive(place, "spines", table.spines)
    over = 1.0 if table.oversubscription is None else table.oversubscription
    if not 0 < over < float("inf"):
        raise TopologyError(bad_value(place, "oversubscription", over, "a positive number"))
    links = whole / over
    if not (links >= 0.5 and abs(links - round(links)) < 1e-6 * links):
        raise TopologyError(
            f"{place}: oversubscription is {over:g}: a leaf of {leaf} NPUs would need {links:g} "
            f"links up: expected a whole number: a leaf that {over:g} divides, or spines"
        )
    return round(links)


def _with_dragonfly(place: str, table: DimensionTable, dimension: Dimension) -> Dimension:
    far = FollowingLinks(name=f"{dimension.link.name}-global")
    if table.global_bandwidth is not None:
        rate = quantity(parse_bandwidth, f"{place}: global_bandwidth", table.global_bandwidth)
        far = replace(far, bandwidth=rate)
    if table.global_latency is not None:
        latency = quantity(parse_time_ps, f"{place}: global_latency", table.global_latency)
        far = replace(far, latency_ps=latency)
    shape = DragonflyShape(
        routers=_positive(place, "routers", table.routers),
        npus=_positive(place, "npus_per_router", table.npus_per_router),
        global_links=_positive(place, "global_links", table.global_links),
    )
    return replace(dimension, dragonfly=shape, far=far)


def _positive(place: str, field: str, value: int | None) -> int:
    if value is None or not 1 <= value <= MAX_TOPOLOGY_NPUS:
        raise TopologyError(bad_value(place, field, value, f"1 to {MAX_TOPOLOGY_NPUS}"))
    return value
