"""Every public workload file at hand simulates, as the job its header describes."""

from pathlib import Path

import pytest

import stepsim
from stepsim.base.axes import EpLayout
from stepsim.base.errors import StepsimError
from stepsim.workload.plan import Plan
from stepsim.workload.rows import Workload

JOBS = {  # tp, dp, pp, ep, microbatches; without all_gpus 16 NPUs are assumed
    "14683a694e__Transformer_HybridParallel.txt": (4, 4, 1, 1, 1),
    "447b9ef1e4__microAllReduce.txt": (8, 1, 1, 1, 2),
    "4da83cdba5__Transformer_HybridParallel.txt": (1, 16, 1, 1, 1),
    "AllGather_512KB.txt": (1, 16, 1, 1, 1),
    "AllReduce_64KB.txt": (1, 16, 1, 1, 1),
    "DLRM_HybridParallel.txt": (1, 16, 1, 1, 1),
    "DeepSeek-16B-tp2-pp2-dp2-ep4-g32-mpdeptip.txt": (2, 8, 2, 4, 8),
    "G13B-M1-C02_GPT13B_megatron_tp8_pp1_mbs1_sp_A100.txt": (2, 64, 1, 64, 1),
    "H100-Mixtral_8x7B-world_size256-tp8-pp2-ep8-gbs256-mbs1-seq2048-MOE-True-GEMM-True-"
    "flash_attn-True.txt": (8, 16, 2, 8, 16),
    "H100-gpt_175B-world_size16384-tp8-pp8-ep1-gbs6144-mbs1-seq4096-MOE-False-GEMM-False-"
    "flash_attn-False.txt": (8, 256, 8, 1, 24),
    "H100-gpt_175B-world_size8192-tp8-pp8-ep1-gbs6144-mbs1-seq4096-MOE-False-GEMM-False-"
    "flash_attn-False.txt": (8, 128, 8, 1, 48),
    "InferenceProposed.txt": (1, 16, 1, 1, 1),
    "MLP_HybridParallel_Data_Model.txt": (8, 2, 1, 1, 1),
    "MLP_HybridParallel_Model_Data.txt": (8, 2, 1, 1, 1),
    "None-gpt_7B-world_size8-tp4-pp1-ep1-gbs16-mbs1-seq2048-MOE-False-GEMM-False-"
    "flash_attn-False.txt": (4, 2, 1, 1, 8),
    "Transformer_HybridParallel.txt": (2, 8, 1, 1, 1),
    "a.csv.txt": (8, 4, 1, 32, 1),
    "all_reduce.txt": (1, 16, 1, 1, 1),
    "cb2b70792e__microAllReduce.txt": (8, 1, 1, 1, 1),
    "changle_allreduce_09a9.txt": (4, 1, 1, 1, 1),
    "exercise_4_vanilla.txt": (1, 16, 1, 1, 1),
    "microAllReduce.txt": (8, 2, 1, 1, 1),
    "muti_all_reduce.txt": (8, 2, 1, 1, 1),
    "sample_per_layer_parallel_HybridCustomized.txt": (8, 2, 1, 1, 1),
    "workload.txt": (2, 384, 12, 16, 1),
    "workload_analytical.txt": (2, 384, 12, 16, 24),
    "workload_text.txt": (1, 16, 1, 1, 1),
}


def files(shared: Path) -> list[Path]:
    return sorted((shared / "reference/workloads").glob("*.txt"))


def layers_compute_ps(workload: Workload) -> int:
    """Compute of the layers of all blocks: every stage runs it once, whatever the rest does."""
    return sum(
        work.compute_ps
        for block in workload.microbatches
        for layer in block.layers
        for row in layer
        for _, work in row.works()
    )


def test_every_file_has_an_expected_outcome(shared: Path) -> None:
    assert {path.name for path in files(shared)} == JOBS.keys()


@pytest.mark.parametrize("name", JOBS)
def test_file_simulates_as_the_job_it_describes(name: str, shared: Path) -> None:
    path = shared / "reference/workloads" / name
    tp, dp, pp, ep, microbatches = JOBS[name]
    layout, expert_tp = (EpLayout.FOLDED, 1) if dp % ep else (None, None)
    step = stepsim.simulate(path, ep_layout=layout)
    assert step.plan == Plan(
        tp=tp, dp=dp, pp=pp, ep=ep, microbatches=microbatches, expert_tp=expert_tp
    )
    day_ps = 24 * 3600 * 10**12
    least_ps = max(1, layers_compute_ps(stepsim.load_workload(path)))
    assert least_ps <= step.report.step_time_ps < day_ps


@pytest.mark.parametrize("share", [0.02, 0.3, 0.999])
def test_a_file_cut_anywhere_simulates_or_is_refused_by_name(
    share: float, shared: Path, tmp_path: Path
) -> None:
    """Short files; a cut may fall inside a row or between two."""
    for path in files(shared):
        data = path.read_bytes()
        if len(data) > 20_000:
            continue
        part = tmp_path / path.name
        part.write_bytes(data[: int(len(data) * share)])
        refusal = ""
        try:
            assert stepsim.simulate(part).report.step_time_ps > 0
        except StepsimError as error:
            refusal = str(error)
        assert not refusal or path.name in refusal
