"""Names of rows are labels: what a workload means is told by its roles and its parts."""

from collections.abc import Callable
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import stepsim
from stepsim.base.axes import CollectiveKind, Group, ParallelAxis, Phase, degrees_of
from stepsim.base.errors import WorkloadError
from stepsim.base.structs import replace
from stepsim.explain.report import ResultDocument
from stepsim.files.simai.text import read_simai_text
from stepsim.workload.rows import CommOp, Microbatch, Role, Row, StepItem, Work, Workload
from stepsim.workload.scaling import ComputeScale

Write = Callable[[str | bytes], Path]

AICB = """\
HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 3 all_gpus: 12 pp_comm: 4096
14
grad_gather -1 0 NONE 0 0 NONE 0 0 ALLGATHER 300000 100
grad_param_comm -1 0 NONE 0 0 NONE 0 0 REDUCESCATTER 600000 100
grad_param_compute -1 0 NONE 0 9000 NONE 0 0 NONE 0 100
layernorm -1 0 NONE 0 0 ALLREDUCE 20000 0 NONE 0 100
embedding_grads -1 0 NONE 0 0 ALLREDUCE 80000 0 NONE 0 100
embedding_layer -1 700 ALLREDUCE 4096 300 NONE 0 0 NONE 0 100
attention_column -1 4000 ALLGATHER 8192 4100 REDUCESCATTER 8192 3000 NONE 0 100
mlp_row -1 5000 REDUCESCATTER 8192 5100 ALLGATHER 8192 2000 NONE 0 100
attention_column -1 4000 ALLGATHER 8192 4100 REDUCESCATTER 8192 3000 NONE 0 100
mlp_row -1 5000 REDUCESCATTER 8192 5100 ALLGATHER 8192 2000 NONE 0 100
final_column -1 6000 NONE 0 6100 NONE 0 3300 NONE 0 100
cross_entropy1 -1 800 ALLREDUCE 2048 0 NONE 0 0 NONE 0 100
optimizer1 -1 0 ALLREDUCE 4 0 NONE 0 0 NONE 0 100
optimizer2 -1 0 ALLREDUCE 4 0 NONE 0 0 NONE 0 100
"""


def op(kind: CollectiveKind, size: int, axis: ParallelAxis = ParallelAxis.TP) -> CommOp:
    return CommOp(kind=kind, group=Group(axis), axis=axis, size_bytes=size)


def work(ns: int, *comms: CommOp) -> Work:
    return Work(compute_ps=ns * 1_000, comms=comms)


def from_roles() -> Workload:
    """The job of the file above, as something that has never heard of AICB would say it."""
    reduce, gather = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER
    scatter = CollectiveKind.REDUCE_SCATTER
    names = (f"x{i}" for i in count())

    def row(forward: Work, input_grad: Work, weight_grad: Work | None = None) -> Row:
        weight_grad = weight_grad or work(0)
        return Row(
            name=next(names), forward=forward, input_grad=input_grad, weight_grad=weight_grad
        )

    def item(role: Role, phase: Phase, does: Work, *, per_layer: bool = False) -> StepItem:
        """Of 10,000 ns of layers and 3,300 of a head; the embedding has as many parameters."""
        ends = Fraction(3300, 16600) if role in (Role.GRADIENTS, Role.PARAMETERS) else Fraction(0)
        return StepItem(
            name=next(names),
            phase=phase,
            work=does,
            role=role,
            per_layer=per_layer,
            embedding_share=ends,
            head_share=ends,
        )

    layer = (
        row(work(4000, op(gather, 8192)), work(4100, op(scatter, 8192)), work(3000)),
        row(work(5000, op(scatter, 8192)), work(5100, op(gather, 8192)), work(2000)),
    )
    block = Microbatch(
        embedding=(row(work(700, op(reduce, 4096)), work(300)),),
        layers=(layer, layer),
        head=(row(work(6000), work(6100), work(3300)),),
    )
    gradients = work(0, op(scatter, 600_000, ParallelAxis.DP))
    parameters = work(0, op(gather, 300_000, ParallelAxis.DP))
    update, weight = Phase.INPUT_GRAD, Phase.WEIGHT_GRAD
    return Workload(
        source="from roles",
        microbatches=(block,),
        degrees=degrees_of(tp=2, pp=3),
        npus=12,
        loss=(row(work(800, op(reduce, 2048)), work(0)),),
        per_step=(
            item(Role.SCALARS, Phase.FORWARD, work(0, op(reduce, 4))),
            item(Role.SCALARS, Phase.FORWARD, work(0, op(reduce, 4))),
            item(Role.GRADIENTS, weight, gradients, per_layer=True),
            item(Role.UPDATE, update, work(9000), per_layer=True),
            item(Role.PARAMETERS, weight, parameters, per_layer=True),
            item(Role.EMBEDDING_GRADIENTS, update, work(0, op(reduce, 80_000))),
            item(Role.NORM_GRADIENTS, update, work(0, op(reduce, 20_000)), per_layer=True),
        ),
        pp_comm_bytes=4096,
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stage_rows": "every"},
        {"dp_overlap": True, "dp_bucket": "100 KB"},
        {"schedule": "zb-h1", "contention": "fair", "microbatches": 6},
        {
            "schedule": "interleaved:2",
            "microbatches": 3,
            "compute_scale": ComputeScale(forward=0.5),
        },
    ],
    ids=lambda options: ", ".join(map(str, options)),
)
def test_roles_say_all_that_names_say(options: dict[str, Any], write_workload: Write) -> None:
    named = read_simai_text(write_workload(AICB))
    files, ours = (
        stepsim.simulate(each, "hgx-h100", **options).document() for each in (named, from_roles())
    )
    assert files.workload != ours.workload
    same = structs.replace(ours, workload=files.workload)
    assert without_doubts(files) == without_doubts(same)


def without_doubts(result: ResultDocument) -> ResultDocument:
    """The result without what is said about a file, by its name."""
    return structs.replace(result, findings=(), notes=())


def test_a_workload_computes_something_in_layers() -> None:
    empty = Microbatch(embedding=(), layers=(), head=())
    with pytest.raises(WorkloadError, match="nothing: no row belongs to a layer"):
        Workload(source="nothing", microbatches=(empty,))


def test_works_are_changed_everywhere_and_nothing_else_is() -> None:
    workload = from_roles()
    forward = Phase.FORWARD

    def double(phase: Phase, each: Work) -> Work:
        return replace(each, compute_ps=2 * each.compute_ps) if phase is forward else each

    changed = workload.with_works(double)
    pairs = list(zip(workload.rows(), changed.rows(), strict=True))
    assert all(b.forward.compute_ps == 2 * a.forward.compute_ps for a, b in pairs)
    assert all((a.input_grad, a.weight_grad) == (b.input_grad, b.weight_grad) for a, b in pairs)
    assert list(changed.comms()) == list(workload.comms())
    same = replace(changed, microbatches=workload.microbatches, loss=workload.loss)
    assert same == workload


def test_every_collective_is_listed() -> None:
    """Four of two layers with the same rows, one of the embedding, one of the loss, six more."""
    assert len(list(from_roles().comms())) == 4 + 1 + 1 + 6
