"""The plan of a model of which nobody said a degree: the fastest even one that fits.

What is tried where nobody says it is the same for the plan by default and for a search.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, product
from math import gcd, inf
from typing import Any

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Floats
from stepsim.base.errors import PlanError, TopologyError
from stepsim.base.structs import replace
from stepsim.network.topology import Topology
from stepsim.network.two_levels import interconnect_of
from stepsim.options import OPTIONS, StepOptions
from stepsim.step.model_plan import (
    DEFAULT_SEQUENCE,
    DEFAULT_TOKENS,
    as_jobs_run,
    asked_layout,
    chunks_of,
    default_batch,
    default_size,
    plan_fields,
    planned_by_recipe,
    slowing_of,
)
from stepsim.workload.model.architecture import Architecture, ExpertMlp
from stepsim.workload.model.choices import AttentionKernel, Recompute
from stepsim.workload.model.device import Device
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.layout import LayerLayout
from stepsim.workload.model.memory import TIGHT_SHARE, rank_memory
from stepsim.workload.model.plan import ModelPlan, check_plan, heads_divide
from stepsim.workload.model.step_time import StepModel

DEGREES = ("tp", "cp", "pp", "ep")
"""Options that say how a model is split: where one of them is given, the others are 1."""

_MOST_BATCH = 1.5
_MOST_DOUBLINGS = 6


class _PricedPlans(Struct, frozen=True, kw_only=True, eq=False):
    """Plans with the share of the device's memory that each takes, and seconds per token.

    Plans that do not fit well, or have a larger batch than others need, are not priced: theirs are
    infinite.
    """

    plans: Sequence[ModelPlan]
    share: Floats
    seconds: Floats

    def fastest(self) -> ModelPlan | None:
        """The fastest that fits well, the first of equals; None where none does."""
        best = int(np.argmin(self.seconds)) if self.plans else 0
        return self.plans[best] if self.plans and np.isfinite(self.seconds[best]) else None


class PlanChooser(Struct, frozen=True, kw_only=True):
    """Even plans of a model on a machine under what was asked, and which of them is taken.

    What `options` say is held, but for degrees when a `remedy` is sought. An even plan has degrees
    that are powers of two. Plans have at least `least_pp` stages where any of them fits well.
    """

    architecture: Architecture
    topology: Topology
    device: Device
    framework: Framework
    options: StepOptions
    least_pp: int = 1

    def choose(self) -> tuple[dict[str, Any], list[str]]:
        """Options of the plan that is taken, by their fields, and a sentence about it.

        That is the fastest plan by the closed form that fits well, else the one with least memory.
        There are none where no plan divides, or where the network has no closed form.
        """
        priced = self._priced(default_size(self.topology, self.options))
        best = priced.fastest()
        if best is None and self.least_pp > 1:
            return replace(self, least_pp=1).choose()
        if best is not None:
            pipeline = " with a pipeline" if self.least_pp > 1 else ""
            return self._taken(best, f"is the fastest plan{pipeline} that fits, by the closed form")
        if not priced.plans:
            return {}, []
        least = int(priced.share.argmin())
        said = "no plan fits well" if priced.share[least] <= 1 else "no plan fits"
        return self._taken(priced.plans[least], f"takes least memory: {said}")

    def remedy(self, plan: ModelPlan) -> str:
        """Flags by which a plan that does not fit would; empty where none is known.

        Beside the `options` they give the plan on as many NPUs that differs in fewest numbers, the
        fastest of these; else the fastest on the fewest NPUs that are enough, in powers of two
        times as many.
        """
        if not self.is_asked:
            larger = (plan.npus << times for times in range(1, _MOST_DOUBLINGS + 1))
            enough = (size for size in larger if self._priced(size).fastest() is not None)
            return next((f"--gpus {size}" for size in enough), "")
        free = replace(self.options, tp=None, cp=None, pp=None, ep=None, expert_tp=None)
        chooser = replace(self, options=replace(free, microbatch_size=None))
        best = _nearest(chooser._priced(plan.npus), plan)
        if best is not None:
            return _words(self._changes(best))
        for times in range(1, _MOST_DOUBLINGS + 1):
            best = chooser._priced(plan.npus << times).fastest()
            if best is not None:
                return f"--gpus {best.npus} {_words(self._changes(best))}".rstrip()
        return ""

    @property
    def is_asked(self) -> bool:
        """Whether the options say a degree."""
        return any(getattr(self.options, name) is not None for name in DEGREES)

    def _taken(self, plan: ModelPlan, why: str) -> tuple[dict[str, Any], list[str]]:
        chosen: dict[str, Any] = {name: getattr(plan, name) for name in DEGREES}
        if plan.microbatch_size != self.options.samples:
            chosen["microbatch_size"] = plan.microbatch_size
        if _needs_expert_tp(plan):
            chosen["expert_tp"] = plan.expert_degree
        chosen |= self._other_changes(plan)
        if "recompute" in chosen:
            why += f", with {plan.recompute} recomputation"
        named = {name: getattr(plan, name) for name in ("tp", "cp", "pp", "dp", "ep")}
        named["mbs"] = plan.microbatch_size
        kept = ("tp", "pp", "mbs")
        words = ", ".join(f"{n} {value}" for n, value in named.items() if value > 1 or n in kept)
        flags = _words(self._values(plan))
        return chosen, [f"no degrees given: {words} {why} (fix it with {flags})"]

    def _values(self, plan: ModelPlan) -> dict[str, object]:
        """Values that give a plan beside the options; degrees other than tp and pp may be 1."""
        degrees = {name: getattr(plan, name) for name in DEGREES}
        found = {name: size for name, size in degrees.items() if size > 1 or name in ("tp", "pp")}
        split = {"expert_tp": plan.expert_degree} if _needs_expert_tp(plan) else {}
        size = {"microbatch_size": plan.microbatch_size}
        return {**found, **split, **size, **self._other_changes(plan)}

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
        return {**found, **self._other_changes(plan)}

    def _other_changes(self, plan: ModelPlan) -> dict[str, object]:
        layout = _layout_text(plan)
        found: dict[str, object] = {}
        if layout and not self.options.layout:
            found["layout"] = layout
        if plan.recompute is not (self.options.recompute or Recompute.NONE):
            found["recompute"] = plan.recompute
        return found

    # plans and their prices

    def _priced(self, npus: int) -> _PricedPlans:
        try:
            network = interconnect_of(self.topology.fit(npus))
        except TopologyError:
            return _PricedPlans(plans=[], share=np.empty(0), seconds=np.empty(0))
        plans = list(self._plans(npus, network.domain))
        if not plans:
            return _PricedPlans(plans=[], share=np.empty(0), seconds=np.empty(0))
        memory = rank_memory(self.architecture, self.device, self.framework, plans)
        share = memory.share_of(self.device)
        seconds = np.full(len(plans), inf)
        tokens = np.array([plan.tokens for plan in plans], dtype=np.float64)
        fits = np.flatnonzero(share < TIGHT_SHARE)
        if len(fits):
            fits = fits[tokens[fits] <= self._most_tokens(tokens[fits])]
            chosen = [plans[i] for i in fits.tolist()]
            model = StepModel(
                architecture=self.architecture,
                device=self.device,
                framework=self.framework,
                interconnect=network,
                slowing=slowing_of(self.options, self.device, self.framework),
            )
            seconds[fits] = model.seconds(chosen) / tokens[fits]
        return _PricedPlans(plans=plans, share=share, seconds=seconds)

    def _most_tokens(self, tokens: Floats) -> float:
        """Tokens of the largest step that is looked at: a larger batch hides more of a bubble."""
        asked = self.options.global_batch, self.options.microbatches
        if asked != (None, None):
            return inf
        return max(_MOST_BATCH * DEFAULT_TOKENS, float(tokens.min()))

    def _plans(self, npus: int, domain: int) -> Iterator[ModelPlan]:
        run = as_jobs_run(self.options, self.device, self.framework, self.architecture)
        fields = plan_fields(run.options)
        most_cp = most_context(fields["sequence"])
        sizes = _powers(min(npus, self.architecture.depth), npus)
        for pp in (size for size in sizes if size >= self.least_pp):
            with suppress(PlanError):
                chunks = chunks_of(self.options, pp)
                split = {"pp": pp, "chunks": chunks, "layout": self._layout(pp, chunks)}
                for tp, cp in product(_powers(domain, npus // pp), _powers(most_cp, npus // pp)):
                    dp, rest = divmod(npus // pp, tp * cp)
                    if dp and not rest and heads_divide(self.architecture, tp):
                        degrees = {**split, "tp": tp, "cp": cp, "dp": dp}
                        yield from self._of_degrees({**fields, **degrees})

    def _of_degrees(self, fields: Mapping[str, Any]) -> Iterator[ModelPlan]:
        tp = fields["tp"]
        for ep, expert_tp in self._experts(tp, tp * fields["cp"] * fields["dp"]):
            with suppress(PlanError):  # what is left free below has no say in it
                yield from self._of_experts({**fields, "ep": ep, "expert_tp": expert_tp})

    def _of_experts(self, fields: Mapping[str, Any]) -> Iterator[ModelPlan]:
        """Plans of all degrees: any microbatch size and recomputation; raises PlanError."""
        pp, dp, held = fields["pp"], fields["dp"], self.options.microbatch_size
        is_checked = False
        for size in MICROBATCH_SIZES if held is None else (held,):
            batch = self._batch(dp * size, pp)
            whole = fields["chunks"] > 1 and batch // (dp * size) % pp
            if not batch or batch % (dp * size) or whole:
                continue
            job = {**fields, "microbatch_size": size, "global_batch": batch}
            for recompute in recomputations(self.options):
                plan = ModelPlan(**{**job, "recompute": recompute})
                if not is_checked:
                    check_plan(self.architecture, plan)
                    is_checked = True
                yield planned_by_recipe(
                    self.options, plan, self.device, self.framework, self.architecture
                )

    def _batch(self, samples: int, pp: int) -> int:
        options = self.options
        if options.global_batch is not None:
            return options.global_batch
        if options.microbatches is not None:
            return options.microbatches * samples
        return default_batch(samples, pp, options.sequence or DEFAULT_SEQUENCE)

    def _experts(self, tp: int, ranks: int) -> list[tuple[int, int | None]]:
        """Degrees of experts and of one expert."""
        held = self.options.expert_tp
        experts = common_experts(self.architecture)
        if not experts:
            return [(1, held)]
        splits = sorted({1, tp}) if held is None else [held]
        pairs = product(_powers(ranks, experts), splits)
        return [(ep, etp) for ep, etp in pairs if ranks % (ep * etp) == 0]

    def _layout(self, pp: int, chunks: int) -> LayerLayout:
        """The layout that a plan has; raises PlanError where the layers do not go into it."""
        layout = asked_layout(self.architecture, self.options, pp * chunks)
        ahead = len(self.architecture.prediction_layers)
        layout.resolve(self.architecture.depth, ahead, pp * chunks)
        return layout


def _words(values: Mapping[str, object]) -> str:
    """Values of options as the command line takes them."""
    named = ((OPTIONS[name], value) for name, value in values.items())
    words = (option.words(option.text(value), short=True) for option, value in named)
    return shlex.join(chain.from_iterable(words))


def _nearest(priced: _PricedPlans, plan: ModelPlan) -> ModelPlan | None:
    """The other plan that fits and differs in fewest options, the fastest of these."""
    fits = np.flatnonzero(np.isfinite(priced.seconds)).tolist()
    others = (priced.plans[i] for i in sorted(fits, key=lambda i: (priced.seconds[i], i)))
    changed = [other for other in others if _differences(other, plan)]
    return min(changed, key=lambda other: _differences(other, plan), default=None)


def _differences(one: ModelPlan, other: ModelPlan) -> int:
    names = (*DEGREES, "expert_degree", "microbatch_size", "recompute")
    return sum(getattr(one, name) != getattr(other, name) for name in names)


def _needs_expert_tp(plan: ModelPlan) -> bool:
    """Whether an expert is split otherwise than where nobody says it."""
    return plan.ep > 1 and plan.expert_degree != replace(plan, expert_tp=None).expert_degree


def _layout_text(plan: ModelPlan) -> str | None:
    """A layout that must be asked for: ends are counted as layers without."""
    text = plan.layout.text()
    return text if text == "even" else None


def _powers(most: int, whole: int) -> list[int]:
    """Powers of two up to `most` that divide a number."""
    return [1 << i for i in range(most.bit_length()) if whole % (1 << i) == 0 and 1 << i <= most]


MICROBATCH_SIZES = (1, 2, 4, 8)

_LEAST_SEQUENCE = 4096


def recomputations(options: StepOptions) -> tuple[Recompute, ...]:
    """What may be recomputed: what was asked, else nothing, or all.

    Core attention alone is worth it only where its scores are kept.
    """
    if options.recompute is not None:
        return (options.recompute,)
    unfused = options.attention is AttentionKernel.UNFUSED
    scores = (Recompute.SELECTIVE,) if unfused else ()
    return (Recompute.NONE, *scores, Recompute.FULL)


def most_context(sequence: int) -> int:
    """The largest degree of cp: shorter parts of a sequence are not worth their exchange."""
    return max(1, sequence // _LEAST_SEQUENCE)


def common_experts(architecture: Architecture) -> int:
    """The largest degree of ep that all layers with experts can have; 0 where there are none."""
    mlps = (layer.mlp for layer in architecture.layer_kinds())
    return gcd(*(mlp.experts for mlp in mlps if isinstance(mlp, ExpertMlp)))
