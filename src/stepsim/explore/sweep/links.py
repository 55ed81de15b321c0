"""Axes that are numbers of a topology's links."""

from dataclasses import replace
from typing import Any, cast

from stepsim.base.errors import SweepError, TopologyError
from stepsim.explore.sweep.axes import Axis
from stepsim.network.topology import LinkClass, Topology
from stepsim.network.topology.links import split_link
from stepsim.network.topology.numbers import with_link


def check_link(topology: Topology, name: str) -> LinkClass:
    """The link class of a name; raises SweepError where it is unknown or follows another class."""
    try:
        with_link(topology, name)
    except TopologyError as error:
        raise SweepError(str(error)) from None
    return next(link for link in topology.link_classes if link.name == name)


def check_axis(topology: Topology, axis: Axis) -> None:
    """Raise the error that a value of an axis would cause on this topology."""
    name, field = split_link(axis.name)
    if field:
        link = check_link(topology, name)
        for value in axis.values:
            replace(link, **cast(Any, {field.attribute: value}))
