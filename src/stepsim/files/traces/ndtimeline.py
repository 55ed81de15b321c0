"""NDTimeline parquet: the operations of production jobs as published with the study of stragglers.

github ByteDance-Seed/StragglerAnalysis. A row is an operation of a worker, which stands for its
tensor-parallel group. Times are seconds from the begin of the step, on one clock. Messages bear no
microbatch: the n-th one of a worker belongs to the n-th compute that has one.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stepsim.base.arrays import Bools, Ints, bins, ints, places_by, rows_of
from stepsim.base.errors import TraceError, bad_value
from stepsim.base.structs import Names, Values, replace, shipped
from stepsim.base.units import MAX_INT64, PS_PER_S
from stepsim.files.reading import open_file, parquet_library
from stepsim.measured.profile.events import (
    Events,
    ProcessGroup,
    Profile,
    RankPlace,
    counted,
    same,
    unknown,
)
from stepsim.run.spans import UNKNOWN, TaskKind, TaskPhase

# Clocks of ranks may be as far apart.
_APART_PS = 50 * 10**6
_LONGEST_S = 1e6
_MOST_ROWS = 50_000_000
_MOST_BYTES = 4 << 30


_OF_STAGE = ("params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce")
# What groups of collectives are called, what their members have in common, and the names.
_MEMBERS = (
    ("replicas of stage", "stage", _OF_STAGE),
    ("ends of replica", "replica", ("embedding-grads-all-reduce",)),
    ("all workers", "", ("optimizer-clip-main-grad",)),
)
_MESSAGE_NAMES = ("forward-send", "forward-recv", "backward-send", "backward-recv")
_NUMBERS = ("dp_rank", "stage", "rank", "step", "seq_id", "mc", "mb_id", "gmc")
_WORKERS = ("rank", "stage", "dp_rank")
_TIMES = ("start_ts", "duration")
_LEAST = {"mc": UNKNOWN, "mb_id": UNKNOWN, "gmc": UNKNOWN}


def read_ndtimeline(path: Path) -> Profile:
    """Read a job's operations; raises TraceError naming file, column, row and value."""
    columns, names = _columns(path)
    places, first = _workers(columns, path)
    workers = rows_of(*(columns[name][first] for name in _WORKERS))
    steps, step = np.unique(columns["step"], return_inverse=True)
    of_name = columns["optype"]
    meanings = _meanings(names, path)[of_name]
    start = _picoseconds(columns["start_ts"])
    events = Events.of(
        len(of_name),
        rank=places,
        step=step.astype(np.int64),
        name=of_name,
        kind=meanings[:, 0],
        phase=meanings[:, 1],
        stream=meanings[:, 2],
        start_ps=start,
        end_ps=start + _picoseconds(columns["duration"]),
        order=columns["seq_id"],
        microbatch=columns["mb_id"],
        chunk=_chunks(columns),
    )
    profile = Profile(
        source=str(path),
        format="NDTimeline",
        ranks=tuple(
            RankPlace(rank=rank, stage=stage, replica=replica, file=str(path))
            for rank, stage, replica in workers
        ),
        steps=tuple(steps.tolist()),
        names=names,
        groups=(),
        events=events,
    )
    _check_once(profile)
    return _with_meetings(profile)


def _columns(path: Path) -> tuple[Values, Names]:
    """Numbers by column, and the distinct names; `optype` is the place of each among them."""
    arrow, parquet = parquet_library(path, TraceError)
    try:
        with open_file(path, _MOST_BYTES) as file:
            whole = parquet.ParquetFile(file)
            _check_size(whole.metadata, path)
            table = whole.read()
    except OSError as error:
        raise TraceError(f"{path}: cannot read the profile: {error.strerror or error}") from None
    except arrow.ArrowException as error:
        raise TraceError(f"{path}: not a Parquet file: {str(error).splitlines()[0]}") from None
    missing = [name for name in (*_NUMBERS, *_TIMES, "optype") if name not in table.column_names]
    if missing:
        raise TraceError(f"{path}: no column {', '.join(missing)}: expected those of NDTimeline")
    if not table.num_rows:
        raise TraceError(f"{path}: no operation of any rank was recorded")
    found = {name: _numbers(table[name], name, path) for name in (*_NUMBERS, *_TIMES)}
    try:
        coded = table["optype"].cast(arrow.string()).combine_chunks().dictionary_encode()
    except arrow.ArrowException:
        raise TraceError(f"{path}: optype is {table['optype'].type}: expected texts") from None
    found["optype"] = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return found, tuple(map(str, coded.dictionary.to_pylist()))


