"""Workload text of SimAI, AICB and ASTRA-sim 1.0.

Line 1: policy and `key: value` header. Line 2: row count. Then one row per layer: name, dependency
(ignored), and compute ns, collective, bytes for forward, input gradient and weight gradient, then
process time (used in files of ASTRA-sim 1.0 alone), then a policy where the header's is
HYBRID_CUSTOMIZED. Facts about the variants: SimAI `Workload.cc`, AICB's generator, ASTRA-sim 1.0.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from stepsim.base.errors import WorkloadError, bad_value, one_line
from stepsim.base.structs import replace
from stepsim.base.units import MAX_INT64, PS_PER_NS, plain_number
from stepsim.files.reading import read_text
from stepsim.files.simai.astra import as_astra
from stepsim.files.simai.checks import find_doubts
from stepsim.files.simai.header import Header, Policy, parse_header
from stepsim.files.simai.names import unknown_names
from stepsim.files.simai.sections import EMBEDDING, Sections, is_generated, split_sections
from stepsim.workload.axes import ParallelAxis
from stepsim.workload.rows import (
    CollectiveKind,
    CommOp,
    Group,
    MadeFor,
    Phase,
    Row,
    Work,
    Workload,
)

_MAX_COMPUTE_NS = 10**13
_FIELDS = 12
_DECIMALS = re.compile(r"([0-9]+)\.([0-9]{1,3})", re.ASCII)
_OUTPUT_ROW = "attention_row"
_COLLECTIVES: dict[str, tuple[CollectiveKind, ...]] = {
    "NONE": (),
    "ALLREDUCE": (CollectiveKind.ALL_REDUCE,),
    "ALLGATHER": (CollectiveKind.ALL_GATHER,),
    "REDUCESCATTER": (CollectiveKind.REDUCE_SCATTER,),
    "ALLTOALL": (CollectiveKind.ALL_TO_ALL,),
    "BROADCAST": (CollectiveKind.BROADCAST,),
    "ALLREDUCEALLTOALL": (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL),
}
_SUFFIXES = {
    "_DP_EP": (Group.DP_EP, ParallelAxis.DP),
    "_EP": (Group.EP, ParallelAxis.EP),
    "_TP": (Group.TP, ParallelAxis.TP),
    "_DP": (Group.DP, ParallelAxis.DP),
}
_MODEL_PARALLEL: dict[Policy, Group | None] = {
    Policy.HYBRID_TRANSFORMER: Group.TP,
    Policy.HYBRID_TRANSFORMER_FWD_IN_BCKWD: Group.TP,
    Policy.DATA: None,
    Policy.MICRO: Group.STAGE,
    Policy.MODEL: Group.STAGE,
    Policy.DISTRIBUTED_INFERENCE: Group.STAGE,
    Policy.HYBRID_DATA_MODEL: Group.INNER,
    Policy.HYBRID_MODEL_DATA: Group.OUTER,
    Policy.HYBRID_DLRM: Group.STAGE,
    Policy.HYBRID_DLRM_ENHANCED: Group.STAGE,
}
_DATA_PARALLEL: dict[Policy, Group | None] = {
    Policy.HYBRID_TRANSFORMER: Group.DP,
    Policy.HYBRID_TRANSFORMER_FWD_IN_BCKWD: Group.DP,
    Policy.DATA: Group.STAGE,
    Policy.MICRO: Group.STAGE,
    Policy.MODEL: None,
    Policy.DISTRIBUTED_INFERENCE: None,
    Policy.HYBRID_DATA_MODEL: Group.OUTER,
    Policy.HYBRID_MODEL_DATA: Group.INNER,
    Policy.HYBRID_DLRM: Group.STAGE,
    Policy.HYBRID_DLRM_ENHANCED: Group.STAGE,
}


_Line = tuple[int, str]
"""Line number and text."""


class FileRow(Row, frozen=True, kw_only=True):
    """A row, the line of the file that it is first in, and its process time.

    `ignored` are collectives that the policy has no group for. Lines of one text are one row.
    """

    line: int
    process_ps: int = 0
    ignored: tuple[str, ...] = ()


class SimaiDocument(Struct, frozen=True, kw_only=True):
    """A file as it is: its header, how many rows it declares (perhaps wrongly), and its rows."""

    source: str
    header: Header
    declared_rows: int
    rows: tuple[FileRow, ...]
    warnings: tuple[str, ...]


def read_simai_text(path: Path, *, strict: bool = False) -> Workload:
    """Workload in a SimAI / AICB / ASTRA-sim text file.

    Raises WorkloadError naming file, line, field and value. With `strict`, what would be a warning
    about the file itself (a wrong row count, unknown keys, extra fields) is an error.
    """
    document = read_simai_document(path)
    header = document.header
    rows: Sequence[Row] = document.rows
    is_astra = not (header.is_simai or is_generated(rows))
    if is_astra:
        rows = as_astra(rows, [row.process_ps for row in document.rows], header)
    sections = split_sections(rows, header)
    if not sections.microbatches:
        raise WorkloadError(f"{path}: no row belongs to a layer: all rows are per-step rows")
    if strict and (document.warnings or sections.reading):
        first = [*document.warnings, sections.reading][0]
        raise WorkloadError(f"{path}: {first} (refused by --strict)")
    told, where = _told_pp_comm(header, sections)
    size, assumed = _pp_comm(header, told, where)
    workload = Workload(
        source=document.source,
        made_for=MadeFor(tp=header.tp, ep=header.ep, pp=header.pp, npus=header.npus),
        microbatches=sections.microbatches,
        loss=sections.loss,
        per_step=sections.per_step,
        pp_comm_bytes=size,
        pp_comm_assumed=assumed,
        reading=sections.reading,
        described=tuple(_described(header, is_astra=is_astra)),
        warnings=(*document.warnings, *(() if is_astra else unknown_names(rows))),
        notes=tuple(_vpp_note(header)),
    )
    return replace(workload, doubts=tuple(find_doubts(workload, told, header.ga or 1)))


def read_simai_document(path: Path) -> SimaiDocument:
    """A SimAI / AICB / ASTRA-sim text file as it is.

    Raises WorkloadError naming file, line, field and value.
    """
    lines = _read_lines(path)
    header = parse_header(f"{path}:{lines[0][0]}", lines[0][1])
    declared = _declared_rows(path, lines[1:2])
    rows, warnings = _read_rows(path, lines[2:], header.policy)
    warnings = [*header.warnings, *warnings]
    if declared != len(rows):
        warnings.insert(
            0, f"line 2 declares {declared} rows, the file has {len(rows)}: all are used"
        )
    return SimaiDocument(
        source=one_line(path.name),
        header=header,
        declared_rows=declared,
        rows=tuple(_with_checkpoints(path, rows, header)),
        warnings=tuple(warnings),
    )


def _read_lines(path: Path) -> list[_Line]:
    expected = "a SimAI / AICB / ASTRA-sim workload"
    text = read_text(path, WorkloadError, "workload", expected, encoding="utf-8-sig")
    if "\0" in text:
        raise WorkloadError(f"{path}: not a text file: expected {expected}")
    lines = [(i, line) for i, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if not lines:
        raise WorkloadError(
            f"{path}: the file is empty: expected a policy line, a row count and rows"
        )
    return lines


def _declared_rows(path: Path, lines: list[_Line]) -> int:
    if not lines:
        raise WorkloadError(f"{path}: ends after the header: expected a row count and rows")
    number, text = lines[0]
    return _integer(f"{path}:{number}", "row count", text.strip(), MAX_INT64)


def _read_rows(path: Path, lines: list[_Line], policy: Policy) -> tuple[list[FileRow], list[str]]:
    known: dict[str, FileRow] = {}
    extra: list[str] = []
    customized = policy is Policy.HYBRID_CUSTOMIZED
    expected = _FIELDS + customized
    if not lines:
        raise WorkloadError(f"{path}: has a header but no rows: nothing to simulate")
    for number, text in lines:
        if text in known:
            continue
        fields = text.split()
        place = f"{path}:{number}"
        if len(fields) < expected:
            raise WorkloadError(
                f"{place}: row {fields[0][:40]!r} has {len(fields)} fields: "
                f"expected {expected} (is the line truncated?)"
            )
        if len(fields) > expected:
            extra.append(text)
        row_policy = _row_policy(place, fields[_FIELDS]) if customized else policy
        known[text] = _row(place, number, fields, row_policy)
    rows = [known[text] for _, text in lines]
    ignored = Counter(what for row in rows for what in row.ignored)
    warnings = [
        f"{count} {what} ignored: the policy has no group for them"
        for what, count in ignored.items()
    ]
    if extra:
        wide = set(extra)
        several = sum(text in wide for _, text in lines)
        warnings.append(
            f"{several} rows have more than {expected} fields (first: line "
            f"{known[extra[0]].line}): the rest is ignored"
        )
    return rows, warnings


def _row_policy(place: str, word: str) -> Policy:
    expected = f"one of {', '.join(_MODEL_PARALLEL)}"
    try:
        policy = Policy(word.upper())
    except ValueError:
        raise WorkloadError(bad_value(place, "row policy", word, expected)) from None
    if policy is Policy.HYBRID_CUSTOMIZED:
        raise WorkloadError(bad_value(place, "row policy", word, expected))
    return policy


def _row(place: str, number: int, fields: Sequence[str], policy: Policy) -> FileRow:
    name = fields[0]
    _integer(place, f"dependency of {name!r}", fields[1], MAX_INT64, least=-MAX_INT64)
    process = _integer(place, f"process time of {name!r}", fields[11], MAX_INT64)
    works: list[Work] = []
    ignored: list[str] = []
    unsized: tuple[CommOp, ...] = ()
    for phase, column in ((Phase.FORWARD, 2), (Phase.INPUT_GRAD, 5), (Phase.WEIGHT_GRAD, 8)):
        shown = phase.replace("_", "-")
        compute_ps = _compute_ps(place, f"{shown} compute (ns) of {name!r}", fields[column])
        size = _integer(place, f"{shown} bytes of {name!r}", fields[column + 2], MAX_INT64)
        label = f"{shown} collective of {name!r}"
        comms = _comms(place, label, fields[column + 1], size, policy, phase)
        if comms is None:
            ignored.append(f"{shown} collectives")
        works.append(Work(compute_ps=compute_ps, comms=comms or ()))
        if phase is Phase.INPUT_GRAD and works[0].comms and not (size or comms is None):
            full = works[0].comms[0].size_bytes
            unsized = _comms(place, label, fields[column + 1], full, policy, phase) or ()
    return FileRow(
        name=name,
        line=number,
        process_ps=min(process, _MAX_COMPUTE_NS) * PS_PER_NS,
        forward=works[0],
        input_grad=works[1],
        weight_grad=works[2],
        lookup=name.startswith(EMBEDDING),
        unsized=unsized,
        ignored=tuple(ignored),
    )


def _comms(
    place: str, label: str, word: str, size: int, policy: Policy, phase: Phase
) -> tuple[CommOp, ...] | None:
    """Collectives of one phase; None where the policy communicates nothing in it."""
    base, suffix = word.upper(), ""
    for candidate in _SUFFIXES:
        if base.endswith(candidate):
            base, suffix = base.removesuffix(candidate), candidate
            break
    if base not in _COLLECTIVES:
        expected = f"one of {', '.join(_COLLECTIVES)}, with suffix {', '.join(_SUFFIXES)} or none"
        raise WorkloadError(bad_value(place, label, word, expected))
    weight = phase is Phase.WEIGHT_GRAD
    group = (_DATA_PARALLEL if weight else _MODEL_PARALLEL)[policy]
    axis = ParallelAxis.DP if weight else ParallelAxis.TP
    if suffix:
        group, axis = _SUFFIXES[suffix]
    if group is None:
        return None if _COLLECTIVES[base] and size else ()
    kinds = _COLLECTIVES[base] if size else ()
    return tuple(CommOp(kind=kind, group=group, axis=axis, size_bytes=size) for kind in kinds)


def _compute_ps(place: str, field: str, text: str) -> int:
    """Picoseconds of nanoseconds, which may have three decimals."""
    found = _DECIMALS.fullmatch(text)
    if found and len(found.group(1)) <= len(str(_MAX_COMPUTE_NS)):
        whole = _integer(place, field, found.group(1), _MAX_COMPUTE_NS)
        return whole * PS_PER_NS + int(found.group(2).ljust(3, "0"))
    return _integer(place, field, text, _MAX_COMPUTE_NS) * PS_PER_NS


def _integer(place: str, field: str, text: str, most: int, *, least: int = 0) -> int:
    """Integer from `least` to `most`; floats such as `4194304.0` are rounded."""
    try:
        value = plain_number(text)
        if least <= value <= most:
            return round(value)
    except ValueError:
        pass
    raise WorkloadError(bad_value(place, field, text, f"a number from {least} to {most}"))


def _with_checkpoints(path: Path, rows: list[FileRow], header: Header) -> list[FileRow]:
    """Mark the rows that the header's ids (0-based row numbers) name."""
    for key in ("checkpoints", "checkpoint_initiates"):
        beyond = [i for i in getattr(header, key) if i >= len(rows)]
        if beyond:
            expected = f"a row number from 0 to {len(rows) - 1}"
            raise WorkloadError(bad_value(f"{path}: header", f"{key} id", beyond[0], expected))
    kept, initiating = set(header.checkpoints), set(header.checkpoint_initiates)
    return [
        replace(row, checkpoint=i in kept, recompute=i in initiating)
        if i in kept | initiating
        else row
        for i, row in enumerate(rows)
    ]


