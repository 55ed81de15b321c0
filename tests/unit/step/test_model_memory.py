"""Memory of a simulated model: what the schedule keeps, and what is said where it is full."""

from typing import Any

import numpy as np
import pytest

from stepsim import simulate
from stepsim.base.structs import replace
from stepsim.explain.memory import HeldBytes, step_memory
from stepsim.files.accelerators import read_device, read_framework
from stepsim.parallel.schedules import Schedule, build
from stepsim.views.answer import answer_of
from stepsim.workload.model.architecture import Architecture, DenseMlp, GroupedAttention, Layer
from stepsim.workload.model.evidence import Throughput
from stepsim.workload.model.held import plan_places
from stepsim.workload.model.memory import kept_by, rank_memory, rank_parts
from stepsim.workload.plan import PipelineOrder, Plan


def kept(schedule: Schedule) -> tuple[tuple[int, ...], ...]:
    """Activations of a byte each, of every rank by chunk, when it holds most."""
    ranks, chunks = schedule.placement.ranks, schedule.placement.chunks
    each, nothing = np.ones((ranks, chunks), dtype=np.int64), np.zeros(ranks, dtype=np.int64)
    held = HeldBytes(activations=each, logits=0 * each, recomputed=nothing, fixed={})
    return tuple(peak.kept for peak in step_memory(held, schedule).peaks)


@pytest.mark.parametrize(
    ("pp", "chunks", "microbatches"),
    [(4, 1, 8), (4, 1, 2), (4, 3, 12), (4, 3, 4), (3, 5, 9)],
)
def test_chunks_are_kept_as_the_closed_form_says(pp: int, chunks: int, microbatches: int) -> None:
    name = "1f1b" if chunks == 1 else f"interleaved:{chunks}"
    schedule = build(name, ranks=pp, microbatches=microbatches)
    np.testing.assert_array_equal(
        kept_by(PipelineOrder.ALTERNATING, pp, chunks, np.array([microbatches])), [kept(schedule)]
    )


@pytest.mark.parametrize(("pp", "microbatches"), [(4, 16), (4, 3), (8, 32), (2, 8)])
@pytest.mark.parametrize("order", [PipelineOrder.ZB_H1, PipelineOrder.ZB_V])
def test_zero_bubble_schedules_keep_what_a_search_counts(
    order: PipelineOrder, pp: int, microbatches: int
) -> None:
    """Full memory of the fullest rank, of a model without ends that weigh."""
    layer = Layer(
        attention=GroupedAttention(heads=16, kv_heads=16, head_dim=64), mlp=DenseMlp(width=4096)
    )
    model = Architecture(name="even", hidden=1024, layers=(layer,) * 2 * pp, vocabulary=8)
    plan = Plan.of_batch(
        pp=pp, chunks=order.chunks, order=order, global_batch=microbatches, sequence=2048
    )
    device, framework = read_device("h100"), read_framework("megatron-core")
    counted = rank_memory(model, device, framework, [plan])
    parts = rank_parts(model, framework, [plan], plan_places(plan))
    whole = np.rint(parts.activations[0]).astype(np.int64)
    empty = np.zeros(pp, dtype=np.int64)
    held = HeldBytes(activations=whole, logits=0 * whole, recomputed=empty, fixed={})
    simulated = step_memory(held, build(order.value, ranks=pp, microbatches=microbatches))
    assert counted.activations[0] == pytest.approx(simulated.fullest.total, rel=0.01)


def held(**options: Any) -> tuple[int, tuple[str, ...]]:
    """Bytes of the fullest rank, and what is said of the step."""
    report = simulate(
        "llama-3.1-8b", "hgx-h100", npus=8, global_batch=16, sequence=4096, **options
    ).report
    assert report.throughput is not None
    assert report.throughput.memory_bytes is not None
    found = tuple(each.text for each in report.findings)
    return report.throughput.memory_bytes, (*found, *report.warnings)


def test_a_model_that_fits_says_nothing() -> None:
    size, warnings = held(tp=4, pp=2)
    assert 20 << 30 < size < 40 << 30
    assert not any("holds" in warning for warning in warnings)


ALONE: dict[str, Any] = {
    "npus": 1,
    "tp": 1,
    "microbatch_size": 1,
    "global_batch": 8,
    "sequence": 2048,
    "zero": 3,
    "framework": "torch-fsdp-eager",
}


def rates_of(topology: str, **options: Any) -> Throughput:
    rates = simulate("llama-3-8b", topology, **options).report.throughput
    assert rates is not None
    return rates


def test_states_in_bf16_are_eight_bytes_a_parameter() -> None:
    """An 8B model is tuned whole on one A100; in fp32 it takes twice as much, and that is said."""
    whole = simulate("llama-3-8b", "hgx-a100", **ALONE).report
    assert "as it is with --states bf16 --recompute full" in whole.findings[0].text
    full = rates_of("hgx-a100", **ALONE, recompute="full")
    half = rates_of("hgx-a100", **ALONE, recompute="full", states="bf16")
    assert half.fits
    saved = ((full.memory_bytes or 0) - (half.memory_bytes or 0)) / half.parameters
    assert saved == pytest.approx(4 + 12 - 8, abs=0.5)


def test_a_loss_in_chunks_has_the_logits_of_one() -> None:
    options: dict[str, Any] = {**ALONE, "npus": 8}
    sizes = [rates_of("hgx-h100", **options, loss_chunks=n).memory_bytes or 0 for n in (1, 2, 8)]
    half, most = (sizes[0] - size for size in sizes[1:])
    assert most == pytest.approx(half * (7 / 8) / (1 / 2), rel=1e-6)
    assert rates_of("hgx-h100", **options).memory_bytes == sizes[0]
    compiled = {**options, "framework": "torch-fsdp-compiled"}
    assert rates_of("hgx-h100", **compiled) == rates_of("hgx-h100", **compiled, loss_chunks=8)


def test_a_rank_that_is_nearly_full_is_said_on_the_second_line() -> None:
    report = simulate("llama-3-8b", "hgx-a100", **ALONE, states="bf16", recompute="full").report
    rates = report.throughput
    assert rates is not None
    for share, words in ((0.9, "80 GiB"), (0.95, "80 GiB: likely out of memory")):
        held = replace(rates, memory_bytes=int(share * (rates.capacity_bytes or 0)))
        assert answer_of(replace(report, throughput=held)).time.endswith(words)
