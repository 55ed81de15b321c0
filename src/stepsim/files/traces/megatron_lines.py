"""Lines of Megatron traces: one rank's file to columns; see `megatron_trace` for the format."""

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from stepsim.base.arrays import Floats, Ints, bins, ints
from stepsim.base.errors import TraceError, bad_value
from stepsim.base.structs import Names, shipped
from stepsim.base.units import PS_PER_NS
from stepsim.files.reading import number_in, read_text
from stepsim.files.traces.forms import element_bytes
from stepsim.measured.profile.events import Events, RankPlace
from stepsim.measured.run import InnerOps, OpKind
from stepsim.measured.run_profile import meant
from stepsim.run.spans import UNKNOWN

_COLLECTIVES = ("all_to_all", "allgather", "allreduce", "reduce_scatter", "broadcast")
_FIELDS = shipped(__file__, "megatron_fields.toml", dict[str, tuple[str, str]])
_STATES = _FIELDS["mg_state"][1].split(", ")
_LINE = re.compile(
    r"rank:(\d{1,7}):(\w+)\("
    + ",".join(f"{name}=({pattern})" for name, (pattern, _) in _FIELDS.items())
    + r",sub_operations=\[(.*)\]\)\s*"
)
_INNER = re.compile(
    r"duration=([-+.\w]+),timestamp=[-+.\w]+,input__shape=\[(\d*)([\d, ]*)\],"
    r"input__dtype=torch\.(\w+),(?:func_name=\w+,)?group=\w+,comm_func=(\w+)'"
)
_LONGEST_GAP_MS = 8.64e7
_LATEST_MS = 10**14
_INNER_MARK = "'trace_src_func="


# Kind, microbatch, duration and timestamp in ms as written, bytes, line and name.
_Operation = tuple[OpKind, int, float, float, int, int, str]
# A collective inside an operation: whose it is, duration in ms, and tokens of an all-to-all.
_Inner = tuple[int, float, int]
_Step = tuple[list[_Operation], list[_Inner]]


class RankLines(RankPlace, eq=False):
    """The last step of a rank; `line` and `label` are where and how each operation is written.

    `dropped` steps came before it. Times are picoseconds from the millisecond `clock`; ranks,
    groups and peers of the events are not known yet.
    """

    stage: int
    dropped: int
    line: Ints
    label: Names
    events: Events
    inner: InnerOps

    @property
    def microbatches(self) -> int:
        """How many there are, by the largest number."""
        return bins(self.events.microbatch)

    def where(self, place: int) -> str:
        """File and line of an operation, for messages."""
        return f"{self.file}:{self.line[place]}"


def read_rank(path: Path) -> RankLines:
    """The last step of one rank's trace; raises TraceError naming file, line and field.

    A step begins where the pipeline goes on after an operation that follows the pipeline.
    """
    steps: list[_Step] = []
    owner: tuple[str, str] | None = None
    last = math.nan
    text = read_text(path, TraceError, "trace", "a trace")
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        match = _LINE.fullmatch(line)
        if match is None:
            raise TraceError(_what_is_wrong(line, place))
        fields = match.groups()
        mine = fields[0], fields[2]
        owner = owner or mine
        if mine != owner:
            raise TraceError(
                f"{place}: rank {mine[0]}, stage {mine[1]} in the file of rank {owner[0]}, "
                f"stage {owner[1]}: expected one rank per file"
            )
        kind, _, _, timestamp, *_ = operation = _operation(fields, number, place)
        gap = abs(timestamp - last)
        if gap > _LONGEST_GAP_MS:
            raise TraceError(
                f"{place}: timestamp lies {gap / 8.64e7:.1f} days from that of the line above: "
                "expected one step on one clock"
            )
        if not steps or kind < OpKind.DP_ALLREDUCE <= steps[-1][0][-1][0]:
            steps.append(([], []))
        operations, inner = steps[-1]
        inner += _inner(len(operations), fields[-1], place)
        operations.append(operation)
        last = timestamp
    if owner is None:
        raise TraceError(f"{path}: no operation in this file: expected a trace")
    return _trace(steps, path, int(owner[0]), int(owner[1]))


def _operation(fields: Names, number: int, place: str) -> _Operation:
    """The operation of a line.

    One that this reader does not know is allowed after the pipeline, under its own name.
    """
    (_, name, _, batch, state, duration, _, _, shape, dtype, timestamp, _) = fields
    if state not in _STATES:
        raise TraceError(bad_value(place, "mg_state", state, f"one of {', '.join(_STATES)}"))
    kinds = shipped(__file__, "megatron_lines.toml", dict[str, str])
    if name not in kinds and state != "finalize":
        raise TraceError(bad_value(place, "operation", name, f"one of {', '.join(kinds)}"))
    return (
        OpKind[kinds.get(name, "OTHER")],
        int(batch),
        number_in(place, "duration", duration, TraceError, 0, _LATEST_MS),
        number_in(place, "timestamp", timestamp, TraceError, 0, _LATEST_MS),
        _size(shape, dtype.removeprefix("torch."), place),
        number,
        name,
    )


