"""Traces of an instrumented Megatron-core (Echo, arXiv:2412.12487): one line per operation.

    rank:0:send_forward(stage_id=0,batch_id=0,mg_state=warmup,duration=0.31,...,timestamp=...)

`duration` is in ms, `timestamp` the operation's end in ms on the clock of its node. A file holds
one rank, a folder all ranks of a run. In the steady state one fused exchange is written as two
lines of equal times.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from math import nan
from os.path import isdir
from pathlib import Path

import numpy as np

from stepsim.base.arrays import ints
from stepsim.base.errors import TraceError
from stepsim.base.structs import Names, Numbers, replace
from stepsim.files.reading import read_bytes
from stepsim.files.traces.joined import RankOperations, join_ranks
from stepsim.files.traces.megatron_checks import check_rank, check_ranks
from stepsim.files.traces.megatron_lines import RankLines, read_rank
from stepsim.measured.profile.events import Profile, unknown
from stepsim.measured.run import Degrees, InnerOps, OpKind, gradient_groups, times_hash
from stepsim.measured.run_profile import AHEAD, MEANINGS, after_pipeline, of_kinds

TRACE_SUFFIXES = (".txt", ".log")
"""What the names of traces in a folder end in."""
_DEGREES = {
    "wd": "npus",
    "tp": "tp",
    "pp": "pp",
    "dp": "dp",
    "exp": "ep",
    "expnum": "experts",
    "expn": "experts",
    "l": "layers",
    "nl": "layers",
    "hs": "hidden",
    "sl": "sequence",
}
_PART = re.compile(r"([A-Za-z]+)(\d{1,9})")
_DATE = re.compile(r"\d{10,20}")
_TIME = "time"
# Ranks of one run write their files as they start, within about a minute.
_STARTED_TOGETHER_S = 60


def read_megatron_trace(path: Path) -> Profile:
    """One training step from the trace of a rank, or from a folder with the traces of all ranks.

    Every rank is on a clock of its own, whose number is the millisecond at which its times begin.

    Raises TraceError naming file, line and field at fault: cut-off lines, unknown operations, wrong
    values, overlapping operations, a clock that runs backwards, missing stages, several runs in one
    folder. Missing ranks, clock jumps ahead and durations of 0 are warnings.
    """
    files, warnings = _files(path)
    traces = sorted((read_rank(file) for file in files), key=lambda trace: trace.rank)
    dropped = max(trace.dropped for trace in traces)
    if dropped:
        warnings.append(f"{path}: holds {dropped + 1} steps: the last one is used")
    warnings += [text for trace in traces for text in check_rank(trace)]
    degrees = _degrees(str(path), traces)
    missing = degrees.untraced(trace.rank for trace in traces)
    if len(traces) > 1 and missing:
        warnings.append(
            f"{path}: rank {', '.join(map(str, missing[:8]))} of {degrees.npus} has no trace: the "
            "other ranks of its stage stand for it"
        )
    profile = _joined(str(path), degrees, traces, tuple(warnings))
    check_ranks(traces, str(path), degrees)
    return profile


def _joined(source: str, degrees: Degrees, traces: Sequence[RankLines], warnings: Names) -> Profile:
    """The traces of a run in one table, whose ranks keep their clocks."""
    parts = [_operations(degrees, trace) for trace in traces]
    profile = join_ranks(source, parts, "Megatron / Echo trace", one_clock=True)
    kinds = ints([MEANINGS.index(name) for name in profile.names])
    events = replace(profile.events, name=kinds[profile.events.name])
    begins = np.cumsum([0, *(len(trace.events) for trace in traces)]).tolist()
    inner = [trace.inner.since(-first) for trace, first in zip(traces, begins, strict=False)]
    labels = [label for trace in traces for label in trace.label]
    return replace(
        profile,
        names=MEANINGS,
        events=events,
        warnings=warnings,
        degrees=degrees,
        inner=InnerOps.joined(*inner),
        labels={at: labels[at] for at in np.flatnonzero(after_pipeline(events)).tolist()},
    )


def _operations(degrees: Degrees, trace: RankLines) -> RankOperations:
    """One rank's operations; groups and peers that degrees do not tell are not known.

    The message of a microbatch is known by its phase and its ends. A collective of unknown ranks
    has its own rank as tag: it meets no other.
    """
    events, width = trace.events, degrees.stage_ranks
    peer, groups = unknown(len(events)), dict[int, Numbers]()
    for kind, ahead in AHEAD.items():
        if width:
            peer[events.name == kind] = trace.rank + ahead * width
    for kind in (OpKind.DP_ALLREDUCE, OpKind.EP_DP_ALLREDUCE):
        every = gradient_groups(degrees, kind, trace.stage)
        groups[kind] = next((ranks for ranks in every if trace.rank in ranks), ())
    names = events.name.tolist()
    ranks = [groups.get(name, ()) for name in names]
    tag = np.where(
        events.is_message,
        events.phase * degrees.microbatches + events.microbatch,
        ints([0 if each else trace.rank + 1 for each in ranks]),
    )
    count = len(events)
    told = {
        "name": [MEANINGS[name] for name in names],
        "group": [
            (f"{MEANINGS[name]} of stage {trace.stage}" if each else "", each)
            for name, each in zip(names, ranks, strict=True)
        ],
        **dict.fromkeys(("operator", "form", "mark"), ()),
        "step": np.zeros(count, np.int64),
        "order": np.arange(count),
        "peer": peer,
        "meeting": tag,
    }
    return RankOperations(
        rank=trace.rank,
        stage=trace.stage,
        replica=None if width is None else trace.rank % width,
        clock=trace.clock,
        file=trace.file,
        trace=times_hash(events.name.astype(np.int8), events.start_ps, events.end_ps),
        columns=events.columns() | told,
        base_ps=0,
    )


def _files(path: Path) -> tuple[list[Path], list[str]]:
    """The trace files of a run, and warnings about other files beside them.

    Raises TraceError where there is no trace, or names tell that there are several runs.
    """
    if not isdir(path):
        return [path], []
    texts = sorted(each for each in path.iterdir() if each.suffix in TRACE_SUFFIXES)
    names = {each: _run_names(each.name) for each in texts}
    files = [each for each in texts if names[each] or _may_be_trace(each)]
    if not files:
        raise TraceError(
            f"{path}: no trace in this folder: expected one file per rank, of PyTorch (.json), "
            "Chakra (.et) or Megatron (.txt or .log, lines of rank:R:operation(...))"
        )
    first = names[files[0]]
    for file in files:
        key = _differing(first, names[file])
        if key:
            raise TraceError(
                f"{file}: {key} is {names[file][key]} in this file's name, {first[key]} in "
                f"that of {files[0].name}: expected one run per folder"
            )
    return files, [
        f"{each}: left out, no line is an operation, rank:R:operation(...)"
        for each in sorted(names.keys() - set(files))
    ]


def _may_be_trace(file: Path) -> bool:
    """Whether a text whose name tells nothing is a trace, be it a broken one.

    A text about the run has words, and no line of a rank.
    """
    try:
        data = read_bytes(file)
    except OSError:
        return True
    return not data.strip() or re.search(rb"(?m)^\s*rank:\d+:", data) is not None


def _degrees(source: str, traces: Sequence[RankLines]) -> Degrees:
    """The run's shape from names and from the traces themselves."""
    named = _known_degrees(source, traces[0].file)
    first = traces[0]
    last = max(traces, key=lambda trace: (trace.stage, trace.rank))
    pp = named.get("pp", max(last.stage + 1, _stages_of_warm_up(last)))
    if last.stage >= pp:
        raise TraceError(f"{source}: pp is {pp} by its name: a trace has stage {last.stage}")
    width = -(-(last.rank + 1) // (last.stage + 1))  # stages as wide as the last traced rank asks
    npus = named.get("npus", width * pp if len(traces) > 1 else None)
    tp, dp = named.get("tp"), named.get("dp")
    if npus is None and tp and dp:
        npus = tp * dp * pp
    if dp is None and npus and tp:
        dp = npus // (tp * pp)
    sends = OpKind.SEND_FORWARD, OpKind.RECV_FORWARD, OpKind.RECV_BACKWARD
    message = of_kinds(first.events, *sends)
    return Degrees(
        pp=pp,
        microbatches=first.microbatches,
        npus=npus,
        tp=tp,
        dp=dp,
        **{name: named.get(name) for name in ("ep", "experts", "layers", "hidden", "sequence")},
        message_bytes=max(int(first.events.size_bytes[message[0]]), 0) if len(message) else 0,
    )


def _stages_of_warm_up(trace: RankLines) -> int:
    """Stages that 1F1B has when this rank warms up with so many forwards before a backward.

    0 where all forwards come first, or there are several per microbatch: that is another schedule.
    """
    events = trace.events
    steps = of_kinds(events, OpKind.FORWARD, OpKind.BACKWARD)
    forwards = len(of_kinds(events, OpKind.FORWARD))
    warm_up = int(np.argmax(events.name[steps] == OpKind.BACKWARD))
    if len(np.unique(events.microbatch[steps])) < forwards or 1 < warm_up == forwards:
        return 0
    return trace.stage + warm_up


def _known_degrees(*names: str) -> dict[str, int]:
    """Degrees written in file or folder names such as `pp4_tp1_exp2_expn8_dp4_nl8_hs4096_sl1024`.

    The last two parts of a path are read; of several names the first that tells a degree wins.
    """
    found: dict[str, int] = {}
    for name in names:
        for part in reversed(Path(name).absolute().parts[-2:]):
            for key, number in _run_names(part).items():
                if key != _TIME and int(number):
                    found.setdefault(_DEGREES[key.lower()], int(number))
    return found


def _run_names(file: str) -> dict[str, str]:
    """What files of one run have in common in their names: degrees, and the time it was started."""
    names = {}
    for token in re.split(r"[_.]", file):
        match = _PART.fullmatch(token)
        if match and match[1].lower() in _DEGREES:
            names[match[1]] = match[2]
        elif _DATE.fullmatch(token):
            names[_TIME] = token
    return names


def _differing(one: dict[str, str], other: dict[str, str]) -> str | None:
    """The first name that tells two files to be of different runs, None where none does."""
    for key in (key for key in one if key in other):
        apart = _seconds(one[key]) - _seconds(other[key]) if key == _TIME else nan
        if one[key] != other[key] and not abs(apart) <= _STARTED_TOGETHER_S:
            return key
    return None


def _seconds(token: str) -> float:
    """Seconds of 20250818085710, or of seconds or milliseconds since 1970; nan of another text."""
    if len(token) in (10, 13):
        return int(token) / (1 if len(token) == 10 else 1000)
    try:
        return datetime.strptime(token[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return nan
