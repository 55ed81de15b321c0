"""What kernels of a model's rows ask of a GPU."""

import pytest

from stepsim.base.structs import replace
from stepsim.files.accelerators import read_device, read_framework
from stepsim.files.load import read_model
from stepsim.workload.model.build import build_workload
from stepsim.workload.overlap import (
    CommDemand,
    CommEngine,
    GpuLimits,
    Kernel,
    KernelDemand,
    KernelKind,
    row_slowdown,
    slowdown,
)
from stepsim.workload.plan import Plan
from stepsim.workload.rows import Row

GPU = GpuLimits(sms=132, bytes_per_s=3350e9)
RING = CommEngine.RING.traits.moving(370e9)
STREAM = KernelDemand(kind=KernelKind.STREAM)


def kernel(seconds: float, demand: KernelDemand, launches: float) -> Kernel:
    return Kernel(name="a", operator="", weight=seconds, demand=demand, launches=launches)


def layer(free_sms: int = 0) -> dict[str, Row]:
    """The rows of a layer of Llama 3 8B by their names."""
    work = build_workload(
        read_model("llama-3-8b"),
        Plan(sequence=8192),
        read_device("h100"),
        replace(read_framework("megatron-core"), free_sms=free_sms),
    )
    return {row.name: row for row in work.microbatches[0].layers[0]}


def test_every_row_that_computes_says_its_kernels() -> None:
    for row in layer().values():
        for _, work in row.works():
            if work.compute_ps:
                assert sum(each.launches for each in work.kernels) > 0


def test_products_have_blocks_by_their_shapes() -> None:
    """Of tokens x columns, in tiles of 256 x 128, or smaller where those do not fill the SMs."""
    rows = layer()
    forward = [each.demand for each in rows["qkv"].forward.kernels]
    products = [each for each in forward if each.kind is KernelKind.PRODUCT]
    assert [each.blocks for each in products] == [8192 // 256 * 6144 // 128]
    assert [each.demand for each in rows["attention_norm"].forward.kernels] == [STREAM]


def test_rows_are_slowed_by_the_mean_of_their_kernels_and_by_delays() -> None:
    product = KernelDemand()
    both = (kernel(3e-6, product, 2), kernel(1e-6, STREAM, 1), kernel(1e-6, product, 0))
    longer = [slowdown(each, [RING], GPU) - 1 for each in (product, STREAM)]
    no_delay = tuple(replace(each, launches=0.0) for each in both)
    found = row_slowdown(no_delay, 5e-6, [RING], GPU)
    assert found == pytest.approx(1 + 4 / 5 * longer[0] + 1 / 5 * longer[1])
    message = replace(CommEngine.POINT_TO_POINT.traits.moving(0.0), sms=0)
    assert row_slowdown(no_delay, 5e-6, [message], GPU) == 1.0
    assert row_slowdown(both, 5e-6, [message], GPU) == pytest.approx(1 + 3 * 1.5 / 5)


def test_products_that_leave_sms_free_take_longer_alone_and_nothing_longer_beside() -> None:
    whole, free = layer()["mlp"].forward, layer(free_sms=24)["mlp"].forward
    assert 1.0 < free.compute_ps / whole.compute_ps < 132 / 108 + 1e-6
    ring = CommDemand(sms=24)
    for mine, other in zip(free.kernels, whole.kernels, strict=True):
        leaves, fills = mine.demand, other.demand
        if leaves.kind is KernelKind.PRODUCT:
            assert leaves == replace(fills, free_sms=24)
            assert slowdown(leaves, [ring], GPU) == 1.0 < slowdown(fills, [ring], GPU)
            assert slowdown(leaves, [CommDemand(sms=32)], GPU) > 1.0
