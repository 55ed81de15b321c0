"""The header and the rows of a workload text: which microbatch, layer and part each row is of.

Line 1 is a policy, then keys in any order, with or without colons. What a row is for follows from
its name alone; `docs/formats.md` lists the names, and AICB's generator writes them. An unknown name
at the ends of a block is taken as a part of a layer.

Which part of a stage's gradients and parameters belongs to embedding and head: AICB's generator
(`SimAI_training_workload_generator.py`, `_get_total_params`) sums the parameters of a whole file,
which are layers of one stage, embedding and head. No stage between the ends has the last two.

Files of ASTRA-sim 1.0 mean something else in places. Source: ASTRA-sim 1.0, `Workload.cc`
(`iterate_*`, one loop for each policy) and `Layer.cc`.

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

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

from msgspec import field

from stepsim.base.axes import CollectiveKind, Group, ParallelAxis, Phase, degrees_of
from stepsim.base.errors import WorkloadError, bad_value, one_line
from stepsim.base.structs import Names, Noun, Numbers, Values, replace, shipped
from stepsim.base.units import MAX_INT64
from stepsim.files.reading import whole_number
from stepsim.workload.rows import Microbatch, Role, Row, Rows, StepItem, Work, Workload
from stepsim.workload.scaling import is_known_time

_LISTS = ("checkpoints", "checkpoint_initiates")
_OF_ASTRA = {"tp", "last_bottom_layer", *_LISTS}
_MAX_DEGREE = 1 << 24
_DLRM = ("HYBRID_DLRM", "HYBRID_DLRM_ENHANCED")


CUSTOMIZED = "HYBRID_CUSTOMIZED"
"""The policy of a file whose rows have one each."""


class FormatWords(Noun):
    """What rows and policies say of collectives, as `collectives.toml` has it.

    `groups` are those that each phase communicates in, by policy.
    """

    kinds: dict[str, tuple[CollectiveKind, ...]]
    suffixes: dict[str, tuple[Group, ParallelAxis]]
    groups: dict[str, dict[str, Group]]


def words_of_files() -> FormatWords:
    """Words of workload texts."""
    return shipped(__file__, "collectives.toml", FormatWords)


def policy_of(place: str, field: str, word: str, *others: str) -> str:
    """The parallelism policy that a word names, `others` beside those with groups.

    Raises WorkloadError naming place, field and word.
    """
    known = [*words_of_files().groups, *others]
    if word.upper() not in known:
        raise WorkloadError(bad_value(place, field, word, f"one of {', '.join(known)}"))
    return word.upper()


class Header(Noun):
    """What the first line says. A missing key is None where 1 would not mean the same.

    `checkpoints` and `checkpoint_initiates` count rows from 0. `is_simai`: it has keys that
    ASTRA-sim 1.0 does not know.
    """

    policy: str
    degrees: Mapping[str, int] = field(default_factory=degrees_of)
    vpp: int = 1
    ga: int | None = None
    npus: int | None = None
    pp_comm_bytes: int | None = None
    last_bottom_layer: int | None = None
    checkpoints: Numbers = ()
    checkpoint_initiates: Numbers = ()
    is_simai: bool = False
    warnings: Names = ()


class FileRow(Row):
    """A row, the line of the file that it is first in, and its process time.

    `ignored` are collectives that the policy has no group for. Lines of one text are one row.
    """

    line: int
    process_ps: int = 0
    ignored: Names = ()


def parse_header(place: str, line: str) -> Header:
    """Parse a header line; `place` is `FILE:LINE` for messages.

    Missing or zero degrees mean 1, a missing or zero pp_comm means that none is known. Raises
    WorkloadError naming place, key and value.
    """
    words = line.split()
    policy = policy_of(place, "policy", words[0].rstrip(":"), CUSTOMIZED)
    values, unknown = _collect(place, policy, words[1:])
    said = {key: value for key, value in values.items() if value and key != "mode"}
    degrees = {key: said.pop(key) for key in ("tp", "ep", "pp") if key in said}
    return Header(
        policy=policy,
        degrees=degrees_of(**degrees),
        is_simai=bool(values.keys() - _OF_ASTRA),
        warnings=(f"header: unknown keys ignored: {' '.join(unknown)}",) if unknown else (),
        **said,
    )


def _collect(place: str, policy: str, words: list[str]) -> tuple[Values, list[str]]:
    """Numbers and lists of ids by their keys, and the words that mean nothing to stepsim."""

    def number(field: str, most: int = _MAX_DEGREE) -> int:
        return whole_number(place, field, next(queue, ""), WorkloadError, 0, most)

    values: Values = {}
    unknown: list[str] = []
    if words and words[0].isdecimal() and policy in _DLRM:
        words = ["dlrm_last_bottom_layer", *words]
    known = shipped(__file__, "header.toml", dict[str, str])
    queue = iter(words)
    for word in queue:
        key = word.rstrip(":").lower()
        if key in _LISTS:
            values[key] = tuple(number(f"{key} id") for _ in range(number(key)))
        elif key not in known:
            unknown.append(word)
        elif known[key] in values:
            raise WorkloadError(f"{place}: {key} is given twice: expected once")
        else:
            most = MAX_INT64 if key == "pp_comm" else _MAX_DEGREE
            values[known[key]] = number(key, most)
    return values, unknown


EMBEDDING = "embedding_layer"
"""Rows whose names begin so look tokens up, and begin a block."""
_LAYER_START = "attention"
_OLD_OPTIMIZER = "grad_norm"
_OLD_ROLES = {
    Phase.WEIGHT_GRAD: Role.GRADIENTS,
    Phase.INPUT_GRAD: Role.UPDATE,
    Phase.FORWARD: Role.PARAMETERS,
}


def _is(name: str, *kinds: str) -> bool:
    """Whether a row's name is one of some kinds in `names.toml`."""
    patterns = shipped(__file__, "names.toml", dict[str, str])
    return any(re.fullmatch(patterns.get(kind, ""), name, re.ASCII) for kind in kinds)


