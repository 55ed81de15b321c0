"""The Python interface: the words of the command line, as functions."""

from stepsim.face.results import (
    AgainstResult as AgainstResult,
)
from stepsim.face.results import (
    Comparison as Comparison,
)
from stepsim.face.results import (
    NoiseDistribution as NoiseDistribution,
)
from stepsim.face.results import (
    Result as Result,
)
from stepsim.face.results import (
    SensitivityResult as SensitivityResult,
)
from stepsim.face.steps import (
    collective_time as collective_time,
)
from stepsim.face.steps import (
    compare as compare,
)
from stepsim.face.steps import (
    load_topology as load_topology,
)
from stepsim.face.steps import (
    load_workload as load_workload,
)
from stepsim.face.steps import (
    noise as noise,
)
from stepsim.face.steps import (
    sensitivity as sensitivity,
)
from stepsim.face.steps import (
    simulate as simulate,
)
