"""Topology files: TOML with `[[dimension]]` tables, or `[[link_class]]` and `[[link]]` tables."""

import re
import tomllib
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from stepsim.errors import StepsimError, TopologyError, bad_value
from stepsim.topology import Dimension, DimensionKind, DimensionTopology, LinkClass, Topology
from stepsim.units import parse_bandwidth, parse_time_ps

if TYPE_CHECKING:
    from stepsim.topology.explicit import ExplicitTopology

MAX_NPUS = 1 << 24
AUTO = "auto"


class CollectiveTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[collective]`: what is paid once per collective."""

    launch_latency: str = "0 ns"


class DimensionTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[[dimension]]`, innermost first."""

    name: str
    kind: str
    size: int | str
    bandwidth: str
    latency: str
    endpoint_latency: str = "0 ns"
    efficiency: float = 1.0


class LinkClassTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`[[link_class]]`: links that are alike."""

    name: str
    bandwidth: str
    latency: str
    endpoint_latency: str = "0 ns"
    efficiency: float = 1.0


class LinkTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename={"start": "from"}):
    """`[[link]]`: a cable, both directions unless `oneway`."""

    start: str
    to: str
    link_class: str
    oneway: bool = False


class TopologyFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A topology file."""

    name: str
    source: str
    dimension: list[DimensionTable] = []
    link_class: list[LinkClassTable] = []
    link: list[LinkTable] = []
    npus: int | None = None
    node_size: int | None = None
    npus_forward: bool = False
    collective: CollectiveTable = CollectiveTable()


def read_topology(path: Path) -> Topology:
    """Topology in a TOML file; an outermost `size = "auto"` starts with two innermost blocks.

    Raises TopologyError naming the file and the entry at fault.
    """
    file = _decode(path)
    try:
        if bool(file.dimension) == bool(file.link):
            raise TopologyError("expected either [[dimension]] or [[link]] tables")
        launch = _quantity(
            parse_time_ps, "collective.launch_latency", file.collective.launch_latency
        )
        if file.dimension:
            return _dimensions(file, launch)
        return _explicit(file, launch)
    except TopologyError as error:
        raise TopologyError(f"{path}: {error}") from None


def _decode(path: Path) -> TopologyFile:
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise TopologyError(f"{path}: cannot read the topology: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TopologyError(f"{path}: not a text file: expected a topology in TOML") from None
    try:
        return msgspec.convert(tomllib.loads(text), TopologyFile)
    except tomllib.TOMLDecodeError as error:
        raise TopologyError(f"{path}: not valid TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise TopologyError(f"{path}: {error}") from None


def _dimensions(file: TopologyFile, launch: int) -> DimensionTopology:
    for option in ("npus", "node_size", "npus_forward", "link_class"):
        if getattr(file, option):
            raise TopologyError(f"{option} belongs to topologies made of [[link]] tables")
    dimensions = tuple(_dimension(i, table) for i, table in enumerate(file.dimension))
    npus = prod(dimension.size for dimension in dimensions)
    if npus > MAX_NPUS:
        raise TopologyError(bad_value("dimension", "product of sizes", npus, f"at most {MAX_NPUS}"))
    for i, table in enumerate(file.dimension[:-1]):
        if table.size == AUTO:
            expected = "a number: only the outermost dimension is auto"
            raise TopologyError(bad_value(f"dimension[{i}] ({table.name})", "size", AUTO, expected))
    topology = DimensionTopology(
        name=file.name,
        source=file.source,
        dimensions=dimensions,
        launch_latency_ps=launch,
        grows=file.dimension[-1].size == AUTO,
    )
    return topology.fit(topology.default_npus) if topology.grows else topology


def _dimension(i: int, table: DimensionTable) -> Dimension:
    place = f"dimension[{i}] ({table.name})"
    size = 1 if table.size == AUTO else table.size
    if isinstance(size, str) or size < 1:
        raise TopologyError(bad_value(place, "size", size, 'a positive integer or "auto"'))
    try:
        kind = DimensionKind(table.kind)
    except ValueError:
        expected = f"one of {', '.join(DimensionKind)}"
        raise TopologyError(bad_value(place, "kind", table.kind, expected)) from None
    return Dimension(kind=kind, size=size, link=_link_class(f"dimension[{i}]", table))


def _link_class(place: str, table: DimensionTable | LinkClassTable) -> LinkClass:
    where = f"{place} ({table.name})"
    if not re.fullmatch(r"[A-Za-z][\w-]*", table.name) or table.name.startswith("npu"):
        expected = "letters, digits, _ and -, not starting with 'npu'"
        raise TopologyError(bad_value(place, "name", table.name, expected))
    return LinkClass(
        name=table.name,
        bandwidth=_quantity(parse_bandwidth, f"{where}: bandwidth", table.bandwidth),
        latency_ps=_quantity(parse_time_ps, f"{where}: latency", table.latency),
        endpoint_latency_ps=_quantity(
            parse_time_ps, f"{where}: endpoint_latency", table.endpoint_latency
        ),
        efficiency=table.efficiency,
    )


def _quantity(parse: Any, place: str, text: str) -> Any:
    try:
        return parse(text)
    except StepsimError as error:
        raise TopologyError(f"{place}: {error}") from None


def _explicit(file: TopologyFile, launch: int) -> "ExplicitTopology":
    from stepsim.topology.explicit import ExplicitTopology, Link

    if file.npus is None or not 1 <= file.npus <= MAX_NPUS:
        raise TopologyError(bad_value("npus", "value", file.npus, f"1 to {MAX_NPUS}"))
    if file.node_size is not None and not 1 <= file.node_size <= file.npus:
        raise TopologyError(bad_value("node_size", "value", file.node_size, f"1 to {file.npus}"))
    classes: dict[str, int] = {}
    for i, each in enumerate(file.link_class):
        if classes.setdefault(each.name, i) != i:
            expected = "a name of its own"
            raise TopologyError(bad_value(f"link_class[{i}]", "name", each.name, expected))
    links: list[Link] = []
    for i, table in enumerate(file.link):
        place = f"link[{i}]"
        if table.link_class not in classes:
            expected = f"one of {', '.join(classes) or 'the [[link_class]] names (there are none)'}"
            raise TopologyError(bad_value(place, "link_class", table.link_class, expected))
        for field, node in (("from", table.start), ("to", table.to)):
            if node.startswith("npu") and not _is_npu(node, file.npus):
                raise TopologyError(bad_value(place, field, node, f"npu0 to npu{file.npus - 1}"))
        try:
            links.append(
                Link(start=table.start, end=table.to, link_class=classes[table.link_class])
            )
        except TopologyError as error:
            raise TopologyError(f"{place}: {error}") from None
        if not table.oneway:
            links.append(
                Link(start=table.to, end=table.start, link_class=classes[table.link_class])
            )
    return ExplicitTopology(
        name=file.name,
        source=file.source,
        npus=file.npus,
        link_classes=tuple(
            _link_class(f"link_class[{i}]", table) for i, table in enumerate(file.link_class)
        ),
        link_list=tuple(links),
        node_size=file.node_size or file.npus,
        npus_forward=file.npus_forward,
        launch_latency_ps=launch,
    )


def _is_npu(node: str, npus: int) -> bool:
    number = node.removeprefix("npu")
    return number.isdecimal() and str(int(number)) == number and int(number) < npus