def _check_size(metadata: Any, path: Path) -> None:
    """Refuse what would fill the memory: columns may be packed a thousand times smaller."""
    groups = range(metadata.num_row_groups)
    size = sum(metadata.row_group(i).total_byte_size for i in groups)
    if metadata.num_rows > _MOST_ROWS or size > _MOST_BYTES:
        raise TraceError(
            f"{path}: {metadata.num_rows} rows, {size} bytes: expected at most {_MOST_ROWS} rows "
            f"and {_MOST_BYTES >> 30} GiB"
        )


def _numbers(column: Any, name: str, path: Path) -> Any:
    """A column as numbers: floats of times, whole ones of others; an empty cell is nan."""
    is_time = name in _TIMES
    least, most = (0, _LONGEST_S) if is_time else (_LEAST.get(name, 0), MAX_INT64)
    try:
        values = column.to_numpy()
        if name in _LEAST:
            values = np.where(np.isnan(values), UNKNOWN, values)
        wrong = np.flatnonzero(~((values >= least) & (values <= most)))
    except (ValueError, TypeError):
        raise TraceError(f"{path}: {name} is {column.type}: expected numbers") from None
    if len(wrong):
        row = int(wrong[0])
        allowed = f"{least} to {most:g} s" if is_time else f"{least} or more"
        raise TraceError(bad_value(f"{path}: row {row}", name, values[row].item(), allowed))
    return values.astype(np.float64 if is_time else np.int64)


def _meanings(names: Names, path: Path) -> Ints:
    """Kind, phase and stream of every name; raises TraceError for one that is not known."""
    known = shipped(__file__, "ndtimeline.toml", dict[str, tuple[str, str, int]])
    for name in names:
        if name not in known:
            raise TraceError(bad_value(str(path), "optype", name, f"one of {', '.join(known)}"))
    told = (known[name] for name in names)
    return ints([(TaskKind[kind], TaskPhase[phase], on) for kind, phase, on in told])


def _picoseconds(seconds: Any) -> Ints:
    return np.asarray(np.rint(seconds * PS_PER_S), np.int64)


def _workers(columns: Mapping[str, Any], path: Path) -> tuple[Ints, Ints]:
    """The place of every row's worker, and the first row of each; TraceError for missing ones."""
    number, first, place = np.unique(columns["rank"], return_index=True, return_inverse=True)
    stage, replica = columns["stage"][first], columns["dp_rank"][first]
    moves = (columns["stage"] != stage[place]) | (columns["dp_rank"] != replica[place])
    moved = np.flatnonzero(moves)
    if len(moved):
        row = int(moved[0])
        raise TraceError(
            f"{path}: row {row}: rank {columns['rank'][row]} is on another stage or replica than "
            "before: expected one run per file"
        )
    expected = bins(stage) * bins(replica)
    if len(number) != expected:
        raise TraceError(
            f"{path}: {len(number)} workers in {bins(stage)} stages and "
            f"{bins(replica)} replicas: expected {expected}, some are missing"
        )
    return place.astype(np.int64), first


def _chunks(columns: Mapping[str, Any]) -> Ints:
    """Chunk in the whole model: as written, else that of the stage's own chunk."""
    stages = bins(columns["stage"])
    own = np.where(columns["mc"] >= 0, columns["mc"] * stages + columns["stage"], UNKNOWN)
    return np.asarray(np.where(columns["gmc"] >= 0, columns["gmc"], own), np.int64)


def _check_once(profile: Profile) -> None:
    """Refuse an operation that is there twice: two runs in one file."""
    events = profile.events
    again = np.flatnonzero(counted(events.rank, events.step, events.name, events.order))
    if len(again):
        raise TraceError(
            f"{profile.source}: row {again[0]}: {profile.describe(int(again[0]))} with seq_id "
            f"{events.order[again[0]]} is there twice: expected one run per file"
        )


def _with_meetings(profile: Profile) -> Profile:
    """Messages with the microbatch of their compute, and who meets whom."""
    warnings: list[str] = []
    events = _attached(profile, warnings)
    other, peer = _peers(profile, events)
    meeting, group, groups = _meetings(profile, events, other)
    events = replace(events, meeting=meeting, group=group, peer=peer)
    return replace(profile, events=events, groups=groups, warnings=tuple(warnings))


