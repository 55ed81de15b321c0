"""Which stage runs which rows, in which order, and what stages send each other."""

from dataclasses import replace

import pytest
from helpers import row

from stepsim.base.errors import PlanError
from stepsim.parallel.ranks import ParallelPlan
from stepsim.parallel.schedules import Placement
from stepsim.parallel.stages import StageRows, Stages, split_stages
from stepsim.workload.rows import (
    Axis,
    CollectiveKind,
    CommOp,
    Group,
    Header,
    Microbatch,
    Phase,
    Policy,
    Row,
    Work,
    Workload,
)

LOSS = row(1, 0, name="cross_entropy1")


def comm(
    size: int, kind: CollectiveKind = CollectiveKind.ALL_REDUCE, group: Group = Group.TP
) -> CommOp:
    return CommOp(kind=kind, group=group, axis=Axis.TP, size_bytes=size)


def job(
    layers: int,
    *,
    pp: int = 1,
    per_step: tuple[Row, ...] = (),
    blocks: int = 1,
    pp_comm_bytes: int | None = 8,
) -> Workload:
    """Blocks `embedding, layer0, layer1, .., head` of one stage; names carry the block."""

    def block(b: int) -> Microbatch:
        return Microbatch(
            embedding=(row(1, 1, name=f"embedding@{b}"),),
            layers=tuple((row(1, 1, name=f"layer{i}@{b}"),) for i in range(layers)),
            head=(row(1, 1, name=f"head@{b}"),),
        )

    return Workload(
        source="job",
        policy=Policy.HYBRID_TRANSFORMER,
        header=Header(pp=pp, pp_comm_bytes=pp_comm_bytes),
        microbatches=tuple(block(b) for b in range(blocks)),
        loss=(LOSS,),
        per_step=per_step,
    )


def split(
    workload: Workload,
    *,
    pp: int | None = None,
    tp: int = 1,
    chunks: int = 1,
    stage_rows: StageRows = StageRows.ENDS,
) -> Stages:
    stages = pp or workload.header.pp
    return split_stages(
        workload,
        ParallelPlan(pp=stages, tp=tp),
        Placement(ranks=stages, chunks=chunks),
        stage_rows,
    )


def names(stages: Stages, block: int = 0) -> list[list[list[str]]]:
    """Row names per stage and chunk of one block, without the block's mark."""
    return [
        [[row.name.removesuffix(f"@{block}") for row in chunk[block]] for chunk in work.chunks]
        for work in stages.works
    ]


def items(stages: Stages, stage: int = 0) -> list[tuple[str, Phase]]:
    """Per-step rows and phases of a stage that hold any work."""
    work = stages.works[stage].per_step
    return [(i.name, i.phase) for i in work if i.work.compute_ps or i.work.comms]


def test_ends_of_the_model_run_on_the_first_and_the_last_stage() -> None:
    assert names(split(job(2, pp=3))) == [
        [["embedding", "layer0", "layer1"]],
        [["layer0", "layer1"]],
        [["layer0", "layer1", "head", "cross_entropy1"]],
    ]


def test_one_stage_has_both_ends() -> None:
    assert names(split(job(1))) == [[["embedding", "layer0", "head", "cross_entropy1"]]]


def test_every_stage_carries_both_ends_and_one_loss_per_step() -> None:
    stages = split(job(1, pp=2), stage_rows=StageRows.EVERY)
    assert names(stages) == [[["embedding", "layer0", "head"]]] * 2
    assert [items(stages, stage) for stage in range(2)] == [[("cross_entropy1", Phase.FORWARD)]] * 2


def test_chunks_are_placed_in_a_loop_with_the_ends_at_its_ends() -> None:
    assert names(split(job(4, pp=2), chunks=2)) == [
        [["embedding", "layer0", "layer1"], ["layer2", "layer3"]],
        [["layer0", "layer1"], ["layer2", "layer3", "head", "cross_entropy1"]],
    ]


def test_every_stage_carries_the_ends_in_its_first_and_last_chunk() -> None:
    stages = split(job(2, pp=2), chunks=2, stage_rows=StageRows.EVERY)
    assert names(stages) == [[["embedding", "layer0"], ["layer1", "head"]]] * 2


def test_every_block_of_the_file_is_kept() -> None:
    stages = split(job(1, pp=2, blocks=2))
    assert len(stages.works[0].chunks[0]) == 2
    assert names(stages, 1)[0] == [["embedding", "layer0"]]


def test_uneven_layers_differ_by_one_and_warn() -> None:
    stages = split(job(5), pp=2)
    sizes = [sum(r.name.startswith("layer") for r in w.chunks[0][0]) for w in stages.works]
    assert sorted(sizes) == [2, 3]
    assert [w for w in stages.warnings if "unevenly" in w]
    assert not [w for w in split(job(4), pp=2).warnings if "unevenly" in w]


def test_uneven_chunks_warn() -> None:
    assert [w for w in split(job(3), chunks=2).warnings if "unevenly" in w]


