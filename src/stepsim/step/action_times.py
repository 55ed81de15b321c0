"""How long the actions of a job take, for schedules that are searched for."""

from stepsim.base.structs import replace
from stepsim.engine.fold import fold
from stepsim.engine.lay_out import lay_out
from stepsim.engine.prices import make_prices
from stepsim.graph.build import build_taskgraph
from stepsim.graph.programs import SegmentKind
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.parallel.p2p import P2PMode
from stepsim.parallel.ranks import ParallelPlan
from stepsim.parallel.schedules import Action, ActionKind, Placement, Schedule
from stepsim.parallel.stages import Stages

_KINDS = {
    "forward_ps": ActionKind.FORWARD,
    "input_grad_ps": ActionKind.INPUT_GRAD,
    "weight_grad_ps": ActionKind.WEIGHT_GRAD,
}


def search_times(
    stages: Stages, plan: ParallelPlan, options: StepOptions, topology: Topology
) -> dict[str, object]:
    """Options of `auto_zb`: mean time per rank of F, I and W, and the time of a message, in ps.

    Collectives inside an action count. A stage's ranks wait for the slowest of them, so it
    represents them where they differ.
    """
    every = replace(options, p2p=P2PMode.EAGER)
    graph = build_taskgraph(stages, _one_by_one(plan), plan, every)
    prices = make_prices(graph, topology, options)
    slow = options.slow.factors(plan.npus) if options.slow else None
    actors = fold(graph, prices, slow)
    sums = {name: [0] * plan.pp for name in _KINDS}
    hop = 0
    for actor, laid in enumerate(lay_out(graph, actors, prices, slow).programs):
        stage = int(actors.stages[actor])
        spent = dict.fromkeys(ActionKind, 0)
        for task, number in enumerate(laid.segment.tolist()):
            segment = laid.program.segments[number]
            if segment.entry >= 0:
                (action,) = laid.program.entries[segment.entry].parts()
                spent[action.kind] += int(laid.duration_ps[task])
            elif segment.kind is SegmentKind.SEND:
                hop = max(hop, int(laid.duration_ps[task]))
        for name, kind in _KINDS.items():
            sums[name][stage] = max(sums[name][stage], spent[kind])
    means = {name: [each // plan.microbatches for each in times] for name, times in sums.items()}
    return {**means, "hop_ps": hop}


def _one_by_one(plan: ParallelPlan) -> Schedule:
    """Every rank runs F, I and W of one microbatch after the other: a list, not a plan to run."""
    orders = tuple(
        tuple(
            Action(kind=kind, stage=rank, chunk=0, microbatch=j)
            for j in range(plan.microbatches)
            for kind in _KINDS.values()
        )
        for rank in range(plan.pp)
    )
    return Schedule(
        name="one-by-one",
        placement=Placement(ranks=plan.pp),
        microbatches=plan.microbatches,
        orders=orders,
    )
