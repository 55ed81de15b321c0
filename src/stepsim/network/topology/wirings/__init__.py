"""Wirings, one file each: ring (line), fully connected, cables, fat tree (star), dragonfly."""

from stepsim.network.topology.wiring import (
    ONE_NIC as ONE_NIC,
    Ports as Ports,
)
from stepsim.network.topology.wirings.cables import (
    MAX_CABLED as MAX_CABLED,
    Cables as Cables,
)
from stepsim.network.topology.wirings.dragonfly import (
    Dragonfly as Dragonfly,
    DragonflyShape as DragonflyShape,
)
from stepsim.network.topology.wirings.fat_tree import (
    FatTree as FatTree,
    TreeShape as TreeShape,
)
from stepsim.network.topology.wirings.fully_connected import (
    FullyConnected as FullyConnected,
)
from stepsim.network.topology.wirings.ring import (
    Ring as Ring,
)

Wiring = Cables | Dragonfly | FatTree | FullyConnected | Ring
"""One copy of the links that join `size` positions.

All can be asked the same. Links are numbered class by class; the `kind` is the one that algorithms
see: a torus is several rings, a mesh several lines. The `digits` of a position, innermost first,
say where it lies. `halves` takes the capacities of one link per class.
"""
