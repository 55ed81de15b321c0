"""The plans of a model that divide it, and what each takes: the one list of them.

Who chooses a plan for a step that says none, searches for the best, or asks what would fit, looks
at a `PlanSpace` and at its prices.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product
from math import gcd, inf
from typing import Any

import numpy as np

from stepsim.base.arrays import Bools, Floats, rows_of
from stepsim.base.errors import PlanError, member, within
from stepsim.base.structs import Noun, Numbers, Values, replace
from stepsim.files.asked import StepInputs
from stepsim.options import StepOptions
from stepsim.parallel.schedules.combined_1f1b import PAIRED
from stepsim.step.model_plan import (
    DEFAULT_SEQUENCE,
    as_jobs_run,
    asked_layout,
    batch_of,
    interconnect_of,
    plan_fields,
    setup_of,
    with_recipe,
)
from stepsim.workload.model.architecture import ExpertMlp
from stepsim.workload.model.choices import AttentionKernel, ExpertDispatch, Recompute
from stepsim.workload.model.held import check_plan, shared_counts, stage_slices
from stepsim.workload.model.layout import LayerLayout, balanced_layout
from stepsim.workload.model.memory import TIGHT_SHARE
from stepsim.workload.model.step_time import StepModel
from stepsim.workload.plan import PipelineOrder, Plan, PlanTable

_COUNTS = ("tp", "cp", "pp", "chunks", "ep", "expert_tp", "microbatch_size")
HOW_RUN = ("dp_overlap", "tp_comm_overlap", "dispatch", "cuda_graph")
"""Fields of a plan about how it runs: as the options have them, unless they are searched."""
SEARCHED = (*_COUNTS, "recompute", "zero", "schedule", *HOW_RUN)
"""What a search can vary, by the names of the options."""

SHORT_NAMES = {"microbatch_size": "mbs", "chunks": "vpp", "expert_tp": "etp"}
"""What people call some of them."""

_Fields = Values
# How far a plan comes that is none, and what stands in its way.
_Obstacle = tuple[tuple[int, int], str]
_Found = Iterator[_Fields | _Obstacle]

MOST_NPUS = 1 << 22
"""NPUs of the largest plan that is searched for: 10 s where tp fills a node, else 3 min, 6 GB."""
_MOST_CHUNKS = 12
_MOST_UNEVEN = 1.125
_EVEN_CHUNKS = (1, 2, 4, 8)
_MOST_SAMPLES = 8
# Tokens of a part under cp: shorter ones are not worth their exchange.
_LEAST_SEQUENCE = 4096
# Costs of the ends are rounded to this part of a layer: most plans share their layout.
_PER_LAYER = 16
# What decides how long a layer and the ends take.
_OF_LAYERS = (
    *("tp", "cp", "dp", "ep", "expert_tp", "microbatch_size"),
    *("recompute", "zero", "precision", "dispatch", "cuda_graph", "tp_comm_overlap"),
)


class PlanSpace(Noun):
    """Plans of a model on `npus` NPUs (each size is searched) with one global batch and sequence.

    The fast network of `setup` joins a domain of NPUs: tp stays inside. `base` has the options that
    are `asked` of the model and those of the framework's jobs besides. `fixed` has the values that
    an option may have, by name; what is not there is free. `most` bounds a free option.
    """

    setup: StepModel
    npus: Numbers
    base: StepOptions
    asked: StepInputs
    fixed: Mapping[str, tuple[Any, ...]] = {}
    most: Mapping[str, int] = {}

    def __post_init__(self) -> None:
        for name in _COUNTS:
            for value in self.fixed.get(name, ()):
                within(f"fix: {name}", value, 1)
        for value in self.fixed.get("schedule", ()):
            member(PipelineOrder, value, "fix: schedule")

    def step(self, plan: Plan) -> StepInputs:
        """What is asked of a step under one of its plans."""
        return replace(self.asked, options=step_options_of(plan, self.base))

    def plans(self) -> Iterator[Plan]:
        """Every plan that divides the model and the job, in a fixed order."""
        return (each for each in self._made() if isinstance(each, Plan))

    def why_empty(self) -> str:
        """What stands in the way where there is no plan at all: of the one that comes furthest."""
        sizes = ", ".join(map(str, self.npus))
        nothing = (0, 0), f"gpus is {sizes}: no multiple of the degrees asked for"
        found = (each for each in self._made() if not isinstance(each, Plan))
        return max([nothing, *found], key=lambda each: each[0])[1]

    def values(self, name: str) -> tuple[Any, ...]:
        """Values of an option beside degrees that plans are made with, in the order tried."""
        if name in self.fixed:
            return self.fixed[name]
        if name == "recompute" and self.base.recompute is None:
            # core attention alone is worth it only where its scores are kept
            unfused = self.base.attention is AttentionKernel.UNFUSED
            scores = (Recompute.SELECTIVE,) if unfused else ()
            return (Recompute.NONE, *scores, Recompute.FULL)
        if name == "schedule":
            return (PipelineOrder.ALTERNATING.value,)
        held = getattr(self.base, name)
        if held is not None:
            return (held,)
        from stepsim.files.models.launch import LaunchForm, launch_form

        if name == "zero" and launch_form(self.setup.framework.name) is LaunchForm.TORCHTITAN:
            return (3,)  # it has FSDP alone
        return (getattr(Plan(), name),)

    def _made(self) -> Iterator[Plan | _Obstacle]:
        """Every plan of all degrees, or what stands in its way.

        Whether a model divides is asked once for a layout and degrees of experts. A public recipe
        of the model sets what nobody asked or fixed.
        """
        setup, model = self.setup, self.setup.architecture
        by_recipe = bool(setup.framework.recipes) and "recompute" not in self.fixed
        checked: set[tuple[object, ...]] = set()
        for each in self._sized(self._laid_out(self._degrees())):
            if isinstance(each, tuple):
                yield each
                continue
            try:
                plan = Plan(**each)
                like = plan.tp, plan.cp, plan.dp, plan.pp, plan.chunks, plan.order
                if (*like, plan.ep, plan.expert_tp) not in checked:
                    check_plan(model, plan)
                    checked.add((*like, plan.ep, plan.expert_tp))
                if by_recipe:
                    asked = self.asked.options
                    asked = replace(asked, zero=plan.zero) if "zero" in self.fixed else asked
                    plan = with_recipe(asked, plan, setup)[0]
                yield plan
            except PlanError as error:
                yield (6, 0), str(error)

    def _degrees(self) -> _Found:
        base = plan_fields(self.base)
        kinds = self.setup.architecture.layer_kinds()
        heads = [count for layer in kinds for count in shared_counts(layer).values()]
        for npus in self.npus:
            for tp, cp, pp in product(*(self._free(n, npus) for n in ("tp", "cp", "pp"))):
                dp, rest = divmod(npus, tp * cp * pp)
                if rest:
                    continue
                if any(count % tp for count in heads):
                    yield (1, -tp), f"tp is {tp}: it does not divide the heads"
                elif not self._experts(tp, cp, dp):
                    yield (2, 0), self._no_experts(tp * cp * dp)
                else:
                    yield {**base, "tp": tp, "cp": cp, "pp": pp, "dp": dp}

    def _no_experts(self, ranks: int) -> str:
        asked = {name: self.fixed[name] for name in ("ep", "expert_tp") if name in self.fixed}
        values = ", ".join(f"{name} {', '.join(map(str, each))}" for name, each in asked.items())
        if not self.setup.architecture.is_sparse:
            return f"{values}: {self.setup.architecture.name} has no experts"
        return f"{values}: no such degrees divide tp x cp x dp, {ranks}"

    def _laid_out(self, found: _Found) -> _Found:
        """Degrees with chunks, the order of their pipeline and a layout."""
        depth = self.setup.architecture.depth
        orders = [PipelineOrder(each) for each in self.values("schedule")]
        for named in found:
            if isinstance(named, tuple):
                yield named
                continue
            pp = named["pp"]
            for chunks in self._free("chunks", pp):
                far, layout = (3, -pp * chunks), self._layout(pp, chunks)
                stages = f"pp {pp}" + (f" x vpp {chunks}" if chunks > 1 else "")
                if not layout:
                    yield far, f"{stages}: {depth} layers cannot be shared out over them"
                    continue
                for order in orders:
                    if order.fits(pp, chunks):
                        yield {**named, "chunks": chunks, "order": order, "layout": layout}
                    else:
                        asked = ", ".join(orders)
                        yield far, f"{stages}: schedule {asked} needs other virtual stages"

    def _sized(self, found: _Found) -> _Found:
        """What is laid out with degrees of experts, microbatches, and how it may run."""
        # samples of a microbatch: where no batch is asked for, powers of two
        given = self.base.global_batch
        tried = range(1, _MOST_SAMPLES + 1) if given else powers(_MOST_SAMPLES)
        sizes = self.fixed.get("microbatch_size", tried)
        others = sizes, self.values("recompute"), self.values("zero")
        for named in found:
            if isinstance(named, tuple):
                yield named
                continue
            pp, dp = named["pp"], named["dp"]
            whole = named["chunks"] > 1 and not named["order"].chunks
            for run, size, recompute, zero in product(self._runs(named), *others):
                batch = given or batch_of(self.base, dp * size, pp)
                count, rest = divmod(batch, dp * size)
                said = f"global_batch is {batch}: "
                if rest:
                    yield (4, -dp * size), f"{said}no multiple of dp {dp} x mbs {size}"
                elif whole and count % pp:  # Megatron-LM interleaves groups of pp microbatches
                    yield (5, -pp), f"{said}{count} microbatches are no multiple of pp {pp}"
                else:
                    free = {"microbatch_size": size, "zero": zero, "recompute": recompute}
                    yield {**named, **run, **free, "microbatches": count}

    def _runs(self, named: _Fields) -> Iterator[_Fields]:
        """How plans with these degrees may run; what they cannot tell apart is tried once."""
        tp, cp, dp = (named[name] for name in ("tp", "cp", "dp"))
        for ep, expert_tp in self._experts(tp, cp, dp):
            does = {"dp_overlap": dp * cp > 1, "tp_comm_overlap": tp > 1, "dispatch": ep > 1}
            tried = [self.values(name)[: None if does.get(name, True) else 1] for name in HOW_RUN]
            for run in product(*tried):
                yield {"ep": ep, "expert_tp": expert_tp, **dict(zip(HOW_RUN, run, strict=True))}

    def _free(self, name: str, whole: int) -> Numbers:
        """Values of a degree: what was fixed, else what can divide."""
        if name in self.fixed:
            return self.fixed[name]
        match name:
            case "tp":
                found = powers(min(whole, self.setup.interconnect.domain))
            case "cp":
                sequence = self.base.sequence or DEFAULT_SEQUENCE
                found = powers(max(1, sequence // _LEAST_SEQUENCE))
            case "pp":
                depth = self.setup.architecture.depth
                found = tuple(n for n in range(1, depth + 1) if whole % n == 0)
            case _:
                found = tuple(range(1, _MOST_CHUNKS + 1)) if whole > 1 else (1,)
        return tuple(n for n in found if n <= self.most.get(name, n))

    def _experts(self, tp: int, cp: int, dp: int) -> list[tuple[int, int]]:
        """Degrees of experts and of one expert; ep divides the experts of all layers."""
        mlps = (layer.mlp for layer in self.setup.architecture.layer_kinds())
        experts = [mlp.experts for mlp in mlps if isinstance(mlp, ExpertMlp)]
        if not experts:
            return [(1, tp)] if self.fixed.get("ep", (1,)) == (1,) else []
        shared = gcd(*experts, tp * cp * dp)
        most = self.most.get("ep", shared)
        degrees = tuple(n for n in range(1, shared + 1) if shared % n == 0 and n <= most)
        found = product(
            self.fixed.get("ep", degrees), self.fixed.get("expert_tp", tuple(sorted({1, tp})))
        )
        return [(ep, etp) for ep, etp in sorted(found) if (tp * cp * dp) % (ep * etp) == 0]

    def _layout(self, pp: int, chunks: int) -> LayerLayout | None:
        """The layout that a step has by the options; None where the layers do not go into it.

        Even stages are tried with few numbers of chunks, and where the fullest rank has not many
        more layers than the mean one.
        """
        depth, ahead = self.setup.architecture.depth, len(self.setup.architecture.prediction_layers)
        with suppress(PlanError):
            found = asked_layout(self.setup, self.base, pp * chunks)
            slices = found.resolve(depth, ahead, pp * chunks)
            if self.base.layout or found.text() != "even":
                return found
            fullest = max(sum(each.layers for each in slices[rank::pp]) for rank in range(pp))
            tried = chunks in _EVEN_CHUNKS or "chunks" in self.fixed
            return found if tried and fullest * pp <= _MOST_UNEVEN * depth else None
        return None


def make_space(
    asked: StepInputs,
    npus: Sequence[int],
    *,
    fixed: Mapping[str, tuple[Any, ...]],
    most: Mapping[str, int] = {},
) -> PlanSpace:
    """The space of the plans of a model under what is asked; raises PlanError.

    Raises TopologyError where the network has no closed form.
    """
    setup = setup_of(asked)
    return PlanSpace(
        setup=replace(setup, interconnect=interconnect_of(asked.topology.fit(max(npus)))),
        npus=tuple(npus),
        base=as_jobs_run(asked.options, setup)[0],
        asked=asked,
        fixed=fixed,
        most=most,
    )


def powers(most: int) -> Numbers:
    """Powers of two up to a number."""
    return tuple(1 << i for i in range(most.bit_length()))


Wanted = Callable[[PlanTable], Bools]
"""Which plans are priced, of those with a column `share`: of the memory that each takes."""


def price_plans(
    space: PlanSpace,
    wanted: Wanted | None = None,
    most: int | None = None,
) -> PlanTable:
    """The plans of a space with columns of their `seconds`: those `wanted`, all unless it is said.

    Others have infinite ones. `memory` are the bytes of the fullest rank, `share` what they are of
    the device's. The fastest plans, at most so many, are there with stages balanced by cost as
    well, where nobody says a layout.
    """
    from stepsim.files.models.launch import LaunchForm, launch_form

    setup, table = space.setup, PlanTable(list(space.plans()))
    memory = setup.memory(table).total
    # plans that recompute whole layers may do so with some alone: Megatron-LM can
    able = launch_form(setup.framework.name) in (LaunchForm.MEGATRON_LM, LaunchForm.MEGATRON_BRIDGE)
    if able and len(space.values("recompute")) > 1:
        table, memory = _eased(table, memory, setup)
    priced = _priced(table, memory, setup, wanted)
    if space.base.layout is not None or not len(table):
        return priced
    some = priced if most is None else priced.take(by_price(priced)[:most])
    more = PlanTable(_balanced(some.plans, setup))
    other = _priced(more, setup.memory(more).total, setup, wanted)
    columns = {
        name: np.concatenate([getattr(each, name) for each in (priced, other)])
        for name in ("memory", "share", "seconds")
    }
    return PlanTable([*priced.plans, *other.plans]).other(**columns)


def _priced(table: PlanTable, memory: Floats, setup: StepModel, wanted: Wanted | None) -> PlanTable:
    share = memory / setup.device.memory_bytes
    seconds, priced = np.full(len(table), inf), np.arange(len(table))
    if wanted is not None:
        priced = np.flatnonzero(wanted(table.other(share=share)))
    if len(priced):
        seconds[priced] = setup.seconds(table.take(priced))
    return PlanTable(table.plans).other(memory=memory, share=share, seconds=seconds)


def by_price(priced: PlanTable) -> list[int]:
    """Places of plans that have a price, the fastest per token first; equal ones as they come.

    A plan counts more where its layout has to gain something.
    """
    each = priced.seconds * priced.of(handicap) / priced.step_tokens
    places: list[int] = np.argsort(each, kind="stable").tolist()
    return places[: int(np.isfinite(priced.seconds).sum())]


def _eased(table: PlanTable, memory: Floats, setup: StepModel) -> tuple[PlanTable, Floats]:
    """Plans that recompute whole layers, with as few of each virtual stage as fit well.

    `memory` is what they hold, in bytes, and is given for the new plans; those that do not fit
    well, say how many layers recompute, or fit well with none, stay as they are. What a rank holds
    is convex in their number: a straight line from one layer to all is not below it.
    """
    depth, share = setup.architecture.depth, memory / setup.device.memory_bytes
    layers = np.ceil(depth / table.stages)
    able = (table.recompute_full > 0) & (table.recompute_layers == inf)
    eased = np.flatnonzero(able & (layers > 1) & (share < TIGHT_SHARE)).tolist()
    if not eased:
        return table, memory
    full = np.repeat([1.0, 0.0], len(eased))
    few = table.take(eased * 2).other(recompute_layers=np.ones(len(full)), recompute_full=full)
    most, without = np.split(setup.memory(few).share_of(setup.device), 2)
    least, layers = share[eased], layers[eased]
    room = np.maximum(TIGHT_SHARE - least, 0) / np.maximum(most - least, 1e-12)
    kept = np.ceil(layers - 1 - (layers - 1) * np.minimum(room, 1.0))
    count = np.where(without < TIGHT_SHARE, layers, 1 + kept)
    plans, changed = list(table.plans), np.array(eased)[count < layers].tolist()
    for i, some in rows_of(changed, count[count < layers].astype(int)):
        plans[i] = replace(plans[i], recompute_layers=some)
    table, memory = PlanTable(plans), memory.copy()
    memory[changed] = setup.memory(table.take(changed)).total
    return table, memory


def _balanced(plans: Sequence[Plan], setup: StepModel) -> list[Plan]:
    """Plans whose slowest rank is faster with another layout than their own, with that layout.

    The ends count as many layers as they take time. Frameworks that share layers out by cost
    themselves have none.
    """
    piped = [plan for plan in plans if plan.pp > 1 and not plan.order.folded]
    if setup.framework.balances_stages or not piped:
        return []
    architecture = setup.architecture
    alike = {(plan.layout, plan.stages): plan for plan in piped}
    own = {key: stage_slices(architecture, plan) for key, plan in alike.items()}
    layouts: dict[tuple[object, ...], LayerLayout | None] = {}
    shape, found = (architecture.depth, len(architecture.prediction_layers)), []
    for plan, (embedding, last) in zip(piped, _end_costs(piped, setup), strict=True):
        key = plan.pp, plan.chunks, embedding, last
        if key not in layouts:
            layouts[key] = None  # where there is none for ends that cost so much
            first, end = embedding / _PER_LAYER, last / _PER_LAYER
            with suppress(PlanError):
                layouts[key] = balanced_layout(
                    *shape, plan.pp, plan.chunks, embedding=first, last=end
                )
        layout = layouts[key]
        if layout and layout.slices != own[plan.layout, plan.stages]:
            found.append(replace(plan, layout=layout))
    return found


def _end_costs(plans: Sequence[Plan], setup: StepModel) -> list[tuple[int, int]]:
    """What the embedding, and head and prediction layers, take, in parts of a mean layer."""
    keys = [tuple(getattr(plan, name) for name in _OF_LAYERS) for plan in plans]
    one = dict(zip(keys, plans, strict=True))
    table = setup.part_seconds(PlanTable(list(one.values())))
    counts, kinds = setup.architecture.layer_counts(), setup.architecture.layer_kinds()
    weights = np.array([counts[kind] for kind in kinds], float)
    layer = table[:, :-2] @ weights / setup.architecture.depth
    ahead = [kinds.index(each) for each in setup.architecture.prediction_layers]
    last = table[:, -1] * (1 + len(ahead)) + table[:, ahead].sum(axis=1)
    ends = np.rint(np.stack([table[:, -2], last], axis=1) / layer[:, None] * _PER_LAYER)
    costs = dict(rows_of(one, ends.astype(int)))
    return [(costs[key][0], costs[key][1]) for key in keys]


def plan_words(plan: Plan) -> str:
    """A plan in short: what is 1 or off is left out."""
    degrees = ("tp", "cp", "pp", "dp", "ep")
    words = [f"{name} {getattr(plan, name)}" for name in degrees if getattr(plan, name) > 1]
    layout, some = plan.layout.text(), plan.recompute_layers
    said = {
        f"expert_tp {plan.expert_degree}": plan.ep > 1 and plan.expert_degree != plan.tp,
        f"vpp {plan.chunks}": plan.chunks > 1,
        f"mbs {plan.microbatch_size}": True,
        f"schedule {plan.order}": plan.order.chunks,
        f"layout {layout}": layout,
        f"recompute {plan.recompute}{f' of {some} layers' if some else ''}": plan.recompute
        is not Recompute.NONE,
        f"zero {plan.zero}": plan.zero != 1,
        "dp_overlap": plan.dp_overlap,
        "cuda_graph": plan.cuda_graph,
        "tp_comm_overlap": plan.tp_comm_overlap and plan.tp > 1,
        f"dispatch {plan.dispatch}": plan.dispatch is not ExpertDispatch.ALL_TO_ALL and plan.ep > 1,
    }
    return ", ".join([*words, *(text for text, shown in said.items() if shown)])


KNOWN_APART = 0.03
"""Plans whose steps differ by less than this share are equal within what is known.

Of measured pairs in docs/model_accuracy.md (order of alternatives, benchmarks/accuracy_order.py)
that are predicted less than this apart, the faster one is predicted to be so in 57 of 100 where
the framework is not nanotron, in 73 where it is; of those 3 to 5 % apart in 87 and 81.
"""


def handicap(plan: Plan) -> float:
    """What a second of a plan counts: more where an uneven layout has to gain something."""
    from stepsim.files.models.megatron_plan import counted_ends

    uneven = plan.layout.slices and counted_ends(plan.layout.slices) is None
    return 1 / (1 - KNOWN_APART) if uneven else 1.0


def plan_kind(plan: Plan) -> Numbers:
    """Plans of one kind differ in microbatch size, chunks, layout and recomputation only."""
    p = plan
    return p.npus, p.tp, p.cp, p.pp, p.ep, p.expert_degree, p.zero


def step_options_of(plan: Plan, base: StepOptions) -> StepOptions:
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


# Options that are the plan's fields of the same name.
_SAME = (
    *("npus", "tp", "cp", "pp", "ep", "expert_tp", "microbatch_size", "global_batch", "sequence"),
    *("recompute_layers", "zero", "dp_overlap", "tp_comm_overlap", "cuda_graph"),
)
