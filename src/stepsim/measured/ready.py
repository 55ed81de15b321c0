"""What a measured run is replayed with: its stages, host time and message times.

Stages without a trace are inferred from what one rank of the first stage waits for. Two waits tell
about the stages behind it. The round trip of the first microbatch, from posting its
forward to holding its gradient, is the sum of all their forwards and backwards. In the steady state
of a blocking 1F1B a gradient arrives every time the slowest stage has done one of each. So two
sums are known: that of a middle stage, taken as alike, and that of the last stage, with its loss.
Forward and backward share a sum as on the traced rank.
"""

from collections.abc import Iterable

import numpy as np
from msgspec.structs import asdict

from stepsim.base.arrays import Ints, ints
from stepsim.base.axes import Phase
from stepsim.base.errors import TraceError
from stepsim.base.structs import Names, replace
from stepsim.measured.calibration.calibration import Calibration, LinkFit, message_topology
from stepsim.measured.calibration.runs import calibrate_traces
from stepsim.measured.clocks import NodePlacement
from stepsim.measured.layers import Durations, stage_costs
from stepsim.measured.profile.events import Events
from stepsim.measured.run import HOST_IDLE, MESSAGE_KINDS, Degrees, OpKind
from stepsim.measured.run_profile import gaps, of_kinds
from stepsim.measured.step_ops import StepOp
from stepsim.measured.summary import OperationTimes, RunSummary, StageTimes, traced_actions
from stepsim.measured.work import RecordedWork
from stepsim.parallel.schedules.one_f_one_b import one_f_one_b
from stepsim.workload.plan import Plan
from stepsim.workload.rows import StepItem, Work


class ReadyRun(RunSummary, eq=False):
    """A run with all its stages, what it is replayed with, and what was assumed.

    Every action but weight gradients begins with `host_overhead_ps` of the host; messages take what
    `links` say.
    """

    host_overhead_ps: int
    links: tuple[LinkFit, ...]
    notes: Names

    def work(self, times: Durations = Durations.MEAN) -> RecordedWork:
        """The run as what a step is made of, one block or one per microbatch."""
        degrees, run = self.degrees, self.run
        count = degrees.microbatches if times is Durations.MICROBATCH else 1
        told = [stage_costs(self, times, block) for block in range(count)]
        return RecordedWork(
            source=run.source,
            plan=_plan(degrees),
            blocks=tuple(costs for costs, _ in told),
            schedule=self.schedule,
            topology=message_topology(self.links, self.clocks.node_size),
            host_overhead_ps=self.host_overhead_ps,
            per_step=measured_items(self.step_ops),
            message_bytes=degrees.message_bytes,
            layers=degrees.layers,
            said=(*run.warnings, *self.notes),
            notes=tuple(told[0][1]),
        )


def _plan(degrees: Degrees) -> Plan:
    """The run's plan; ranks beside the pipeline that names do not tell apart count as dp."""
    width, tp = degrees.stage_ranks or 1, degrees.tp or 1
    dp, ep = width // tp, degrees.ep if degrees.ep and not width % degrees.ep else 1
    return Plan(
        tp=tp,
        dp=dp,
        pp=degrees.pp,
        ep=ep,
        microbatches=degrees.microbatches,
        expert_tp=1 if dp % ep else None,
    )


def measured_items(ops: Iterable[StepOp]) -> tuple[StepItem, ...]:
    """Operations after the pipeline as items of a workload, as long as they were measured."""
    return tuple(
        StepItem(
            name=op.label,
            phase=Phase.FORWARD,
            work=Work(wait_ps=op.duration_ps)
            if op.label == HOST_IDLE
            else Work(compute_ps=op.duration_ps),
            stage=op.stage,
        )
        for op in ops
    )


