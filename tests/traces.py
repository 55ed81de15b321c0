"""Megatron traces made from simulations: what was put in is known to the nanosecond."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from helpers import line_of_npus

from stepsim.base.structs import replace
from stepsim.measured.layers import StageCost
from stepsim.measured.work import RecordedWork
from stepsim.options import StepOptions
from stepsim.parallel.p2p import Message, P2PMode, StepKind
from stepsim.parallel.schedules import Action, ActionKind, Schedule, build
from stepsim.runs.replay import simulated
from stepsim.step.prepared import SimulatedStep
from stepsim.workload.plan import Plan

PS_PER_MS = 10**9
NAMES = {
    ("send", ActionKind.FORWARD): "send_forward",
    ("recv", ActionKind.FORWARD): "recv_forward",
    ("send", ActionKind.BACKWARD): "send_backward",
    ("recv", ActionKind.BACKWARD): "recv_backward",
}


@dataclass(frozen=True, kw_only=True)
class MadeRun:
    """A simulated pipeline of one rank per stage: forward and backward ms of every stage."""

    forward: Sequence[float]
    backward: Sequence[float]
    microbatches: int
    host_ms: float = 0.3
    hop_ms: float = 0.5
    schedule: str = "1f1b"

    def simulate(self) -> tuple[SimulatedStep, Schedule]:
        """The run, simulated with blocking messages."""
        costs = tuple(
            StageCost(layers=1, forward_ps=ps(f), backward_ps=ps(b))
            for f, b in zip(self.forward, self.backward, strict=True)
        )
        plan = Plan(pp=len(costs), microbatches=self.microbatches)
        schedule = build(self.schedule, ranks=plan.pp, microbatches=plan.microbatches)
        work = RecordedWork(
            source="made",
            plan=plan,
            blocks=(costs,),
            schedule=schedule,
            topology=line_of_npus(plan.pp, ps(self.hop_ms)),
            host_overhead_ps=ps(self.host_ms),
            message_bytes=1,
        )
        options = replace(work.options, p2p=P2PMode.BLOCKING)
        return simulated(work, options), schedule

    def write(self, folder: Path, clocks: Sequence[int] = ()) -> Path:
        """One file per rank; `clocks` are what the ranks' clocks show at the start, in ms."""
        folder.mkdir(exist_ok=True)
        result, schedule = self.simulate()
        for rank in range(len(self.forward)):
            clock = clocks[rank] if clocks else 1000
            text = "".join(rank_lines(result, schedule, rank, clock, ps(self.host_ms)))
            (folder / f"pp{len(self.forward)}_tp1_rank{rank}.txt").write_text(text)
        return folder


def ps(milliseconds: float) -> int:
    return round(milliseconds * PS_PER_MS)


def line(rank: int, name: str, batch: int, start: int, end: int, clock: int, shape: str) -> str:
    state = "finalize" if "reduce" in name or "optimizer" in name else "steady"
    dtype = "None" if shape == "None" else "torch.bfloat16"
    return (
        f"rank:{rank}:{name}(stage_id={rank},batch_id={batch},mg_state={state},"
        f"duration={(end - start) / PS_PER_MS:.6f},description=made, (by a test),group_kind=None,"
        f"input__shape={shape},input__dtype={dtype},"
        f"timestamp={clock + end / PS_PER_MS:.6f},sub_operations=[])\n"
    )


def rank_lines(
    result: SimulatedStep, schedule: Schedule, rank: int, clock: int, host: int
) -> list[str]:
    """A rank's operations in order; a batch of messages follows the last operation at once."""
    ran = result.timeline.of_rank(rank)
    entry_start, entry_end = (each[:, 0].tolist() for each in ran.entry_times)
    (spans,) = result.timeline.spans([rank], whole=True)
    messages = spans.end_ps[spans.is_message].tolist()
    lines, now, taken = [], 0, 0
    steps = list(P2PMode.BLOCKING.programs(schedule, StepOptions()))[rank]
    rows = zip(steps.kind.tolist(), steps.what.tolist(), strict=True)
    for kind, several in groupby(rows, key=itemgetter(0)):
        numbers = [what for _, what in several]
        if kind == StepKind.COMPUTE:
            for place in numbers:
                action = schedule.orders[rank][place]
                assert isinstance(action, Action)
                name = "forward_step" if action.kind is ActionKind.FORWARD else "backward_step"
                start, now = entry_start[place] + host, entry_end[place]
                lines.append(line(rank, name, action.microbatch, start, now, clock, "None"))
        elif kind == StepKind.POST:
            end = max(messages[taken : taken + len(numbers)])
            taken += len(numbers)
            lines += [_message(rank, schedule, each, now, end, clock) for each in numbers]
            now = end
    return lines


def _message(rank: int, schedule: Schedule, number: int, start: int, end: int, clock: int) -> str:
    message = Message.of(schedule, number // 2)
    name = NAMES["recv" if number % 2 else "send", message.kind]
    return line(rank, name, message.microbatch, start, end, clock, "[1024, 1, 4096]")
