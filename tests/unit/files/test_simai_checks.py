"""A file against itself: what it leaves out or contradicts is named with what it is worth."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepsim
from stepsim.base.axes import CollectiveKind
from stepsim.explain.report import Finding
from stepsim.files.simai.text import read_simai_text
from stepsim.options import StepOptions
from stepsim.parallel.modes import StageRows
from stepsim.parallel.schedules import Placement
from stepsim.parallel.stages import StageWork, split_stages
from stepsim.step.job import plan_of_workload
from stepsim.workload.rows import Role

Write = Callable[[str | bytes], Path]
HEADER = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1"


def findings(path: Path, **options: Any) -> tuple[Finding, ...]:
    return stepsim.simulate(path, "hgx-h100", **options).report.findings


def worth(path: Path, words: str, **options: Any) -> float:
    (found,) = (each for each in findings(path, **options) if words in each.text)
    assert found.worth is not None
    return found.worth


def test_placeholders_of_moe_rows_are_worth_a_fifth_of_the_step(workloads: Path) -> None:
    """The file comes out 19 % low; filled in, nothing is left to say of them."""
    moe = workloads / "moe_128.txt"
    share = worth(moe, "--fill-placeholders")
    assert 1 - 1 / (1 + share) == pytest.approx(0.19, abs=0.01)
    plain, filled = (
        stepsim.simulate(moe, "hgx-h100", fill_placeholders=each).report.step_time_ps
        for each in (False, True)
    )
    assert filled / plain - 1 == pytest.approx(share)
    assert not [f for f in findings(moe, fill_placeholders=True) if "placeholder" in f.text]


def test_unequal_blocks_are_one_microbatch(workloads: Path) -> None:
    """Cycled as microbatches they would idle for half of the pipeline."""
    result = stepsim.simulate(workloads / "moe_128.txt", "hgx-h100", microbatches=64).report
    assert "9 layers" in result.reading
    assert result.bubble_fraction < 0.12
    (block,) = read_simai_text(workloads / "moe_128.txt").microbatches
    assert len(block.layers) == 9
    assert [row.name for row in block.head] == [
        *("final_column", "embedding_layer_2", "final_column_2")
    ]


def test_gathers_and_reductions_agree(workloads: Path) -> None:
    """1/32 of the parameters are gathered; consistent, the step is an eighth longer."""
    gpt = workloads / "gpt_tp4.txt"
    (doubt,) = (each for each in read_simai_text(gpt).doubts if "grad_gather" in each.text)
    assert "1/32 of half of what grad_param_comm reduces" in doubt.text
    assert doubt.mended is not None
    items = (i for i in doubt.mended.per_step if i.role is Role.PARAMETERS)
    (gathered,) = (op for item in items for op in item.work.comms)
    assert gathered.size_bytes == 12_955_156_480 // 2
    assert 0.1 < worth(gpt, "grad_gather") < 0.2


def test_rows_that_are_too_long_are_worth_less_than_nothing(workloads: Path) -> None:
    """Norms of all parameters, messages larger than rows, an embedding that is the optimizer."""
    assert -0.1 < worth(workloads / "gpt_tp4.txt", "layernorm sums 6.033 GiB") < -0.02
    assert worth(workloads / "moe_128.txt", "128 times of the activation") < -0.01
    assert worth(workloads / "moe_128.txt", "weight gradient of embedding_layer") < 0


def test_gradients_of_embedding_and_head_are_on_the_ends_alone(workloads: Path) -> None:
    """A stage between the ends reduces those of its layers; `every` has them all."""
    workload = read_simai_text(workloads / "gpt_1024.txt")
    topology = stepsim.load_topology("hgx-h100")
    sizes = {}
    plan, _ = plan_of_workload(workload, topology, StepOptions())
    for rows in StageRows:
        stages = split_stages(workload, plan, Placement(ranks=plan.pp), rows)
        sizes[rows] = [reduced(stage) for stage in stages.works]
    assert set(sizes[StageRows.EVERY]) == {12_802_064_384}
    first, second, *_, last = sizes[StageRows.ENDS]
    assert set(sizes[StageRows.ENDS][1:-1]) == {second}
    assert second < first == last < 12_802_064_384
    assert first - second == pytest.approx(12_802_064_384 - first, abs=2)


def test_what_a_file_leaves_out_is_said_with_a_number(write_workload: Write) -> None:
    """Of four microbatches one is written, a collective has no bytes, an embedding takes long."""
    rows = [
        "embedding_layer -1 900000 NONE 0 1 NONE 0 1 NONE 0 100",
        "attention_column -1 90000 ALLGATHER 800000000 90000 REDUCESCATTER 0 90000 NONE 0 100",
    ]
    path = write_workload(f"{HEADER} pp: 1 ga: 4\n2\n" + "\n".join(rows))
    found = {re.sub(r":.*", "", each.text): each.worth for each in findings(path)}
    assert found["the header says ga 4, the rows hold 1 microbatch"] == pytest.approx(3, rel=0.1)
    assert found["reduce-scatter of 0 bytes in the input gradient of 1 row (attention_column)"]
    long = found["the forward of embedding_layer takes 900 us, 10 times the longest row of a layer"]
    assert long is not None
    assert -0.9 < long < -0.1


def test_rows_without_compute_are_named_beside_others(write_workload: Write) -> None:
    bare = "attention -1 0 NONE 0 0 NONE 0 0 NONE 0 100\nmlp -1 9000 NONE 0 0 NONE 0 0 NONE 0 100"
    texts = [each.text for each in findings(write_workload(f"{HEADER} pp: 1\n2\n{bare}"))]
    assert "1 of 2 rows have no compute time: attention" in texts
    assert "no row of a layer has a backward: a forward alone is simulated" in texts


def test_a_healthy_file_is_not_doubted(write_workload: Write) -> None:
    rows = ["attention_row -1 9000 ALLREDUCE 4096 9000 NONE 0 9000 NONE 0 100"] * 2
    path = write_workload(f"{HEADER} pp: 1 vpp: 8 ga: 1 all_gpus: 2\n2\n" + "\n".join(rows))
    report = stepsim.simulate(path, "hgx-h100").report
    assert (report.findings, report.reading) == ((), "")
    assert [note for note in report.notes if "vpp 8" in note]


def test_the_weightiest_is_said_first_and_notes_only_on_request(
    run: Callable[..., tuple[int, str, str]], workloads: Path
) -> None:
    moe = workloads / "moe_128.txt"
    _, out, err = run("simulate", moe, "-t", "hgx-h100")
    assert "--fill-placeholders" in err.splitlines()[0]
    assert "the 2 blocks of the file (8, 1 layers) are read as 1 microbatch of 9 layers" in err
    assert out.startswith("moe_128.txt on 128 GPUs")
    assert "vpp" not in err
    assert "note: header says vpp 8" in run("simulate", moe, "-t", "hgx-h100", "-v")[2]


@pytest.mark.parametrize("name", ["reference/workloads/DeepSeek-16B*", "moe_128.txt"])
def test_doubts_are_worth_what_they_change(name: str, shared: Path, workloads: Path) -> None:
    path = next((shared if "/" in name else workloads).glob(name))
    workload = read_simai_text(path)
    plain = stepsim.simulate(workload, "hgx-h100").report
    told = [*plain.notes, *(finding.text for finding in plain.findings)]
    checked = 0
    for doubt in workload.doubts:
        said = [text for text in told if text.startswith(doubt.text)]
        found = [re.search(r"takes ([\d.]+)% (longer|shorter)", text) for text in said]
        if doubt.mended and found and found[0]:
            mended = stepsim.simulate(doubt.mended, "hgx-h100").report.step_time_ps
            share = float(found[0][1]) / 100 * (1 if found[0][2] == "longer" else -1)
            assert mended / plain.step_time_ps - 1 == pytest.approx(share, abs=5.1e-4)
            checked += 1
    assert checked


def reduced(stage: StageWork) -> int:
    return sum(
        op.size_bytes
        for item in stage.per_step
        if item.role is Role.GRADIENTS
        for op in item.work.comms
        if op.kind is CollectiveKind.REDUCE_SCATTER
    )
