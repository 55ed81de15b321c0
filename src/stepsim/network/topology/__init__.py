"""The network: NPUs, switches, links and the routes between NPUs.

The only package that imports networkx. A topology is described by nested dimensions
(`NestedTopology`) or by a list of links (`listed.ListedTopology`).
"""

from stepsim.network.topology.dimension import (
    Dimension as Dimension,
    LinkClass as LinkClass,
    Load as Load,
)
from stepsim.network.topology.nested import (
    NestedTopology as NestedTopology,
)
from stepsim.network.topology.network import (
    Topology as Topology,
)
from stepsim.network.topology.placed import (
    Layout as Layout,
)
from stepsim.network.topology.wiring import (
    DimensionKind as DimensionKind,
)
