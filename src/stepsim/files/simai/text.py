"""Workload text of SimAI, AICB and ASTRA-sim 1.0.

Line 1: policy and `key: value` header. Line 2: row count. Then one row per layer: name, dependency
(ignored), and compute ns, collective, bytes for forward, input gradient and weight gradient, then
process time (used in files of ASTRA-sim 1.0 alone), then a policy where the header's is
HYBRID_CUSTOMIZED. Facts about the variants: SimAI `Workload.cc`, AICB's generator, ASTRA-sim 1.0.

A text is also held against itself: numbers that contradict each other, or can hardly be meant. What
AICB's generator writes where (`SimAI_training_workload_generator.py`): parameters are gathered
in 2 bytes and gradients reduced in 4 each; `layernorm` sums all parameters; an embedding's
weight gradient takes the time of whatever was timed last, at first half the optimizer's; the
backward collective of a column row has 0 bytes; `embedding_norm` is in every microbatch.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

from stepsim.base.axes import CollectiveKind, Group, ParallelAxis, Phase
from stepsim.base.errors import WorkloadError, bad_value
from stepsim.base.structs import Values, replace
from stepsim.base.units import MAX_INT64, PS_PER_NS, format_size_bytes, format_time_ps
from stepsim.files.reading import number_in, read_text
from stepsim.files.simai.sections import (
    CUSTOMIZED,
    EMBEDDING,
    FileRow,
    Header,
    as_astra,
    is_generated,
    parse_header,
    policy_of,
    split_sections,
    unknown_names,
    words_of_files,
)
from stepsim.workload.rows import CommOp, CommOps, Doubt, Role, Row, StepItem, Work, Workload
from stepsim.workload.scaling import is_known_time

_MAX_COMPUTE_NS = 10**13
_FIELDS = 12
_DECIMALS = re.compile(r"([0-9]+)\.([0-9]{1,3})", re.ASCII)
_OUTPUT_ROW = "attention_row"
# Line number and text.
_Line = tuple[int, str]


def read_simai_text(path: Path, *, strict: bool = False) -> Workload:
    """Workload in a SimAI / AICB / ASTRA-sim text file.

    Raises WorkloadError naming file, line, field and value. With `strict`, what would be a warning
    about the file itself (a wrong row count, unknown keys, extra fields) is an error.
    """
    header, rows, warnings = read_simai_document(path)
    is_astra = not (header.is_simai or is_generated(rows))
    if is_astra:
        rows = as_astra(rows, header)
    workload = split_sections(path, rows, header)
    if strict and (warnings or workload.reading):
        first = [*warnings, workload.reading][0]
        raise WorkloadError(f"{path}: {first} (refused by --strict)")
    told, assumed = _told_pp_comm(workload)
    degrees, said = header.degrees, header.pp_comm_bytes
    looped = (
        f"header says vpp {header.vpp}: AICB writes the layers per stage there, "
        "so it is no evidence of interleaving (--schedule interleaved:2 asks for it)"
    )
    workload = replace(
        workload,
        pp_comm_bytes=said or told,
        pp_comm_assumed="" if said else assumed,
        described=(
            ("policy", f"{header.policy}{', as ASTRA-sim 1.0 runs it' if is_astra else ''}"),
            (
                "header",
                f"tp {degrees['tp']}, ep {degrees['ep']}, pp {degrees['pp']}, vpp {header.vpp}, "
                f"ga {header.ga or 'missing'}, all_gpus {header.npus or 'missing'}",
            ),
        ),
        warnings=(*warnings, *(() if is_astra else unknown_names(rows))),
        notes=(looped,) if header.vpp > 1 else (),
    )
    return replace(workload, doubts=tuple(find_doubts(workload, told, header.ga or 1)))


def read_simai_document(path: Path) -> tuple[Header, list[FileRow], list[str]]:
    """A SimAI / AICB / ASTRA-sim text file as it is: its header, its rows, and warnings.

    Raises WorkloadError naming file, line, field and value.
    """
    expected = "a SimAI / AICB / ASTRA-sim workload"
    text = read_text(path, WorkloadError, "workload", expected)
    if "\0" in text:
        raise WorkloadError(f"{path}: not a text file: expected {expected}")
    lines = [(i, line) for i, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if not lines:
        raise WorkloadError(
            f"{path}: the file is empty: expected a policy line, a row count and rows"
        )
    header = parse_header(f"{path}:{lines[0][0]}", lines[0][1])
    if len(lines) < 2:
        raise WorkloadError(f"{path}: ends after the header: expected a row count and rows")
    number, count = lines[1]
    declared = _rounded(f"{path}:{number}", "row count", count.strip())
    rows, warnings = _read_rows(path, lines[2:], header.policy)
    warnings = [*header.warnings, *warnings]
    if declared != len(rows):
        warnings.insert(
            0, f"line 2 declares {declared} rows, the file has {len(rows)}: all are used"
        )
    return header, _with_checkpoints(path, rows, header), warnings


def _read_rows(path: Path, lines: list[_Line], policy: str) -> tuple[list[FileRow], list[str]]:
    known: dict[str, FileRow] = {}
    extra: list[str] = []
    customized = policy == CUSTOMIZED
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
        row_policy = policy_of(place, "row policy", fields[_FIELDS]) if customized else policy
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


def _row(place: str, number: int, fields: Sequence[str], policy: str) -> FileRow:
    name = fields[0]
    _rounded(place, f"dependency of {name!r}", fields[1], least=-MAX_INT64)
    process = _rounded(place, f"process time of {name!r}", fields[11])
    works: Values = {}
    ignored: list[str] = []
    unsized: CommOps = ()
    for phase, column in zip(Phase, (2, 5, 8), strict=True):
        shown, (compute, word, text) = phase.replace("_", "-"), fields[column : column + 3]
        compute_ps = _compute_ps(place, f"{shown} compute (ns) of {name!r}", compute)
        size = _rounded(place, f"{shown} bytes of {name!r}", text)
        label = f"{shown} collective of {name!r}"
        comms = _comms(place, label, word, size, policy, phase)
        if comms is None:
            ignored.append(f"{shown} collectives")
        works[phase] = Work(compute_ps=compute_ps, comms=comms or ())
        forward = works[Phase.FORWARD].comms
        if phase is Phase.INPUT_GRAD and forward and not (size or comms is None):
            unsized = _comms(place, label, word, forward[0].size_bytes, policy, phase) or ()
    return FileRow(
        name=name,
        line=number,
        process_ps=min(process, _MAX_COMPUTE_NS) * PS_PER_NS,
        lookup=name.startswith(EMBEDDING),
        unsized=unsized,
        ignored=tuple(ignored),
        **works,
    )


def _comms(
    place: str, label: str, word: str, size: int, policy: str, phase: Phase
) -> CommOps | None:
    """Collectives of one phase; None where the policy communicates nothing in it."""
    words = words_of_files()
    suffix = next((each for each in words.suffixes if word.upper().endswith(each)), "")
    base = word.upper().removesuffix(suffix)
    if base not in words.kinds:
        known = ", ".join(words.kinds)
        expected = f"one of {known}, with suffix {', '.join(words.suffixes)} or none"
        raise WorkloadError(bad_value(place, label, word, expected))
    weight = phase is Phase.WEIGHT_GRAD
    group = words.groups[policy].get("weights" if weight else "activations")
    axis = ParallelAxis.DP if weight else ParallelAxis.TP
    if suffix:
        group, axis = words.suffixes[suffix]
    kinds = words.kinds[base] if size else ()
    if group is None:
        return None if kinds else ()
    return tuple(CommOp(kind=kind, group=group, axis=axis, size_bytes=size) for kind in kinds)


def _compute_ps(place: str, field: str, text: str) -> int:
    """Picoseconds of nanoseconds, which may have three decimals."""
    found = _DECIMALS.fullmatch(text)
    if found and len(found.group(1)) <= len(str(_MAX_COMPUTE_NS)):
        whole = _rounded(place, field, found.group(1), _MAX_COMPUTE_NS)
        return whole * PS_PER_NS + int(found.group(2).ljust(3, "0"))
    return _rounded(place, field, text, _MAX_COMPUTE_NS) * PS_PER_NS


def _rounded(place: str, field: str, text: str, most: int = MAX_INT64, least: int = 0) -> int:
    return round(number_in(place, field, text, WorkloadError, least, most))


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


def _told_pp_comm(workload: Workload) -> tuple[int, str]:
    """The activation behind an output row's collective, on a rank, and what says so."""
    parts = {CollectiveKind.ALL_REDUCE: 1, CollectiveKind.REDUCE_SCATTER: workload.degrees["tp"]}
    rows = [row for layer in workload.microbatches[0].layers for row in layer]
    for row in sorted(rows, key=lambda row: not row.name.startswith(_OUTPUT_ROW)):
        for op in row.forward.comms:
            size = op.size_bytes // parts[op.kind] if op.kind in parts else 0
            if op.group is Group.TP and size:
                place = f" (line {row.line})" if isinstance(row, FileRow) else ""
                return size, (
                    f"the file gives no pp_comm: stepsim assumes {size} bytes per microbatch "
                    f"between stages, from row {row.name!r}{place}"
                )
    return 0, "the file gives no pp_comm and no row implies it: stages exchange 0 bytes"