def _vpp_note(header: Header) -> Iterator[str]:
    if header.vpp > 1:
        yield (
            f"header says vpp {header.vpp}: AICB writes the layers per stage there, "
            "so it is no evidence of interleaving (--schedule interleaved:2 asks for it)"
        )


def _described(header: Header, *, is_astra: bool) -> Iterator[tuple[str, str]]:
    """What the header says, for people."""
    yield "policy", f"{header.policy}, as ASTRA-sim 1.0 runs it" if is_astra else str(header.policy)
    yield (
        "header",
        f"tp {header.tp}, ep {header.ep}, pp {header.pp}, vpp {header.vpp}, "
        f"ga {header.ga or 'missing'}, all_gpus {header.npus or 'missing'}",
    )


def _told_pp_comm(header: Header, sections: Sections) -> tuple[int, str]:
    """The activation behind an output row's collective, on a rank, and which row that is."""
    rows = [row for layer in sections.microbatches[0].layers for row in layer]
    preferred = [row for row in rows if row.name.startswith(_OUTPUT_ROW)]
    for row in (*preferred, *rows):
        size = _activation_bytes(row.forward.comms, header.tp)
        if size:
            place = f" (line {row.line})" if isinstance(row, FileRow) else ""
            return size, f"{row.name!r}{place}"
    return 0, ""


def _pp_comm(header: Header, told: int, where: str) -> tuple[int, str]:
    """Bytes a rank sends to the next stage per microbatch, and what was assumed about them."""
    if header.pp_comm_bytes is not None:
        return header.pp_comm_bytes, ""
    if not told:
        return 0, "the file gives no pp_comm and no row implies it: stages exchange 0 bytes"
    return told, (
        f"the file gives no pp_comm: stepsim assumes {told} bytes per microbatch between stages, "
        f"from row {where}"
    )


def _activation_bytes(comms: Iterable[CommOp], tp: int) -> int:
    """Activation of a rank behind an output row's collective, 0 if it has none."""
    for comm in comms:
        if comm.group is Group.TP and comm.kind is CollectiveKind.REDUCE_SCATTER:
            return comm.size_bytes // tp
        if comm.group is Group.TP and comm.kind is CollectiveKind.ALL_REDUCE:
            return comm.size_bytes
    return 0
