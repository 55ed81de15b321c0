"""The network: NPUs, switches, links and the routes between NPUs.

The only package that imports networkx. A topology is described by nested dimensions
(`NestedTopology`) or by a list of links (`listed.ListedTopology`).
"""

from stepsim.network.topology.dimension import Dimension, LinkClass, Load
from stepsim.network.topology.nested import NestedTopology
from stepsim.network.topology.network import Topology
from stepsim.network.topology.placed import Layout
from stepsim.network.topology.wiring import DimensionKind

__all__ = [
    "Dimension",
    "DimensionKind",
    "Layout",
    "LinkClass",
    "Load",
    "NestedTopology",
    "Topology",
]