@pytest.mark.parametrize(("file_pp", "pp", "each"), [(1, 4, 1), (2, 4, 2), (4, 2, 8), (2, 1, 8)])
def test_re_split_keeps_the_models_layers(file_pp: int, pp: int, each: int) -> None:
    layers = pp * each // file_pp
    stages = split(job(layers, pp=file_pp), pp=pp)
    for work in stages.works:
        assert sum(r.name.startswith("layer") for r in work.chunks[0][0]) == each
    assert [w for w in stages.warnings if f"pp {file_pp} in the file, {pp} asked for" in w]


@pytest.mark.parametrize(
    ("pp", "chunks", "problem"),
    [
        (1, 3, "3 chunks: a stage of the file has 2 layers, one per chunk at least"),
        (2, 3, "3 chunks: a stage of the file has 2 layers, one per chunk at least"),
        (4, 1, "pp is 4: the model has 2 layers, one per stage at least"),
    ],
)
def test_more_parts_than_layers_are_refused(pp: int, chunks: int, problem: str) -> None:
    with pytest.raises(PlanError, match=problem):
        split(job(2), pp=pp, chunks=chunks)


def two_row_layers(layers: int) -> Workload:
    """Layers of an attention and an MLP row, in a file of one stage."""
    block = Microbatch(
        embedding=(row(1, 1, name="embedding@0"),),
        layers=tuple(
            (row(1, 1, name=f"attention{i}@0"), row(1, 1, name=f"mlp{i}@0")) for i in range(layers)
        ),
        head=(row(1, 1, name="head@0"),),
    )
    return replace(job(layers), microbatches=(block,))


def test_re_split_stages_with_fewer_layers_than_chunks_cut_layers_between_rows() -> None:
    stages = split(two_row_layers(2), pp=2, chunks=2)
    assert names(stages) == [
        [["embedding", "attention0"], ["mlp0"]],
        [["attention1"], ["mlp1", "head", "cross_entropy1"]],
    ]
    assert "1 layers per stage in 2 chunks: layers are cut between rows" in stages.warnings


def test_cut_layers_share_rows_out_in_order_longer_chunks_first() -> None:
    stages = split(two_row_layers(4), pp=2, chunks=3)
    assert names(stages)[0] == [
        ["embedding", "attention0", "mlp0"],
        ["attention1"],
        ["mlp1"],
    ]
    assert [w for w in stages.warnings if "2 layers per stage in 3 chunks" in w]


def test_layers_are_whole_where_there_are_enough_of_them() -> None:
    stages = split(two_row_layers(4), pp=2, chunks=2)
    assert names(stages)[0] == [["embedding", "attention0", "mlp0"], ["attention1", "mlp1"]]
    assert not [w for w in stages.warnings if "cut between rows" in w]


def test_a_file_that_is_not_re_split_never_cuts_layers() -> None:
    workload = replace(two_row_layers(2), header=Header(pp=2, pp_comm_bytes=8))
    with pytest.raises(PlanError, match="3 chunks: a stage of the file has 2 layers"):
        split(workload, chunks=3)


@pytest.mark.parametrize("stage_rows", StageRows)
@pytest.mark.parametrize("chunks", [1, 2, 3, 4])
def test_cutting_layers_loses_no_row(chunks: int, stage_rows: StageRows) -> None:
    stages = split(two_row_layers(4), pp=2, chunks=chunks, stage_rows=stage_rows)
    for rank, work in enumerate(names(stages)):
        inner = [name for chunk in work for name in chunk if name.startswith(("attention", "mlp"))]
        assert inner == [f"{kind}{i + 2 * rank}" for i in (0, 1) for kind in ("attention", "mlp")]
        assert all(work)


def test_rows_that_are_fewer_than_chunks_are_refused() -> None:
    with pytest.raises(PlanError, match="3 chunks: "):
        split(two_row_layers(3), pp=3, chunks=3)


def step_row(name: str, *phases: Phase, size: int = 64) -> Row:
    """A per-step row that communicates in these phases."""
    works = {phase: Work(comms=(comm(size),)) if phase in phases else Work() for phase in Phase}
    return replace(
        row(0, 0, name=name),
        forward=works[Phase.FORWARD],
        input_grad=works[Phase.INPUT_GRAD],
        weight_grad=works[Phase.WEIGHT_GRAD],
    )


