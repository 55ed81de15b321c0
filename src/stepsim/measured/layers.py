"""Stage times taken apart into equal layers and what the ends of the pipeline add."""

import numpy as np
from msgspec import Struct

from stepsim.measured.run import OpKind
from stepsim.measured.summary import RunSummary


class StageCost(Struct, frozen=True, kw_only=True):
    """Forward and backward of one layer of a stage and of all its layers and ends, in ps."""

    layers: int
    forward_ps: int
    backward_ps: int
    end_forward_ps: int
    end_backward_ps: int
    get_batch_ps: int
    loss_ps: int


def stage_costs(summary: RunSummary) -> tuple[list[StageCost], list[str]]:
    """Mean stage times taken apart, and what was assumed."""
    layers, pp = summary.run.degrees.layers, summary.run.degrees.pp
    notes = []
    if layers is None or layers % pp:
        layers = pp
        notes.append("the layers of a stage are not known: each counts as one layer")
    held = layers // pp
    means = [{kind: sample.mean for kind, sample in stage.work.items()} for stage in summary.stages]
    inside = means[1:-1] or means[:1]
    if pp <= 2:
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
        )
        for times in means
    ], notes
