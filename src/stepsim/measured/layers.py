"""Stage times taken apart into equal layers and what the ends of the pipeline add."""

from collections.abc import Callable, Mapping
from enum import StrEnum

import numpy as np

from stepsim.base.errors import member
from stepsim.base.structs import Noun
from stepsim.measured.run import Degrees, OpKind
from stepsim.measured.summary import OperationTimes, RunSummary, StageTimes

WEIGHT_GRAD_SHARE = 0.4
"""Part of a backward that is weight gradient where no run tells it: 0.34 to 0.43 in the profiles of
the Zero Bubble paper, arXiv:2401.10241, tables 3 and 5."""


class Durations(StrEnum):
    """Which durations a replay takes: one per stage, or a mean per stage and microbatch."""

    MEDIAN = "median"
    MEAN = "mean"
    MICROBATCH = "microbatch"


def parse_durations(text: str | None) -> Durations | None:
    """The durations that a name means, None for what the run tells best; raises PlanError."""
    return None if text is None else member(Durations, text, "times")


class StageCost(Noun):
    """Forward and backward of one layer of a stage and of all its layers and ends, in ps.

    `weight_share` of a backward is weight gradient. `chunks` are those of a rank that held several:
    each counts as one layer.
    """

    layers: int
    forward_ps: int
    backward_ps: int
    end_forward_ps: int = 0
    end_backward_ps: int = 0
    get_batch_ps: int = 0
    loss_ps: int = 0
    weight_share: float = WEIGHT_GRAD_SHARE
    chunks: tuple["StageCost", ...] = ()


def stage_costs(
    summary: RunSummary, times: Durations = Durations.MEAN, microbatch: int = 0
) -> tuple[tuple[StageCost, ...], list[str]]:
    """Stage times, of a microbatch where these are asked for, taken apart; and what was assumed."""
    held, notes = _held(summary.degrees)
    single = times is Durations.MICROBATCH

    def told(sample: OperationTimes) -> int:
        of_all: int = sample.mean_ps if times is Durations.MEAN else sample.median_ps
        return sample.by_microbatch_ps[microbatch] if single else of_all

    def whole(stage: StageTimes, work: Mapping[OpKind, OperationTimes]) -> StageCost:
        return _whole(stage, work, summary.degrees.microbatches, told, single=single)

    found = [whole(stage, stage.work) for stage in summary.stages]
    inside = found[1:-1] or found[:1]
    forward, backward = (
        round(float(np.mean([getattr(each, name) for each in inside])) / held)
        for name in ("forward_ps", "backward_ps")
    )
    return tuple(
        StageCost(
            layers=held,
            forward_ps=forward,
            backward_ps=backward,
            end_forward_ps=each.forward_ps - held * forward,
            end_backward_ps=each.backward_ps - held * backward,
            get_batch_ps=each.get_batch_ps,
            loss_ps=each.loss_ps,
            weight_share=each.weight_share,
            chunks=tuple(whole(stage, work) for work in stage.chunks),
        )
        for stage, each in zip(summary.stages, found, strict=True)
    ), notes


def _held(degrees: Degrees) -> tuple[int, list[str]]:
    """The layers of a stage, and what is assumed of them."""
    layers, pp, notes = degrees.layers, degrees.pp, list[str]()
    if layers is None or layers % pp:
        layers = pp
        if pp > 1:
            notes.append(
                "the layers of a stage are not known: it counts as one, which chunks share"
            )
    if pp == 2:
        notes.append("no middle stage: a layer takes what one of stage 0 took, embedding included")
    return layers // pp, notes


def _whole(
    stage: StageTimes,
    work: Mapping[OpKind, OperationTimes],
    microbatches: int,
    told: Callable[[OperationTimes], int],
    *,
    single: bool,
) -> StageCost:
    """A stage, or a chunk of it, as one layer: what it does for a microbatch, backwards whole.

    A batch and a loss are those of one chunk. Times may be of a part of the microbatches, whose
    backwards may not all have run their weight gradients apart; a `single` one has it so or not.
    """
    samples = {kind: each.samples for kind, each in work.items()}
    ps = {kind: told(each) for kind, each in work.items()}
    of_all = len(stage.ranks) * microbatches
    chunks = max(samples[OpKind.FORWARD] // of_all, 1) if of_all else 1
    inputs_ps, share, apart_ps = ps[OpKind.BACKWARD], WEIGHT_GRAD_SHARE, 0
    if OpKind.WEIGHT_GRAD in work:
        apart_ps, apart = ps[OpKind.WEIGHT_GRAD], 1.0
        if not single:
            apart = samples[OpKind.WEIGHT_GRAD] / samples[OpKind.BACKWARD]
        share = min(apart_ps / max(inputs_ps + apart_ps * apart, 1), 1.0)
        apart_ps = round(apart_ps * apart * chunks)
    return StageCost(
        layers=1,
        forward_ps=ps[OpKind.FORWARD] * chunks,
        backward_ps=inputs_ps * chunks + apart_ps,
        get_batch_ps=ps.get(OpKind.GET_BATCH, 0),
        loss_ps=ps.get(OpKind.LOSS, 0),
        weight_share=share,
    )
