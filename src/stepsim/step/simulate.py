"""One training step, from a workload and a network to what is reported: read this first.

A step is prepared (`prepared.prepare`): its workload is scaled, a plan and a schedule are chosen,
stages split, the task graph built, and communications priced. It runs (`engine.timeline`): ranks
that behave alike are folded into one, programs laid out, and events or columns say when every task
starts and ends. What ran is reported (`explain.make_report`). Last, doubts about the input are
weighed: by how much the step would change without what is doubted (`doubts`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stepsim.base import garbage
from stepsim.base.structs import replace
from stepsim.network.prices import Known
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.step.doubts import weighed
from stepsim.step.job import WorkSource
from stepsim.step.prepared import SimulatedStep, prepare
from stepsim.step.size import OnSize

if TYPE_CHECKING:
    from stepsim.core.events import OnProgress

_DEFAULTS = StepOptions()


def simulate_step(
    workload: WorkSource,
    topology: Topology,
    options: StepOptions = _DEFAULTS,
    *,
    notes: Sequence[str] = (),
    weigh: bool = False,
    known: Known | None = None,
    progress: "OnProgress | None" = None,
    on_size: OnSize | None = None,
    fold_ranks: bool = True,
) -> SimulatedStep:
    """Run one training step; `notes` are what was assumed before, and stand among the warnings.

    With `weigh` the report says what doubts about the workload are worth in step time. `known` is
    what prices of steps before have found. `on_size` is called with the
    step's size before it is built. Without `fold_ranks` every rank is simulated, not one of each
    class.
    Raises the errors of `stepsim.base.errors` when the input is wrong or contradictory.
    """
    with garbage.paused():
        ready = prepare(workload, topology, options, notes=notes, known=known, on_size=on_size)
        ready = ready if fold_ranks else replace(ready, fold_ranks=False)
        laid = ready.flat()
        step = ready.reported(laid.timeline(progress), weigh=weigh)
        if weigh:
            step = replace(
                step, report=weighed(step.report, ready, laid.flat, workload, topology, options)
            )
    return step
