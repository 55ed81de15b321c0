"""Stage times taken apart into equal layers and what the ends of the pipeline add."""

from collections.abc import Mapping

import numpy as np

from stepsim.base.structs import Noun
from stepsim.measured.run import OpKind
from stepsim.measured.summary import OperationTimes, RunSummary, StageTimes

WEIGHT_GRAD_SHARE = 0.4
"""Part of a backward that is weight gradient where no run tells it: 0.34 to 0.43 in the profiles of
the Zero Bubble paper, arXiv:2401.10241, tables 3 and 5."""


class ChunkCost(Noun):
    """Forward and backward of one chunk of a rank, in ps; `weight_ps` of the backward is apart."""

    forward_ps: int
    backward_ps: int
    weight_ps: int


class StageCost(Noun):
    """Forward and backward of one layer of a stage and of all its layers and ends, in ps.

    `weight_share` of a backward is weight gradient. `chunks` are those of a rank that held several.
    """

    layers: int
    forward_ps: int
    backward_ps: int
    end_forward_ps: int
    end_backward_ps: int
    get_batch_ps: int
    loss_ps: int
    weight_share: float = WEIGHT_GRAD_SHARE
    chunks: tuple[ChunkCost, ...] = ()


def stage_costs(summary: RunSummary) -> tuple[list[StageCost], list[str]]:
    """Mean stage times taken apart, and what was assumed."""
    layers, pp = summary.degrees.layers, summary.degrees.pp
    notes = []
    if layers is None or layers % pp:
        layers = pp
        if pp > 1:
            notes.append("the layers of a stage are not known: each counts as one layer")
    held = layers // pp
    count = summary.degrees.microbatches
    means = [_of_microbatch(stage, stage.work, count) for stage in summary.stages]
    inside = means[1:-1] or means[:1]
    if pp == 2:
        notes.append("no middle stage: a layer takes what one of stage 0 took, embedding included")
    one = {
        kind: round(float(np.mean([times[kind] for times in inside])) / held)
        for kind in (OpKind.FORWARD, OpKind.BACKWARD)
    }
    return [
        StageCost(
            layers=held,
            forward_ps=one[OpKind.FORWARD],
            backward_ps=one[OpKind.BACKWARD],
            end_forward_ps=times[OpKind.FORWARD] - held * one[OpKind.FORWARD],
            end_backward_ps=times[OpKind.BACKWARD] - held * one[OpKind.BACKWARD],
            get_batch_ps=times.get(OpKind.GET_BATCH, 0),
            loss_ps=times.get(OpKind.LOSS, 0),
            weight_share=_weight_share(stage.work),
            chunks=tuple(_chunk_cost(stage, work, count) for work in stage.chunks),
        )
        for stage, times in zip(summary.stages, means, strict=True)
    ], notes


def _of_microbatch(
    stage: StageTimes, work: Mapping[OpKind, OperationTimes], microbatches: int
) -> dict[OpKind, int]:
    """Mean time of each operation for a microbatch, over all its chunks; backwards are whole.

    A batch and a loss are those of one chunk. Times may be of a part of the microbatches.
    """
    forwards, whole = work[OpKind.FORWARD].samples, len(stage.ranks) * microbatches
    chunks = max(forwards // whole, 1) if whole else 1
    found = {kind: sample.mean_ps for kind, sample in work.items()}
    for kind in (OpKind.FORWARD, OpKind.BACKWARD):
        found[kind] *= chunks
    if OpKind.WEIGHT_GRAD in work:
        apart = work[OpKind.WEIGHT_GRAD]
        found[OpKind.BACKWARD] += round(apart.mean_ps * apart.samples * chunks / forwards)
    return found


def _weight_share(work: Mapping[OpKind, OperationTimes]) -> float:
    """Part of a backward that was weight gradient where it ran apart, else what is usual."""
    if OpKind.WEIGHT_GRAD not in work:
        return WEIGHT_GRAD_SHARE
    inputs, weights = work[OpKind.BACKWARD], work[OpKind.WEIGHT_GRAD]
    total = inputs.mean_ps * inputs.samples + weights.mean_ps * weights.samples
    return min(weights.mean_ps * inputs.samples / max(total, 1), 1.0)


def _chunk_cost(
    stage: StageTimes, work: Mapping[OpKind, OperationTimes], microbatches: int
) -> ChunkCost:
    """Mean times of one chunk of a stage."""
    times = _of_microbatch(stage, work, microbatches)
    ends = times.get(OpKind.GET_BATCH, 0) + times.get(OpKind.LOSS, 0)
    return ChunkCost(
        forward_ps=times[OpKind.FORWARD] + ends,
        backward_ps=times[OpKind.BACKWARD],
        weight_ps=round(times[OpKind.BACKWARD] * _weight_share(work)),
    )
