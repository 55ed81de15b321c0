"""Axes that are numbers of a topology's links."""

from dataclasses import replace
from typing import Any, cast

from stepsim.base.errors import SweepError, TopologyError
from stepsim.explore.sweep.axes import LINK_AXES, Axis
from stepsim.network.topology import LinkClass, Topology
from stepsim.network.topology.numbers import with_link

_FIELDS = {"latency": "latency_ps", "endpoint_latency": "endpoint_latency_ps"}


def check_link(topology: Topology, name: str) -> LinkClass:
    """The link class of a name; raises SweepError where it is unknown or follows another class."""
    try:
        with_link(topology, name)
    except TopologyError as error:
        raise SweepError(str(error)) from None
    return next(link for link in topology.link_classes if link.name == name)


def check_axis(topology: Topology, axis: Axis) -> None:
    """Raise the error that a value of an axis would cause on this topology."""
    name, _, field = axis.name.rpartition(".")
    if name and field in LINK_AXES:
        link = check_link(topology, name)
        for value in axis.values:
            replace(link, **cast(Any, {_FIELDS.get(field, field): value}))
