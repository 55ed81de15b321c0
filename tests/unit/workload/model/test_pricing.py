"""Times of operators and collectives from rates and bandwidths, by hand."""

from collections.abc import Sequence

import numpy as np
import pytest

from stepsim.base.arrays import Floats
from stepsim.base.axes import CollectiveKind
from stepsim.base.structs import replace
from stepsim.workload.model.choices import Precision
from stepsim.workload.model.device import (
    AttentionRate,
    Device,
    GroupedRate,
    GroupedShape,
    MatrixRate,
    ScanRate,
    ScanShape,
)
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.operators import linear, memory
from stepsim.workload.model.parts import Interconnect, Operator, OperatorKind, operator_of
from stepsim.workload.model.pricing import Pricer
from stepsim.workload.plan import Plan, PlanTable

DEVICE = Device(
    name="round",
    memory_bytes=64 << 30,
    memory_bandwidth=1e12,
    rates={Precision.BF16: MatrixRate(rate=1e14, peak=2e14, start_ps=2_000_000)},
    attention={"flash": AttentionRate(rate=5e13, half_sequence=1000, half_work=0, backward=0.5)},
    vector_rate=1e13,
    sustained=0.5,
    memory_share=0.8,
    kernel_floor_ps=3_000_000,
)
FRAMEWORK = Framework(name="plain", memory_factor=2.0, host_layer_ps=0, host_expert_layer_ps=0)
PLAN = Plan(sequence=1000)
COLUMNS = PlanTable([PLAN])


def pricer() -> Pricer:
    return Pricer(device=DEVICE, framework=FRAMEWORK, columns=COLUMNS)


def one(value: float) -> Floats:
    return np.array([value])


def operator(
    kind: OperatorKind, flops: float, moved: Sequence[float] = (0.0, 0.0), head_dim: int = 128
) -> Operator:
    both, sizes, launches = [one(flops)] * 2, [*map(one, moved)], [1.0, 1.0]
    return operator_of("one", kind, both, sizes, launches, head_dim=head_dim, rows=one(8.0))


def test_a_product_takes_its_operations_at_the_sustained_rate_and_a_start() -> None:
    found = pricer().together(map(pricer().price_one, [linear("one", COLUMNS, one(1e4), 1e4, 1e4)]))
    assert found.forward[0] == pytest.approx(2e12 / 5e13 + 2e-6)
    assert found.weight_grad[0] == pytest.approx(1.05 * (2e12 / 5e13 + 2e-6))


def test_a_product_of_few_rows_is_as_long_as_its_weight_takes_to_read() -> None:
    found = pricer().together(map(pricer().price_one, [linear("one", COLUMNS, one(1.0), 1e4, 1e4)]))
    assert found.forward[0] == pytest.approx((2 * (1e4 + 1e8) + 2e4) / 8e11)


def test_memory_bound_kernels_move_their_bytes_and_have_a_floor() -> None:
    moved = pricer().together(map(pricer().price_one, [memory("one", one(8e8), one(4e8))]))
    assert (moved.forward[0], moved.backward[0]) == (pytest.approx(2e-3), pytest.approx(1e-3))
    small = pricer().together(map(pricer().price_one, [memory("one", one(8.0), one(0.0))]))
    assert (small.forward[0], small.backward[0]) == (3e-6, 0.0)


def test_kernels_beside_those_of_experts_take_time_where_they_are_not_part_of_them() -> None:
    apart = replace(memory("one", one(8e8), one(4e8)), apart=True)
    assert pricer().together(map(pricer().price_one, [apart])).forward[0] == 0.0
    unfused = replace(pricer(), framework=replace(FRAMEWORK, fuses_experts=False))
    found = unfused.together(map(unfused.price_one, [apart]))
    assert (found.forward[0], found.backward[0]) == (pytest.approx(2e-3), pytest.approx(1e-3))


def test_attention_reaches_half_its_rate_at_its_half_sequence() -> None:
    found = pricer().together(map(pricer().price_one, [operator(OperatorKind.ATTENTION, 1e12)]))
    assert found.forward[0] == pytest.approx(1e12 / 5e13 * 2)
    assert found.input_grad[0] == pytest.approx(1e12 / 5e13 / 0.5 * 1.5)


GROUPS = GroupedShape(
    count=one(4), rows=np.full((3, 1), 130), columns=one(256), depth=np.full((3, 1), 100)
)
EXPERTS = replace(operator(OperatorKind.GROUPED, 1e12, (8e9, 8e9)), groups=GROUPS)
ROUNDS = 4 * 3 * 2 / 132 + 0.5  # tiles of 64 x 128 on 132 processors, half a round more
PRODUCTS = ROUNDS * 132 * 64 * 128 * 2 * 100 / 5e13


def test_products_of_experts_take_whole_tiles_and_a_start_each() -> None:
    found = pricer().together(map(pricer().price_one, [EXPERTS]))
    assert found.forward[0] == pytest.approx(np.hypot(PRODUCTS, 8e9 / 8e11) + 4 * 4e-6)


