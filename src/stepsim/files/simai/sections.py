"""Sections of a workload text: microbatch blocks, layers, and rows run once per step."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from stepsim.base.structs import replace
from stepsim.files.simai.header import Header
from stepsim.files.simai.shares import with_shares
from stepsim.workload.axes import ParallelAxis
from stepsim.workload.rows import Group, Microbatch, Phase, Role, Row, StepItem, Work

EMBEDDING = "embedding_layer"
"""Rows whose names begin so look tokens up, and begin a block."""
_LAYER_START = "attention"
_BEFORE = re.compile(r"(moe_)?grad_\w+|layernorm|norm|embedding_grads", re.ASCII)
_LOSS = re.compile(r"cross_entropy\w*", re.ASCII)
_OPTIMIZER = re.compile(r"optimizer\w*", re.ASCII)
_HEAD = re.compile(r"final_\w*|embedding_norm|cross_entropy\w*", re.ASCII)
_GENERATED = re.compile(r"(attention|mlp|final)_\w+|embedding_norm|micro_test", re.ASCII)
_ROLES = {
    Role.NORM_GRADIENTS: r"layernorm",
    Role.EMBEDDING_GRADIENTS: r"embedding_grads",
    Role.GRADIENTS: r"grad_param_comm|grad_param|moe_grad_norm2",
    Role.SCALARS: r"optimizer\w*",
    Role.UPDATE: r"grad_param_compute",
    Role.PARAMETERS: r"grad_gather|moe_grad_norm1",
}
_PER_LAYER = re.compile(r"(moe_)?grad_\w+|layernorm", re.ASCII)
_OLD_OPTIMIZER = "grad_norm"
_OLD_ROLES = {
    Phase.WEIGHT_GRAD: Role.GRADIENTS,
    Phase.INPUT_GRAD: Role.UPDATE,
    Phase.FORWARD: Role.PARAMETERS,
}


class Sections(Struct, frozen=True, kw_only=True):
    """Rows by what they are for, see `Workload`."""

    microbatches: tuple[Microbatch, ...]
    loss: tuple[Row, ...]
    per_step: tuple[StepItem, ...]
    reading: str = ""


def is_generated(rows: Sequence[Row]) -> bool:
    """Whether rows have names of AICB's generator, or groups that SimAI's format alone has."""
    known = (_BEFORE, _LOSS, _OPTIMIZER, _GENERATED)
    groups = (Group.EP, Group.DP_EP)
    return any(
        row.lookup
        or any(pattern.fullmatch(row.name) for pattern in known)
        or any(op.group in groups for _, work in row.works() for op in work.comms)
        for row in rows
    )


def split_sections(rows: Sequence[Row], header: Header) -> Sections:
    """Sort rows into sections.

    Each `embedding_layer*` row begins a block; rows before the first one and the
    `cross_entropy*` and `optimizer*` rows at the end run once per step. Without `embedding_layer`
    rows there is one block, framed by the rows that are per-step by name. Equal blocks are
    microbatches; unequal ones are parts of ga microbatches where ga divides their number.
    """
    starts = [i for i, row in enumerate(rows) if row.name.startswith(EMBEDDING)]
    first = starts[0] if starts else _leading(rows)
    end = len(rows)
    while end > first and _is_trailing(rows[end - 1]):
        end -= 1
    bounds = [*(start for start in starts if start < end), end] if starts else [first, end]
    blocks = [rows[a:b] for a, b in pairwise(bounds) if a < b]
    if header.last_bottom_layer:
        blocks = [_overlap_first_row(block, header.last_bottom_layer) for block in blocks]
    trailing = rows[end:]
    per_step = (*rows[:first], *(row for row in trailing if not _LOSS.fullmatch(row.name)))
    parts = _microbatches(blocks)
    microbatches = tuple(_joined(parts, header.ga or 1))
    return Sections(
        microbatches=microbatches,
        loss=tuple(row for row in trailing if _LOSS.fullmatch(row.name)),
        per_step=tuple(with_shares(_step_items(per_step), microbatches)),
        reading=_reading(parts, len(microbatches), header),
    )


def _joined(parts: Sequence[Microbatch], ga: int) -> Iterator[Microbatch]:
    """Microbatches of blocks: one each, or some joined where they are unequal.

    All layers of a joined one follow its first embedding; the other embedding and head rows lie at
    its end, where multi-token prediction runs them.
    """
    count = len(parts) // ga
    unequal = len({len(part.layers) for part in parts}) > 1 and not len(parts) % ga
    if not unequal:
        yield from parts
        return
    for begin in range(0, len(parts), count):
        main, *others = parts[begin : begin + count]
        ends = (row for part in others for row in (*part.embedding, *part.head))
        yield Microbatch(
            embedding=main.embedding,
            layers=tuple(layer for part in (main, *others) for layer in part.layers),
            head=(*main.head, *ends),
        )


def _reading(parts: Sequence[Microbatch], microbatches: int, header: Header) -> str:
    """How blocks became microbatches, where header or rows leave a choice."""
    lengths = [len(part.layers) for part in parts]
    shown = ", ".join(map(str, lengths[:4])) + (", ..." if len(lengths) > 4 else "")
    ga = f"ga is {header.ga or 'missing'}"
    if microbatches < len(parts):
        each = len(parts) // microbatches
        return (
            f"{len(parts)} blocks of {shown} layers are {microbatches} microbatch(es) of "
            f"{sum(lengths[:each])} layers: {ga}, and blocks that differ are parts of one"
        )
    if len(set(lengths)) > 1:
        return (
            f"{len(parts)} blocks of {shown} layers are a microbatch each: {ga}, which does not "
            "divide them"
        )
    if header.ga not in (None, len(parts)):
        several = f"{len(parts)} equal blocks are a microbatch each"
        blocks = several if len(parts) > 1 else "the rows are one microbatch"
        return f"{blocks}, although {ga}"
    return ""


def _leading(rows: Sequence[Row]) -> int:
    """Rows at the beginning that are per-step by name."""
    count = 0
    while count < len(rows) and _BEFORE.fullmatch(rows[count].name):
        count += 1
    return count


def _is_trailing(row: Row) -> bool:
    return bool(_LOSS.fullmatch(row.name) or _OPTIMIZER.fullmatch(row.name))


def _overlap_first_row(block: Sequence[Row], last_bottom_layer: int) -> Sequence[Row]:
    """DLRM: the embedding's forward all-to-all is waited for at the end of the bottom layers."""
    return [replace(block[0], forward_lag=last_bottom_layer), *block[1:]]