def infer_hidden(summary: RunSummary) -> ReadyRun:
    """Fill in the stages behind the one traced rank, from the first half of the microbatches.

    Host and message times are those that the stages were told apart from in the rank's waits.

    Raises TraceError unless the run is one rank of the first stage of a 1F1B pipeline, with enough
    microbatches to see its steady state.
    """
    events = _only_first_stage(summary)
    pp, count = summary.degrees.pp, summary.degrees.microbatches
    used = min(max(2, count // 2), count)
    early, traced = _early(events, used), summary.run.ranks[0]
    host_ps, hop_ps, round_trip_ps, cycle_ps = _waits(early, pp, traced.file)
    own = _own_times(early, count)
    loop_ps = sum(sample.median_ps for sample in own.values())
    middle, last = _sums(pp, host_ps, hop_ps, round_trip_ps, cycle_ps, loop_ps)
    sums = [middle] * (pp - 2) + [last]
    hidden = (
        _hidden(stage, total, own, count, last=stage == pp - 1)
        for stage, total in enumerate(sums, 1)
    )
    whole = replace(summary, stages=(replace(summary.stages[0], work=own), *hidden))
    return ReadyRun(
        **asdict(whole),
        host_overhead_ps=host_ps,
        links=(
            LinkFit(
                placement=NodePlacement.INTRA_NODE,
                latency_ps=hop_ps,
                bandwidth=float("inf"),
                residual=0.0,
                samples=1,
            ),
        ),
        notes=(
            f"no trace of stage{'s' * (pp > 2)} {', '.join(map(str, range(1, pp)))}: times are "
            f"inferred from the waits of rank {traced.rank} in the first {used} microbatches",
        ),
    )


def _waits(early: Events, pp: int, file: str) -> tuple[int, int, int, int]:
    """Host time per action, the shortest message, a round trip and a cycle, in ps.

    The shortest message is taken for all.
    """
    arrivals = early.end_ps[of_kinds(early, OpKind.RECV_BACKWARD)]
    sends = of_kinds(early, OpKind.SEND_FORWARD)
    if len(arrivals) < 2 or not len(sends):
        raise TraceError(
            f"{file}: {len(arrivals)} gradients arrive in the first half: too few to see the "
            f"steady state of {pp} stages"
        )
    return (
        round(float(gaps(early).sum()) / traced_actions(early)),
        int(early.duration_ps[of_kinds(early, *MESSAGE_KINDS)].min()),
        int(arrivals[0] - early.start_ps[sends[0]]),
        round(float(arrivals[-1] - arrivals[0]) / (len(arrivals) - 1)),
    )


def _only_first_stage(summary: RunSummary) -> Events:
    """The operations of the one traced rank; raises TraceError where hidden stages stay hidden."""
    run = summary.run
    if len(run.ranks) != 1 or run.ranks[0].stage != 0:
        traced = ", ".join(f"{t.rank} (stage {t.stage})" for t in run.ranks[:4])
        raise TraceError(
            f"{run.source}: traces of rank {traced}: hidden stages are inferred from one rank of "
            "stage 0, whose waits see the whole pipeline"
        )
    ranks, count = summary.degrees.pp, summary.degrees.microbatches
    if ranks < 2 or summary.schedule != one_f_one_b(ranks=ranks, microbatches=count):
        raise TraceError(f"{run.source}: expected a 1f1b pipeline of at least 2 stages")
    return run.of_rank(0)


def _early(events: Events, used: int) -> Events:
    """The operations up to the backward of the last microbatch used."""
    done = of_kinds(events, OpKind.BACKWARD)
    last = int(done[events.microbatch[done] == used - 1][0])
    return events.taken(np.arange(last + 1))


def _own_times(early: Events, count: int) -> dict[OpKind, OperationTimes]:
    """The traced rank's own operations early in the run."""
    kinds = (OpKind.GET_BATCH, OpKind.FORWARD, OpKind.BACKWARD)
    return {
        kind: _sample(kind, early.duration_ps[of_kinds(early, kind)], count)
        for kind in kinds
        if len(of_kinds(early, kind))
    }


def _sample(kind: OpKind, durations: Ints, count: int) -> OperationTimes:
    found = OperationTimes.of(kind, durations)
    return replace(found, by_microbatch_ps=(found.median_ps,) * count)


def _sums(
    pp: int, host_ps: int, hop_ps: int, round_trip_ps: int, cycle_ps: int, own_loop_ps: int
) -> tuple[int, int]:
    """Forward plus backward of a middle stage and of the last one, in ps.

    The round trip holds those of all hidden stages, their host time and two messages per stage; a
    cycle holds that of the slowest stage with its messages, one exchange on the last stage and two
    on a middle one. Where the traced stage is itself the slowest, the hidden ones are taken as
    alike.
    """
    behind = round_trip_ps - 2 * (pp - 1) * (hop_ps + host_ps)
    slowest = cycle_ps - 2 * host_ps
    even = max(behind // (pp - 1), 0)
    if own_loop_ps + 2 * hop_ps >= slowest:
        return even, even
    last = slowest - hop_ps
    if pp == 2:
        return last, last
    middle = (behind - last) // (pp - 2)
    if middle <= last:
        return max(middle, 0), last
    middle = slowest - 2 * hop_ps
    return middle, max(behind - (pp - 2) * middle, 0)


def _hidden(
    stage: int, total: int, own: dict[OpKind, OperationTimes], count: int, *, last: bool
) -> StageTimes:
    """A hidden stage: forward and backward share their sum as on the traced stage.

    The last one reads its batch as the first one does; its loss stays in the forward.
    """
    work = {OpKind.GET_BATCH: own[OpKind.GET_BATCH]} if last and OpKind.GET_BATCH in own else {}
    rest = max(total - sum(each.median_ps for each in work.values()), 0) if work else total
    forward, backward = own[OpKind.FORWARD].median_ps, own[OpKind.BACKWARD].median_ps
    share = rest * forward // (forward + backward)
    for kind, time in ((OpKind.FORWARD, share), (OpKind.BACKWARD, rest - share)):
        work[kind] = _sample(kind, ints([time]), count)
    return StageTimes(stage=stage, ranks=(), work=work, wait_ps=0)


def calibrated_run(summary: RunSummary, calibration: Calibration, *notes: str) -> ReadyRun:
    """A run with what a replay takes from a calibration; notes say what that lacks."""
    host = calibration.host_overhead
    lacks = [] if host else ["the calibration has no host_overhead: taken as 0"]
    timed = calibration.point_to_point and summary.degrees.message_bytes
    if summary.degrees.pp > 1 and not timed:
        lacks.append("no message of known bytes was timed: messages are free")
    return ReadyRun(
        **asdict(summary),
        host_overhead_ps=round(host.value) if host else 0,
        links=calibration.point_to_point,
        notes=(*lacks, *notes),
    )


def ready_run(summary: RunSummary, calibration: Calibration | None = None) -> ReadyRun:
    """A run ready to be replayed: stages inferred where one rank is all there is.

    Host and message times are those of the calibration, else the run's own. Stages inferred from
    waits keep those they were told apart from: others would count the difference twice. Raises
    TraceError where stages are missing and cannot be inferred.
    """
    if len(summary.stages) == summary.degrees.pp:
        own = calibration or calibrate_traces([summary])
        said = "host and message times are the run's own (--calibration replaces them)"
        return calibrated_run(summary, own, *([] if calibration else [said]))
    found = infer_hidden(summary)
    if calibration is None:
        return found
    told = "host and message times are those in the waits, not the calibration's"
    return replace(found, notes=(*found.notes, told))
