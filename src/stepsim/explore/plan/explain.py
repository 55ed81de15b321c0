"""Why a plan is not the best: it does not fit, it cannot run, or its step has longer parts.

And what overlap would cost plans whose communication slows nothing.
"""

from collections.abc import Iterable, Iterator, Mapping

from stepsim.base.errors import PlanError, StepsimError
from stepsim.base.structs import replace
from stepsim.base.units import format_time_ps
from stepsim.explore.plan.document import why_slower
from stepsim.explore.plan.search import PlanSearch, SearchedPlan, search_plans
from stepsim.network.prices import Known
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.step.doubts import FREE, WORTH_SAYING, slowed_step_ps
from stepsim.step.plans import PlanSpace, plan_words, step_options_of
from stepsim.workload.model.memory import TIGHT_SHARE
from stepsim.workload.model.model import Model


def explain_plan(
    model: Model,
    space: PlanSpace,
    topology: Topology,
    found: PlanSearch,
    fixed: Mapping[str, tuple[object, ...]],
    *,
    limit: float | None = None,
) -> str:
    """A sentence about the best plan with these values, against the best of the search.

    `limit` is the share of the device's memory that plans may take: all of it unless it is said,
    and then a plan that fills it nearly is said not to fit well.
    """
    values = "; ".join(f"{name} {', '.join(map(str, each))}" for name, each in fixed.items())
    best = found.plans[0]
    try:
        one = replace(space, fixed={**space.fixed, **fixed}, most={})
        other = search_plans(model, one, topology, runs=1, memory_limit=float("inf")).plans[0]
    except PlanError as error:
        return f"{values}: {error}"
    except StepsimError as error:
        return f"{values}: it cannot be simulated: {error}"
    words = f"{plan_words(other.plan)}: {format_time_ps(other.step_ps)}"
    if other.memory_share > (1 if limit is None else limit):
        capacity = other.memory_bytes / other.memory_share / 2**30
        taken = f"{other.memory_bytes / 2**30:.1f} of {capacity:.0f} GiB"
        return f"{words}, but it does not fit: it takes {taken}"
    if limit is None and other.memory_share >= TIGHT_SHARE > best.memory_share:
        words += f", which fits badly ({other.memory_share:.0%}; --memory-share 1 allows it)"
    if other.step_ps <= best.step_ps:
        return f"{words}, no slower than the best"
    more = other.step_ps / best.step_ps - 1
    return f"{words}, {more:.1%} slower than the best: {why_slower(other, best)}"


def said_of_plans(
    model: Model, topology: Topology, base: StepOptions, plans: Iterable[SearchedPlan]
) -> Iterator[str]:
    """What overlap would cost the first of some plans, and whether another is then faster."""
    first, *others = plans
    known: Known = {}

    def slowed_ps(each: SearchedPlan) -> int | None:
        return slowed_step_ps(model, topology, step_options_of(each.plan, base), known)

    own = slowed_ps(first)
    if not own or own <= first.step_ps * (1 + WORTH_SAYING):
        return
    least, best = own, first
    for each in others:
        found = slowed_ps(each) if each.step_ps < least else None
        if found and found < least:
            least, best = found, each
    faster = f", and {plan_words(best.plan)} is faster: {format_time_ps(least)}"
    yield f"{FREE} the first plan takes {format_time_ps(own)}{faster if least < own else ''}"
