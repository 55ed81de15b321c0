"""What cannot have happened, and what looks odd, in the trace of one rank or of a run."""

from collections.abc import Iterator, Sequence

import numpy as np

from stepsim.base.arrays import bins
from stepsim.base.errors import TraceError, bad_value
from stepsim.base.units import format_time_ps
from stepsim.files.traces.megatron_lines import RankLines
from stepsim.measured.run import MESSAGE_KINDS, PS_PER_MS, Degrees, OpKind
from stepsim.measured.run_profile import fused, of_kinds

# Operations may seem to overlap by as much: times are written in hundredths of a millisecond.
_TOLERANCE_PS = PS_PER_MS // 20


def check_rank(trace: RankLines) -> Iterator[str]:
    """Yield warnings about one rank.

    Raises TraceError naming file and line where its clock runs backwards, operations overlap, or a
    microbatch lacks its forward or backward.
    """
    _check_order(trace)
    _check_pairs(trace)
    events = trace.events
    gaps = events.start_ps[1:] - events.end_ps[:-1]
    longest = int(events.duration_ps.max())
    for place in np.flatnonzero(gaps > max(longest, 100 * _TOLERANCE_PS)).tolist():
        yield (
            f"{trace.where(place + 1)}: {format_time_ps(int(gaps[place]))} before this operation "
            "are not in the trace: the clock jumped, or lines are missing"
        )
    yield from _check_messages(trace)
    idle = of_kinds(events, OpKind.FORWARD, OpKind.BACKWARD)
    idle = idle[events.duration_ps[idle] == 0]
    if len(idle):
        yield (
            f"{trace.where(idle[0])}: duration is 0, as in {len(idle)} forwards and backwards of "
            f"rank {trace.rank}: the compute of these is missing"
        )


def _check_order(trace: RankLines) -> None:
    events = trace.events
    back = np.flatnonzero(events.end_ps[1:] < events.end_ps[:-1] - _TOLERANCE_PS)
    if len(back):
        place = int(back[0]) + 1
        before = format_time_ps(int(events.end_ps[place - 1] - events.end_ps[place]))
        raise TraceError(
            f"{trace.where(place)}: timestamp lies {before} before that of the line above: "
            "expected operations in order of their end on one clock"
        )
    overlap = events.end_ps[:-1] - events.start_ps[1:]
    overlap[fused(events)[1:]] = 0
    found = np.flatnonzero(overlap > _TOLERANCE_PS)
    if len(found):
        place = int(found[0]) + 1
        raise TraceError(
            f"{trace.where(place)}: the operation begins "
            f"{format_time_ps(int(overlap[place - 1]))} before the line above ends: a rank runs "
            "one operation at a time"
        )


def _check_pairs(trace: RankLines) -> None:
    """Every microbatch has as many forwards as backwards, and none is left out."""
    events = trace.events
    forward, backward = of_kinds(events, OpKind.FORWARD), of_kinds(events, OpKind.BACKWARD)
    if not len(forward):
        raise TraceError(f"{trace.file}: rank {trace.rank} has no forward_step")
    count = bins(events.microbatch[[*forward, *backward]])
    done = [np.bincount(events.microbatch[each], minlength=count) for each in (forward, backward)]
    for microbatch in np.flatnonzero((done[0] != done[1]) | (done[0] != done[0].max())):
        own = [p for p in (*forward, *backward) if events.microbatch[p] == microbatch]
        place = int(own[0]) if own else 0
        raise TraceError(
            f"{trace.where(place)}: microbatch {microbatch} of rank {trace.rank} has "
            f"{done[0][microbatch]} forwards and {done[1][microbatch]} backwards: expected "
            f"{done[0].max()} of each, lines are missing"
        )


def _check_messages(trace: RankLines) -> Iterator[str]:
    """Every microbatch has the messages that others have."""
    events, count = trace.events, trace.microbatches
    for kind in MESSAGE_KINDS:
        places = of_kinds(events, kind)
        missing = sorted(set(range(count)) - set(events.microbatch[places].tolist()))
        if len(places) and missing:
            yield (
                f"{trace.where(places[0])}: rank {trace.rank} has {trace.label[places[0]]}, but "
                f"none of microbatch {', '.join(map(str, missing[:8]))}: lines are missing, their "
                "time counts as host time"
            )


def check_ranks(traces: Sequence[RankLines], source: str, degrees: Degrees) -> None:
    """Refuse what is not one whole run of several ranks.

    Raises TraceError for a rank on another stage than degrees tell, traces of different runs, and
    stages without a trace.
    """
    if len(traces) == 1:
        return
    first, pp, npus = traces[0], degrees.pp, degrees.npus
    for trace in traces:
        if npus and trace.stage != trace.rank * pp // npus:
            allowed = f"{trace.rank * pp // npus} for rank {trace.rank} of {npus} in {pp} stages"
            raise TraceError(bad_value(trace.where(0), "stage_id", trace.stage, allowed))
        if trace.microbatches != first.microbatches:
            raise TraceError(
                f"{trace.file}: holds {trace.microbatches} microbatches, {first.file} "
                f"{first.microbatches}: expected one run per folder"
            )
    missing = sorted(set(range(pp)) - {trace.stage for trace in traces})
    if missing:
        raise TraceError(
            f"{source}: no trace of stage {', '.join(map(str, missing))} of {pp}: give all stages, "
            "or one rank's file, from which the others are inferred"
        )
