"""Which stage runs which rows: a workload's one stage becomes the stages of the run."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from stepsim.base.errors import PlanError
from stepsim.parallel.ranks import ParallelPlan
from stepsim.parallel.schedules import Placement, PlacementKind
from stepsim.workload.rows import (
    Axis,
    CollectiveKind,
    CommOp,
    Group,
    Microbatch,
    Phase,
    Row,
    Work,
    Workload,
)

Rows = tuple[Row, ...]


class StageRows(StrEnum):
    """Who runs embedding, head and loss rows."""

    ENDS = "ends"
    EVERY = "every"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepItem:
    """One phase of a per-step row."""

    name: str
    phase: Phase
    work: Work


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWork:
    """What one rank of a stage runs: `chunks[c][b]` are the rows of chunk c for block b.

    Microbatch j runs block `j % len(chunks[c])`. `per_step` follows the pipeline, in order.
    """

    chunks: tuple[tuple[Rows, ...], ...]
    per_step: tuple[StepItem, ...]

    def without_gradients(self) -> tuple[tuple[CommOp, ...], tuple[StepItem, ...]]:
        """Collectives that reduce the gradients of all rows, and the per-step items without."""
        reducing = [
            item
            for item in self.per_step
            if re.fullmatch(_GRADIENTS, item.name)
            and all(op.axis is Axis.DP for op in item.work.comms)
        ]
        others = (
            replace(item, work=replace(item.work, comms=())) if item in reducing else item
            for item in self.per_step
        )
        return tuple(op for item in reducing for op in item.work.comms), tuple(others)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """All stages, the message between neighbours per microbatch, and what was assumed."""

    works: tuple[StageWork, ...]
    pp_comm_bytes: int
    warnings: tuple[str, ...]


def split_stages(
    workload: Workload,
    plan: ParallelPlan,
    placement: Placement,
    stage_rows: StageRows = StageRows.ENDS,
) -> Stages:
    """Share the workload's layers out to `plan.pp` stages of `placement.chunks` chunks each.

    By default the embedding rows run on the first virtual stage, head and loss rows on the last,
    the loss in every microbatch; with `StageRows.EVERY` (SimAI's reading) every stage carries both
    ends and the loss runs once per step. Raises PlanError when there are more chunks than layers.
    """
    warnings: list[str] = []
    layers = [_stage_layers(block, workload, plan.pp) for block in workload.microbatches]
    warnings += _check_chunks(workload, layers, plan, placement)
    if plan.pp != workload.header.pp:
        warnings.append(
            f"pp {workload.header.pp} in the file, {plan.pp} asked for: layers are re-split, and "
            "gradient and parameter sizes and optimizer compute of a stage scale with its layers"
        )
    return Stages(
        works=tuple(
            StageWork(
                chunks=tuple(
                    _chunk_rows(workload, layers, placement, rank, chunk, stage_rows)
                    for chunk in range(placement.chunks)
                ),
                per_step=tuple(_per_step(workload, plan, rank, stage_rows)),
            )
            for rank in range(plan.pp)
        ),
        pp_comm_bytes=_pp_comm_bytes(workload, plan, warnings),
        warnings=tuple(warnings),
    )


def _stage_layers(block: Microbatch, workload: Workload, pp: int) -> list[list[Rows]]:
    """Layers of each stage for one block; the file's stage repeats `header.pp` times."""
    if pp == workload.header.pp:
        return [list(block.layers)] * pp
    return _split(list(block.layers) * workload.header.pp, pp)


def _split(layers: list[Rows], parts: int) -> list[list[Rows]]:
    """Contiguous parts whose lengths differ by at most one, longer ones first."""
    length, longer = divmod(len(layers), parts)
    ends = [(i + 1) * length + min(i + 1, longer) for i in range(parts)]
    return [layers[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def _check_chunks(
    workload: Workload,
    layers: list[list[list[Rows]]],
    plan: ParallelPlan,
    placement: Placement,
) -> Iterable[str]:
    """Warnings about how layers are shared out; raises PlanError when there are too few."""
    longest = max(layers, key=lambda stages: sum(map(len, stages)))
    lengths = [len(stage) for stage in longest]
    total, chunks = sum(lengths), placement.chunks
    if min(lengths) == 0:
        raise PlanError(f"pp is {plan.pp}: the model has {total} layers, one per stage at least")
    if placement.kind is PlacementKind.BIDIRECTIONAL:
        yield "every stage is held by two ranks: reducing gradients between the two is not modelled"
        return
    rows = min(sum(map(len, stage)) for stage in longest)
    if chunks > workload.layers or chunks > rows:
        raise PlanError(
            f"{chunks} chunks: a stage of the file has {workload.layers} layers, one per chunk at "
            "least"
        )
    if chunks > min(lengths):
        yield f"{min(lengths)} layers per stage in {chunks} chunks: layers are cut between rows"
    elif len(set(lengths)) > 1 or max(lengths) % chunks:
        yield f"{total} layers over {plan.pp} stages of {chunks} chunks: shared unevenly"


def _chunk_rows(
    workload: Workload,
    layers: list[list[list[Rows]]],
    placement: Placement,
    rank: int,
    chunk: int,
    stage_rows: StageRows,
) -> tuple[Rows, ...]:
    """Rows of one chunk for every block, in forward order."""
    every = stage_rows is StageRows.EVERY
    stage = placement.stage(rank, chunk)
    first = stage == 0 or (every and chunk == 0)
    last = stage == placement.stages - 1 or (every and chunk == placement.chunks - 1)
    return tuple(
        (
            *(block.embedding if first else ()),
            *(row for layer in _chunk_layers(stages, placement, rank, chunk) for row in layer),
            *(block.head if last else ()),
            *(workload.loss if last and not every else ()),
        )
        for block, stages in zip(workload.microbatches, layers, strict=True)
    )


def _chunk_layers(
    stages: list[list[Rows]], placement: Placement, rank: int, chunk: int
) -> list[Rows]:
    """A part of the rank's layers, or a whole stage where ranks hold several.

    Layers are cut between rows where a re-split pipeline has fewer of them than chunks.
    """
    if placement.kind is PlacementKind.BIDIRECTIONAL:
        return stages[placement.stage(rank, chunk)]
    layers = stages[rank]
    if len(layers) < placement.chunks:
        layers = [(row,) for layer in layers for row in layer]
    return _split(layers, placement.chunks)[chunk]


_GRADIENTS = r"grad_param_comm|grad_param|moe_grad_norm2"

_SECTIONS: tuple[tuple[str, tuple[Phase, ...]], ...] = (
    (r"embedding_grads|layernorm", tuple(Phase)),
    (_GRADIENTS, tuple(Phase)),
    (r"grad_norm", (Phase.WEIGHT_GRAD,)),
    (r"optimizer\w*", tuple(Phase)),
    (r"grad_param_compute", tuple(Phase)),
    (r"grad_norm", (Phase.INPUT_GRAD,)),
    (r"grad_gather|moe_grad_norm1", tuple(Phase)),
    (r"grad_norm", (Phase.FORWARD,)),
)
"""Order of the rows of a distributed optimizer: gradients, scalars, update, parameters."""

_SIZED_BY_LAYERS = re.compile(r"(moe_)?grad_\w+|layernorm", re.ASCII)


def _per_step(
    workload: Workload, plan: ParallelPlan, rank: int, stage_rows: StageRows
) -> Iterable[StepItem]:
    """Per-step rows of a stage in the order in which a distributed optimizer runs them.

    Rows of other names come first, in file order.
    """
    every = stage_rows is StageRows.EVERY
    rows = [*(workload.loss if every else ()), *workload.per_step]
    if not every and 0 < rank < plan.pp - 1:
        rows = [row for row in rows if row.name != "embedding_grads"]
    rows = [_scaled(row, workload.header.pp, plan.pp) for row in rows]
    known = "|".join(pattern for pattern, _ in _SECTIONS)
    for row in rows:
        if not re.fullmatch(known, row.name):
            yield from (StepItem(name=row.name, phase=phase, work=w) for phase, w in row.works())
    for pattern, phases in _SECTIONS:
        for row in rows:
            if re.fullmatch(pattern, row.name):
                for phase, work in row.works():
                    if phase in phases:
                        yield StepItem(name=row.name, phase=phase, work=_gathering(row, work))


def _gathering(row: Row, work: Work) -> Work:
    """Older files write the data-parallel parameter gather as `grad_norm`'s forward collective."""
    if row.name != "grad_norm":
        return work
    return replace(work, comms=tuple(replace(c, group=Group.DP, axis=Axis.DP) for c in work.comms))


def _scaled(row: Row, file_pp: int, pp: int) -> Row:
    """The row with compute and sizes of a stage of a re-split model."""
    if file_pp == pp or not _SIZED_BY_LAYERS.fullmatch(row.name):
        return row
    works = [
        Work(
            compute_ps=work.compute_ps * file_pp // pp,
            comms=tuple(
                replace(c, size_bytes=-(-c.size_bytes * file_pp // pp)) for c in work.comms
            ),
        )
        for _, work in row.works()
    ]
    return replace(row, forward=works[0], input_grad=works[1], weight_grad=works[2])


def _pp_comm_bytes(workload: Workload, plan: ParallelPlan, warnings: list[str]) -> int:
    """Bytes a rank sends to the next stage per microbatch; 0 without a pipeline."""
    if plan.pp == 1:
        return 0
    if workload.header.pp_comm_bytes is not None:
        return workload.header.pp_comm_bytes
    rows = [row for layer in workload.microbatches[0].layers for row in layer]
    preferred = [row for row in rows if row.name.startswith("attention_row")]
    for row in (*preferred, *rows):
        size = _activation_bytes(row.forward.comms, plan.tp)
        if size:
            warnings.append(
                f"the file names no pp_comm: {size} bytes per microbatch between stages assumed, "
                f"from row {row.name!r} (line {row.line})"
            )
            return size
    warnings.append("the file names no pp_comm and no row tells it: stages exchange 0 bytes")
    return 0


def _activation_bytes(comms: Iterable[CommOp], tp: int) -> int:
    """Activation of a rank behind an output row's collective, 0 if it has none."""
    for comm in comms:
        if comm.group is Group.TP and comm.kind is CollectiveKind.REDUCE_SCATTER:
            return comm.size_bytes // tp
        if comm.group is Group.TP and comm.kind is CollectiveKind.ALL_REDUCE:
            return comm.size_bytes
    return 0
