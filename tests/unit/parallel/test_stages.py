"""Which stage runs which rows, in which order, and what stages send each other."""

import pytest
from helpers import row

from stepsim.base.axes import CollectiveKind, Group, ParallelAxis, Phase, degrees_of
from stepsim.base.errors import PlanError
from stepsim.base.structs import replace
from stepsim.parallel.modes import StageRows
from stepsim.parallel.schedules import Placement
from stepsim.parallel.stages import Stages, split_stages
from stepsim.workload.plan import Plan
from stepsim.workload.rows import CommOp, Microbatch, Role, StepItem, Work, Workload

LOSS = row(1, 0, name="cross_entropy1")


def comm(
    size: int, kind: CollectiveKind = CollectiveKind.ALL_REDUCE, group: Group = Group.TP
) -> CommOp:
    return CommOp(kind=kind, group=group, axis=ParallelAxis.TP, size_bytes=size)


def job(
    layers: int,
    *,
    pp: int = 1,
    per_step: tuple[StepItem, ...] = (),
    blocks: int = 1,
    pp_comm_bytes: int = 8,
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
        degrees=degrees_of(pp=pp),
        pp_comm_bytes=pp_comm_bytes,
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
    stages = pp or workload.degrees["pp"]
    return split_stages(
        workload,
        Plan(pp=stages, tp=tp),
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


@pytest.mark.parametrize(("file_pp", "pp", "each"), [(1, 4, 1), (4, 2, 8)])
def test_re_split_keeps_the_models_layers(file_pp: int, pp: int, each: int) -> None:
    layers = pp * each // file_pp
    stages = split(job(layers, pp=file_pp), pp=pp)
    for work in stages.works:
        assert sum(r.name.startswith("layer") for r in work.chunks[0][0]) == each
    assert [w for w in stages.warnings if f"the file has pp {file_pp}, you asked for {pp}" in w]


@pytest.mark.parametrize(
    ("pp", "chunks", "problem"),
    [
        (1, 3, "3 chunks: a stage of the file has 2 layers, one per chunk at least"),
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
    workload = replace(two_row_layers(2), degrees=degrees_of(pp=2))
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


def item(role: Role, size: int = 64, *, per_layer: bool = False, name: str = "") -> StepItem:
    """An item of a step that communicates."""
    work = Work(comms=(comm(size),))
    phase = Phase.WEIGHT_GRAD
    return StepItem(name=name or role, phase=phase, work=work, role=role, per_layer=per_layer)


def test_items_of_a_step_follow_a_distributed_optimizer() -> None:
    backwards = tuple(item(role) for role in reversed(Role))
    assert [name for name, _ in items(split(job(1, per_step=backwards)))] == [
        Role.OTHER,
        Role.NORM_GRADIENTS,
        Role.EMBEDDING_GRADIENTS,
        Role.GRADIENTS,
        Role.SCALARS,
        Role.UPDATE,
        Role.PARAMETERS,
    ]


def test_items_of_one_role_keep_their_order() -> None:
    several = [item(Role.SCALARS, name=f"s{i}") for i in (2, 0, 1)]
    several.insert(1, item(Role.GRADIENTS, name="g"))
    found = items(split(job(1, per_step=tuple(several))))
    assert [name for name, _ in found] == ["g", "s2", "s0", "s1"]


def test_embedding_gradients_are_summed_on_the_ends_only() -> None:
    both = (item(Role.EMBEDDING_GRADIENTS), item(Role.SCALARS))
    ends, inner = ["embedding gradients", "scalars"], ["scalars"]
    stages = split(job(1, pp=4, per_step=both))
    found = [[name for name, _ in items(stages, s)] for s in range(4)]
    assert found == [ends, inner, inner, ends]
    everywhere = split(job(1, pp=4, per_step=both), stage_rows=StageRows.EVERY)
    assert [name for name, _ in items(everywhere, 1)] == ["cross_entropy1", *ends]


@pytest.mark.parametrize(("pp", "factor"), [(4, 0.5), (1, 2)])
def test_what_is_per_layer_scales_with_a_stages_layers(pp: int, factor: float) -> None:
    works = Work(compute_ps=1_000, comms=(comm(64),))
    both = [
        replace(item(Role.UPDATE, per_layer=per_layer), work=works) for per_layer in (True, False)
    ]
    stages = split(job(4, pp=2, per_step=tuple(both)), pp=pp)
    scaled, kept = stages.works[0].per_step
    assert (scaled.work.compute_ps, scaled.work.comms[0].size_bytes) == (
        1_000 * factor,
        64 * factor,
    )
    assert kept.work == works


def test_gradients_are_taken_out_where_only_dp_reduces_them() -> None:
    on_dp = replace(comm(32, group=Group.DP), axis=ParallelAxis.DP)
    update = StepItem(name="u", phase=Phase.FORWARD, work=Work(compute_ps=5), role=Role.UPDATE)
    both = replace(item(Role.GRADIENTS), work=Work(compute_ps=7, comms=(on_dp,)))
    on_tp = item(Role.GRADIENTS)
    stages = split(job(1, per_step=(update, both, on_tp)))
    reduced, others = stages.works[0].without_gradients()
    assert reduced == (on_dp,)
    assert others == (replace(both, work=Work(compute_ps=7)), on_tp, update)


def test_what_was_assumed_about_messages_is_said_where_there_are_any() -> None:
    assumed = replace(job(1, pp=2), pp_comm_assumed="guessed")
    assert "guessed" in split(assumed).warnings
    assert "guessed" not in split(replace(assumed, degrees=degrees_of())).warnings


def test_messages_need_a_pipeline() -> None:
    assert split(job(1, pp=2)).pp_comm_bytes == 8
    alone = split(job(1))
    assert (alone.pp_comm_bytes, alone.warnings) == (0, ())
