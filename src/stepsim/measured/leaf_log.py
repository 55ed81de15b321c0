"""A run that logged only forward sums of leaf modules and the time of whole steps (Optimus).

The sums leave out attention, norms, the loss, backward, communication and host time: they say how
work is shared between stages, not how long a stage takes.
"""

import hashlib

from msgspec import field

from stepsim.base.errors import TraceError
from stepsim.base.fields import InSeconds
from stepsim.base.structs import Names, Noun, Timed
from stepsim.workload.plan import Plan


# Times are those of a microbatch. `ends_ps` are the embedding and the head, which are leaf modules
# as a whole.
class LeafStage(Timed):
    """A stage of a log: forward sums of its leaf modules."""

    stage: int
    layers: float
    layers_ps: InSeconds = field(name="leaf_modules_of_layers_s")
    ends_ps: InSeconds = field(name="leaf_modules_of_ends_s")
    samples: int


class LeafRun(Noun):
    """A logged run; `step_ps` is the median of its steps, the first left out as warm-up.

    `step_spread_ps` is their median distance from it.
    """

    source: str
    plan: Plan
    stages: tuple[LeafStage, ...]
    step_ps: int
    step_spread_ps: int
    step_low_ps: int
    step_high_ps: int
    steps: int
    warnings: Names = ()

    def __post_init__(self) -> None:
        if self.step_ps < 1:
            raise TraceError(f"{self.source}: step_ps is {self.step_ps}: expected 1 or more")
        if len(self.stages) != self.plan.pp:
            raise TraceError(
                f"{self.source}: forward times of {len(self.stages)} of {self.plan.pp} stages: "
                "expected all of them"
            )

    @property
    def fingerprint(self) -> str:
        """Tells a log from others, whatever its file is called."""
        told = [self.step_ps, *((stage.layers_ps, stage.ends_ps) for stage in self.stages)]
        return hashlib.blake2b(repr(told).encode(), digest_size=4).hexdigest()
