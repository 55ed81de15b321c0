"""The network: NPUs, switches, links and the routes between NPUs.

The only package that imports networkx. A topology is described by nested dimensions
(`DimensionTopology`) or by a list of links (`explicit.ExplicitTopology`).
"""

from stepsim.topology.dimension import Dimension
from stepsim.topology.dimensions import DimensionTopology
from stepsim.topology.layout import Layout
from stepsim.topology.links import LinkClass, Load
from stepsim.topology.network import Topology
from stepsim.topology.wiring import DimensionKind

__all__ = [
    "Dimension",
    "DimensionKind",
    "DimensionTopology",
    "Layout",
    "LinkClass",
    "Load",
    "Topology",
]
