"""Ranges in which a program says what it computes: forwards, backwards, microbatches, stages.

torch.distributed.pipelining names an action `PP:2F0`, virtual stage, what it is and microbatch, or
`Forward 0`; other programs say `forward` or `backward`, and autograd marks backwards alone.
"""

import re
from collections.abc import Iterator, Sequence
from enum import IntEnum

import numpy as np

from stepsim.base.arrays import Ints, ints
from stepsim.base.structs import Noun
from stepsim.run.spans import UNKNOWN, TaskPhase


class MarkForm(IntEnum):
    """How much a range says; where several hold an operation the one that says most counts."""

    AUTOGRAD = 0
    PHASE = 1
    NUMBERED = 2
    ACTION = 3


class Mark(Noun):
    """One range of a rank: the phase of what runs in it, virtual stage and microbatch if told.

    It goes from `start_ps` to before `end_ps` on the rank's clock, and holds what runs on one
    `stream`, or without one all that it launched.
    """

    form: MarkForm
    phase: TaskPhase
    stage: int = UNKNOWN
    microbatch: int = UNKNOWN
    start_ps: int = 0
    end_ps: int = 0
    stream: int = UNKNOWN


ACTION_PHASES = {
    "F": TaskPhase.FORWARD,
    "B": TaskPhase.BACKWARD,
    "I": TaskPhase.INPUT_GRAD,
    "W": TaskPhase.WEIGHT_GRAD,
}
"""What torch's pipelines call the phases of actions."""
_ACTION = re.compile(r"PP:(\d{1,9})(?:(?:SEND|RECV)_)?([FBIW])(\d{1,9})")
_WORDS = {
    "forward": TaskPhase.FORWARD,
    "fwd": TaskPhase.FORWARD,
    "backward": TaskPhase.BACKWARD,
    "bwd": TaskPhase.BACKWARD,
    "wgrad": TaskPhase.WEIGHT_GRAD,
    "weight_grad": TaskPhase.WEIGHT_GRAD,
    "optimizer": TaskPhase.UPDATE,
}
_PHASE = re.compile(
    rf"\W*(?:\w+\.)?_?(?:exec_)?({'|'.join(_WORDS)})(?:[ _-]?(?:step|pass|compute|microbatch|mb))*"
    r"[ _:#-]*(\d{1,9})?\W*",
    re.IGNORECASE,
)
_AUTOGRAD = "autograd::engine::evaluate_function"
_OPTIMIZER = "Optimizer.step#"


def read_mark(name: str) -> Mark | None:
    """What the name of a range says; None where it names no phase.

    For example `PP:2F0` is the forward of microbatch 0 in virtual stage 2, `## backward ##` one
    backward or several.
    """
    if name.startswith(_AUTOGRAD):
        return Mark(form=MarkForm.AUTOGRAD, phase=TaskPhase.BACKWARD)
    if name.startswith(_OPTIMIZER):
        return Mark(form=MarkForm.PHASE, phase=TaskPhase.UPDATE)
    if action := _ACTION.fullmatch(name):
        phase, number = ACTION_PHASES[action[2]], int(action[3])
        return Mark(form=MarkForm.ACTION, phase=phase, stage=int(action[1]), microbatch=number)
    said = _PHASE.fullmatch(name)
    if said is None:
        return None
    phase = _WORDS[said[1].lower()]
    if said[2] is None or phase is TaskPhase.UPDATE:
        return Mark(form=MarkForm.PHASE, phase=phase)
    return Mark(form=MarkForm.NUMBERED, phase=phase, microbatch=int(said[2]))


def marked(
    ranges: Sequence[Mark], launch_ps: Ints, start_ps: Ints, stream: Ints
) -> list[Mark | None]:
    """The range that holds each operation of a rank, None without one.

    A range of the host holds what was launched in it, one of a stream what started on that stream.
    Of several the one that says most counts, then the one that began last.
    """
    launched = np.where(launch_ps == UNKNOWN, start_ps, launch_ps)
    found = np.full(len(start_ps), UNKNOWN, np.int64)
    for form in sorted(MarkForm, reverse=True):
        for on in sorted({each.stream for each in ranges if each.form is form}):
            places = ints(list(_outermost(ranges, form, on)))
            begins = ints([ranges[place].start_ps for place in places])
            ends = ints([ranges[place].end_ps for place in places])
            times = launched if on == UNKNOWN else start_ps
            last = np.searchsorted(begins, times, side="right") - 1
            inside = (found == UNKNOWN) & (last >= 0) & (times < ends[last])
            inside &= (on == UNKNOWN) | (stream == on)
            found[inside] = places[last[inside]]
    every = (*ranges, None)
    return [every[place] for place in found.tolist()]


def _outermost(ranges: Sequence[Mark], form: MarkForm, stream: int) -> Iterator[int]:
    """Places of a form's ranges in order of begin, without those inside of another of the form."""
    chosen = [i for i, r in enumerate(ranges) if r.form is form and r.stream == stream]
    end = -1
    for place in sorted(chosen, key=lambda i: (ranges[i].start_ps, -ranges[i].end_ps)):
        if ranges[place].end_ps > end:
            end = ranges[place].end_ps
            yield place
