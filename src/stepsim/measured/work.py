"""A recorded run as what a step is made of: a workload, once it is known in which order it runs.

Stages are equal layers and what the ends add, so that they can be shared out anew: chunks take
equal parts of a stage's layers, the first virtual stage has get_batch and embedding, the last one
head and loss. In the order in which it ran every chunk takes what it took.
"""

from collections.abc import Iterator, Mapping
from itertools import chain, pairwise

from stepsim.base.axes import degrees_of
from stepsim.base.errors import PlanError
from stepsim.base.structs import Names, Noun
from stepsim.measured.layers import WEIGHT_GRAD_SHARE, StageCost
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.parallel.schedules import BUILDERS, Placement, Schedule, build, needs_times
from stepsim.parallel.schedules.base import PlacementKind
from stepsim.workload.model.layout import counted_layout
from stepsim.workload.plan import Plan
from stepsim.workload.rows import Microbatch, Row, Rows, StepItem, Work, Workload

_Layers = list[Rows]
# Options of the ranks and the batch, which a recording keeps.
_KEPT = ("npus", "pp", "global_batch", "microbatch_size")
# Options of single collectives and rows, of which a recording tells times alone.
_TIMED = ("dp_overlap", "dp_bucket", "stage_rows", "fill_placeholders")


class RecordedWork(Noun):
    """What a recorded run did, and what it did it on.

    `blocks[b][s]` is stage s in microbatches b, b + len(blocks) and so on. `schedule` is the order
    in which it ran, None where that is of no schedule known here. `per_step` are the operations
    after the pipeline, each of one stage. Neighbours exchange `message_bytes` per microbatch over
    `topology`; every action but weight gradients begins with `host_overhead_ps` of the host.
    The model has so many `layers`; where they are not known a stage counts as one, which chunks
    share. `said` is what a user should know of it, `notes` what is assumed in another order.
    """

    source: str
    plan: Plan
    blocks: tuple[tuple[StageCost, ...], ...]
    schedule: Schedule | None
    topology: Topology
    host_overhead_ps: int = 0
    per_step: tuple[StepItem, ...] = ()
    message_bytes: int = 0
    layers: int | None = None
    said: Names = ()
    notes: Names = ()

    @property
    def degrees(self) -> Mapping[str, int]:
        """The degree of every axis but dp."""
        return degrees_of(tp=self.plan.tp, pp=self.plan.pp, ep=self.plan.ep)

    @property
    def options(self) -> StepOptions:
        """The options of the step as it ran; 1F1B where its order is not known."""
        order: Schedule | str = self.schedule or "1f1b"
        if isinstance(order, Schedule) and order.name in BUILDERS:
            looped = order.placement.kind is PlacementKind.LOOP
            order = order.label if looped else order.name
        return StepOptions(schedule=order, host_overhead_ps=self.host_overhead_ps)

    def workload(self, options: StepOptions) -> Workload:
        """The workload of the run in the order asked for.

        Raises PlanError for options that nothing of a recording can follow, and for more chunks
        than a stage has layers, ScheduleError for an order that cannot run.
        """
        options.refuse(_KEPT, f"{self.source} is a recorded run, whose ranks and batch stay")
        options.refuse(_TIMED, f"{self.source} is a recorded run, of which times alone are known")
        order = self._order(options)
        placement = order.placement
        blocks = [
            [self._layers(costs, placement, stage) for stage in range(placement.stages)]
            for costs in self.blocks
        ]
        return Workload(
            source=self.source,
            microbatches=tuple(
                Microbatch(embedding=(), layers=tuple(chain(*stages)), head=()) for stages in blocks
            ),
            degrees=self.degrees,
            expert_tp=self.plan.expert_tp,
            npus=self.plan.npus,
            pipeline_microbatches=self.plan.microbatches,
            per_step=self.per_step,
            pp_comm_bytes=self.message_bytes,
            layout=counted_layout([len(layers) for layers in blocks[0]]),
            warnings=(*self.said, *self.assumed(order, options)),
        )

    def assumed(self, order: Schedule, options: StepOptions) -> Iterator[str]:
        """What is taken for granted of the run in an order."""
        if not self._as_it_ran(order.placement):
            yield from self.notes
        shares = {cost.weight_share for cost in self.blocks[0]}
        if order.splits_backward and shares == {WEIGHT_GRAD_SHARE}:
            yield f"weight gradient taken as {WEIGHT_GRAD_SHARE:.0%} of a backward"
        if options.compute_scale or options.slow:
            yield "collectives inside and after the pipeline count as compute: they change with it"

    def _as_it_ran(self, placement: Placement) -> bool:
        return self.schedule is not None and self.schedule.placement == placement

    def _order(self, options: StepOptions) -> Schedule:
        """The order asked for; of one that is searched for, its likeliest form."""
        order, ranks = options.schedule, self.plan.pp
        count = options.microbatches or self.plan.microbatches
        if isinstance(order, str):
            searched, chunks = needs_times(order), options.chunks
            name = "zb-h1" if searched else order
            return build(name, ranks=ranks, microbatches=count, chunks=None if searched else chunks)
        if (order.placement.ranks, order.microbatches) != (ranks, count):
            raise PlanError(
                f"schedule {order.name} is one of {order.placement.ranks} ranks and "
                f"{order.microbatches} microbatches: the run has {ranks} and {count}: expected the "
                "name of a schedule (--schedule), or an order of so many"
            )
        return order

    def _layers(self, costs: tuple[StageCost, ...], placement: Placement, stage: int) -> _Layers:
        """The layers of a virtual stage, get_batch before and the loss after them."""
        twice = placement.kind is PlacementKind.BIDIRECTIONAL
        rank, parts = (stage, 1) if twice else (placement.rank(stage), placement.chunks)
        cost, end = costs[rank], {0: costs[0], placement.stages - 1: costs[-1]}.get(stage)
        if cost.chunks and self._as_it_ran(placement):
            cost = end = cost.chunks[stage // placement.ranks]
            parts = 1
        if self.layers and 1 < parts > cost.layers:
            raise PlanError(
                f"{parts} chunks: stage {rank} has {cost.layers} layers, one per chunk at least"
            )
        forward_ps, backward_ps = (
            cost.layers * each // parts for each in (cost.forward_ps, cost.backward_ps)
        )
        if end:
            forward_ps += end.end_forward_ps
            backward_ps += end.end_backward_ps
        elif rank not in (0, placement.ranks - 1):
            forward_ps += cost.end_forward_ps // parts
            backward_ps += cost.end_backward_ps // parts
        weight_ps = round(backward_ps * cost.weight_share)
        count = max(cost.layers // parts, 1)
        times = zip(
            *(_shares(each, count) for each in (forward_ps, backward_ps - weight_ps, weight_ps)),
            strict=True,
        )
        rows: _Layers = [(_row("layer", *each),) for each in times]
        if end and end.get_batch_ps:
            rows[0] = (_row("get_batch", end.get_batch_ps), *rows[0])
        if end and end.loss_ps:
            rows[-1] = (*rows[-1], _row("loss", end.loss_ps))
        return rows


def _shares(whole_ps: int, count: int) -> list[int]:
    """A time in so many parts that differ by 1 ps at most; a negative one is none."""
    ends = [max(whole_ps, 0) * i // count for i in range(count + 1)]
    return [end - begin for begin, end in pairwise(ends)]


def _row(name: str, forward_ps: int, input_ps: int = 0, weight_ps: int = 0) -> Row:
    """A row that only computes."""
    forward, inputs, weights = (Work(compute_ps=each) for each in (forward_ps, input_ps, weight_ps))
    return Row(name=name, forward=forward, input_grad=inputs, weight_grad=weights)
