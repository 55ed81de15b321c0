"""Wirings, one file each: ring (line), fully connected, cables, fat tree (star), dragonfly."""

from stepsim.network.topology.wiring import ONE_NIC, Ports
from stepsim.network.topology.wirings.cables import MAX_CABLED, Cables
from stepsim.network.topology.wirings.dragonfly import Dragonfly, DragonflyShape
from stepsim.network.topology.wirings.fat_tree import FatTree, TreeShape
from stepsim.network.topology.wirings.fully_connected import FullyConnected
from stepsim.network.topology.wirings.ring import Ring

Wiring = Cables | Dragonfly | FatTree | FullyConnected | Ring
"""One copy of the links that join `size` positions.

All can be asked the same. Links are numbered class by class; the `kind` is the one that algorithms
see: a torus is several rings, a mesh several lines. The `digits` of a position, innermost first,
say where it lies. `halves` takes the capacities of one link per class.
"""

__all__ = [
    "MAX_CABLED",
    "ONE_NIC",
    "Cables",
    "Dragonfly",
    "DragonflyShape",
    "FatTree",
    "FullyConnected",
    "Ports",
    "Ring",
    "TreeShape",
    "Wiring",
]
