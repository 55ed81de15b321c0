"""What overlap would cost a step whose communication slows nothing.

Overlap is free unless a step asks otherwise: constants that were set again with its cost make
published runs of several sources worse (docs/decisions/0084). So an answer says what it leaves out.
"""

from collections.abc import Iterator

from stepsim.base.structs import replace
from stepsim.base.units import format_time_ps
from stepsim.network.prices import Known
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.parallel.modes import Sharing
from stepsim.step.job import WorkSource
from stepsim.step.prepared import PreparedStep, prepare
from stepsim.workload.model.device import Device
from stepsim.workload.model.model import Model
from stepsim.workload.overlap import CommSms

FREE = "overlap is free: communication does not slow the compute beside it; with --overlap-cost on"
WORTH_SAYING = 0.005
"""What overlap costs is said from this share of a step on."""


def slowed_step_ps(
    source: WorkSource, topology: Topology, options: StepOptions, known: Known
) -> int | None:
    """Step time in ps with what overlap costs; `known` is as `prepare` takes it.

    None where the step has it already, or the law is not known: of workload files, of devices whose
    multiprocessors are not counted or are shared, of links shared in time, of measured memory.
    """
    device = options.device
    is_free = not options.overlap_cost and options.contention is not Sharing.FAIR
    has_law = isinstance(source, Model) and isinstance(device, Device) and device.law_holds
    if not (is_free and has_law) or options.activation_size_bytes is not None:
        return None
    asked = replace(options, overlap_cost=CommSms(), engine=None)
    return prepare(source, topology, asked, known=known, quick=True).step_time_ps()


def said_of_step(ready: PreparedStep, step_ps: int) -> Iterator[str]:
    """What overlap would cost a step that takes so long, where that is worth a line."""
    slowed_ps = slowed_step_ps(ready.source, ready.machine, ready.options, ready.prices.known)
    if slowed_ps and slowed_ps > step_ps * (1 + WORTH_SAYING):
        more = f"{slowed_ps / step_ps - 1:+.1%}"
        yield f"{FREE} the step takes {format_time_ps(slowed_ps)} ({more})"