def _microbatches(blocks: Sequence[Sequence[Row]]) -> list[Microbatch]:
    """The microbatch of each block; blocks of the same rows are one object."""
    known: dict[tuple[int, ...], Microbatch] = {}
    found = []
    for block in blocks:
        same = tuple(map(id, block))
        if same not in known:
            known[same] = _microbatch(block)
        found.append(known[same])
    return found


def _microbatch(block: Sequence[Row]) -> Microbatch:
    """Embedding rows, layers and head rows of one block."""
    inside = 0
    while inside < len(block) and block[inside].name.startswith(EMBEDDING):
        inside += 1
    end = len(block)
    while end > inside and _HEAD.fullmatch(block[end - 1].name):
        end -= 1
    if inside == end:  # a micro-benchmark: its embedding rows are all there is
        inside, end = 0, len(block)
    return Microbatch(
        embedding=tuple(block[:inside]),
        layers=_layers(block[inside:end]),
        head=tuple(block[end:]),
    )


def _layers(rows: Sequence[Row]) -> tuple[tuple[Row, ...], ...]:
    """Layers begin at an `attention*` row after another kind; without any, every row is one."""
    begins = [
        i
        for i, row in enumerate(rows)
        if row.name.startswith(_LAYER_START)
        and (i == 0 or not rows[i - 1].name.startswith(_LAYER_START))
    ]
    if not begins:
        return tuple((row,) for row in rows)
    bounds = [0, *begins[1:], len(rows)]
    return tuple(tuple(rows[a:b]) for a, b in pairwise(bounds))


def _step_items(rows: Iterable[Row]) -> Iterator[StepItem]:
    """What the rows of a step do, with its roles; rows of the older optimizer come last."""
    for row in sorted(rows, key=lambda row: row.name == _OLD_OPTIMIZER):
        for phase, work in row.works():
            yield StepItem(
                name=row.name,
                phase=phase,
                work=_on_dp(work) if row.name == _OLD_OPTIMIZER else work,
                role=_role(row.name, phase),
                per_layer=_PER_LAYER.fullmatch(row.name) is not None,
            )


def _role(name: str, phase: Phase) -> Role:
    """Files of older AICB write a whole optimizer as the three phases of one row."""
    if name == _OLD_OPTIMIZER:
        return _OLD_ROLES[phase]
    known = (role for role, pattern in _ROLES.items() if re.fullmatch(pattern, name))
    return next(known, Role.OTHER)


def _on_dp(work: Work) -> Work:
    """The older optimizer's collectives are data-parallel ones, whatever their column says."""
    return replace(
        work, comms=tuple(replace(c, group=Group.DP, axis=ParallelAxis.DP) for c in work.comms)
    )
