"""Files of ASTRA-sim 1.0: what their rows mean where SimAI means something else.

Source: ASTRA-sim 1.0, `Workload.cc` (`iterate_*`, one loop for each policy) and `Layer.cc`.

- The bytes of an all-gather are what a rank has before it.
- The process time (field 12) passes after every collective, before what it brings is there.
  Weight-gradient collectives queue while their process times pass: the last one's counts.
- DATA and HYBRID_DLRM*: a row's weight gradient is computed before its input gradient, the first
  row's input gradient not at all. Rows run backward, so the input gradient is told of the row
  before. No other input-gradient collective runs than the embedding's of HYBRID_DLRM*: after the
  first top row, waited for after the last weight gradient; forward ones are all-to-alls alone.
- MODEL, HYBRID_DATA_MODEL, HYBRID_MODEL_DATA and HYBRID_CUSTOMIZED leave out the first row's
  input-gradient collective.
- DISTRIBUTED_INFERENCE runs forwards alone.
"""

from collections.abc import Sequence

from stepsim.base.structs import replace
from stepsim.files.simai.header import Header, Policy
from stepsim.workload.rows import CollectiveKind, CommOp, Row, Work

_WEIGHT_FIRST = (Policy.DATA, Policy.HYBRID_DLRM, Policy.HYBRID_DLRM_ENHANCED)
_FIRST_ROW_KEEPS_GRADIENT = (
    *(Policy.MODEL, Policy.HYBRID_DATA_MODEL, Policy.HYBRID_MODEL_DATA, Policy.HYBRID_CUSTOMIZED),
)


def as_astra(rows: Sequence[Row], process_ps: Sequence[int], header: Header) -> list[Row]:
    """Rows of ASTRA-sim 1.0 as those of a workload; `process_ps` are their process times."""
    timed = [_timed(row, ps) for row, ps in zip(rows, process_ps, strict=True)]
    last = next((i for i, row in enumerate(timed) if row.weight_grad.comms), None)
    found = [
        row if i == last else replace(row, weight_grad=_processed(row.weight_grad, 0))
        for i, row in enumerate(timed)
    ]
    if header.policy in _WEIGHT_FIRST:
        return _weight_first(found, header)
    if header.policy in _FIRST_ROW_KEEPS_GRADIENT and found:
        found[0] = replace(found[0], input_grad=Work(compute_ps=found[0].input_grad.compute_ps))
    if header.policy is Policy.DISTRIBUTED_INFERENCE:
        return [replace(row, input_grad=Work(), weight_grad=Work()) for row in found]
    return found


def _timed(row: Row, process_ps: int) -> Row:
    """The row with its process time after every collective, and shares where they are meant."""
    return row.with_works(lambda _, work: _processed(work, process_ps))


def _processed(work: Work, process_ps: int) -> Work:
    return replace(work, comms=tuple(_op(op, process_ps) for op in work.comms))


def _op(op: CommOp, process_ps: int) -> CommOp:
    share = op.kind is CollectiveKind.ALL_GATHER
    return replace(op, of_share=share, process_ps=process_ps)


def _weight_first(rows: Sequence[Row], header: Header) -> list[Row]:
    """Rows whose weight gradients come first: input gradients are told of the row before."""
    gradients = [Work(compute_ps=row.input_grad.compute_ps) for row in rows[1:]]
    found = [
        replace(row, input_grad=gradient)
        for row, gradient in zip(rows, [*gradients, Work()], strict=True)
    ]
    if header.policy is Policy.DATA:
        return found
    found = [replace(row, forward=_exchanges(row.forward)) for row in found]
    bottom = header.last_bottom_layer or 0
    if bottom < len(found):
        gradient = replace(found[bottom].input_grad, comms=rows[0].input_grad.comms)
        found[bottom] = replace(found[bottom], input_grad=gradient, backward_lag=bottom)
    return found


def _exchanges(work: Work) -> Work:
    kept = tuple(op for op in work.comms if op.kind is CollectiveKind.ALL_TO_ALL)
    return replace(work, comms=kept)
