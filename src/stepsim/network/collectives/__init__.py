"""Collective algorithms, one file each, and their price on a topology.

An algorithm turns the layout of a group into steps of flows (`flows`); `choices` knows which can
carry out what and which ones `auto` prices; `cost` traces and prices them.
"""

from stepsim.network.collectives.algorithms import (
    Algorithm,
    AlgorithmChoice,
    able_algorithms,
    candidates,
    flow_steps,
    parse_algorithm,
    parse_algorithms,
)
from stepsim.network.collectives.cost import (
    Beside,
    CollectiveShape,
    Cost,
    Siblings,
    StepCost,
    collective_cost,
    collective_shape,
    communication_ps,
)
from stepsim.network.collectives.flows import FlowStep

__all__ = [
    "Algorithm",
    "AlgorithmChoice",
    "Beside",
    "CollectiveShape",
    "Cost",
    "FlowStep",
    "Siblings",
    "StepCost",
    "able_algorithms",
    "candidates",
    "collective_cost",
    "collective_shape",
    "communication_ps",
    "flow_steps",
    "parse_algorithm",
    "parse_algorithms",
]