def _attached(profile: Profile, warnings: list[str]) -> Events:
    """Operations whose messages have chunk and microbatch of the compute they belong to.

    A rank may record messages that were never sent: for every compute, also at both ends of the
    model, and before the first or after the last of a step. Those of a compute bear its microbatch
    and meet nobody.
    """
    events = profile.events
    microbatch, chunk = events.microbatch.copy(), events.chunk.copy()
    microbatch[~events.of_kind(TaskKind.COMPUTE)] = UNKNOWN
    last = int(chunk[events.of_kind(TaskKind.COMPUTE)].max(initial=0))
    of_group = same(events.rank, events.step)
    for name in _MESSAGE_NAMES:
        message = np.flatnonzero(profile.named(name))
        compute = np.flatnonzero(profile.named(f"{name.split('-')[0]}-compute"))
        end = last if name in ("forward-send", "backward-recv") else 0
        lost = []
        for ours, theirs in zip(
            *(_grouped(events, each, of_group) for each in (message, compute)), strict=True
        ):
            talks = chunk[theirs] != end
            chosen, paired = _paired(events, ours, theirs, talks, name)
            microbatch[chosen], chunk[chosen] = microbatch[paired], chunk[paired]
            if len(ours) and not len(chosen) and talks.any():
                lost.append(len(ours))
        if lost:
            warnings.append(
                f"{profile.source}: {sum(lost)} {name} are not matched with computes: in "
                f"{len(lost)} steps of ranks there are more or fewer than computes that have one"
            )
    return replace(events, microbatch=microbatch, chunk=chunk)


def _grouped(events: Events, places: Ints, of_group: Ints) -> list[Ints]:
    """Places of each group, in the order of their operations."""
    places = places[np.argsort(events.order[places], kind="stable")]
    return [places[own] for own in places_by(of_group[places], bins(of_group))]


def _paired(
    events: Events, message: Ints, compute: Ints, talks: Bools, name: str
) -> tuple[Ints, Ints]:
    """Messages of a rank and step with their computes; `talks` are those that have one.

    Left out are messages that begin after the last compute could need them, or end before the
    first could send. The first message may be missing at the begin of the model.
    """
    if name.endswith("-recv"):
        used = events.start_ps[message] <= events.start_ps[compute].max(initial=0) + _APART_PS
    else:
        first = events.end_ps[compute].min(initial=MAX_INT64)
        used = events.end_ps[message] >= first - _APART_PS
    every, message = message, message[used]
    for some in (every, message):
        if len(some) == talks.sum():
            return some, compute[talks]
    if len(message) == len(compute):
        return message, compute
    if name.endswith("-recv") and len(message) == len(compute) - 1:
        return message, compute[1:]
    return message[:0], compute[:0]


def _meetings(
    profile: Profile, events: Events, other: Ints
) -> tuple[Ints, Ints, tuple[ProcessGroup, ...]]:
    """Equal numbers for both ends of a message and for the members of a collective, and groups.

    `other` is the chunk at the other end of a message. Of the groups of collectives the place of
    every operation's, and themselves.
    """
    message = events.is_message & (events.microbatch != UNKNOWN)
    sender = np.where(events.of_kind(TaskKind.RECV), other, events.chunk)
    stage, replica = profile.column_of_ranks("stage"), profile.column_of_ranks("replica")
    kind = np.where(message, events.phase, UNKNOWN)
    place, number = replica.copy(), np.where(message, sender, events.order)
    group, groups = unknown(len(events)), list[ProcessGroup]()
    alike = {"stage": stage, "replica": replica, "": np.zeros_like(stage)}
    for label, common, names in _MEMBERS:
        which, column = profile.named(*names), alike[common]
        kind[which] = events.name[which] + len(TaskPhase)
        place[which] = column[which]
        for value in np.unique(column[which]).tolist():
            members = which & (column == value)
            group[members] = len(groups)
            held = (profile.ranks[each].rank for each in np.unique(events.rank[members]).tolist())
            name = f"{label} {value}" if common else label
            groups.append(ProcessGroup(name=name, ranks=tuple(held)))
    microbatch = np.where(message, events.microbatch, UNKNOWN)
    joined = same(kind, events.step, place, number, microbatch)
    return np.where(kind == UNKNOWN, UNKNOWN, joined), group, tuple(groups)


def _peers(profile: Profile, events: Events) -> tuple[Ints, Ints]:
    """The chunk at the other end of a message, and the place of its rank where there is one."""
    stage, replica = profile.column_of_ranks("stage"), profile.column_of_ranks("replica")
    table = np.empty((bins(stage), bins(replica)), np.int64)
    table[stage, replica] = events.rank
    sent_forward = (events.phase == TaskPhase.FORWARD) == events.of_kind(TaskKind.SEND)
    away = np.where(sent_forward, 1, -1)
    other, last = events.chunk + away, events.chunk[events.of_kind(TaskKind.COMPUTE)].max(initial=0)
    inside = events.is_message & (other >= 0) & (other <= last)
    return other, np.where(inside, table[(stage + away) % len(table), replica], UNKNOWN)