def _inner(parent: int, text: str, place: str) -> Iterator[_Inner]:
    """The collectives inside an operation."""
    found = _INNER.findall(text)
    if len(found) != text.count(_INNER_MARK):
        raise TraceError(
            f"{place}: sub_operations: {text.count(_INNER_MARK) - len(found)} of "
            f"{text.count(_INNER_MARK)} cannot be read: expected duration, timestamp, "
            "input__shape, input__dtype, group and comm_func in each"
        )
    for duration, rows, rest, dtype, function in found:
        if function not in _COLLECTIVES:
            allowed = f"one of {', '.join(_COLLECTIVES)}"
            raise TraceError(bad_value(place, "comm_func", function, allowed))
        _size(f"[{rows}{rest}]", dtype, place)  # is refused where it is none
        tokens = int(rows or 1) if function == "all_to_all" else UNKNOWN
        name = "sub_operations duration"
        yield parent, number_in(place, name, duration, TraceError, 0, _LATEST_MS), tokens


def _size(shape: str, dtype: str, place: str) -> int:
    """Bytes of a tensor, 0 where there is none."""
    if shape == "None":
        return 0
    known = element_bytes("torch")
    if dtype not in known:
        allowed = f"one of {', '.join(known)}"
        raise TraceError(bad_value(place, "input__dtype", dtype, allowed))
    lengths = [each.strip() for each in shape[1:-1].split(",")]
    if lengths == [""]:
        return known[dtype]
    if not all(re.fullmatch(r"\d{1,12}", each) for each in lengths):
        raise TraceError(bad_value(place, "input__shape", shape, "a list of whole numbers"))
    size = math.prod(map(int, lengths))
    if size > 1 << 50:
        raise TraceError(bad_value(place, "input__shape", shape, "at most 2**50 elements"))
    return size * known[dtype]


def _what_is_wrong(line: str, place: str) -> str:
    """Why a line is no operation: the first field that is missing or wrong."""
    if not re.match(r"rank:\d{1,7}:\w+\(", line):
        return bad_value(place, "line", line.rstrip(), "rank:R:operation(stage_id=..., ...)")
    for name, (pattern, allowed) in _FIELDS.items():
        if not re.search(rf"[(,]{name}=(?:{pattern})(?:,|$)", line):
            found = re.search(rf"[(,]{name}=([^,]*)", line)
            if found and found.end() < len(line.rstrip()):
                return bad_value(place, name, found[1], allowed)
            return f"{place}: the line is cut off or has no {name}: expected {name}={allowed}"
    return f"{place}: the line is cut off: expected it to end with sub_operations=[...])"


def _trace(steps: Sequence[_Step], path: Path, rank: int, stage: int) -> RankLines:
    """Columns in ps from the whole millisecond before the first operation of all steps."""
    (first, _), (operations, inside) = steps[0], steps[-1]
    kind, microbatch, took, ended, sizes, lines, labels = zip(*operations, strict=True)
    parent, lasted, tokens = zip(*inside, strict=True) if inside else [()] * 3
    duration, timestamp, inner_duration = (np.array(ms, np.float64) for ms in (took, ended, lasted))
    clock = math.floor(first[0][3])
    end, name, size = _picoseconds(timestamp - clock), ints(kind), ints(sizes)
    after = name >= OpKind.DP_ALLREDUCE
    events = Events.of(
        len(name),
        name=name,
        **meant(name),
        start_ps=end - _picoseconds(duration),
        end_ps=end,
        size_bytes=np.where(size > 0, size, UNKNOWN),
        microbatch=np.where(after, UNKNOWN, ints(microbatch)),
        chunk=np.where(after, UNKNOWN, stage),
    )
    inner = InnerOps(
        parent=ints(parent),
        duration_ps=_picoseconds(inner_duration),
        tokens=ints(tokens),
    )
    return RankLines(
        rank=rank,
        stage=stage,
        dropped=len(steps) - 1,
        file=str(path),
        clock=clock,
        line=ints(lines),
        label=labels,
        events=events,
        inner=inner,
    )


def _picoseconds(milliseconds: Floats) -> Ints:
    """Whole nanoseconds, in ps: exact for what is written with up to six decimals."""
    return np.rint(milliseconds * 1e6).astype(np.int64) * PS_PER_NS
