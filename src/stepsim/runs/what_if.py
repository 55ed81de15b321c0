"""A measured run changed: another schedule, more microbatches, faster links, layers moved.

Stage times are taken apart into equal layers and what the ends add. A layer costs what one of a
middle stage cost, so moving one changes two stages by that much. Chunks take equal parts of a
stage's layers; the first virtual stage has get_batch and embedding, the last one head and loss.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from stepsim.base.errors import PlanError, ScheduleError
from stepsim.base.structs import Names, Noun, replace
from stepsim.measured.layers import WEIGHT_GRAD_SHARE, StageCost, stage_costs
from stepsim.measured.recognise import RECORDED
from stepsim.measured.run import GRADIENT_KINDS, OpKind
from stepsim.measured.step_ops import StepOp
from stepsim.measured.summary import RunSummary
from stepsim.network.topology import Topology
from stepsim.parallel.p2p import P2PMode
from stepsim.parallel.schedules import Placement, Schedule, build, needs_times
from stepsim.parallel.schedules.base import PlacementKind
from stepsim.parallel.stages import Stages, StageWork
from stepsim.runs.replay import (
    ReplayRuntime,
    job_plan,
    measured_items,
    simulate_work,
    work_row,
)
from stepsim.step.prepared import SimulatedStep
from stepsim.workload.rows import Row, StepItem


class RunChange(Noun):
    """What to change; None leaves it as measured. `balance` are the layers of every stage.

    `layers` are those of the whole model, where the run's names do not tell them. Without `p2p`
    messages are sent as the schedule's own runtime does. `dp` are the ranks that reduce gradients
    together; with `overlap` their collectives run beside the last backward of their stage.
    """

    schedule: str | None = None
    p2p: P2PMode | None = None
    microbatches: int | None = None
    balance: tuple[int, ...] | None = None
    topology: Topology | None = None
    layers: int | None = None
    dp: int | None = None
    overlap: bool = False


class WhatIf(Noun):
    """The run replayed, and replayed with the change; `notes` say what was assumed.

    `messages` is the run as it was, but with messages sent as in the changed one: it tells what
    of the gain is theirs. It is None where both send them alike, or the run's schedule cannot.
    """

    base: SimulatedStep
    changed: SimulatedStep
    notes: Names
    messages: SimulatedStep | None = None

    @property
    def speedup(self) -> float:
        """Step time of the replay over that of the changed run, per microbatch."""
        return _speedup(self.base, self.changed)

    @property
    def speedup_of_messages(self) -> float:
        """What of the speed-up comes from how messages are sent; 1 where that is unchanged."""
        return _speedup(self.base, self.messages or self.base)

    @property
    def speedup_of_rest(self) -> float:
        """What of the speed-up comes from all else: `speedup` is the product of the two."""
        return _speedup(self.messages or self.base, self.changed)


def _speedup(before: SimulatedStep, after: SimulatedStep) -> float:
    """Step time before over that after, per microbatch."""
    old, new = before.report, after.report
    return (old.step_time_ps / old.microbatches) / (new.step_time_ps / new.microbatches)


def change_run(summary: RunSummary, runtime: ReplayRuntime, change: RunChange) -> WhatIf:
    """Replay a run with mean stage times, and once more changed.

    Raises PlanError where the balance does not share out the run's layers, or a schedule needs
    more chunks than a stage has layers; ScheduleError where it does not define how messages are
    sent.
    """
    if change.layers is not None:
        summary = _with_layers(summary, change.layers)
    _check_one_stage(summary, change)
    costs, notes = stage_costs(summary)
    ranks, count = summary.degrees.pp, summary.degrees.microbatches
    items = measured_items(summary)
    own = summary.schedule or build("1f1b", ranks=ranks, microbatches=count)
    base = simulate_costs(summary, costs, own, runtime, items)
    old_costs, old_runtime, measured = costs, runtime, summary
    if change.balance:
        costs = _balanced(costs, change.balance)
        notes.append("memory is not checked; per-step operations are those of the measured balance")
    if change.p2p:
        runtime = replace(runtime, p2p=change.p2p)
    if change.topology:
        runtime = replace(runtime, topology=change.topology)
        notes.append("collectives inside forwards and backwards keep their measured time")
    if change.dp is not None:
        summary = _with_dp(summary, change.dp)
        notes.append(
            "collectives of another dp take as long per byte sent; the batch grows with it"
        )
    if change.overlap:
        notes.append("overlap is the best case: gradients hide behind a whole backward, at no cost")
    changed_items = _changed_items(summary, costs, overlap=change.overlap)
    run = partial(simulate_costs, summary, costs, runtime=runtime, per_step=changed_items)
    order = _changed_order(own, costs, change, lambda order: run(order).report.step_time_ps)
    if order.splits_backward and not any(OpKind.WEIGHT_GRAD in s.work for s in summary.stages):
        notes.append(f"weight gradient taken as {WEIGHT_GRAD_SHARE:.0%} of a backward")
    changed = run(order)
    messages = None
    if changed.report.p2p != base.report.p2p:
        as_changed = replace(old_runtime, p2p=P2PMode(changed.report.p2p))
        with suppress(ScheduleError):  # the run's own schedule may not send messages that way
            messages = simulate_costs(measured, old_costs, own, as_changed, items)
    return WhatIf(base=base, changed=changed, notes=tuple(notes), messages=messages)


def _changed_order(
    own: Schedule,
    costs: Sequence[StageCost],
    change: RunChange,
    took_ps: Callable[[Schedule], int],
) -> Schedule:
    """The order of the changed run; one that is searched for knows the stages' times.

    `took_ps` says what an order takes. Raises PlanError for an order that is not known.
    """
    count = own.microbatches if change.microbatches is None else change.microbatches
    if change.schedule is None and count == own.microbatches:
        return own
    if change.schedule is None and own.name == RECORDED:
        raise PlanError(
            f"microbatches is {count}: the recorded order is that of no schedule known here: "
            "expected --schedule beside it"
        )
    name, ranks, times = change.schedule or own.label, len(costs), dict[str, Any]()
    if needs_times(name):
        plain = build("1f1b", ranks=ranks, microbatches=count)
        rows = [_row(costs, plain, rank, 0) for rank in range(ranks)]
        times = {
            "forward_ps": [row.forward.compute_ps for row in rows],
            "input_grad_ps": [row.input_grad.compute_ps for row in rows],
            "weight_grad_ps": [row.weight_grad.compute_ps for row in rows],
            "took_ps": took_ps,
        }
    return build(name, ranks=ranks, microbatches=count, **times)


def _with_layers(summary: RunSummary, layers: int) -> RunSummary:
    """The run with so many layers; raises PlanError where its stages cannot hold equal parts."""
    degrees = summary.degrees
    if layers < 1 or layers % degrees.pp or degrees.layers not in (None, layers):
        known = (
            f"{degrees.layers}, by its name" if degrees.layers else f"a multiple of {degrees.pp}"
        )
        raise PlanError(f"layers is {layers}: expected {known}")
    return replace(summary, degrees=replace(degrees, layers=layers))


def _balanced(costs: list[StageCost], balance: tuple[int, ...]) -> list[StageCost]:
    total = sum(cost.layers for cost in costs)
    if len(balance) != len(costs) or sum(balance) != total or min(balance) < 0:
        raise PlanError(
            f"balance is {','.join(map(str, balance))}: expected {len(costs)} numbers of layers "
            f"that sum to {total}"
        )
    return [
        replace(cost, layers=held, chunks=()) for cost, held in zip(costs, balance, strict=True)
    ]


def simulate_costs(
    summary: RunSummary,
    costs: Sequence[StageCost],
    schedule: Schedule,
    runtime: ReplayRuntime,
    per_step: Sequence[tuple[StepItem, ...]],
) -> SimulatedStep:
    """Simulate stages of given costs; of the run only plan, message size and name count."""
    plan = replace(job_plan(summary), microbatches=schedule.microbatches)
    if summary.schedule is None or summary.schedule.placement != schedule.placement:
        costs = [replace(cost, chunks=()) for cost in costs]
    works = tuple(
        StageWork(
            chunks=tuple(
                ((_row(costs, schedule, rank, chunk),),)
                for chunk in range(schedule.placement.chunks)
            ),
            per_step=per_step[rank],
        )
        for rank in range(plan.pp)
    )
    message_bytes = summary.degrees.message_bytes
    stages = Stages(works=works, pp_comm_bytes=message_bytes, warnings=())
    return simulate_work(summary.run.source, stages, plan, schedule, runtime)


def _check_one_stage(summary: RunSummary, change: RunChange) -> None:
    """Raise PlanError for changes of a pipeline that the run does not have."""
    asked = {
        "schedule": change.schedule,
        "p2p": change.p2p,
        "balance": change.balance,
        "bandwidth": change.topology,
    }
    useless = [name for name, value in asked.items() if value is not None]
    if summary.degrees.pp == 1 and useless:
        raise PlanError(
            f"{summary.run.source}: one stage and no message of a pipeline is in the recording: "
            f"{useless[0]} changes nothing: expected microbatches, dp or overlap"
        )


def _with_dp(summary: RunSummary, dp: int) -> RunSummary:
    """The run with so many ranks in a group of gradients, whose collectives send as a ring does."""
    plan, degrees = job_plan(summary), summary.degrees
    if dp < 1 or plan.dp < 2 or degrees.npus is None:
        known = "at least 1" if dp < 1 else "a run with several data-parallel ranks"
        raise PlanError(f"{summary.run.source}: dp is {dp}: expected {known}")
    ops = [_with_group(op, plan.dp, dp) for op in summary.step_ops]
    npus = plan.tp * dp * plan.pp
    ep = degrees.ep if degrees.ep and not dp % degrees.ep else None
    changed = replace(degrees, npus=npus, dp=dp, ep=ep)
    return replace(summary, degrees=changed, step_ops=tuple(ops))


def _with_group(op: StepOp, before: int, after: int) -> StepOp:
    """An operation whose group grows as dp does: a ring of n sends (n - 1) / n of the data."""
    ranks = len(op.group) if len(op.group) > 1 else before
    if op.kind not in GRADIENT_KINDS or ranks < 2:
        return op
    ratio = max(1 - before / (ranks * after), 0) / (1 - 1 / ranks)
    return replace(op, times_ps=tuple(round(time * ratio) for time in op.times_ps))


def _changed_items(
    summary: RunSummary, costs: Sequence[StageCost], *, overlap: bool
) -> list[tuple[StepItem, ...]]:
    """Operations after the pipeline, shorter by what a backward of their stage may hide."""
    if not overlap:
        return measured_items(summary)
    ops = []
    for stage, cost in zip(summary.stages, costs, strict=True):
        hidden = cost.layers * cost.backward_ps + cost.end_backward_ps
        for op in (op for op in summary.step_ops if op.stage == stage.stage):
            beside = min(op.duration_ps, hidden) if op.kind in GRADIENT_KINDS else 0
            hidden -= beside
            ops.append(replace(op, times_ps=(op.duration_ps - beside,)))
    return measured_items(replace(summary, step_ops=tuple(ops)))


def _row(costs: Sequence[StageCost], schedule: Schedule, rank: int, chunk: int) -> Row:
    """A chunk's part of its stage's layers, and the ends where it holds them."""
    placement = schedule.placement
    stage = placement.stage(rank, chunk)
    if costs[rank].chunks:
        own = costs[rank].chunks[chunk]
        return work_row("layers", own.forward_ps, own.backward_ps, own.weight_ps)
    cost, parts = _held(costs, placement, rank, stage)
    forward = cost.layers * cost.forward_ps // parts
    backward = cost.layers * cost.backward_ps // parts
    ends = {0: costs[0], placement.stages - 1: costs[-1]}
    if stage in ends:
        forward += ends[stage].end_forward_ps + ends[stage].get_batch_ps + ends[stage].loss_ps
        backward += ends[stage].end_backward_ps
    elif rank not in (0, placement.ranks - 1):
        forward += cost.end_forward_ps // parts
        backward += cost.end_backward_ps // parts
    return work_row("layers", forward, backward, round(backward * cost.weight_share))


def _held(
    costs: Sequence[StageCost], placement: Placement, rank: int, stage: int
) -> tuple[StageCost, int]:
    """The stage whose layers a chunk runs, and how many chunks share them."""
    if placement.kind is PlacementKind.BIDIRECTIONAL:
        return costs[stage], 1
    cost, parts = costs[rank], placement.chunks
    if parts > 1 and cost.layers < parts:
        raise PlanError(
            f"{parts} chunks: stage {rank} has {cost.layers} layers, one per chunk at least "
            "(--layers tells those of a run whose names do not)"
        )
    return cost, parts
