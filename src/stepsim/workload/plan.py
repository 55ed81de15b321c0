"""A plan of training: degrees, batch, layout, precision, sharding, recomputation, and who is where.

Rank order is Megatron's: tp fastest, then cp, dp, pp slowest,
`rank = tp + TP * (cp + CP * (dp + DP * pp))`. NPUs are taken in the same order, or in another one
(`RankOrder`), in which cp stays beside dp. Names are those of `stepsim.options.StepOptions`
wherever these say the same.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import gcd, lcm
from operator import attrgetter, methodcaller
from typing import Any, Self, Union

import numpy as np
from msgspec import field

from stepsim.base.arrays import Floats, Ints
from stepsim.base.axes import EpLayout, Group, ParallelAxis, RankOrder
from stepsim.base.errors import PlanError, within
from stepsim.base.fields import check_fields
from stepsim.base.structs import Noun, replace
from stepsim.base.units import NameWithFields
from stepsim.workload.model.choices import (
    AttentionKernel,
    ContextParallelKind,
    ExpertDispatch,
    GraphScopes,
    Precision,
    Recompute,
    RecomputeModule,
    RecomputeModules,
)
from stepsim.workload.model.layout import LayerLayout

Ranks = Ints
_DISPATCHERS = tuple(ExpertDispatch)
_COUNTS = (
    *("tp", "cp", "dp", "pp", "ep", "chunks", "microbatch_size", "microbatches", "sequence"),
    *("expert_tp", "shard_ranks", "recompute_layers", "packed"),
)
PIPELINE = ("pp", "chunks", "layout", "order")
"""What decides which layers a rank has."""


class PipelineOrder(NameWithFields):
    """In which order the ranks of a pipeline run microbatches, as far as a closed form knows them.

    1F1B is interleaved where ranks have several chunks; `chunks` is how many an order needs (0: any
    number), `folded` that they go down the ranks and back up (ZB-V), `bubble` what is left of the
    bubble of 1F1B where forward, input and weight gradients take equally long (Qi et al. 2024).
    """

    chunks: int
    folded: bool
    bubble: float

    def fits(self, pp: int, chunks: int) -> bool:
        """Whether so many ranks with so many chunks can run it."""
        return not self.chunks or (pp > 1 and chunks == self.chunks)

    ALTERNATING = "1f1b", 0, False, 1.0
    ZB_H1 = "zb-h1", 1, False, 1 / 3
    ZB_V = "zb-v", 2, True, 0.0


class Plan(Noun):
    """How a job is split over `tp * cp * dp * pp` ranks, and what a step is.

    Each pipeline runs `microbatches` of `microbatch_size` samples of `sequence` tokens. `chunks`
    are the virtual stages of a rank (Megatron's vpp), `order` is their schedule, `rank_order` says
    which NPU each rank is.
    `expert_tp` consecutive ranks of a stage share an expert (None: as many as tp, or 1 where these
    do not divide), and an expert-parallel group of `ep` steps over these. `zero` is ZeRO's stage, 3
    gathers parameters layer by layer (FSDP); `shard_ranks` is how many ranks, over consecutive cp
    and dp indices, share one copy (None: dp x cp; fewer is HSDP), `reshard` whether they are
    dropped after the forward.
    `recompute_layers` of a stage recompute with `Recompute.FULL` (None: all); of every layer the
    `recompute_modules` are recomputed besides; activations of `offload_layers` of a stage wait
    in the host's memory, which changes no times. With `tp_comm_overlap` collectives of tp run in
    pieces beside their products, `dp_overlap` is as in StepOptions.
    With `cuda_graph` a graph holds the parts of layers in `graph_scopes`, without any the whole
    step (None: as jobs of the framework). Samples of `packed` tokens that fill a sequence attend
    within themselves. With `adapters` low-rank adapters alone are trained: frozen weights have no
    gradients.
    Exchanges between experts run beside the compute of another microbatch with `expert_overlap`,
    beside shared experts with `shared_overlap`, and those of input gradients beside the weight
    gradients of the experts with `delay_wgrad`, else after them. Where `ep` is 1 nothing is
    exchanged: these three and `dispatch` change nothing.
    """

    tp: int = 1
    cp: int = 1
    dp: int = 1
    pp: int = 1
    ep: int = 1
    expert_tp: int | None = None
    rank_order: RankOrder = RankOrder.TP_DP_PP
    chunks: int = 1
    order: PipelineOrder = PipelineOrder.ALTERNATING
    microbatches: int = 1
    microbatch_size: int = 1
    sequence: int = 2048
    precision: Precision = Precision.BF16
    sequence_parallel: bool = True
    context: ContextParallelKind = ContextParallelKind.RING
    zero: int = 1
    shard_ranks: int | None = None
    reshard: bool = True
    recompute: Recompute = Recompute.NONE
    recompute_layers: int | None = None
    recompute_modules: RecomputeModules = ()
    offload_layers: int = 0
    layout: LayerLayout = field(default_factory=LayerLayout)
    attention: AttentionKernel = AttentionKernel.FLASH
    dispatch: ExpertDispatch = ExpertDispatch.ALL_TO_ALL
    expert_overlap: bool = False
    shared_overlap: bool = False
    delay_wgrad: bool = False
    tp_comm_overlap: bool = False
    dp_overlap: bool = False
    cuda_graph: bool = False
    graph_scopes: GraphScopes | None = None
    packed: int | None = None
    adapters: bool = False

    @classmethod
    def of_batch(cls, *, global_batch: int, **fields: Any) -> Self:
        """The plan whose steps have so many samples; raises PlanError where they do not divide."""
        one = cls(**fields)
        samples = one.dp * one.microbatch_size
        if global_batch < 1 or global_batch % samples:
            raise PlanError(
                f"global_batch is {global_batch}: expected a multiple of dp x microbatch_size, "
                f"{samples}"
            )
        one.check_sequence()
        return replace(one, microbatches=global_batch // samples)

    def __post_init__(self) -> None:
        check_fields(self)
        for name in _COUNTS:
            within(name, getattr(self, name), 1)
        within("offload_layers", self.offload_layers, 0)
        within("zero", self.zero, 0, 3)
        if self.stage_ranks % (self.ep * self.expert_degree):
            raise PlanError(
                f"ep x expert_tp is {self.ep * self.expert_degree}: expected a divisor of "
                f"tp x cp x dp, {self.stage_ranks}"
            )
        if not self.order.fits(self.pp, self.chunks):
            raise PlanError(
                f"schedule is {self.order}: expected pp of at least 2 and {self.order.chunks} "
                f"virtual stages, not pp {self.pp} and {self.chunks}"
            )
        if self.replicas % self.shards:
            raise PlanError(
                f"shard_ranks is {self.shards}: expected a divisor of dp x cp, {self.replicas}"
            )

    def check_sequence(self) -> None:
        """Raise PlanError where ranks cannot share the sequence equally."""
        if self.sequence % self.cp:
            raise PlanError(f"sequence is {self.sequence}: expected a multiple of cp, {self.cp}")

    def degrees(self) -> dict[ParallelAxis, int]:
        """The degree of every axis: those that split the NPUs, the fastest first, then others."""
        axes = sorted(ParallelAxis, key=lambda axis: not axis.splits)
        return {axis: getattr(self, axis) for axis in axes}

    @property
    def words(self) -> str:
        """Its size and degrees, e.g. `64 NPUs (tp 4, dp 4, pp 4)`, as figures are titled."""
        named = (ParallelAxis.TP, ParallelAxis.DP, ParallelAxis.PP)
        shown = [f"{a} {size}" for a, size in self.degrees().items() if size > 1 or a in named]
        return f"{self.npus:,} NPUs ({', '.join(shown)})"

    # sizes

    @property
    def npus(self) -> int:
        """NPUs of the job."""
        return self.stage_ranks * self.pp

    @property
    def replicas(self) -> int:
        """Ranks that hold the same parameters unless these are sharded: over cp and dp."""
        return self.cp * self.dp

    @property
    def stages(self) -> int:
        """Virtual stages of a pipeline."""
        return self.pp * self.chunks

    @property
    def stage_ranks(self) -> int:
        """Ranks of one pipeline stage."""
        return self.tp * self.replicas

    @property
    def global_batch(self) -> int:
        """Samples of a step."""
        return self.microbatches * self.dp * self.microbatch_size

    @property
    def step_tokens(self) -> int:
        """Tokens of a step."""
        return self.global_batch * self.sequence

    @property
    def attended(self) -> int:
        """Tokens of the sequences within which attention runs."""
        return min(self.packed or self.sequence, self.sequence)

    @property
    def expert_degree(self) -> int:
        """Ranks that split one expert."""
        if self.expert_tp is not None:
            return self.expert_tp
        return self.tp if self.ep == 1 or self.stage_ranks % (self.ep * self.tp) == 0 else 1

    @property
    def shards(self) -> int:
        """Ranks that share one copy of what is sharded."""
        return self.replicas if self.shard_ranks is None else self.shard_ranks

    @property
    def fsdp(self) -> int:
        """Parts of each parameter that is gathered layer by layer; 1 where none is."""
        return self.shards if self.zero >= 2 else 1

    @property
    def dispatched(self) -> ExpertDispatch:
        """How tokens reach their experts; all-to-all where nothing is exchanged."""
        return self.dispatch if self.ep > 1 else ExpertDispatch.ALL_TO_ALL

    @property
    def runs_pairs(self) -> bool:
        """Whether a forward and a backward run as one, each beside the other's exchanges.

        Megatron-LM does that in its interleaved schedule, and without a pipeline, where parameters
        are not gathered layer by layer.
        """
        ordered = self.order is PipelineOrder.ALTERNATING and (self.pp == 1 or self.chunks > 1)
        return self.expert_overlap and self.ep > 1 and ordered and self.zero < 2

    @property
    def paired_share(self) -> float:
        """Share of the forwards that run in pairs, on the rank in the middle of the pipeline.

        That rank warms up with p - 1 forwards and p for each chunk after its first, and one more
        (`get_pp_rank_microbatches` of Megatron-LM); without a pipeline it is one.
        """
        every = self.microbatches * self.chunks
        lead = 1 if self.pp == 1 else self.stages
        return max(every - lead, 0) / every if self.runs_pairs else 0.0

    # ranks

    @property
    def ep_layout(self) -> EpLayout:
        """Whether expert groups lie inside cp and dp, or are folded over tp too."""
        return EpLayout.FOLDED if self.expert_degree % self.tp else EpLayout.DP

    def stage_of(self, rank: int) -> int:
        """Pipeline stage (pp index) of a rank."""
        return rank // self.stage_ranks

    def npus_of(self, ranks: Ranks) -> Ranks:
        """Number in the network of the NPU that each rank is."""
        number = np.zeros_like(ranks)
        for (low, high), stride in self._strides.items():
            number += ranks % high // low * stride
        return number

    def npu_block(self, group: Group) -> int:
        """NPUs of aligned blocks of NPU numbers, of which each holds whole groups of a kind.

        E.g. 16 for groups of 8 every second NPU. Groups that begin or end inside tp groups need
        room for whole ones where the NPUs of tp and dp are apart.
        """
        low, high = self.span(group)
        strides = self._strides
        inner, outer = strides[1, self.tp], strides[self.tp, self.stage_ranks]
        if outer == self.tp and (inner == 1 or self.tp == 1):
            return high if high > low else 1
        low = gcd(low, self.tp) if low % self.tp else low
        high = lcm(high, self.tp) if self.tp % high else high
        ends = [
            min(high, end) // first * stride
            for (first, end), stride in strides.items()
            if max(low, first) < min(high, end)
        ]
        return max(ends, default=1)

    @property
    def _strides(self) -> dict[tuple[int, int], int]:
        """Digits of rank numbers for tp, replicas and stages, and each one's stride in NPUs."""
        spans = {
            "tp": (1, self.tp),
            "dp": (self.tp, self.stage_ranks),
            "pp": (self.stage_ranks, self.npus),
        }
        strides, stride = {}, 1
        for axis in self.rank_order.split("-"):
            low, high = spans[axis]
            strides[axis] = stride
            stride *= high // low
        return {span: strides[axis] for axis, span in spans.items()}

    def span(self, group: Group) -> tuple[int, int]:
        """Digit of rank numbers, `rank % high // low`, that tells members of a group apart."""
        expert, stage = self.expert_degree, self.stage_ranks
        spans = {
            Group.TP: (1, self.tp),
            Group.INNER: (1, self.tp),
            Group.CP: (self.tp, self.tp * self.cp),
            Group.DP: (self.tp * self.cp, stage),
            Group.DP_CP: (self.tp, stage),
            Group.OUTER: (self.tp, stage),
            Group.EP: (expert, expert * self.ep),
            Group.DP_EP: (expert * self.ep, stage),
            Group.ETP: (1, expert),
            Group.FSDP: (self.tp, self.tp * self.fsdp),
            Group.DP_FSDP: (self.tp * self.fsdp, stage),
            Group.PP: (stage, self.npus),
            Group.STAGE: (1, stage),
        }
        return spans[group]

    def groups(self, group: Group) -> Ranks:
        """All groups of a kind, an array of shape (groups, ranks of a group), members ascending.

        Groups inside a stage are listed stage by stage.
        """
        low, high = self.span(group)
        grid = np.arange(self.npus, dtype=np.int64).reshape(-1, high // low, low)
        return grid.transpose(0, 2, 1).reshape(-1, high // low)

    def group_of(self, group: Group, ranks: Ranks) -> Ranks:
        """The place of each rank's group among the `groups` of a kind."""
        low, high = self.span(group)
        return ranks // high * low + ranks % low

    @property
    def alone(self) -> frozenset[Group]:
        """Kinds of groups in which every rank is by itself."""
        return frozenset(group for group in Group if self.group_size(group) == 1)

    def group_size(self, group: Group) -> int:
        """Ranks of each group of a kind."""
        low, high = self.span(group)
        return high // low


Plans = Union[Sequence[Plan], "PlanTable"]
"""Several plans, one by one or as columns."""


def as_table(plans: Plans) -> "PlanTable":
    """Plans as a table, if they are none yet."""
    return plans if isinstance(plans, PlanTable) else PlanTable(plans)


# Columns that are no field or property of a plan, or not as it stands where it does nothing.
#
# `tokens` are those of a rank in products, `shard_tokens` outside of them: fewer with sequence
# parallelism. `expert_replicas` are the ranks that hold the same experts, `nothing` is 0.
_COLUMNS: Mapping[str, Callable[[Plan], float]] = {
    "nothing": lambda _: 0.0,
    "sequence_parallel": lambda plan: plan.sequence_parallel and plan.tp > 1,
    "tokens": lambda plan: plan.microbatch_size * plan.sequence / plan.cp,
    "shard_tokens": lambda plan: (
        plan.microbatch_size * plan.sequence / plan.cp / (plan.tp if plan.sequence_parallel else 1)
    ),
    "expert_tp": attrgetter("expert_degree"),
    "expert_replicas": methodcaller("group_size", Group.DP_EP),
    "element_bytes": attrgetter("precision.element_bytes"),
    "casts": attrgetter("precision.casts"),
    "flash": lambda plan: plan.attention is AttentionKernel.FLASH,
    "recompute_layers": lambda plan: plan.recompute_layers or np.inf,
    "recompute_full": lambda plan: plan.recompute is Recompute.FULL,
    "recompute_selective": lambda plan: plan.recompute is Recompute.SELECTIVE,
    "recompute_operators": lambda plan: plan.recompute is Recompute.OPERATORS,
    "context_ring": lambda plan: plan.context is ContextParallelKind.RING,
    "context_all_to_all": lambda plan: plan.context is ContextParallelKind.ALL_TO_ALL,
    "dispatcher": lambda plan: _DISPATCHERS.index(plan.dispatched),
    "dispatch_bytes": attrgetter("dispatched.element_bytes"),
    "sends_once": attrgetter("dispatched.once"),
    "shared_overlap": lambda plan: plan.shared_overlap and plan.ep > 1,
    "delay_wgrad": lambda plan: plan.delay_wgrad and plan.ep > 1,
}


class PlanTable(Noun, kw_only=False, dict=True, eq=False):
    """Plans as columns: `table.tp` are the `plan.tp` of all, of shape (plans,), as float64.

    So is every field and property of a plan that is a number or a choice of two, and `_COLUMNS`;
    choices are 0 or 1. A column is made when it is asked for.
    """

    plans: Sequence[Plan]

    def __len__(self) -> int:
        return len(self.plans)

    def __getattr__(self, name: str) -> Floats:
        if name.startswith("_"):
            raise AttributeError(name)
        column = self.__dict__[name] = self.of(_COLUMNS.get(name) or attrgetter(name))
        return column

    def of(self, number: Callable[[Plan], float]) -> Floats:
        """A number of each plan."""
        return np.array([number(plan) for plan in self.plans], np.float64)

    def take(self, chosen: Sequence[int] | Ranks) -> "PlanTable":
        """The columns of some of the plans."""
        table = PlanTable([self.plans[i] for i in chosen])
        table.__dict__.update({name: column[chosen] for name, column in self.__dict__.items()})
        return table

    def alike(self, *names: str) -> Iterator[tuple[list[int], Plan]]:
        """Numbers of the plans that have the same of some fields, and the first of them."""
        groups: dict[object, list[int]] = {}
        for number, plan in enumerate(self.plans):
            groups.setdefault(attrgetter(*names)(plan), []).append(number)
        for chosen in groups.values():
            yield chosen, self.plans[chosen[0]]

    def other(self, **columns: Floats) -> "PlanTable":
        """The same plans with other columns."""
        table = PlanTable(self.plans)
        table.__dict__.update(self.__dict__ | columns)
        return table

    def recomputed(self, depth: int) -> Floats:
        """Share of a model's layers that run forward again, the same in all its stages.

        With `recompute_layers` 1 it is a quarter of 80 layers on 4 stages of 5 chunks.
        """
        return self.recompute_full * np.minimum(1.0, self.recompute_layers * self.stages / depth)

    def drops(self, module: RecomputeModule) -> Floats:
        """Whether what a module makes is recomputed."""
        return self.of(lambda plan: module in plan.recompute_modules)
