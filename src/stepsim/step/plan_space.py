"""The plans that a search looks at: every degree and microbatch size that divides."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import product
from math import gcd
from typing import Any

from stepsim.base.errors import PlanError
from stepsim.base.structs import Noun, replace
from stepsim.files.models.launch import LaunchForm, launch_form
from stepsim.files.models.megatron_plan import counted_ends
from stepsim.options import StepOptions
from stepsim.parallel.schedules.combined_1f1b import PAIRED
from stepsim.step.model_plan import asked_layout, batch_of, plan_fields, planned_by_recipe
from stepsim.workload.model.architecture import Architecture, ExpertMlp
from stepsim.workload.model.choices import AttentionKernel, ExpertDispatch, Precision, Recompute
from stepsim.workload.model.device import Device
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.layout import LayerLayout
from stepsim.workload.model.plan import (
    ModelPlan,
    PipelineOrder,
    check_plan,
    heads_divide,
)

SEARCHED = (
    *("tp", "cp", "pp", "chunks", "ep", "expert_tp"),
    *("microbatch_size", "recompute", "zero", "schedule"),
    *("dp_overlap", "tp_comm_overlap", "dispatch", "cuda_graph"),
)
"""What a search can vary, by the names of the options."""

SHORT_NAMES = {"microbatch_size": "mbs", "chunks": "vpp", "expert_tp": "etp"}
"""What people call some of them."""

_RUN = ("dp_overlap", "tp_comm_overlap", "dispatch", "cuda_graph")
"""Fields of a plan about how it runs: as the options have them, unless they are searched."""

_Obstacle = tuple[tuple[int, int], str]
"""How far a plan comes that is none, and what stands in its way."""

MOST_NPUS = 1 << 22
"""NPUs of the largest plan that is searched for: 10 s where tp fills a node, else 3 min, 6 GB."""
_MOST_CHUNKS = 12
_MOST_UNEVEN = 1.125
_EVEN_CHUNKS = (1, 2, 4, 8)
_MOST_SAMPLES = 8
_LEAST_SEQUENCE = 4096
"""Tokens of a part under cp: shorter ones are not worth their exchange."""


class PlanSpace(Noun, dict=True):
    """Plans of a model on `npus` NPUs (each size is searched) with one global batch and sequence.

    Where `global_batch` is None plans have the one that a step has by the options. `domain` is how
    many NPUs the fast network joins: tp stays inside. `asked` are the options that were asked for,
    `base` has those of the framework's jobs besides. `fixed` has the values that an option may
    have, by name; what is not there is free. `most` bounds a free option.
    """

    architecture: Architecture
    npus: tuple[int, ...]
    global_batch: int | None
    sequence: int
    domain: int
    base: StepOptions
    asked: StepOptions
    fixed: Mapping[str, tuple[object, ...]] = {}
    most: Mapping[str, int] = {}

    def __post_init__(self) -> None:
        for name in (*self.fixed, *self.most):
            if name not in SEARCHED:
                raise PlanError(f"fix: {name!r} is not searched: expected {', '.join(SEARCHED)}")
        for value in self.fixed.get("schedule", ()):
            if value not in list(PipelineOrder):
                expected = ", ".join(PipelineOrder)
                raise PlanError(f"fix: schedule is {value}: expected one of {expected}")
        for name in ("global_batch", "sequence", "domain"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise PlanError(f"{name} is {value}: expected at least 1")
        if not self.npus or min(self.npus) < 1:
            raise PlanError("npus: expected at least one size of at least 1")

    def plans(self) -> Iterator[ModelPlan]:
        """Every plan that divides the model and the job, in a fixed order."""
        return (each for each in self._walk() if isinstance(each, ModelPlan))

    def why_empty(self) -> str:
        """What stands in the way where there is no plan at all: of the one that comes furthest."""
        sizes = ", ".join(map(str, self.npus))
        nothing = (0, 0), f"gpus is {sizes}: no multiple of the degrees asked for"
        found = (each for each in self._walk() if not isinstance(each, ModelPlan))
        return max([nothing, *found], key=lambda each: each[0])[1]

    def _walk(self) -> Iterator[ModelPlan | _Obstacle]:
        """Every plan of all degrees, or what stands in its way."""
        for npus in self.npus:
            for tp, cp, pp in product(*(self._free(n, npus) for n in ("tp", "cp", "pp"))):
                dp, rest = divmod(npus, tp * cp * pp)
                if rest:
                    continue
                if not heads_divide(self.architecture, tp):
                    yield (1, -tp), f"tp is {tp}: it does not divide the heads"
                elif not self._experts(tp, cp, dp):
                    yield (2, 0), self._no_experts(tp * cp * dp)
                else:
                    yield from self._of_degrees({"tp": tp, "cp": cp, "pp": pp, "dp": dp})

    def _no_experts(self, ranks: int) -> str:
        asked = {name: self.fixed[name] for name in ("ep", "expert_tp") if name in self.fixed}
        values = ", ".join(f"{name} {', '.join(map(str, each))}" for name, each in asked.items())
        if not self.architecture.is_sparse:
            return f"{values}: {self.architecture.name} has no experts"
        return f"{values}: no such degrees divide tp x cp x dp, {ranks}"

    def _of_degrees(self, degrees: Mapping[str, int]) -> Iterator[ModelPlan | _Obstacle]:
        pp, depth = degrees["pp"], self.architecture.depth
        for chunks in self._free("chunks", pp):
            stages = f"pp {pp}" + (f" x vpp {chunks}" if chunks > 1 else "")
            layout = self._layout(pp, chunks)
            if not layout:
                yield (3, -pp * chunks), f"{stages}: {depth} layers cannot be shared out over them"
                continue
            for order in self._orders():
                if order.fits(pp, chunks):
                    named = {**degrees, "chunks": chunks, "order": order, "layout": layout}
                    yield from self._of_layout(named)
                else:
                    asked = ", ".join(self._orders())
                    needs = f"{stages}: schedule {asked} needs other virtual stages"
                    yield (3, -pp * chunks), needs

    def _of_layout(self, named: Mapping[str, Any]) -> Iterator[ModelPlan | _Obstacle]:
        tp, cp, pp, dp = (named[name] for name in ("tp", "cp", "pp", "dp"))
        inner: Iterable[tuple[Any, ...]] = product(
            ((*pair, run) for pair in self._experts(tp, cp, dp) for run in self._runs(named, pair)),
            self._sizes,
            self.values("recompute"),
            self.values("zero"),
        )
        named = {**self._of_base, **named}
        checked: set[tuple[int, int | None]] = set()
        whole = named["chunks"] > 1 and not named["order"].chunks
        for (ep, expert_tp, run), size, recompute, zero in inner:
            batch = self.global_batch or batch_of(self.base, dp * size, pp)
            count, rest = divmod(batch, dp * size)
            said = f"global_batch is {batch}: "
            if rest:
                yield (4, -dp * size), f"{said}no multiple of dp {dp} x mbs {size}"
            elif whole and count % pp:  # Megatron-LM interleaves whole groups of pp microbatches
                yield (5, -pp), f"{said}{count} microbatches are no multiple of pp {pp}"
            else:
                free = {"microbatch_size": size, "zero": zero, "recompute": recompute}
                free["global_batch"] = batch
                degrees = {"ep": ep, "expert_tp": expert_tp}
                yield self._made({**named, **run, **free, **degrees}, checked)

    @property
    def _sizes(self) -> Sequence[Any]:
        """Samples of a microbatch that are tried: where no batch is asked for, powers of two."""
        tried = range(1, _MOST_SAMPLES + 1) if self.global_batch else _powers(_MOST_SAMPLES)
        return self.fixed.get("microbatch_size", tried)

    def _made(
        self, named: Mapping[str, Any], checked: set[tuple[int, int | None]]
    ) -> ModelPlan | _Obstacle:
        """The plan, or why it does not divide the model: asked once for degrees of experts."""
        try:
            plan = ModelPlan(**named)
            degrees = plan.ep, plan.expert_tp
            if degrees not in checked:
                check_plan(self.architecture, plan)
                checked.add(degrees)
            return self._by_recipe(plan)
        except PlanError as error:
            return (6, 0), str(error)

    def values(self, name: str) -> tuple[Any, ...]:
        """Values of an option beside degrees that plans are made with, in the order tried."""
        if name in self.fixed:
            return self.fixed[name]
        if name == "recompute":
            return recomputations(self.base)
        if name == "schedule":
            return (PipelineOrder.ALTERNATING.value,)
        held = getattr(self.base, name)
        return (self._unsaid(name) if held is None else held,)

    @property
    def may_ease(self) -> bool:
        """Whether plans that recompute whole layers may do so with some alone: Megatron-LM can."""
        able = launch_form(self.framework) in (LaunchForm.MEGATRON_LM, LaunchForm.MEGATRON_BRIDGE)
        return able and len(self.values("recompute")) > 1

    def _unsaid(self, name: str) -> Any:
        """What plans have of an option of which nobody said anything."""
        if name == "zero" and launch_form(self.framework) is LaunchForm.TORCHTITAN:
            return 3  # it has FSDP alone
        return getattr(ModelPlan(), name)

    @property
    def framework(self) -> str:
        """The name of the framework."""
        return str(getattr(self.base.framework, "name", self.base.framework or ""))

    def _runs(self, named: Mapping[str, Any], experts: tuple[int, int]) -> list[dict[str, Any]]:
        """How plans with these degrees may run; what they cannot tell apart is tried once."""
        does = {
            "dp_overlap": named["dp"] * named["cp"] > 1,
            "tp_comm_overlap": named["tp"] > 1,
            "dispatch": experts[0] > 1,
        }
        free = {name: self.values(name) for name in _RUN}
        chosen = {
            name: tried if does.get(name, True) else tried[:1] for name, tried in free.items()
        }
        return [dict(zip(chosen, run, strict=True)) for run in product(*chosen.values())]

    @cached_property
    def _of_base(self) -> dict[str, Any]:
        """Fields that all plans have."""
        return plan_fields(self.base) | {"sequence": self.sequence}

    @cached_property
    def _has_recipe(self) -> bool:
        """Whether a public recipe of the model may set what nobody asked or fixed."""
        framework, device, base = self.base.framework, self.base.device, self.base
        if not (isinstance(framework, Framework) and isinstance(device, Device)):
            return False
        precision = base.precision or Precision.BF16
        known = framework.knows(self.architecture.name, device.name, precision)
        return known and "recompute" not in self.fixed

    def _by_recipe(self, plan: ModelPlan) -> ModelPlan:
        """The plan with what a public recipe of the model sets, where nobody asked or fixed it."""
        framework, device = self.base.framework, self.base.device
        if not self._has_recipe:
            return plan
        assert isinstance(framework, Framework)
        assert isinstance(device, Device)
        asked = replace(self.asked, zero=plan.zero) if "zero" in self.fixed else self.asked
        return planned_by_recipe(asked, plan, device, framework, self.architecture)

    def _orders(self) -> tuple[PipelineOrder, ...]:
        """Schedules that are asked for; 1F1B is interleaved where there are chunks."""
        known = {each.value: each for each in PipelineOrder}
        return tuple(known[str(each)] for each in self.values("schedule"))

    def _free(self, name: str, whole: int) -> tuple[int, ...]:
        """Values of a degree: what was fixed, else what can divide."""
        if name in self.fixed:
            return tuple(int(str(value)) for value in self.fixed[name])
        match name:
            case "tp":
                found = _powers(min(whole, self.domain))
            case "cp":
                found = _powers(max(1, self.sequence // _LEAST_SEQUENCE))
            case "pp":
                depth = self.architecture.depth
                found = tuple(n for n in _divisors(whole) if n <= depth)
            case _:
                found = tuple(range(1, _MOST_CHUNKS + 1)) if whole > 1 else (1,)
        return tuple(n for n in found if n <= self.most.get(name, n))

    def _experts(self, tp: int, cp: int, dp: int) -> list[tuple[int, int]]:
        """Degrees of experts and of one expert."""
        experts = common_experts(self.architecture)
        if not experts:
            return [(1, tp)] if self.fixed.get("ep", (1,)) == (1,) else []
        shared = gcd(experts, tp * cp * dp)
        degrees = tuple(n for n in _divisors(shared) if n <= self.most.get("ep", n))
        found = product(
            self.fixed.get("ep", degrees), self.fixed.get("expert_tp", tuple(sorted({1, tp})))
        )
        pairs = sorted((int(str(ep)), int(str(split))) for ep, split in found)
        return [(ep, etp) for ep, etp in pairs if (tp * cp * dp) % (ep * etp) == 0]

    def _layout(self, pp: int, chunks: int) -> LayerLayout | None:
        """The layout that a step has by the options; None where the layers do not go into it.

        Even stages are tried with few numbers of chunks, and where the fullest rank has not many
        more layers than the mean one.
        """
        depth, ahead = self.architecture.depth, len(self.architecture.prediction_layers)
        with suppress(PlanError):
            found = asked_layout(self.architecture, self.base, pp * chunks)
            slices = found.resolve(depth, ahead, pp * chunks)
            if self.base.layout or found.text() != "even":
                return found
            fullest = max(sum(each.layers for each in slices[rank::pp]) for rank in range(pp))
            tried = chunks in _EVEN_CHUNKS or "chunks" in self.fixed
            return found if tried and fullest * pp <= _MOST_UNEVEN * depth else None
        return None


def _powers(most: int) -> tuple[int, ...]:
    """Powers of two up to a number."""
    return tuple(1 << i for i in range(most.bit_length()))


def _divisors(number: int) -> tuple[int, ...]:
    return tuple(n for n in range(1, number + 1) if number % n == 0)


def plan_words(plan: ModelPlan) -> str:
    """A plan in short: what is 1 or off is left out."""
    return ", ".join(_words(plan)) or "no parallelism"


def _words(plan: ModelPlan) -> Iterator[str]:
    for name in ("tp", "cp", "pp", "dp", "ep"):
        if getattr(plan, name) > 1:
            yield f"{name} {getattr(plan, name)}"
    if plan.ep > 1 and plan.expert_degree != plan.tp:
        yield f"expert_tp {plan.expert_degree}"
    if plan.chunks > 1:
        yield f"vpp {plan.chunks}"
    yield f"mbs {plan.microbatch_size}"
    if plan.order.chunks:
        yield f"schedule {plan.order}"
    if layout := plan.layout.text():
        yield f"layout {layout}"
    if plan.recompute != "none":
        some = f" of {plan.recompute_layers} layers" if plan.recompute_layers else ""
        yield f"recompute {plan.recompute}{some}"
    if plan.zero != 1:
        yield f"zero {plan.zero}"
    yield from (name for name in ("dp_overlap", "cuda_graph") if getattr(plan, name))
    if plan.tp_comm_overlap and plan.tp > 1:
        yield "tp_comm_overlap"
    if plan.dispatch is not ExpertDispatch.ALL_TO_ALL and plan.ep > 1:
        yield f"dispatch {plan.dispatch}"


KNOWN_APART = 0.03
"""Plans whose steps differ by less than this share are equal within what is known.

