"""What cannot have happened, and what looks odd, in the trace of one rank or of a run."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from stepsim.base.errors import TraceError
from stepsim.base.units import format_time_ps
from stepsim.measured.run import MESSAGE_KINDS, PS_PER_MS, OpKind, RankTrace, fused_exchanges

_TOLERANCE_PS = PS_PER_MS // 20
"""Operations may seem to overlap by as much: times are written in hundredths of a millisecond."""


def last_step(trace: RankTrace) -> tuple[RankTrace, int]:
    """The last training step of a trace, and how many came before it.

    A step begins where the pipeline goes on after an operation that follows the pipeline.
    """
    begins = np.flatnonzero(trace.finalize[:-1] & ~trace.finalize[1:]) + 1
    if not len(begins):
        return trace, 0
    return trace.since(int(begins[-1])), len(begins)


def check_rank(trace: RankTrace) -> Iterator[str]:
    """Yield warnings about one rank.

    Raises TraceError naming file and line where its clock runs backwards, operations overlap, or a
    microbatch lacks its forward or backward.
    """
    _check_order(trace)
    _check_pairs(trace)
    gaps = trace.start_ps[1:] - trace.end_ps[:-1]
    longest = int(trace.duration_ps.max())
    for place in np.flatnonzero(gaps > max(longest, 100 * _TOLERANCE_PS)).tolist():
        yield (
            f"{trace.where(place + 1)}: {format_time_ps(int(gaps[place]))} before this operation "
            "are not in the trace: the clock jumped, or lines are missing"
        )
    yield from _check_messages(trace)
    idle = trace.of(OpKind.FORWARD, OpKind.BACKWARD)
    idle = idle[trace.duration_ps[idle] == 0]
    if len(idle):
        yield (
            f"{trace.where(idle[0])}: duration is 0, as in {len(idle)} forwards and backwards of "
            f"rank {trace.rank}: the compute of these is missing"
        )


def _check_order(trace: RankTrace) -> None:
    back = np.flatnonzero(trace.end_ps[1:] < trace.end_ps[:-1] - _TOLERANCE_PS)
    if len(back):
        place = int(back[0]) + 1
        raise TraceError(
            f"{trace.where(place)}: timestamp lies "
            f"{format_time_ps(int(trace.end_ps[place - 1] - trace.end_ps[place]))} before that of "
            "the line above: expected operations in order of their end on one clock"
        )
    overlap = trace.end_ps[:-1] - trace.start_ps[1:]
    overlap[fused_exchanges(trace.kind, trace.start_ps, trace.end_ps)[1:]] = 0
    found = np.flatnonzero(overlap > _TOLERANCE_PS)
    if len(found):
        place = int(found[0]) + 1
        raise TraceError(
            f"{trace.where(place)}: the operation begins "
            f"{format_time_ps(int(overlap[place - 1]))} before the line above ends: a rank runs "
            "one operation at a time"
        )


def _check_pairs(trace: RankTrace) -> None:
    """Every microbatch has as many forwards as backwards, and none is left out."""
    forward, backward = trace.of(OpKind.FORWARD), trace.of(OpKind.BACKWARD)
    if not len(forward):
        raise TraceError(f"{trace.file}: rank {trace.rank} has no forward_step")
    count = int(trace.microbatch[[*forward, *backward]].max()) + 1
    done = [np.bincount(trace.microbatch[each], minlength=count) for each in (forward, backward)]
    for microbatch in np.flatnonzero((done[0] != done[1]) | (done[0] != done[0].max())):
        place = next(
            int(p) for p in (*forward, *backward, 0) if trace.microbatch[p] == microbatch or not p
        )
        raise TraceError(
            f"{trace.where(place)}: microbatch {microbatch} of rank {trace.rank} has "
            f"{done[0][microbatch]} forwards and {done[1][microbatch]} backwards: expected "
            f"{done[0].max()} of each, lines are missing"
        )


def _check_messages(trace: RankTrace) -> Iterator[str]:
    """Every microbatch has the messages that others have."""
    count = int(trace.microbatch.max()) + 1
    for kind in MESSAGE_KINDS:
        places = trace.of(kind)
        missing = sorted(set(range(count)) - set(trace.microbatch[places].tolist()))
        if len(places) and missing:
            yield (
                f"{trace.where(places[0])}: rank {trace.rank} has {trace.label[places[0]]}, but "
                f"none of microbatch {', '.join(map(str, missing[:8]))}: lines are missing, their "
                "time counts as host time"
            )


def check_ranks(traces: Sequence[RankTrace], source: str, pp: int) -> None:
    """Refuse what is not one whole run.

    Raises TraceError for a rank traced twice, traces of different runs, and stages without a trace.
    """
    seen: dict[int, RankTrace] = {}
    first = traces[0]
    for trace in traces:
        if trace.rank in seen:
            raise TraceError(
                f"{trace.file}: rank {trace.rank} is also in {seen[trace.rank].file}: expected one "
                "run per folder"
            )
        seen[trace.rank] = trace
        counts = [int(each.microbatch.max()) + 1 for each in (first, trace)]
        if counts[0] != counts[1]:
            raise TraceError(
                f"{trace.file}: holds {counts[1]} microbatches, {first.file} {counts[0]}: expected "
                "one run per folder"
            )
    missing = sorted(set(range(pp)) - {trace.stage for trace in traces})
    if missing and len(traces) > 1:
        raise TraceError(
            f"{source}: no trace of stage {', '.join(map(str, missing))} of {pp}: give all stages, "
            "or one rank's file, from which the others are inferred"
        )


def missing_ranks(present: Iterable[int], npus: int) -> list[int]:
    """Ranks of 0..npus-1 that were not traced."""
    return sorted(set(range(npus)) - set(present))
