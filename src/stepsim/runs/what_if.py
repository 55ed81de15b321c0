"""A measured run changed: another schedule, more microbatches, faster links, layers moved.

Stage times are taken apart into equal layers and what the ends add. A layer costs what one of a
middle stage cost, so moving one changes two stages by that much.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from stepsim.base.errors import PlanError, ScheduleError
from stepsim.base.structs import Names, Noun, replace
from stepsim.measured.layers import StageCost
from stepsim.measured.ready import ReadyRun, measured_items
from stepsim.measured.run import GRADIENT_KINDS
from stepsim.measured.step_ops import StepOp
from stepsim.measured.work import RecordedWork
from stepsim.network.topology.nested import with_values
from stepsim.parallel.p2p import P2PMode
from stepsim.runs.replay import simulated
from stepsim.step.job import for_schedule
from stepsim.step.prepared import SimulatedStep


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


def change_run(
    ready: ReadyRun,
    *,
    schedule: str | None = None,
    p2p: P2PMode | None = None,
    microbatches: int | None = None,
    balance: Sequence[int] | None = None,
    layers: int | None = None,
    bandwidths: Mapping[str, float] | None = None,
    dp: int | None = None,
    overlap: bool = False,
) -> WhatIf:
    """Replay a run with mean stage times, and once more changed; None leaves it as measured.

    `balance` are the layers of every stage, `layers` those of the whole model, where the run's
    names do not tell them. Without `p2p` messages are sent as the schedule's own runtime does;
    `bandwidths` are numbers of its network, in bytes/s. `dp` are the ranks that reduce gradients
    together; with `overlap` their collectives run beside the last backward of their stage. Raises
    PlanError where the balance does not share out the run's layers, or a schedule needs more chunks
    than a stage has layers; ScheduleError where it cannot run or does not define how messages are
    sent.
    """
    of_pipeline = {"schedule": schedule, "p2p": p2p, "balance": balance, "bandwidth": bandwidths}
    useless = [name for name, value in of_pipeline.items() if value]
    if ready.degrees.pp == 1 and useless:
        raise PlanError(
            f"{ready.source}: one stage and no message of a pipeline is in the "
            f"recording: {useless[0]} changes nothing: expected microbatches, dp or overlap"
        )
    if layers is not None:
        ready = _with_layers(ready, layers)
    work = ready.work()
    changed, assumed = _changed(ready, work, balance, bandwidths, dp, overlap=overlap)
    options = for_schedule(work.options, schedule) if schedule else work.options
    options = replace(options, microbatches=microbatches, p2p=p2p)
    base, after = simulated(work), simulated(changed, options)
    order = after.timeline.graph.schedule
    notes = dict.fromkeys((*ready.notes, *assumed, *changed.assumed(order, options)))
    messages, sent = None, after.report.p2p
    if sent != base.report.p2p:
        with suppress(ScheduleError):  # the run's own schedule may not send messages that way
            messages = simulated(work, replace(work.options, p2p=P2PMode(sent)))
    return WhatIf(base=base, changed=after, notes=tuple(notes), messages=messages)


def _changed(
    ready: ReadyRun,
    work: RecordedWork,
    balance: Sequence[int] | None,
    bandwidths: Mapping[str, float] | None,
    dp: int | None,
    *,
    overlap: bool,
) -> tuple[RecordedWork, list[str]]:
    """The `work` of a run on other stages, links and groups of gradients, and what was assumed."""
    costs, network, notes = work.blocks[0], work.topology, list[str]()
    if balance:
        costs = _balanced(costs, balance)
        notes += work.notes
        notes.append("memory is not checked; per-step operations are those of the measured balance")
    if bandwidths:
        if not (ready.links and work.message_bytes):
            raise PlanError(
                f"{work.source}: no message of known bytes was timed: bandwidth cannot be told "
                "apart from latency"
            )
        network = with_values(network, bandwidths)
        notes.append("collectives inside forwards and backwards keep their measured time")
    if dp is not None:
        ready = _with_dp(ready, work.plan.dp, dp)
        work = ready.work()
        notes.append(
            "collectives of another dp take as long per byte sent; the batch grows with it"
        )
    if overlap:
        ops = _beside_backwards(ready.step_ops, costs)
        work = replace(work, per_step=measured_items(ops))
        notes.append("overlap is the best case: gradients hide behind a whole backward, at no cost")
    return replace(work, blocks=(costs,), topology=network), notes


def _with_layers(summary: ReadyRun, layers: int) -> ReadyRun:
    """The run with so many layers; raises PlanError where its stages cannot hold equal parts."""
    degrees = summary.degrees
    if layers < 1 or layers % degrees.pp or degrees.layers not in (None, layers):
        known = (
            f"{degrees.layers}, by its name" if degrees.layers else f"a multiple of {degrees.pp}"
        )
        raise PlanError(f"layers is {layers}: expected {known}")
    return replace(summary, degrees=replace(degrees, layers=layers))


def _balanced(costs: Sequence[StageCost], balance: Sequence[int]) -> tuple[StageCost, ...]:
    total = sum(cost.layers for cost in costs)
    if len(balance) != len(costs) or sum(balance) != total or min(balance) < 0:
        raise PlanError(
            f"balance is {','.join(map(str, balance))}: expected {len(costs)} numbers of layers "
            f"that sum to {total}"
        )
    return tuple(
        replace(cost, layers=held, chunks=()) for cost, held in zip(costs, balance, strict=True)
    )


def _with_dp(summary: ReadyRun, own: int, dp: int) -> ReadyRun:
    """The run with `dp` ranks in a group of gradients, not its `own`: collectives send as a ring.

    Raises PlanError for a run without such groups.
    """
    degrees = summary.degrees
    if dp < 1 or own < 2 or degrees.npus is None:
        known = "at least 1" if dp < 1 else "a run with several data-parallel ranks"
        raise PlanError(f"{summary.source}: dp is {dp}: expected {known}")
    ops = [_with_group(op, own, dp) for op in summary.step_ops]
    npus = degrees.npus // own * dp
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


def _beside_backwards(ops: Iterable[StepOp], costs: Sequence[StageCost]) -> Iterator[StepOp]:
    """Operations after the pipeline, shorter by what a backward of their stage may hide."""
    hidden = [cost.layers * cost.backward_ps + cost.end_backward_ps for cost in costs]
    for op in ops:
        beside = min(op.duration_ps, hidden[op.stage]) if op.kind in GRADIENT_KINDS else 0
        hidden[op.stage] -= beside
        yield replace(op, times_ps=(op.duration_ps - beside,))