def is_generated(rows: Sequence[Row]) -> bool:
    """Whether rows have names of AICB's generator, or groups that SimAI's format alone has."""
    groups = (Group.EP, Group.DP_EP)
    return any(
        row.lookup
        or _is(row.name, "before", "loss", "optimizer", "generated")
        or any(op.group in groups for _, work in row.works() for op in work.comms)
        for row in rows
    )


def split_sections(path: Path, rows: Sequence[Row], header: Header) -> Workload:
    """The workload of rows, sorted into sections; raises WorkloadError where none is of a layer.

    Each `embedding_layer*` row begins a block; rows before the first one and the
    `cross_entropy*` and `optimizer*` rows at the end run once per step. Without `embedding_layer`
    rows there is one block, framed by the rows that are per-step by name. Equal blocks are
    microbatches, those of the same rows one object; unequal ones are parts of ga microbatches where
    ga divides their number.
    """
    starts = [i for i, row in enumerate(rows) if row.name.startswith(EMBEDDING)]
    others = (i for i, row in enumerate(rows) if not _is(row.name, "before"))
    starts = starts or [next(others, len(rows))]
    end = len(rows)
    while end > starts[0] and _is(rows[end - 1].name, "loss", "optimizer"):
        end -= 1
    bounds = [*(start for start in starts if start < end), end]
    blocks = [rows[a:b] for a, b in pairwise(bounds)]
    if header.last_bottom_layer:
        blocks = [
            [replace(block[0], forward_lag=header.last_bottom_layer), *block[1:]]
            for block in blocks
        ]
    trailing = rows[end:]
    per_step = (*rows[: starts[0]], *(row for row in trailing if not _is(row.name, "loss")))
    distinct = {tuple(map(id, block)): block for block in blocks}
    known = {same: _microbatch(block) for same, block in distinct.items()}
    parts = [known[tuple(map(id, block))] for block in blocks]
    microbatches = tuple(_joined(parts, header.ga or 1))
    if not microbatches:
        raise WorkloadError(f"{path}: no row belongs to a layer: all rows are per-step rows")
    return Workload(
        source=one_line(path.name),
        degrees=header.degrees,
        npus=header.npus,
        microbatches=microbatches,
        loss=tuple(row for row in trailing if _is(row.name, "loss")),
        per_step=tuple(_step_items(per_step, microbatches[0])),
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
        read = f"{microbatches} microbatch{'es' * (microbatches > 1)}"
        return (
            f"the {len(parts)} blocks of the file ({shown} layers) are read as {read} of "
            f"{sum(lengths[:each])} layers, since {ga} and the blocks differ"
        )
    if len(set(lengths)) > 1:
        return (
            f"the {len(parts)} blocks of the file ({shown} layers) are read as a microbatch each, "
            f"since {ga}, which does not divide them"
        )
    if header.ga not in (None, len(parts)):
        several = f"{len(parts)} equal blocks are a microbatch each"
        blocks = several if len(parts) > 1 else "the rows are one microbatch"
        return f"{blocks}, although {ga}"
    return ""


def _microbatch(block: Sequence[Row]) -> Microbatch:
    """Embedding rows, layers and head rows of one block."""
    inside = 0
    while inside < len(block) and block[inside].name.startswith(EMBEDDING):
        inside += 1
    end = len(block)
    while end > inside and _is(block[end - 1].name, "head"):
        end -= 1
    if inside == end:  # a micro-benchmark: its embedding rows are all there is
        inside, end = 0, len(block)
    return Microbatch(
        embedding=tuple(block[:inside]),
        layers=_layers(block[inside:end]),
        head=tuple(block[end:]),
    )


def _layers(rows: Sequence[Row]) -> tuple[Rows, ...]:
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


def _step_items(rows: Iterable[Row], block: Microbatch) -> Iterator[StepItem]:
    """What the rows of a step do, with its roles; rows of the older optimizer come last.

    Files of older AICB write a whole optimizer as the three phases of one row, whose collectives
    are data-parallel ones, whatever their column says. What reduces or gathers dense parameters has
    the shares of embedding and head in them; expert gradients are in items of their own.
    """
    share, none = _head_share(block), Fraction(0)
    for row in sorted(rows, key=lambda row: row.name == _OLD_OPTIMIZER):
        for phase, work in row.works():
            comms, role = (
                work.comms,
                next((each for each in Role if _is(row.name, each)), Role.OTHER),
            )
            if row.name == _OLD_OPTIMIZER:
                comms = tuple(replace(op, group=Group.DP, axis=ParallelAxis.DP) for op in comms)
                role = _OLD_ROLES[phase]
            dense = all(op.group is Group.DP for op in comms)
            head = share if dense and role in (Role.GRADIENTS, Role.PARAMETERS) else none
            yield StepItem(
                name=row.name,
                phase=phase,
                work=replace(work, comms=comms),
                role=role,
                per_layer=_is(row.name, "per_layer"),
                head_share=head,
                embedding_share=head if block.embedding else none,
            )


_EXPERTS = ("moe", "expert")


def _head_share(block: Microbatch) -> Fraction:
    """The head's share of the parameters of a block without its experts.

    A row's share of the parameters is its share of the weight-gradient compute, for both grow with
    it; an embedding has as many as a head row.
    """
    layers = _weights_ps(
        row
        for layer in block.layers
        for row in layer
        if not any(word in row.name for word in _EXPERTS)
    )
    heads = _weights_ps(row for row in block.head if not row.lookup)
    ends = 2 * heads if block.embedding else heads
    return Fraction(heads, layers + ends) if layers else Fraction(0)


def _weights_ps(rows: Iterable[Row]) -> int:
    """Weight-gradient compute of rows, without what was not measured."""
    return sum(filter(is_known_time, (row.weight_grad.compute_ps for row in rows)))


_FIRST_ROW_KEEPS_GRADIENT = ("MODEL", "HYBRID_DATA_MODEL", "HYBRID_MODEL_DATA", CUSTOMIZED)


def as_astra(rows: Sequence[FileRow], header: Header) -> list[FileRow]:
    """Rows of ASTRA-sim 1.0 as those of a workload."""
    last = next((i for i, row in enumerate(rows) if row.weight_grad.comms), None)
    found = [_timed(row, counts=i == last) for i, row in enumerate(rows)]
    if header.policy in ("DATA", *_DLRM):
        return _weight_first(found, header)
    if header.policy in _FIRST_ROW_KEEPS_GRADIENT and found:
        found[0] = replace(found[0], input_grad=Work(compute_ps=found[0].input_grad.compute_ps))
    if header.policy == "DISTRIBUTED_INFERENCE":
        return [replace(row, input_grad=Work(), weight_grad=Work()) for row in found]
    return found


def _timed(row: FileRow, *, counts: bool) -> FileRow:
    """The row with its process time after its collectives, and shares where they are meant.

    After weight gradients it passes where it `counts`.
    """
    works: dict[str, Work] = {}
    for phase, work in row.works():
        after = row.process_ps if counts or phase is not Phase.WEIGHT_GRAD else 0
        comms = (
            replace(op, of_share=op.kind is CollectiveKind.ALL_GATHER, process_ps=after)
            for op in work.comms
        )
        works[phase] = replace(work, comms=tuple(comms))
    return replace(row, **works)


def _weight_first(rows: Sequence[FileRow], header: Header) -> list[FileRow]:
    """Rows whose weight gradients come first: input gradients are told of the row before."""
    gradients = [Work(compute_ps=row.input_grad.compute_ps) for row in rows[1:]]
    found = [
        replace(row, input_grad=gradient)
        for row, gradient in zip(rows, [*gradients, Work()], strict=True)
    ]
    if header.policy not in _DLRM:
        return found
    for i, row in enumerate(found):
        kept = (op for op in row.forward.comms if op.kind is CollectiveKind.ALL_TO_ALL)
        found[i] = replace(row, forward=replace(row.forward, comms=tuple(kept)))
    bottom = header.last_bottom_layer or 0
    if bottom < len(found):
        gradient = replace(found[bottom].input_grad, comms=rows[0].input_grad.comms)
        found[bottom] = replace(found[bottom], input_grad=gradient, backward_lag=bottom)
    return found


_SHOWN = 4


def unknown_names(rows: Sequence[Row]) -> Iterator[str]:
    """A sentence for each way in which a name that is not known decides how rows are taken."""
    starts = [i for i, row in enumerate(rows) if row.name.startswith(EMBEDDING)]
    layers = [i for i, row in enumerate(rows) if row.name.startswith(_LAYER_START)]
    unknown = [i for i, row in enumerate(rows) if not _is(row.name, "known")]
    before = [i for i in unknown if starts and i < starts[0]]
    if before:
        yield f"{_shown(rows, before)}: no known name: run once per step"
    inside = unknown[len(before) :]
    if not starts and any("embed" in rows[i].name.lower() for i in inside):
        yield "no row begins with embedding_layer: the rows are one microbatch without embedding"
    if not layers:
        if len(inside) > 1:
            yield f"{_shown(rows, inside)}: no row begins with attention: every row is a layer"
        return
    count = Counter(_stem(row.name) for row in rows)
    ends = [i for i in inside if 2 * count[_stem(rows[i].name)] < len(layers)]
    if ends:
        yield (
            f"{_shown(rows, ends)}: no known name: part of the layer that it stands in "
            "(embedding_layer, final_ and cross_entropy begin the names of the ends)"
        )


def _shown(rows: Sequence[Row], numbers: Sequence[int]) -> str:
    names = list(dict.fromkeys(rows[i].name for i in numbers))
    more = ", ..." if len(names) > _SHOWN else ""
    return f"row{'s' * (len(names) > 1)} {', '.join(map(repr, names[:_SHOWN]))}{more}"


def _stem(name: str) -> str:
    return name.rstrip("0123456789").rstrip("_")
