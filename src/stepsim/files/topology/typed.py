"""Numbers of a topology as people type them: `fabric.bandwidth=400 Gbps`."""

from collections.abc import Iterable, Mapping
from typing import cast

from stepsim.base.errors import TopologyError, UnitError
from stepsim.network.topology import Topology
from stepsim.network.topology.links import LAUNCH_LATENCY, LINK_FIELDS, split_link
from stepsim.network.topology.numbers import with_link, with_values


def with_numbers(topology: Topology, numbers: Mapping[str, object]) -> Topology:
    """The topology with other numbers, as people type them: `{"fabric.bandwidth": "400 Gbps"}`.

    Raises TopologyError naming the number, or the links it would belong to.
    """
    values: dict[str, float] = {}
    for name, value in numbers.items():
        link, field = split_link(name)
        if field:
            with_link(topology, link)
        elif name == LAUNCH_LATENCY.name:
            field = LAUNCH_LATENCY
        else:
            fields = ", ".join(f"LINKS.{each.name}" for each in LINK_FIELDS)
            raise TopologyError(
                f"{name!r} is no number of a topology: expected {fields} or {LAUNCH_LATENCY.name}"
            )
        try:
            values[name] = cast(float, field.quantity.read(value))
        except UnitError as error:
            raise TopologyError(f"{name}: {error}") from None
    return with_values(topology, values)


def infinite(names: Iterable[str]) -> list[str]:
    """What to say of bandwidths that were asked to be infinite, by their names."""
    return [f"{name} is infinite: what crosses these links takes its latency" for name in names]


def read_numbers(texts: Iterable[str]) -> dict[str, str]:
    """Names and values of texts `NAME=VALUE`; raises TopologyError for any other text."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name.strip() in found:
            why = "given twice" if equals else "no number of a topology"
            raise TopologyError(f"{text!r} is {why}: expected NAME=VALUE, once per name")
        found[name.strip()] = value.strip()
    return found
