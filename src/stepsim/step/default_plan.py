"""What nobody said of the plan of a model: the fastest that fits, of what a search looks at."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, islice
from math import inf
from operator import attrgetter, ne
from typing import Any

import numpy as np
from msgspec.structs import asdict

from stepsim.base.arrays import Bools
from stepsim.base.errors import StepsimError, TopologyError
from stepsim.base.structs import Numbers, Values, replace
from stepsim.files.asked import StepInputs
from stepsim.options import OPTIONS
from stepsim.step.model_plan import (
    DEFAULT_TOKENS,
    USUAL_SCHEDULE,
    asked_layout,
    chunks_of,
    job_size,
    setup_of,
    with_recipe,
)
from stepsim.step.plans import (
    SHORT_NAMES,
    PlanSpace,
    Wanted,
    by_price,
    handicap,
    make_space,
    plan_kind,
    price_plans,
    step_options_of,
)
from stepsim.workload.expert_load import ExpertSkew
from stepsim.workload.model.choices import Recompute
from stepsim.workload.model.memory import which_fit
from stepsim.workload.model.step_time import StepModel
from stepsim.workload.plan import Plan, PlanTable

Pricing = Callable[[PlanSpace, Wanted, int], PlanTable]
"""How plans are priced, as `price_plans` does."""
DEGREES = ("tp", "cp", "pp", "ep")
"""Options that say how a model is split: where one of them is given, the others are 1."""

_LAID_OUT = ("recompute", "recompute_layers", "layout")
_CHOSEN = (*DEGREES, "expert_tp", "chunks", "microbatch_size", *_LAID_OUT)
_MOST_BATCH = 1.5
_MOST_DOUBLINGS = 6
# Share of the memory above which no other layout makes a plan fit.
_NEAR = 1.1
# Plans of lowest price of which layouts by cost are tried.
#
# With 64 deepseek-v3 on 512 B200 with twice the links took 14.94 s, 13.41 with 128; `simulate`
# takes 0.60 s in place of 0.58.
_BALANCED = 128
# Kinds of plans that are simulated: those priced lowest, of at most so many actions of ranks.
#
# Of 33 jobs on 64 to 4,096 H100 the best of 24 plans was within 1.5 % of the first of four kinds.
_RUNS, _ACTIONS = 5, 40_000
# Plans are compared as if transfers and kernels were alone.
_PLAIN = {name: OPTIONS[name].default for name in ("overlap_cost", "contention", "engine")}


def choose_plan(asked: "PlanAsked") -> tuple[Values, list[str]]:
    """Options of the plan that is taken where the options say none, and a sentence about it.

    That is the fastest that fits, by the estimate of a search and runs of a few, of those with at
    least `least_pp` stages if any fits; else the one with least memory. There are none where all is
    said: degrees, microbatch size and chunks. Nor are there where no plan divides, or where the
    network has no closed form.
    """
    options = asked.options
    chunks = options.chunks or (options.pp or 1) == 1 or options.schedule != USUAL_SCHEDULE
    if asked.says_degrees and chunks and (options.microbatch_size or options.microbatches):
        return {}, []
    priced = asked.priced(job_size(options, asked.topology.default_npus))
    best = asked.fastest(_in_order(priced))
    if best is not None:
        return asked.taken(best, "the fastest that fits by a quick estimate")
    if asked.least_pp > 1:
        return choose_plan(replace(asked, least_pp=1))
    if not priced.plans:
        return {}, []
    least = priced.plans[int(priced.share.argmin())]
    return asked.taken(least, "which takes least memory: no plan fits")


def remedy(inputs: StepInputs, plan: Plan) -> str:
    """Flags by which a plan that does not fit would; empty where none is known.

    Beside the options they give the plan on as many NPUs that differs in fewest numbers, the
    fastest of these; else the fastest on the fewest NPUs that are enough, in powers of two times as
    many.
    """
    asked = PlanAsked(**asdict(inputs))
    larger = (plan.npus << times for times in range(1, _MOST_DOUBLINGS + 1))
    if not asked.says_degrees:
        enough = (size for size in larger if _in_order(asked.priced(size)))
        return next((f"--gpus {size}" for size in enough), "")
    unsaid = dict.fromkeys((*DEGREES, "expert_tp", "microbatch_size"))
    free = asked.asking(**unsaid)
    best = _nearest(_in_order(free.priced(plan.npus)), plan)
    if best is not None:
        return _words(asked.changes(best))
    for size in larger:
        if found := _in_order(free.priced(size)):
            return f"--gpus {size} {_words(asked.changes(found[0]))}".rstrip()
    return ""


class PlanAsked(StepInputs):
    """What was asked of the plan of a model on a machine; `price` prices a space of plans."""

    least_pp: int = 1
    price: Pricing = price_plans

    @property
    def setup(self) -> StepModel:
        """What the model runs on, but the network; raises PlanError."""
        return setup_of(self)

    @property
    def says_degrees(self) -> bool:
        """Whether the options say a degree."""
        return any(getattr(self.options, name) is not None for name in DEGREES)

    def taken(self, plan: Plan, why: str) -> tuple[Values, list[str]]:
        """Options of a plan by their fields, and a sentence with the flags that pin it."""
        chosen = self.options_of(plan)
        usual = [n for n in ("cp", "ep") if getattr(plan, n) == 1]
        left = DEGREES if self.says_degrees else usual
        shown = {n: each for n, each in chosen.items() if n not in left}
        unsaid = [SHORT_NAMES[n] for n in ("microbatch_size", "chunks") if n in shown]
        lacks = " and ".join(unsaid) if self.says_degrees else "degrees"
        return chosen, [
            f"no {lacks} given: guessed {_words(shown)}, {why} (these flags pin it; stepsim plan "
            "searches properly)"
        ]

    def options_of(self, plan: Plan) -> Values:
        """What makes a plan of the options, by their fields: what these do not say."""
        options, run = self.options, step_options_of(plan, self.options)
        chosen = {name: getattr(run, name) for name in _CHOSEN if getattr(options, name) is None}
        if "chunks" in chosen:
            chosen["chunks"] = plan.chunks
        usual = replace(plan, layout=asked_layout(self.setup, options, plan.stages))
        left = {
            "expert_tp": not _needs_expert_tp(plan),
            "chunks": options.schedule != USUAL_SCHEDULE or plan.pp == 1,
            "recompute": plan.recompute is Recompute.NONE,
            "recompute_layers": plan.recompute_layers is None,
            "layout": plan.layout == with_recipe(options, usual, self.setup)[0].layout,
        }
        return {name: value for name, value in chosen.items() if not left.get(name)}

    def changes(self, plan: Plan) -> dict[str, object]:
        """Values that give a plan where the options say others."""
        named = {**dict.fromkeys(DEGREES, 1), "microbatch_size": self.options.samples}
        found = {
            name: getattr(plan, name)
            for name, usual in named.items()
            if getattr(plan, name) != (getattr(self.options, name) or usual)
        }
        asked = self.options.expert_tp
        if plan.expert_degree != asked if asked else _needs_expert_tp(plan):
            found["expert_tp"] = plan.expert_degree
        others = self.options_of(plan)
        return found | {n: others[n] for n in _LAID_OUT if n in others}

    def fastest(self, plans: Sequence[Plan]) -> Plan | None:
        """The fastest of plans in the order of their prices: the first ones are simulated."""
        from stepsim.step.prepared import prepare

        tried = list(islice(self._first_of_kinds(plans), _RUNS)) or [*plans[:1]]
        actions = accumulate(each.stages * each.microbatches for each in tried)
        tried = tried[: max(1, sum(count <= _ACTIONS for count in actions))]
        if len(tried) <= 1 or not isinstance(self.options.schedule, str):
            return next(iter(tried), None)
        known, seconds = dict[Any, Any](), []
        for plan in tried:
            asked = self.asking(npus=plan.npus, **_PLAIN, **self.options_of(plan))
            try:
                run = prepare(asked, known=known, quick=True)
                seconds.append(run.step_time_ps() * handicap(plan) / plan.step_tokens)
            except StepsimError:
                seconds.append(inf)
        return tried[int(np.argmin(seconds))]

    def _first_of_kinds(self, plans: Sequence[Plan]) -> Iterator[Plan]:
        """The first plan of each kind and microbatch size that the framework runs."""
        from stepsim.files.models.launch import refused_by

        known: set[Numbers] = set()
        uneven = self.options.expert_load not in (None, ExpertSkew(1))
        for plan in plans:
            kind = *plan_kind(plan), plan.microbatch_size
            if kind in known or (uneven and plan.ep == 1):
                continue
            if refused_by(plan, self.model.architecture, self.setup.framework.name):
                continue
            known.add(kind)
            yield plan

    def priced(self, npus: int) -> PlanTable:
        """The plans of a size with their prices; none where the network has no closed form."""
        try:
            space = make_space(self, (npus,), fixed=self._fixed(npus))
        except TopologyError:
            return PlanTable([]).other(share=np.empty(0), seconds=np.empty(0))
        return self.price(space, self._are_near, _BALANCED)

    def _are_near(self, table: PlanTable) -> Bools:
        """Plans that fit, or nearly, with no larger a batch than others need.

        A better layout may make room. A larger batch hides more of a bubble.
        """
        near: Bools = table.share < _NEAR
        if (self.options.global_batch, self.options.microbatches) != (None, None):
            return near
        least = table.step_tokens[near].min(initial=inf)
        near &= table.step_tokens <= max(_MOST_BATCH * DEFAULT_TOKENS, least)
        return near

    def _fixed(self, npus: int) -> dict[str, tuple[Any, ...]]:
        """Values of the space of a search that holds what the options say."""
        options = self.options
        held = {name: getattr(options, name) for name in ("expert_tp", "chunks")}
        # one sample of a microbatch where their number would set the size of the step
        held["microbatch_size"] = options.microbatch_size or (1 if options.microbatches else None)
        if options.schedule != USUAL_SCHEDULE:
            held["chunks"] = chunks_of(options, options.pp or max(self.least_pp, 2))
        if self.says_degrees:
            held |= {name: getattr(options, name) or 1 for name in DEGREES}
        fixed: dict[str, tuple[Any, ...]] = {n: (each,) for n, each in held.items() if each}
        if self.least_pp > 1 and not self.says_degrees:
            stages = range(self.least_pp, self.model.architecture.depth + 1)
            fixed["pp"] = tuple(n for n in stages if npus % n == 0)
        return fixed


def _in_order(priced: PlanTable) -> list[Plan]:
    """Plans that fit well, if any does, the fastest first."""
    fit = priced.other(seconds=np.where(which_fit(priced.share), priced.seconds, inf))
    return [priced.plans[i] for i in by_price(fit)]


def _words(values: Mapping[str, object]) -> str:
    """Values of options as the command line takes them."""
    named = ((OPTIONS[name], value) for name, value in values.items())
    words = (option.words(option.text(value), short=True) for option, value in named)
    return shlex.join(chain.from_iterable(words))


def _nearest(plans: Sequence[Plan], plan: Plan) -> Plan | None:
    """The other plan that differs in fewest options, the first of these."""

    def differ(other: Plan) -> int:
        return sum(map(ne, _NUMBERS(other), _NUMBERS(plan)))

    return min(filter(differ, plans), key=differ, default=None)


_NUMBERS = attrgetter(
    *(*DEGREES, "expert_degree", "microbatch_size", "recompute", "recompute_layers")
)


def _needs_expert_tp(plan: Plan) -> bool:
    """Whether an expert is split otherwise than where nobody says it."""
    return plan.ep > 1 and plan.expert_degree != replace(plan, expert_tp=None).expert_degree