_TOLERANCE = Fraction(1, 100)
_LIKE_OPTIMIZER = (0.4, 1.2)
_LONG_LOOKUP = 3
_TIED = "embedding_norm"

# Microbatches up to which a step is run once more to weigh a doubt: that should be quick.
_MOST_WEIGHED = 1024


def find_doubts(workload: Workload, activation_bytes: int, ga: int) -> Iterator[Doubt]:
    """Each contradiction in a workload, with the workload that would be consistent.

    `activation_bytes` is the message between stages that the rows tell, 0 where they do not; `ga`
    is the header's number of microbatches.
    """
    yield from _left_out(workload, ga)
    yield from _gathers(workload)
    yield from _all_parameters(workload)
    yield from _shared_ends(workload)
    yield from _messages(workload, activation_bytes)
    yield from _lookups(workload)
    yield from _without_bytes(workload)
    yield from _tied_embeddings(workload)
    yield from _without_compute(workload)


def _left_out(workload: Workload, ga: int) -> Iterator[Doubt]:
    """Fewer microbatches in the rows than in the header."""
    found = len(workload.microbatches)
    if found < ga and not ga % found:
        yield Doubt(
            text=f"the header says ga {ga}, the rows hold {found} microbatch{'es' * (found > 1)}",
            instead=f"{ga} microbatches",
            mended=(
                replace(workload, microbatches=workload.microbatches * (ga // found))
                if ga <= _MOST_WEIGHED
                else None
            ),
            remedy=f"--microbatches {ga}",
        )


def _gathers(workload: Workload) -> Iterator[Doubt]:
    """Parameters gathered against gradients reduced, in each group: half as many bytes."""
    for group in (Group.DP, Group.DP_EP):
        reduced, adds = _moved(workload, Role.GRADIENTS, CollectiveKind.REDUCE_SCATTER, group)
        gathered, joins = _moved(workload, Role.PARAMETERS, CollectiveKind.ALL_GATHER, group)
        if not (reduced and gathered) or abs(Fraction(2 * gathered, reduced) - 1) <= _TOLERANCE:
            continue
        yield Doubt(
            text=f"{joins} gathers {format_size_bytes(gathered)}, "
            f"{_ratio(2 * gathered, reduced)} of half of what {adds} reduces "
            f"({format_size_bytes(reduced)}, in 4 bytes each)",
            instead="as many parameters gathered in 2 bytes each",
            mended=_with_items(workload, Role.PARAMETERS, group, Fraction(reduced, 2 * gathered)),
        )


def _all_parameters(workload: Workload) -> Iterator[Doubt]:
    """Norm gradients as large as those of all parameters."""
    summed, adds = _moved(workload, Role.NORM_GRADIENTS, CollectiveKind.ALL_REDUCE, Group.TP)
    reduced, _ = _moved(workload, Role.GRADIENTS, CollectiveKind.REDUCE_SCATTER, Group.DP)
    if reduced and 10 * summed > reduced:
        yield Doubt(
            text=f"{adds} sums {format_size_bytes(summed)}, as if all parameters were norms",
            instead="norms alone, whose gradients tensor-parallel ranks have in common,",
            mended=_with_items(workload, Role.NORM_GRADIENTS, Group.TP, Fraction(0)),
        )


def _shared_ends(workload: Workload) -> Iterator[Doubt]:
    """Embedding and head counted on every stage."""
    shares = [item.embedding_share + item.head_share for item in workload.per_step]
    if workload.degrees["pp"] > 1 and any(shares):
        bare = (
            replace(item, embedding_share=Fraction(0), head_share=Fraction(0))
            for item in workload.per_step
        )
        yield Doubt(
            text="gradients and parameters of every stage include embedding and head "
            f"({float(max(shares)):.1%} by weight-gradient compute): stepsim leaves these out of "
            "stages that have neither",
            instead="all of them on every stage, as written,",
            mended=replace(workload, per_step=tuple(bare)),
        )


def _messages(workload: Workload, activation_bytes: int) -> Iterator[Doubt]:
    """The header's pp_comm against the activation behind an output row."""
    said = workload.pp_comm_bytes
    if workload.degrees["pp"] == 1 or workload.pp_comm_assumed or not (said and activation_bytes):
        return
    if abs(Fraction(said, activation_bytes) - 1) > _TOLERANCE:
        yield Doubt(
            text=f"pp_comm is {format_size_bytes(said)}, {_ratio(said, activation_bytes)} of the "
            f"activation of a row on one rank ({format_size_bytes(activation_bytes)})",
            instead="the activation of the rows between stages",
            mended=replace(workload, pp_comm_bytes=activation_bytes),
        )


def _lookups(workload: Workload) -> Iterator[Doubt]:
    """Weight gradients of embeddings that are another row's, and forwards that no lookup takes."""
    block = workload.microbatches[0]
    if not block.embedding:
        return
    row = block.embedding[0]
    update = sum(item.work.compute_ps for item in workload.per_step if item.role is Role.UPDATE)
    low, high = (update * share for share in _LIKE_OPTIMIZER)
    weight_ps, forward_ps = row.weight_grad.compute_ps, row.forward.compute_ps
    if is_known_time(weight_ps) and low <= weight_ps <= high:
        yield Doubt(
            text=f"the weight gradient of {row.name} takes {format_time_ps(weight_ps)}, about as "
            f"long as the optimizer ({format_time_ps(update)}): AICB writes such files",
            instead="one no longer than its forward",
            mended=workload.with_rows(
                lambda row: _shortened(row, Phase.WEIGHT_GRAD, row.forward.compute_ps)
            ),
        )
    longest = max(row.forward.compute_ps for layer in block.layers for row in layer)
    if is_known_time(longest) and forward_ps > _LONG_LOOKUP * longest:
        yield Doubt(
            text=f"the forward of {row.name} takes {format_time_ps(forward_ps)}, "
            f"{forward_ps / longest:.0f} times the longest row of a layer",
            instead="one as long as that row",
            mended=workload.with_rows(lambda row: _shortened(row, Phase.FORWARD, longest)),
        )


def _shortened(row: Row, phase: Phase, most_ps: int) -> Row:
    """The row, with at most so long a phase where it looks tokens up."""
    work: Work = getattr(row, phase)
    if not row.lookup or work.compute_ps <= most_ps:
        return row
    return replace(row, **{phase: replace(work, compute_ps=most_ps)})


def _without_bytes(workload: Workload) -> Iterator[Doubt]:
    """Input-gradient collectives that are named and have no bytes, beside forward ones that do."""
    rows = [row for block in workload.microbatches for row in block.rows() if row.unsized]
    if not rows:
        return
    kinds = {str(op.kind).replace("_", "-") for row in rows for op in row.unsized}
    names = ", ".join(sorted({row.name for row in rows}))
    yield Doubt(
        text=f"{' or '.join(sorted(kinds))} of 0 bytes in the input gradient of {len(rows)} "
        f"row{'s' * (len(rows) > 1)} ({names})",
        instead="the bytes of their forwards",
        mended=workload.with_rows(_sized),
    )


def _sized(row: Row) -> Row:
    if not row.unsized:
        return row
    return replace(row, input_grad=replace(row.input_grad, comms=row.unsized))


def _tied_embeddings(workload: Workload) -> Iterator[Doubt]:
    """The all-reduce of a whole embedding in every forward; training sums it once per step."""
    tied = [row for block in workload.microbatches for row in block.head if row.name == _TIED]
    size = sum(op.size_bytes for row in tied[:1] for op in row.forward.comms)
    if size:
        yield Doubt(
            text=f"{_TIED} all-reduces the whole embedding ({format_size_bytes(size)}) in the "
            "forward of every microbatch",
            instead="none",
            mended=workload.with_rows(_untied),
        )


def _untied(row: Row) -> Row:
    return replace(row, forward=replace(row.forward, comms=())) if row.name == _TIED else row


def _without_compute(workload: Workload) -> Iterator[Doubt]:
    """Rows of layers that take no time, and phases that no row of a layer has, beside others."""
    rows = [row for block in workload.microbatches for layer in block.layers for row in layer]
    times = [[work.compute_ps for _, work in row.works()] for row in rows]
    measured = [any(map(is_known_time, each)) for each in times]
    if not any(measured):
        return
    bare = [row.name for row, each in zip(rows, times, strict=True) if not any(each)]
    if bare:
        names = ", ".join(dict.fromkeys(bare))
        yield Doubt(text=f"{len(bare)} of {len(rows)} rows have no compute time: {names}")
    piped = any(not row.lookup for row in rows)
    if piped and not any(is_known_time(t) for each in times for t in each[1:]):
        yield Doubt(text="no row of a layer has a backward: a forward alone is simulated")


def _moved(workload: Workload, role: Role, kind: CollectiveKind, group: Group) -> tuple[int, str]:
    """Bytes of a role's collectives of a kind in a group, and what communicates in it."""
    found = [
        (item.name, op)
        for item in workload.per_step
        if item.role is role
        for op in item.work.comms
        if op.group is group
    ]
    size = sum(op.size_bytes for _, op in found if op.kind is kind)
    return size, ", ".join(dict.fromkeys(name for name, _ in found))


def _ratio(size: int, other: int) -> str:
    """A ratio as people say it, e.g. 1/64 or 128 times."""
    if size >= other:
        return f"{size / other:.4g} times"
    return f"1/{other / size:.4g}"


def _with_items(workload: Workload, role: Role, group: Group, factor: Fraction) -> Workload:
    """The workload with the sizes of a role's collectives in a group times a factor."""

    def changed(item: StepItem) -> StepItem:
        if item.role is not role:
            return item
        comms = (
            replace(op, size_bytes=round(op.size_bytes * factor)) if op.group is group else op
            for op in item.work.comms
        )
        kept = tuple(op for op in comms if op.size_bytes)
        return replace(item, work=Work(compute_ps=item.work.compute_ps, comms=kept))

    return replace(workload, per_step=tuple(map(changed, workload.per_step)))
