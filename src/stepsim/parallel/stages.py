"""Which stage runs which rows: a workload's one stage becomes the stages of the run."""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import chain
from typing import TYPE_CHECKING

from stepsim.base.axes import ParallelAxis, Phase
from stepsim.base.errors import PlanError
from stepsim.base.structs import Names, Noun, Numbers, replace
from stepsim.parallel.modes import StageRows
from stepsim.parallel.schedules import Placement, PlacementKind
from stepsim.workload.plan import Plan
from stepsim.workload.rows import CommOp, CommOps, Microbatch, Role, Row, Rows, StepItem, Workload

if TYPE_CHECKING:
    from stepsim.workload.model.layout import LayerLayout

_ROLES = tuple(Role)


class StageWork(Noun):
    """What one rank of a stage runs: `chunks[c][b]` are the rows of chunk c for block b.

    Microbatch j runs block `j % len(chunks[c])`. `per_step` follows the pipeline, in order.
    """

    chunks: tuple[tuple[Rows, ...], ...]
    per_step: tuple[StepItem, ...]

    def without_gradients(self) -> tuple[CommOps, tuple[StepItem, ...]]:
        """Collectives that reduce the gradients of all rows, and the per-step items without."""
        reducing = [item for item in self.per_step if _reduces_gradients(item)]
        others = (
            replace(item, work=replace(item.work, comms=())) if _reduces_gradients(item) else item
            for item in self.per_step
        )
        return tuple(op for item in reducing for op in item.work.comms), tuple(others)


def _reduces_gradients(item: StepItem) -> bool:
    """Whether an item only reduces gradients over data-parallel ranks."""
    return item.role is Role.GRADIENTS and all(op.axis is ParallelAxis.DP for op in item.work.comms)


class Stages(Noun):
    """All stages, the message between neighbours per microbatch, and what was assumed."""

    works: tuple[StageWork, ...]
    pp_comm_bytes: int
    warnings: Names


def split_stages(
    workload: Workload,
    plan: Plan,
    placement: Placement,
    stage_rows: StageRows = StageRows.ENDS,
) -> Stages:
    """Share the workload's layers out to `plan.pp` stages of `placement.chunks` chunks each.

    By default the embedding rows run on the first virtual stage, head and loss rows on the last,
    the loss in every microbatch; with `StageRows.EVERY` (SimAI's reading) every stage carries both
    ends and the loss runs once per step. A workload with a layout is shared out as that says.
    Raises PlanError when there are more chunks than layers, or a layout does not add up.
    """
    pp, every = plan.pp, stage_rows is StageRows.EVERY
    if any(op.of_share for op in workload.comms()):
        workload = _with_whole_sizes(workload, plan)
    warnings: list[str] = []
    if workload.layout is not None:
        rows = [_slices(each, workload.layout, placement) for each in workload.microbatches]
    else:
        layers = [_stage_layers(block, workload, pp) for block in workload.microbatches]
        warnings += _warnings(workload, layers, pp, placement)
        rows = [
            [*_chunk_rows(block, workload.loss, own, placement, every=every)]
            for block, own in zip(workload.microbatches, layers, strict=True)
        ]
    works: list[StageWork] = []
    known: dict[Numbers, Rows] = {}  # what is the same as before is the object of before
    items: dict[tuple[int, int], tuple[StepItem, ...]] = {}
    own: Iterable[StepItem]
    for rank in range(pp):
        chunks = tuple(
            tuple(known.setdefault(tuple(map(id, block)), block) for block in blocks)
            for blocks in zip(*(each[rank] for each in rows), strict=True)
        )
        if workload.layout is not None:
            key = held_parameters(row for blocks in chunks for row in blocks[0])
            alike = (item for item in workload.per_step if item.stage is None)
            own = chain(alike, owned_items(workload, *key))
        else:
            first, last = map(any, zip(*_ends(placement, rank, every=every), strict=True))
            key, own = (first, last), _per_step(workload, pp, first=first, last=last, every=every)
        if key not in items:
            items[key] = tuple(sorted(own, key=lambda item: _ROLES.index(item.role)))
        alone = [item for item in workload.per_step if item.stage == rank]
        works.append(StageWork(chunks=chunks, per_step=(*items[key], *alone)))
    return Stages(
        works=tuple(works),
        pp_comm_bytes=workload.pp_comm_bytes if pp > 1 else 0,
        warnings=tuple(warnings),
    )


def _with_whole_sizes(workload: Workload, plan: Plan) -> Workload:
    """The workload with the whole size of collectives that tell a member's share."""

    def whole(op: CommOp) -> CommOp:
        size = op.size_bytes * (plan.group_size(op.group) if op.of_share else 1)
        return replace(op, size_bytes=size, of_share=False)

    return workload.with_works(lambda _, work: replace(work, comms=tuple(map(whole, work.comms))))


def _slices(block: Microbatch, layout: "LayerLayout", placement: Placement) -> list[list[Rows]]:
    """Rows of every chunk of every rank, virtual stages in the model's order; raises PlanError."""
    slices = layout.resolve(len(block.layers), len(block.prediction), placement.stages)
    layers, predicted = iter(block.layers), iter(block.prediction)
    found = []
    for each in slices:
        rows = list(block.embedding) if each.embedding else []
        for _ in range(each.layers):
            rows += next(layers)
        for _ in range(each.prediction_layers):
            rows += next(predicted)
        found.append((*rows, *(block.head if each.head else ())))
    return [
        [found[placement.stage(rank, chunk)] for chunk in range(placement.chunks)]
        for rank in range(placement.ranks)
    ]


