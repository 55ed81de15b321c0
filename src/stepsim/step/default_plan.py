"""What nobody said of the plan of a model: the fastest that fits, of what a search looks at."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain, islice
from math import inf, lcm
from types import MappingProxyType
from typing import Any

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.errors import StepsimError, TopologyError
from stepsim.base.structs import Noun, replace
from stepsim.files.models.launch import refused_by
from stepsim.network.topology import Topology
from stepsim.network.two_levels import interconnect_of
from stepsim.options import OPTIONS, StepOptions
from stepsim.step.model_plan import (
    DEFAULT_SEQUENCE,
    DEFAULT_TOKENS,
    as_jobs_run,
    asked_layout,
    chunks_of,
    default_size,
    planned_by_recipe,
    slowing_of,
)
from stepsim.step.plan_space import SHORT_NAMES, PlanSpace, handicap, plan_kind, step_options_of
from stepsim.step.plan_variants import balanced_plans, eased_plans
from stepsim.workload.expert_load import ExpertSkew
from stepsim.workload.model.architecture import Architecture
from stepsim.workload.model.choices import Recompute
from stepsim.workload.model.columns import PlanColumns, plan_columns
from stepsim.workload.model.device import Device
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.memory import rank_memory, which_fit
from stepsim.workload.model.model import Model
from stepsim.workload.model.plan import ModelPlan
from stepsim.workload.model.step_time import StepModel

DEGREES = ("tp", "cp", "pp", "ep")
"""Options that say how a model is split: where one of them is given, the others are 1."""

_USUAL = OPTIONS["schedule"].default
_LAID_OUT = ("recompute", "recompute_layers", "layout")
_CHOSEN = (*DEGREES, "expert_tp", "chunks", "microbatch_size", *_LAID_OUT)
_MOST_BATCH = 1.5
_MOST_DOUBLINGS = 6
_NEAR = 1.1
"""Share of the memory above which no other layout makes a plan fit."""
_BALANCED = 128
"""Plans of lowest price of which layouts by cost are tried.

With 64 deepseek-v3 on 512 B200 with twice the links took 14.94 s, 13.41 with 128; `simulate` takes
0.60 s in place of 0.58.
"""
_RUNS, _ACTIONS = 5, 40_000
"""Kinds of plans that are simulated: those priced lowest, of at most so many actions of ranks.

