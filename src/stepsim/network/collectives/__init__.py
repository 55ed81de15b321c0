"""Collective algorithms, one file each, and their price on a topology.

An algorithm turns the layout of a group into steps of flows (`flows`); `choices` knows which can
carry out what and which ones `auto` prices; `cost` traces and prices them.
"""

from stepsim.network.collectives.algorithms import (
    Algorithm as Algorithm,
    AlgorithmChoice as AlgorithmChoice,
    able_algorithms as able_algorithms,
    candidates as candidates,
    flow_steps as flow_steps,
    parse_algorithm as parse_algorithm,
    parse_algorithms as parse_algorithms,
)
from stepsim.network.collectives.cost import (
    Beside as Beside,
    CollectiveShape as CollectiveShape,
    Cost as Cost,
    Siblings as Siblings,
    StepCost as StepCost,
    collective_cost as collective_cost,
    collective_shape as collective_shape,
    communication_ps as communication_ps,
)
from stepsim.network.collectives.flows import (
    FlowStep as FlowStep,
)
