"""From `[[link_class]]` and `[[link]]` tables to a topology of listed links."""

import re
from typing import Any, cast

from stepsim.base.errors import TopologyError, bad_value
from stepsim.files.topology.tables import LinkClassTable, LinkTable, TopologyFile
from stepsim.files.topology.text import MOST_NPUS_IN_A_FILE, quantity
from stepsim.network.topology import LinkClass
from stepsim.network.topology.links import LINK_FIELDS, LinkField
from stepsim.network.topology.listed import Link, ListedTopology


def link_class(place: str, table: LinkClassTable) -> LinkClass:
    """Links that are alike; raises TopologyError naming the place and the entry at fault."""
    where = f"{place} ({table.name})"
    if not re.fullmatch(r"[A-Za-z][\w-]*", table.name) or table.name.startswith("npu"):
        expected = "letters, digits, _ and -, not starting with 'npu'"
        raise TopologyError(bad_value(place, "name", table.name, expected))
    numbers = {
        field.attribute: _number(f"{where}: {field.name}", field, getattr(table, field.name))
        for field in LINK_FIELDS
    }
    return LinkClass(name=table.name, **cast(Any, numbers))


def _number(place: str, field: LinkField, value: str | float) -> object:
    """A quantity in a text; a share is written as a number."""
    return quantity(field.quantity.parse, place, value) if isinstance(value, str) else value


def links_of(
    file: TopologyFile, launch_latency_ps: int, algorithms: tuple[str, ...]
) -> ListedTopology:
    """The topology of a file with `[[link]]` tables.

    Raises TopologyError naming the table and the entry at fault.
    """
    if file.npus is None or not 1 <= file.npus <= MOST_NPUS_IN_A_FILE:
        raise TopologyError(bad_value("npus", "value", file.npus, f"1 to {MOST_NPUS_IN_A_FILE}"))
    if file.node_size is not None and not 1 <= file.node_size <= file.npus:
        raise TopologyError(bad_value("node_size", "value", file.node_size, f"1 to {file.npus}"))
    classes: dict[str, int] = {}
    for i, each in enumerate(file.link_class):
        if classes.setdefault(each.name, i) != i:
            expected = "a name of its own"
            raise TopologyError(bad_value(f"link_class[{i}]", "name", each.name, expected))
    if file.npus > 2 * len(file.link):
        allowed = f"at most {2 * len(file.link)}: {len(file.link)} links cannot join more"
        raise TopologyError(bad_value("npus", "value", file.npus, allowed))
    links: list[Link] = []
    for i, table in enumerate(file.link):
        links += _directions(f"link[{i}]", table, classes, file.npus)
    return ListedTopology(
        name=file.name,
        source=file.source,
        npus=file.npus,
        link_classes=tuple(
            link_class(f"link_class[{i}]", table) for i, table in enumerate(file.link_class)
        ),
        link_list=tuple(links),
        node_size=file.node_size or file.npus,
        npus_forward=file.npus_forward,
        launch_latency_ps=launch_latency_ps,
        algorithms=algorithms,
    )


def _directions(place: str, table: LinkTable, classes: dict[str, int], npus: int) -> list[Link]:
    if table.link_class not in classes:
        expected = f"one of {', '.join(classes) or 'the [[link_class]] names (there are none)'}"
        raise TopologyError(bad_value(place, "link_class", table.link_class, expected))
    for field, node in (("from", table.start), ("to", table.to)):
        if node.startswith("npu") and not _is_npu(node, npus):
            raise TopologyError(bad_value(place, field, node, f"npu0 to npu{npus - 1}"))
    number = classes[table.link_class]
    try:
        there = Link(start=table.start, end=table.to, link_class=number)
    except TopologyError as error:
        raise TopologyError(f"{place}: {error}") from None
    if table.oneway:
        return [there]
    return [there, Link(start=table.to, end=table.start, link_class=number)]


def _is_npu(node: str, npus: int) -> bool:
    number = node.removeprefix("npu")
    return (
        len(number) < 9 and number.isdecimal() and str(int(number)) == number and int(number) < npus
    )
