"""The network: NPUs, switches, links and the routes between NPUs.

The only package that imports networkx. A topology is described by nested dimensions
(`DimensionTopology`) or by a list of links (`explicit.ExplicitTopology`).
"""

from stepsim.network.topology.dimension import Dimension
from stepsim.network.topology.layout import Layout
from stepsim.network.topology.links import LinkClass, Load
from stepsim.network.topology.nested import DimensionTopology
from stepsim.network.topology.network import Topology
from stepsim.network.topology.wiring import DimensionKind

__all__ = [
    "Dimension",
    "DimensionKind",
    "DimensionTopology",
    "Layout",
    "LinkClass",
    "Load",
    "Topology",
]
