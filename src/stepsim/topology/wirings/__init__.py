"""Wirings, one file each: ring, line, fully connected, cables, star, fat tree, dragonfly."""

from stepsim.topology.wirings.cables import MAX_CABLED, Cables
from stepsim.topology.wirings.dragonfly import Dragonfly, DragonflyShape
from stepsim.topology.wirings.fat_tree import FatTree, TreeShape
from stepsim.topology.wirings.fully_connected import FullyConnected
from stepsim.topology.wirings.line import Line
from stepsim.topology.wirings.ports import ONE_NIC, Ports
from stepsim.topology.wirings.ring import Ring
from stepsim.topology.wirings.star import Star

__all__ = [
    "MAX_CABLED",
    "ONE_NIC",
    "Cables",
    "Dragonfly",
    "DragonflyShape",
    "FatTree",
    "FullyConnected",
    "Line",
    "Ports",
    "Ring",
    "Star",
    "TreeShape",
]