def test_per_step_rows_follow_a_distributed_optimizer() -> None:
    weight = Phase.WEIGHT_GRAD
    file_order = [
        step_row("grad_gather", weight),
        step_row("grad_param_comm", weight),
        replace(row(0, 9, name="grad_param_compute")),
        step_row("layernorm", Phase.INPUT_GRAD),
        step_row("embedding_grads", Phase.INPUT_GRAD),
        step_row("moe_grad_norm1", weight),
        step_row("moe_grad_norm2", weight),
        step_row("odd_one", Phase.FORWARD, weight),
        step_row("optimizer1", Phase.FORWARD),
        step_row("optimizer2", Phase.FORWARD),
    ]
    assert items(split(job(1, per_step=tuple(file_order)))) == [
        ("odd_one", Phase.FORWARD),
        ("odd_one", weight),
        ("layernorm", Phase.INPUT_GRAD),
        ("embedding_grads", Phase.INPUT_GRAD),
        ("grad_param_comm", weight),
        ("moe_grad_norm2", weight),
        ("optimizer1", Phase.FORWARD),
        ("optimizer2", Phase.FORWARD),
        ("grad_param_compute", Phase.INPUT_GRAD),
        ("grad_gather", weight),
        ("moe_grad_norm1", weight),
    ]


def test_older_grad_norm_is_a_parameter_gather_on_dp_after_the_update() -> None:
    rows = (step_row("grad_norm", *Phase), row(0, 9, name="grad_param_compute"))
    stages = split(job(1, per_step=rows))
    assert items(stages) == [
        ("grad_norm", Phase.WEIGHT_GRAD),
        ("grad_param_compute", Phase.INPUT_GRAD),
        ("grad_norm", Phase.INPUT_GRAD),
        ("grad_norm", Phase.FORWARD),
    ]
    gather = stages.works[0].per_step[-1].work.comms
    assert [(c.group, c.axis) for c in gather] == [(Group.DP, Axis.DP)]


def test_embedding_gradients_are_summed_on_the_ends_only() -> None:
    rows = (step_row("embedding_grads", Phase.INPUT_GRAD), step_row("optimizer1", Phase.FORWARD))
    stages = split(job(1, pp=4, per_step=rows))
    assert [[name for name, _ in items(stages, s)] for s in range(4)] == [
        ["embedding_grads", "optimizer1"],
        ["optimizer1"],
        ["optimizer1"],
        ["embedding_grads", "optimizer1"],
    ]
    everywhere = split(job(1, pp=4, per_step=rows), stage_rows=StageRows.EVERY)
    assert ("embedding_grads", Phase.INPUT_GRAD) in items(everywhere, 1)


@pytest.mark.parametrize(("pp", "factor"), [(4, 0.5), (2, 1), (1, 2)])
def test_gradients_and_update_scale_with_a_stages_layers(pp: int, factor: float) -> None:
    weight = Phase.WEIGHT_GRAD
    scaled = ("grad_gather", "grad_param_comm", "moe_grad_norm2", "layernorm")
    rows = [step_row(name, weight, size=64) for name in (*scaled, "embedding_grads", "optimizer1")]
    rows.append(row(0, 1_000, name="grad_param_compute"))
    stages = split(job(4, pp=2, per_step=tuple(rows)), pp=pp)
    sizes = {i.name: c.size_bytes for i in stages.works[0].per_step for c in i.work.comms}
    assert [sizes[name] for name in scaled] == [64 * factor] * 4
    assert sizes["embedding_grads"] == sizes["optimizer1"] == 64
    assert sum(i.work.compute_ps for i in stages.works[0].per_step) == 1_000 * factor


def named_layer(*rows: tuple[str, CommOp | None]) -> Workload:
    """Two stages of one layer with these rows and forward collectives; no pp_comm."""
    layer = tuple(
        replace(row(1, 1, name=name), forward=Work(comms=(op,) if op else ())) for name, op in rows
    )
    block = Microbatch(embedding=(), layers=(layer,), head=())
    return replace(job(1, pp=2, pp_comm_bytes=None), microbatches=(block,))


SCATTER, GATHER = CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER


@pytest.mark.parametrize(
    ("rows", "sent"),
    [
        ([("attention_column", comm(800)), ("attention_row", comm(400, SCATTER))], 100),
        ([("mlp", comm(800, GATHER)), ("mlp", comm(400)), ("mlp", comm(80))], 400),
        ([("mlp", comm(400, SCATTER, Group.EP)), ("mlp", comm(40, SCATTER))], 10),
        ([("attention_row", None), ("mlp", comm(40))], 40),
    ],
)
def test_missing_pp_comm_is_the_output_rows_activation(
    rows: list[tuple[str, CommOp | None]], sent: int
) -> None:
    stages = split(named_layer(*rows), tp=4)
    assert stages.pp_comm_bytes == sent
    assert [w for w in stages.warnings if f"{sent} bytes" in w and "pp_comm" in w]


def test_pp_comm_that_nothing_tells_is_zero_with_a_warning() -> None:
    stages = split(named_layer(("mlp", None)))
    assert stages.pp_comm_bytes == 0
    assert [w for w in stages.warnings if "0 bytes" in w]


def test_pp_comm_of_the_file_is_used_and_needs_a_pipeline() -> None:
    assert split(job(1, pp=2)).pp_comm_bytes == 8
    alone = split(job(1, pp_comm_bytes=None))
    assert (alone.pp_comm_bytes, alone.warnings) == (0, ())
