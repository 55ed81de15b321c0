"""What overlap would cost a step whose communication slows nothing.

Overlap is free unless a step asks otherwise: constants that were set again with its cost make
published runs of several sources worse (docs/decisions/0084). So an answer says what it leaves out.
"""

from collections.abc import Iterable, Iterator

from stepsim.base.structs import replace
from stepsim.base.units import format_time_ps
from stepsim.explore.plan.search import SearchedPlan
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.parallel.modes import Sharing
from stepsim.step.inputs import WorkSource
from stepsim.step.plan_space import plan_words, step_options_of
from stepsim.step.totals import step_totals
from stepsim.workload.model.device import Device
from stepsim.workload.model.model import Model
from stepsim.workload.model.slowing import law_holds
from stepsim.workload.overlap import CommSms

_FREE = "overlap is free: communication does not slow the compute beside it; with --overlap-cost on"
_WORTH_SAYING = 0.005
"""What overlap costs is said from this share of a step on."""
_NEAR = 1.1
"""Plans whose steps are at most so many times the first one's may be faster where overlap costs."""


def slowed_step_ps(source: WorkSource, topology: Topology, options: StepOptions) -> int | None:
    """Step time in ps with what overlap costs.

    None where the step has it already, or the law is not known: of workload files, of devices whose
    multiprocessors are not counted or are shared, of links shared in time, of measured memory.
    """
    device = options.device
    is_free = not options.overlap_cost and options.contention is not Sharing.FAIR
    known = isinstance(source, Model) and isinstance(device, Device) and law_holds(device)
    if not (is_free and known) or options.activation_size_bytes is not None:
        return None
    asked = replace(options, overlap_cost=CommSms(), engine=None)
    return step_totals(source, topology, asked, breakdown=False, known={}).step_time_ps


def said_of_step(
    source: WorkSource, topology: Topology, options: StepOptions, step_ps: int
) -> Iterator[str]:
    """What overlap would cost a step that takes `step_ps`, where that is worth a line."""
    slowed_ps = slowed_step_ps(source, topology, options)
    if slowed_ps and slowed_ps > step_ps * (1 + _WORTH_SAYING):
        more = f"{slowed_ps / step_ps - 1:+.1%}"
        yield f"{_FREE} the step takes {format_time_ps(slowed_ps)} ({more})"


def said_of_plans(
    model: Model, topology: Topology, base: StepOptions, plans: Iterable[SearchedPlan]
) -> Iterator[str]:
    """What overlap would cost the first of some plans, and whether another is then faster."""
    first, *others = plans

    def slowed_ps(each: SearchedPlan) -> int | None:
        return slowed_step_ps(model, topology, step_options_of(each.plan, base))

    own = slowed_ps(first)
    if not own or own <= first.step_ps * (1 + _WORTH_SAYING):
        return
    least, best = own, first
    for each in (other for other in others if other.step_ps <= _NEAR * first.step_ps):
        found = slowed_ps(each)
        if found and found < least:
            least, best = found, each
    faster = f", and {plan_words(best.plan)} is faster: {format_time_ps(least)}"
    yield f"{_FREE} the first plan takes {format_time_ps(own)}{faster if least < own else ''}"