def held_parameters(rows: Iterable[Row]) -> tuple[int, int]:
    """Parameters of rows: of all but routed experts, and of these."""
    dense = expert = 0
    for row in rows:
        dense, expert = dense + row.parameters, expert + row.expert_parameters
    return dense, expert


def owned_items(workload: Workload, dense: int, expert: int) -> Iterator[StepItem]:
    """What a stage does once per step for so many parameters, and so many of routed experts."""
    for each in workload.per_parameter:
        if held := expert if each.experts else dense:
            yield each.item(held)


def _stage_layers(block: Microbatch, workload: Workload, pp: int) -> list[list[Rows]]:
    """Layers of each stage for one block; the workload's stage repeats `degrees["pp"]` times."""
    if pp == workload.degrees["pp"]:
        return [list(block.layers)] * pp
    return _split(list(block.layers) * workload.degrees["pp"], pp)


def _split(layers: list[Rows], parts: int) -> list[list[Rows]]:
    """Contiguous parts whose lengths differ by at most one, longer ones first."""
    length, longer = divmod(len(layers), parts)
    ends = [(i + 1) * length + min(i + 1, longer) for i in range(parts)]
    return [layers[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def _warnings(
    workload: Workload,
    layers: list[list[list[Rows]]],
    pp: int,
    placement: Placement,
) -> Iterator[str]:
    """Warnings about how layers are shared out; raises PlanError when there are too few."""
    longest = max(layers, key=lambda stages: sum(map(len, stages)))
    lengths = [len(stage) for stage in longest]
    total, chunks = sum(lengths), placement.chunks
    if min(lengths) == 0:
        raise PlanError(f"pp is {pp}: the model has {total} layers, one per stage at least")
    if placement.kind is PlacementKind.BIDIRECTIONAL:
        yield "every stage is held by two ranks: reducing gradients between the two is not modelled"
    elif chunks > min(workload.layers, *(sum(map(len, stage)) for stage in longest)):
        raise PlanError(
            f"{chunks} chunks: a stage of the file has {workload.layers} layers, one per chunk at "
            "least"
        )
    elif chunks > min(lengths):
        yield f"{min(lengths)} layers per stage in {chunks} chunks: layers are cut between rows"
    elif len(set(lengths)) > 1 or max(lengths) % chunks:
        yield f"{total} layers over {pp} stages of {chunks} chunks: shared unevenly"
    if pp != workload.degrees["pp"]:
        yield (
            f"the file has pp {workload.degrees['pp']}, you asked for {pp}: layers are split "
            "again; gradients, parameters and optimizer compute of a stage grow with its layers"
        )
    if pp > 1 and workload.pp_comm_assumed:
        yield workload.pp_comm_assumed


def _chunk_rows(
    block: Microbatch,
    loss: Rows,
    stages: list[list[Rows]],
    placement: Placement,
    *,
    every: bool,
) -> Iterator[list[Rows]]:
    """Rows of every chunk of every rank for a block, in forward order, from layers of `stages`.

    A chunk has a part of the rank's layers, or a whole stage where ranks hold several. Layers are
    cut between rows where a re-split pipeline has fewer of them than chunks.
    """
    for rank in range(placement.ranks):
        if placement.kind is PlacementKind.BIDIRECTIONAL:
            parts = [stages[placement.stage(rank, chunk)] for chunk in range(placement.chunks)]
        else:
            layers = stages[rank]
            if len(layers) < placement.chunks:
                layers = [(row,) for layer in layers for row in layer]
            parts = _split(layers, placement.chunks)
        yield [
            (
                *(block.embedding if first else ()),
                *chain.from_iterable(part),
                *(block.head if last else ()),
                *(loss if last and not every else ()),
            )
            for part, (first, last) in zip(parts, _ends(placement, rank, every=every), strict=True)
        ]


def _ends(placement: Placement, rank: int, *, every: bool) -> Iterator[tuple[bool, bool]]:
    """Whether each chunk of a rank has the first and the last rows of the model.

    Where `every` rank has both, its first and last chunk have them.
    """
    for chunk in range(placement.chunks):
        stage = placement.stage(rank, chunk)
        yield (
            stage == 0 or (every and chunk == 0),
            stage == placement.stages - 1 or (every and chunk == placement.chunks - 1),
        )


def _per_step(
    workload: Workload, pp: int, *, first: bool, last: bool, every: bool
) -> Iterable[StepItem]:
    """What a stage with these ends runs once per step.

    Only the ends of the pipeline sum embedding gradients and own the parameters of embedding and
    head, unless every stage carries both ends. Then the loss runs once per step, too.
    """
    layers = Fraction(workload.degrees["pp"], pp)
    if every:
        for row in workload.loss:
            for phase in Phase:
                yield _resized(row.item(phase), layers, first=first, last=last)
    for item in workload.per_step:
        if first or last or item.role is not Role.EMBEDDING_GRADIENTS:
            yield _resized(item, layers, first=first, last=last)


def _resized(item: StepItem, layers: Fraction, *, first: bool, last: bool) -> StepItem:
    """The item of a stage with so many layers for one of the file, with the ends that it has."""
    compute = sizes = layers if item.per_layer else Fraction(1)
    ends = item.embedding_share + item.head_share
    if ends:
        kept = item.embedding_share * first + item.head_share * last
        sizes = (1 - ends) * compute + kept
    return item if compute == sizes == 1 else item.times(compute=compute, sizes=sizes)
