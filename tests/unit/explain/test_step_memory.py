"""Memory of ranks by hand, against the schedules' peaks, and against the closed form."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stepsim
from stepsim.base.errors import PlanError
from stepsim.explain.memory import HeldBytes, MemoryPart, StepMemory, memory_curves, step_memory
from stepsim.face.results import Result
from stepsim.files.accelerators import read_device, read_framework
from stepsim.files.load import read_model
from stepsim.parallel.schedules import Schedule, build
from stepsim.parallel.schedules.base import peak_live
from stepsim.views.memory import plot_memory
from stepsim.workload.model.choices import Recompute
from stepsim.workload.model.memory import rank_memory
from stepsim.workload.plan import Plan

ACTIVATIONS = MemoryPart.ACTIVATIONS


def held(schedule: Schedule, *, activations: Any = 1, logits: Any = 0, work: int = 0) -> HeldBytes:
    ranks, shape = schedule.placement.ranks, (schedule.placement.ranks, schedule.placement.chunks)
    return HeldBytes(
        activations=np.broadcast_to(np.asarray(activations, dtype=np.int64), shape),
        logits=np.broadcast_to(np.asarray(logits, dtype=np.int64), shape),
        recomputed=np.full(ranks, work),
        fixed={MemoryPart.WEIGHTS: np.arange(ranks)},
    )


def peaks(memory: StepMemory, part: MemoryPart = ACTIVATIONS) -> list[int]:
    return [peak.parts.get(part, 0) for peak in memory.peaks]


@settings(max_examples=40)
@given(
    name=st.sampled_from(
        [
            *("1f1b", "gpipe", "interleaved:2", "looped-bfs:2", "interleaved-zb:2", "zb-h1"),
            *("zb-v", "dualpipe", "dualpipe-v"),
        ]
    ),
    ranks=st.sampled_from([2, 4, 6]),
    rounds=st.integers(2, 4),
)
def test_most_bytes_are_the_most_live_activations_of_every_schedule(
    name: str, ranks: int, rounds: int
) -> None:
    schedule = build(name, ranks=ranks, microbatches=ranks * rounds)
    memory = step_memory(held(schedule, activations=3), schedule)
    assert peaks(memory) == [3 * peak.freed_at_w for peak in peak_live(schedule)]
    assert [3 * sum(peak.kept) for peak in memory.peaks] == peaks(memory)


def test_chunks_of_different_sizes_peak_where_their_bytes_do() -> None:
    """GPipe of a chunk of 5 bytes and one of 1: all of both at the end of the forwards."""
    schedule = build("interleaved:2", ranks=2, microbatches=2)
    memory = step_memory(held(schedule, activations=[[5, 1], [0, 7]]), schedule)
    # rank 0 runs F0.0 F0.1 F1.0 before a backward of its second chunk; rank 1 holds two of its 7
    assert peaks(memory)[0] == 5 + 5 + 1 + 1
    assert memory.peaks[0].kept == (2, 2)
    assert peaks(memory)[1] == 7


def test_what_a_backward_recomputes_is_held_beside_what_it_frees() -> None:
    schedule = build("1f1b", ranks=2, microbatches=4)
    memory = step_memory(held(schedule, activations=2, work=9), schedule)
    assert [peak.total for peak in memory.peaks] == [2 * 2 + 9, 2 + 9 + 1]
    assert memory.peaks[1].parts == {
        MemoryPart.WEIGHTS: 1,
        ACTIVATIONS: 2,
        MemoryPart.RECOMPUTED: 9,
    }


def step_of(**options: Any) -> Result:
    asked: dict[str, Any] = {"npus": 16, "tp": 2, "global_batch": 32, "sequence": 4096}
    asked["microbatch_size"] = 1
    return stepsim.simulate("llama-3.1-8b", "hgx-h100", **(asked | options))


@pytest.mark.parametrize("recompute", Recompute)
@pytest.mark.parametrize("chunks", [1, 2])
def test_the_fullest_rank_is_that_of_the_closed_form(chunks: int, recompute: Recompute) -> None:
    plan = Plan.of_batch(
        tp=2, dp=2, pp=4, chunks=chunks, global_batch=32, sequence=4096, recompute=recompute
    )
    model = read_model("llama-3.1-8b").architecture
    device, framework = read_device("h100"), read_framework("megatron-core")
    closed = rank_memory(model, device, framework, [plan])
    found = step_of(pp=4, chunks=chunks, recompute=recompute).memory
    assert found is not None
    assert found.fullest.total == pytest.approx(float(closed.total[0]), abs=8)
    named = {part: float(getattr(closed, part)[0]) for part in ("weights", "gradients", "logits")}
    assert {name: found.fullest.parts.get(MemoryPart(name), 0) for name in named} == named


@pytest.mark.parametrize("schedule", ["zb-v", "dualpipe-v", "dualpipe", "interleaved:2", "zb-h1"])
def test_a_model_has_its_parameters_wherever_stages_lie(schedule: str) -> None:
    """Two bytes each; DualPipe holds every stage twice."""
    memory = step_of(pp=4, schedule=schedule).memory
    assert memory is not None
    weights = sum(peaks(memory, MemoryPart.WEIGHTS))
    copies = 2 if schedule == "dualpipe" else 1
    model = read_model("llama-3.1-8b").architecture
    assert weights == pytest.approx(copies * 2 * model.parameters() / 2, rel=1e-9)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-v", "interleaved:2"])
def test_curves_have_the_peaks_and_are_level_at_the_ends(schedule: str) -> None:
    found = stepsim.simulate(
        "llama-3.1-8b", "hgx-h100", npus=8, pp=4, global_batch=16, sequence=4096, schedule=schedule
    )
    memory = found.memory
    assert memory is not None
    for stage in found.report.stages:
        curves = memory_curves(found.timeline, memory.held, stage.first_rank)
        total = curves.values.sum(axis=1)
        assert stage.memory is not None
        assert total.max() == stage.memory.total_bytes
        assert curves.time_ps[int(total.argmax())] == stage.memory.at_ps
        fixed = sum(int(sizes[stage.stage]) for sizes in memory.held.fixed.values())
        assert total[-2] == fixed
        assert curves.time_ps[-1] == found.report.step_time_ps


# what a user says of a workload's activations


@pytest.mark.parametrize(
    ("schedule", "share"), [("1f1b", 1), ("interleaved:2", 0.5), ("dualpipe", 1), ("zb-v", 0.5)]
)
def test_a_chunk_counts_by_its_share_of_a_stage(moe: Path, schedule: str, share: float) -> None:
    report = stepsim.simulate(
        moe, "hgx-h100", pp=2, microbatches=8, schedule=schedule, activation_size="1 MiB"
    ).report
    assert report.peak_activation_bytes == report.peak_activations * 2**20 * share


def test_a_figure_needs_something_to_draw(moe: Path, tmp_path: Path) -> None:
    plain = stepsim.simulate(moe, "hgx-h100")
    with pytest.raises(PlanError, match="nothing says what its ranks hold"):
        plot_memory(plain, tmp_path / "m.svg")
    said = stepsim.simulate(moe, "hgx-h100", activation_size="1 GiB")
    plot_memory(said, tmp_path / "m.svg")
    assert "activations" in (tmp_path / "m.svg").read_text()