def test_weight_gradients_of_experts_are_summed_in_the_bytes_of_the_framework() -> None:
    item = replace(EXPERTS, bytes_moved=np.full((3, 1), 8 * 4.0 * 130 * 256))
    half = replace(pricer(), framework=replace(FRAMEWORK, gradient_bytes=2))
    for own, size in ((pricer(), 8), (half, 4)):
        expected = np.hypot(PRODUCTS, size * 4 * 130 * 256 / 8e11) + 4 * 4e-6
        assert own.together(map(own.price_one, [item])).weight_grad[0] == pytest.approx(expected)


def test_one_kernel_of_all_experts_has_no_starts() -> None:
    one_kernel = replace(pricer(), framework=replace(FRAMEWORK, groups_experts=True))
    expected = np.hypot(PRODUCTS, 8e9 / (0.89 * 1e12))
    assert one_kernel.together(map(one_kernel.price_one, [EXPERTS])).forward[0] == pytest.approx(
        expected
    )


def test_a_scan_waits_for_its_state_from_chunk_to_chunk() -> None:
    rates = {"side": ScanRate(share=0.1, step_ps=2_000_000, start_ps=10_000_000)}
    rates["whole"] = replace(rates["side"], whole=True)
    device = replace(DEVICE, scans=rates)
    bare = replace(pricer(), device=device)
    for family, rounds in (("side", 1), ("whole", 2)):
        shape = ScanShape(family=family, heads=one(133), chunk=64)
        item = replace(operator(OperatorKind.SCAN, 1e10), scanned=shape)
        found = bare.together(map(bare.price_one, [item]))
        products = 1e10 / 0.5 / (0.1 * 2e14)
        assert found.forward[0] == pytest.approx(10e-6 + 16 * rounds * 2e-6 + products)
        assert found.input_grad[0] == pytest.approx(20e-6 + 32 * rounds * 2e-6 + products)


def test_a_device_without_tables_of_kernels_has_those_of_its_products() -> None:
    assert DEVICE.grouped_rate("bf16").share == 0.5
    listed = replace(DEVICE, grouped={"fp8_block": GroupedRate(share=0.3)})
    assert listed.grouped_rate("mxfp8").share == 0.3


def test_a_window_pays_for_tiles_at_its_ends_and_few_heads_for_many() -> None:
    rate = AttentionRate(rate=1e12, half_sequence=1000, wide=2.0, window_keys=50, latent_heads=128)
    few = rate.flops_per_s(one(1000), one(1), 128, backward=False, keys=one(150))
    assert few[0] == pytest.approx(0.75e12)
    wide = rate.flops_per_s(one(1000), one(1), 192, backward=False)
    assert wide[0] == pytest.approx(1e12)
    assert rate.computed(one(16), 128)[0] == 4
    assert rate.computed(one(16), 576)[0] == 8
    assert rate.computed(one(256), 576)[0] == 1


def test_heads_whose_width_is_no_multiple_of_eight_use_no_tensor_cores() -> None:
    aligned = pricer().together(map(pricer().price_one, [operator(OperatorKind.SCORES, 1e12)]))
    odd = pricer().together(
        map(pricer().price_one, [operator(OperatorKind.SCORES, 1e12, head_dim=108)])
    )
    assert aligned.forward[0] == pytest.approx(1e12 / 5e13 + 2e-6)
    assert odd.forward[0] == pytest.approx(1e12 / 1e13)


NETWORK = Interconnect(domain=8, inner=400e9, outer=50e9, launch_ps=0, inner_ps=0, outer_ps=0)
RAMP = 6e6  # bytes that every pass costs more


@pytest.mark.parametrize(
    ("kind", "ranks", "stride", "expected"),
    [
        (CollectiveKind.ALL_GATHER, 8, 1, (7 / 8 * 1e9 + RAMP) / (400e9 * (1 - 0.75 / 8))),
        (CollectiveKind.ALL_REDUCE, 8, 1, 2 * (7 / 8 * 1e9 + RAMP) / (400e9 * (1 - 0.3 / 8))),
        (CollectiveKind.ALL_GATHER, 2, 1, (1 / 2 * 1e9 + RAMP) / (400e9 * (1 - 0.75 / 2))),
        (CollectiveKind.ALL_GATHER, 4, 4, (3 / 4 * 1e9 + RAMP) / 100e9),
        (CollectiveKind.ALL_TO_ALL, 16, 1, 8 / 16 * 1e9 / 50e9),
        (CollectiveKind.ALL_REDUCE, 1, 1, 0.0),
    ],
)
def test_collectives_inside_a_node_and_between_nodes(
    kind: CollectiveKind, ranks: int, stride: int, expected: float
) -> None:
    found = NETWORK.seconds(kind, one(1e9), one(ranks), one(stride))
    assert found[0] == pytest.approx(expected)