Of 33 jobs on 64 to 4,096 H100 the best of 24 plans was within 1.5 % of the first of four kinds.
"""


class _PricedPlans(Noun, eq=False):
    """Plans with the share of the device's memory that each takes, and seconds per token.

    A plan's `seconds` count more where its layout has to gain something. Plans that do not fit
    well while others do, or have a larger batch than others need, are not priced: theirs are
    infinite.
    """

    plans: list[ModelPlan]
    share: Floats
    seconds: Floats

    def with_more(self, other: "_PricedPlans") -> "_PricedPlans":
        """These and other plans."""
        return _PricedPlans(
            plans=[*self.plans, *other.plans],
            share=np.concatenate([self.share, other.share]),
            seconds=np.concatenate([self.seconds, other.seconds]),
        )

    def which_fit(self) -> "_PricedPlans":
        """The same plans, with a price where they fit."""
        return replace(self, seconds=np.where(which_fit(self.share), self.seconds, inf))

    def order(self) -> list[ModelPlan]:
        """Those that have a price, the fastest first; equal ones as they come."""
        order = np.argsort(self.seconds, kind="stable")
        return [self.plans[i] for i in order[: np.isfinite(self.seconds).sum()].tolist()]


class PlanChooser(Noun):
    """Plans of a model on a machine under what was asked, and which of them is taken.

    What `options` say is held, but for degrees when a `remedy` is sought. Plans have at least
    `least_pp` stages where any of them fits.
    """

    architecture: Architecture
    topology: Topology
    device: Device
    framework: Framework
    options: StepOptions
    least_pp: int = 1

    def choose(self) -> tuple[dict[str, Any], list[str]]:
        """Options of the plan that is taken, by their fields, and a sentence about it.

        That is the fastest that fits, by the estimate of a search and runs of a few, else the one
        with least memory. There are none where all is said: degrees, microbatch size and chunks.
        Nor are there where no plan divides, or where the network has no closed form.
        """
        if self._is_whole:
            return {}, []
        options = self.options
        unit = lcm(*((getattr(options, name) or 1) for name in DEGREES))
        priced = self._priced(default_size(self.topology, options, unit))
        best = self._fastest(priced.order())
        if best is not None:
            return self._taken(best, "the fastest that fits by a quick estimate")
        if self.least_pp > 1 or not priced.plans:
            return replace(self, least_pp=1).choose() if self.least_pp > 1 else ({}, [])
        least = priced.plans[int(priced.share.argmin())]
        return self._taken(least, "which takes least memory: no plan fits")

    def remedy(self, plan: ModelPlan) -> str:
        """Flags by which a plan that does not fit would; empty where none is known.

        Beside the `options` they give the plan on as many NPUs that differs in fewest numbers, the
        fastest of these; else the fastest on the fewest NPUs that are enough, in powers of two
        times as many.
        """
        larger = (plan.npus << times for times in range(1, _MOST_DOUBLINGS + 1))
        if not self.is_asked:
            enough = (size for size in larger if self._priced(size).order())
            return next((f"--gpus {size}" for size in enough), "")
        free = dict.fromkeys((*DEGREES, "expert_tp", "microbatch_size"))
        chooser = replace(self, options=replace(self.options, **free))
        best = _nearest(chooser._priced(plan.npus).order(), plan)
        if best is not None:
            return _words(self._changes(best))
        for size in larger:
            if found := chooser._priced(size).order():
                return f"--gpus {size} {_words(self._changes(found[0]))}".rstrip()
        return ""

    @property
    def is_asked(self) -> bool:
        """Whether the options say a degree."""
        return any(getattr(self.options, name) is not None for name in DEGREES)

    @property
    def _is_whole(self) -> bool:
        """Whether the options say degrees, microbatch size and chunks: all but recomputation."""
        options = self.options
        chunks = options.chunks or (options.pp or 1) == 1 or options.schedule != _USUAL
        return bool(self.is_asked and chunks and self._held_samples)

    @property
    def _held_samples(self) -> int | None:
        """Samples of a microbatch; one where their number would set the size of the step."""
        return self.options.microbatch_size or (1 if self.options.microbatches else None)

    def _taken(self, plan: ModelPlan, why: str) -> tuple[dict[str, Any], list[str]]:
        chosen = self._options_of(plan)
        optional = () if self.is_asked else ("cp", "ep")
        shown = {n: each for n, each in chosen.items() if n not in optional or each > 1}
        if plan.pp == 1:
            shown.pop("chunks", None)
        if self.is_asked:
            shown = {n: each for n, each in shown.items() if n not in DEGREES}
        short = {n: SHORT_NAMES.get(n, n) for n in shown}
        unsaid = [short[n] for n in ("microbatch_size", "chunks") if n in shown]
        lacks = " and ".join(unsaid) if self.is_asked else "degrees"
        words = ", ".join(f"{short[n]} {OPTIONS[n].text(each)}" for n, each in shown.items())
        return chosen, [
            f"no {lacks} given: guessed {words}, {why} (pin it with {_words(shown)}; stepsim plan "
            "searches properly)"
        ]

    def _options_of(self, plan: ModelPlan) -> dict[str, Any]:
        """What makes a plan of the options, by their fields: what these do not say."""
        options, run = self.options, step_options_of(plan, self.options)
        chosen = {name: getattr(run, name) for name in _CHOSEN if getattr(options, name) is None}
        if "chunks" in chosen:
            chosen["chunks"] = plan.chunks
        stages = plan.pp * plan.chunks
        usual = replace(plan, layout=asked_layout(self.architecture, options, stages))
        left = {
            "expert_tp": not _needs_expert_tp(plan),
            "chunks": options.schedule != _USUAL,
            "recompute": plan.recompute is Recompute.NONE,
            "recompute_layers": plan.recompute_layers is None,
            "layout": plan.layout == self._by_recipe(usual).layout,
        }
        return {name: value for name, value in chosen.items() if not left.get(name)}

    def _changes(self, plan: ModelPlan) -> dict[str, object]:
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
        others = self._options_of(plan)
        return {
            **found,
            **{n: others[n] for n in _LAID_OUT if n in others},
        }

    def _by_recipe(self, plan: ModelPlan) -> ModelPlan:
        return planned_by_recipe(self.options, plan, self.device, self.framework, self.architecture)

    # plans and their prices

    def _fastest(self, plans: Sequence[ModelPlan]) -> ModelPlan | None:
        """The fastest of plans in the order of their prices: the first ones are simulated."""
        from stepsim.step.totals import run_step

        tried = list(islice(self._first_of_kinds(plans), _RUNS)) or [*plans[:1]]
        actions = accumulate(each.pp * each.chunks * each.microbatches for each in tried)
        tried = tried[: max(1, sum(count <= _ACTIONS for count in actions))]
        if len(tried) <= 1 or not isinstance(self.options.schedule, str):
            return next(iter(tried), None)
        model, known = Model(source="", architecture=self.architecture), dict[Any, Any]()
        seconds = []
        for plan in tried:
            options = replace(self.options, npus=plan.npus, **_PLAIN, **self._options_of(plan))
            try:
                run = run_step(model, self.topology, options, known)
                seconds.append(run.timeline.step_time_ps * handicap(plan) / plan.tokens)
            except StepsimError:
                seconds.append(inf)
        return tried[int(np.argmin(seconds))]

    def _first_of_kinds(self, plans: Sequence[ModelPlan]) -> Iterator[ModelPlan]:
        """The first plan of each kind and microbatch size that the framework runs."""
        known: set[tuple[int, ...]] = set()
        uneven = self.options.expert_load not in (None, ExpertSkew(1))
        for plan in plans:
            kind = *plan_kind(plan), plan.microbatch_size
            if kind in known or (uneven and plan.ep == 1):
                continue
            if refused_by(plan, self.architecture, self.framework.name):
                continue
            known.add(kind)
            yield plan

    def _priced(self, npus: int) -> _PricedPlans:
        try:
            network = interconnect_of(self.topology.fit(npus))
        except TopologyError:
            return _PricedPlans(plans=[], share=np.empty(0), seconds=np.empty(0))
        space = self._space(npus, network.domain)
        plans = list(space.plans())
        model = StepModel(
            architecture=self.architecture,
            device=self.device,
            framework=self.framework,
            interconnect=network,
            slowing=slowing_of(self.options, self.device, self.framework),
        )
        priced = self._prices(plans, model, ease=space.may_ease)
        if self.options.layout is None:
            more = list(balanced_plans(priced.order()[:_BALANCED], model))
            priced = priced.with_more(self._prices(more, model))
        return priced.which_fit()

    def _prices(
        self, plans: list[ModelPlan], model: StepModel, *, ease: bool = False
    ) -> _PricedPlans:
        """Prices of those that fit, or nearly: a better layout may make room."""
        seconds = np.full(len(plans), inf)
        if not plans:
            return _PricedPlans(plans=plans, share=seconds, seconds=seconds)
        columns = plan_columns(plans)
        share = self._share(plans, columns)
        if ease:
            plans = eased_plans(plans, columns, share, model)
            layers = np.array([plan.recompute_layers or inf for plan in plans])
            changed = np.flatnonzero(layers != columns.recompute_layers).tolist()
            columns = replace(columns, recompute_layers=layers)
            share[changed] = self._share([plans[i] for i in changed], columns.take(changed))
        tokens = np.array([plan.tokens for plan in plans], np.float64)
        near = np.flatnonzero(share < _NEAR)
        if len(near):
            near = near[tokens[near] <= self._most_tokens(tokens[near])]
            chosen = [plans[i] for i in near.tolist()]
            weight = np.array([handicap(plan) for plan in chosen])
            price = model.seconds(chosen, columns.take(near.tolist()))
            seconds[near] = price * weight / tokens[near]
        return _PricedPlans(plans=plans, share=share, seconds=seconds)

    def _share(self, plans: list[ModelPlan], columns: PlanColumns) -> Floats:
        """Share of the memory that plans take."""
        memory = rank_memory(self.architecture, self.device, self.framework, plans, columns)
        return memory.share_of(self.device)

    def _most_tokens(self, tokens: Floats) -> float:
        """Tokens of the largest step that is looked at: a larger batch hides more of a bubble."""
        asked = self.options.global_batch, self.options.microbatches
        if asked != (None, None):
            return inf
        return max(_MOST_BATCH * DEFAULT_TOKENS, float(tokens.min()))

    def _space(self, npus: int, domain: int) -> PlanSpace:
        """The space of a search that holds what the options say."""
        options = self.options
        held = {name: getattr(options, name) for name in ("expert_tp", "chunks")}
        held["microbatch_size"] = self._held_samples
        if options.schedule != _USUAL:
            held["chunks"] = chunks_of(options, options.pp or max(self.least_pp, 2))
        if self.is_asked:
            held |= {name: getattr(options, name) or 1 for name in DEGREES}
        fixed: dict[str, tuple[object, ...]] = {n: (each,) for n, each in held.items() if each}
        if self.least_pp > 1 and not self.is_asked:
            stages = range(self.least_pp, self.architecture.depth + 1)
            fixed["pp"] = tuple(n for n in stages if npus % n == 0)
        run = as_jobs_run(options, self.device, self.framework, self.architecture)
        return PlanSpace(
            architecture=self.architecture,
            npus=(npus,),
            global_batch=options.global_batch,
            sequence=options.sequence or DEFAULT_SEQUENCE,
            domain=domain,
            base=run.options,
            asked=options,
            fixed=fixed,
        )


_PLAIN: Mapping[str, Any] = MappingProxyType(
    {name: OPTIONS[name].default for name in ("overlap_cost", "contention", "engine")}
)
"""Plans are compared as if transfers and kernels were alone."""


def _words(values: Mapping[str, object]) -> str:
    """Values of options as the command line takes them."""
    named = ((OPTIONS[name], value) for name, value in values.items())
    words = (option.words(option.text(value), short=True) for option, value in named)
    return shlex.join(chain.from_iterable(words))


def _nearest(plans: Sequence[ModelPlan], plan: ModelPlan) -> ModelPlan | None:
    """The other plan that differs in fewest options, the first of these."""
    changed = [other for other in plans if _differences(other, plan)]
    return min(changed, key=lambda other: _differences(other, plan), default=None)


def _differences(one: ModelPlan, other: ModelPlan) -> int:
    names = (*DEGREES, "expert_degree", "microbatch_size", "recompute", "recompute_layers")
    return sum(getattr(one, name) != getattr(other, name) for name in names)


def _needs_expert_tp(plan: ModelPlan) -> bool:
    """Whether an expert is split otherwise than where nobody says it."""
    return plan.ep > 1 and plan.expert_degree != replace(plan, expert_tp=None).expert_degree