Of measured pairs in docs/model_accuracy.md (order of alternatives, benchmarks/accuracy_order.py)
that are predicted less than this apart, the faster one is predicted to be so in 57 of 100 where
the framework is not nanotron, in 73 where it is; of those 3 to 5 % apart in 87 and 81.
"""


def handicap(plan: ModelPlan) -> float:
    """What a second of a plan counts: more where an uneven layout has to gain something."""
    uneven = plan.layout.slices and counted_ends(plan.layout.slices) is None
    return 1 / (1 - KNOWN_APART) if uneven else 1.0


def plan_kind(plan: ModelPlan) -> tuple[int, ...]:
    """Plans of one kind differ in microbatch size, chunks, layout and recomputation only."""
    p = plan
    return p.npus, p.tp, p.cp, p.pp, p.ep, p.expert_degree, p.zero


def recomputations(options: StepOptions) -> tuple[Recompute, ...]:
    """What may be recomputed: what was asked, else nothing, or all.

    Core attention alone is worth it only where its scores are kept.
    """
    if options.recompute is not None:
        return (options.recompute,)
    unfused = options.attention is AttentionKernel.UNFUSED
    scores = (Recompute.SELECTIVE,) if unfused else ()
    return (Recompute.NONE, *scores, Recompute.FULL)


def common_experts(architecture: Architecture) -> int:
    """The largest degree of ep that all layers with experts can have; 0 where there are none."""
    mlps = (layer.mlp for layer in architecture.layer_kinds())
    return gcd(*(mlp.experts for mlp in mlps if isinstance(mlp, ExpertMlp)))


def step_options_of(plan: ModelPlan, base: StepOptions) -> StepOptions:
    """The options of a step that give a plan."""
    looped = plan.chunks > 1 and not plan.order.chunks
    unsaid = base.dispatch or ExpertDispatch.ALL_TO_ALL
    by_recipe = plan.recompute_modules or plan.offload_layers
    same = {name: getattr(plan, name) for name in _SAME}
    return replace(
        base,
        **same,
        schedule=PAIRED if plan.runs_pairs else "interleaved" if looped else plan.order.value,
        chunks=plan.chunks if plan.pp > 1 and not plan.order.chunks else None,
        microbatches=None,
        recompute=None if by_recipe else plan.recompute,
        dispatch=base.dispatch if plan.dispatch == unsaid else plan.dispatch,
        layout=base.layout or plan.layout.text(),
        expert_overlap=plan.runs_pairs,
    )


_SAME = (
    *("npus", "tp", "cp", "pp", "ep", "expert_tp", "microbatch_size", "global_batch", "sequence"),
    *("recompute_layers", "zero", "dp_overlap", "tp_comm_overlap", "cuda_graph"),
)
"""Options that are the plan's fields of the same name."""
