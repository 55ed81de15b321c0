"""What the readers of topologies share: quantities, classes of links, names of algorithms."""

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from stepsim.base.errors import StepsimError, TopologyError, bad_value
from stepsim.files.topology.tables import LinkClassTable
from stepsim.network.collectives import Algorithm
from stepsim.network.topology.links import LINK_FIELDS, LinkClass, LinkField

_T = TypeVar("_T")


def quantity(parse: Callable[[str], _T], place: str, text: str) -> _T:
    """A parsed quantity; raises TopologyError naming its place."""
    try:
        return parse(text)
    except StepsimError as error:
        raise TopologyError(f"{place}: {error}") from None


def link_class(place: str, table: LinkClassTable) -> LinkClass:
    """Links that are alike; raises TopologyError naming the place and the entry at fault."""
    numbers = {
        field.attribute: _number(f"{place} ({table.name})", field, getattr(table, field.name))
        for field in LINK_FIELDS
    }
    return LinkClass(name=class_name(place, "name", table.name), **cast(Any, numbers))


def class_name(place: str, field: str, name: object) -> str:
    """A name of a class of links; raises TopologyError for what axes could not name."""
    if (
        not isinstance(name, str)
        or not re.fullmatch(r"[A-Za-z][\w-]*", name)
        or name.startswith("npu")
    ):
        expected = "letters, digits, _ and -, not starting with 'npu'"
        raise TopologyError(bad_value(place, field, name, expected))
    return name


def _number(place: str, field: LinkField, value: str | float) -> object:
    """A quantity in a text; a share is written as a number."""
    if isinstance(value, str):
        return quantity(field.quantity.parse, f"{place}: {field.name}", value)
    return value


def algorithm_names(place: str, names: Iterable[object]) -> tuple[str, ...]:
    """Names of collective algorithms; raises TopologyError for one that does not exist."""
    allowed = [algorithm.value for algorithm in Algorithm if algorithm is not Algorithm.AUTO]
    found = []
    for name in names:
        if name not in allowed:
            expected = f"of {', '.join(allowed)}"
            raise TopologyError(bad_value(place, "algorithms", name, expected))
        found.append(str(name))
    return tuple(found)
