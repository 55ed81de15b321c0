"""A model as a workload: against the closed form, against hand counts, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from stepsim import simulate
from stepsim.base.axes import CollectiveKind, Group, Part
from stepsim.base.errors import PlanError, StepsimError
from stepsim.base.structs import replace
from stepsim.explain.report import Report
from stepsim.files.accelerators import read_device
from stepsim.files.asked import read_inputs
from stepsim.files.step_table import read_step_table
from stepsim.files.sweep_toml import read_sweep
from stepsim.runs.measured import validate_table
from stepsim.step.job import Job, job_of
from stepsim.step.model_plan import interconnect_of
from stepsim.views.step import step_tables
from stepsim.workload.model.device import Device
from stepsim.workload.model.framework import Framework
from stepsim.workload.model.model import Model
from stepsim.workload.model.step_time import StepModel

PLANS: dict[str, tuple[str, dict[str, Any]]] = {
    "tensor": ("llama-3-8b", {"npus": 16, "tp": 4, "global_batch": 64, "sequence": 4096}),
    "pipeline": (
        "llama-3-70b",
        {"npus": 64, "tp": 8, "pp": 4, "global_batch": 64, "sequence": 4096},
    ),
    "interleaved": (
        "llama-3-70b",
        {"npus": 64, "tp": 4, "pp": 4, "chunks": 2, "global_batch": 64, "sequence": 4096},
    ),
    "recomputed": (
        "gpt3-175b",
        {"npus": 128, "tp": 8, "pp": 8, "global_batch": 64, "sequence": 2048, "recompute": "full"},
    ),
    "ends as layers": (
        "llama-3.1-405b",
        {"npus": 128, "tp": 8, "pp": 16, "global_batch": 48, "sequence": 8192, "dp_overlap": True},
    ),
    "ring": (
        "llama-3-8b",
        {"npus": 32, "tp": 2, "cp": 4, "global_batch": 32, "sequence": 32768},
    ),
    "all-to-all": (
        "llama-3-8b",
        {"npus": 32, "tp": 2, "cp": 4, "global_batch": 32, "cp_comm": "all_to_all"},
    ),
    "sharded": (
        "llama-3-8b",
        {"npus": 64, "zero": 3, "global_batch": 64, "framework": "torch-fsdp-compiled"},
    ),
    "experts": (
        "mixtral-8x7b",
        {"npus": 32, "ep": 8, "pp": 4, "global_batch": 64, "sequence": 4096},
    ),
    "zero 2 in a pipeline": (
        "llama-3-8b",
        {"npus": 64, "tp": 2, "pp": 4, "zero": 2, "global_batch": 128, "sequence": 8192},
    ),
    "fp8": (
        "llama-3-70b",
        {
            "npus": 64,
            "tp": 4,
            "pp": 4,
            "global_batch": 64,
            "sequence": 8192,
            "precision": "fp8",
            "tp_comm_overlap": True,
            "dp_overlap": True,
        },
    ),
}


def made(name: str, **options: Any) -> tuple[Job, Model, Device, Framework]:
    job = read_inputs(name, "hgx-h100", options)
    assert isinstance(job.workload, Model)
    assert isinstance(job.options.device, Device)
    assert isinstance(job.options.framework, Framework)
    work = job_of(job)
    return work, job.workload, job.options.device, job.options.framework


def step(name: str, **options: Any) -> Report:
    return simulate(name, "hgx-h100", **options).report


@pytest.mark.parametrize("kind", PLANS)
def test_the_simulation_agrees_with_the_closed_form(kind: str) -> None:
    """Within 6 %: the closed form has two levels of network and no order of the pipeline."""
    name, options = PLANS[kind]
    work, model, device, framework = made(name, **options)
    plan = work.plan
    job = read_inputs(name, "hgx-h100", options)
    closed = StepModel(
        architecture=model.architecture,
        device=device,
        framework=framework,
        interconnect=interconnect_of(job.topology.fit(plan.npus)),
    )
    expected = float(closed.seconds([plan])[0])
    assert step(name, **options).step_time_s == pytest.approx(expected, rel=0.06)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("llama-3-8b", {"npus": 10, "tp": 5}, "heads is 32: expected a multiple of tp, 5"),
        ("mixtral-8x7b", {"npus": 3, "ep": 3}, "experts is 8: expected a multiple of ep, 3"),
        ("llama-3-8b", {"pp": 2, "layout": "16+15"}, "layout has 31 layers: expected 32"),
        ("llama-3-8b", {"device": "h1000"}, "no device named 'h1000' (did you mean"),
        ("llama-3-8b", {"device": "a100-80gb", "precision": "fp8"}, "precision is fp8: A100-80GB"),
        ("llama-3-8b", {"npus": 12, "tp": 8}, "npus is 12: expected a multiple of tp*cp*pp, 8"),
        (
            "llama-3-8b",
            {"npus": 8, "tp": 1, "global_batch": 12},
            "global_batch is 12: expected a multiple",
        ),
        ("llama-3-8b", {"npus": 8, "ep": 2}, "ep is 2: llama-3-8b has no experts: expected 1"),
        ("llama-3-8b", {"npus": 8, "sequence": 0}, "sequence is 0: expected 1 to"),
        ("llama-3-8b", {"recompute": "some"}, "recompute is 'some': expected one of none"),
    ],
)
def test_what_does_not_fit_is_named_with_what_would(
    name: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(StepsimError) as caught:
        step(name, **{"sequence": 4096, "global_batch": 960, "npus": 16, **options})
    assert words.lower() in str(caught.value).lower()
    assert "\n" not in str(caught.value)


def test_a_topology_without_a_device_needs_one() -> None:
    with pytest.raises(PlanError, match="llama-3-8b: device is missing: topology ring names none"):
        simulate("llama-3-8b", "ring", npus=8)
    report = simulate("llama-3-8b", "ring", npus=8, device="h100", sequence=2048).report
    assert report.throughput is not None
    assert report.throughput.device == "H100"


def test_floating_point_operations_are_six_per_parameter_and_token() -> None:
    """And attention's: 6 x layers x sequence x hidden per token, half of it masked."""
    work, model, *_ = made("llama-2-7b", npus=8, tp=2, global_batch=8, sequence=4096)
    effort = work.given.effort
    assert effort is not None
    a = model.architecture
    products = 6 * (a.parameters() - a.embedding_parameters)
    attention = 6 * a.depth * 4096 * a.hidden
    assert effort.tokens == 8 * 4096
    assert effort.model_flops == pytest.approx((products + attention) * effort.tokens, rel=0.001)
    assert effort.hardware_flops > effort.model_flops


def test_rates_follow_from_the_step() -> None:
    report = step("llama-2-7b", npus=8, tp=2, global_batch=8, sequence=4096)
    rates = report.throughput
    assert rates is not None
    assert rates.tokens_per_s == pytest.approx(8 * 4096 / report.step_time_s / 8)
    assert rates.mfu == pytest.approx(rates.model_tflops / 989.4)
    assert rates.npu_hours_per_trillion_tokens == pytest.approx(1e12 / rates.tokens_per_s / 3600)
    assert rates.kwh_per_step == pytest.approx(8 * 700 * report.step_time_s / 3.6e6)
    assert rates.error is not None
    assert 0 < rates.error < 0.2


def test_a_price_per_hour_is_a_price_per_step_and_per_trillion_tokens() -> None:
    device = replace(read_device("h100"), name="rented", price_per_hour=2.5)
    result = simulate("llama-3-8b", "hgx-h100", npus=8, global_batch=8, device=device)
    rates = result.report.throughput
    assert rates is not None
    assert rates.price_per_step == pytest.approx(8 * 2.5 * result.report.step_time_s / 3600)
    run = 2.5 * rates.npu_hours_per_trillion_tokens
    settings: Any = step_tables(result.report)["settings"]
    said = dict(settings)["cost"]
    assert f"$ {rates.price_per_step:.4g} a step, $ {run:,.0f} per trillion tokens" in said


@pytest.mark.parametrize(
    ("zero", "expected"),
    [
        (0, {(Group.DP_CP, CollectiveKind.ALL_REDUCE): 4}),
        (
            1,
            {
                (Group.DP_CP, CollectiveKind.REDUCE_SCATTER): 4,
                (Group.DP_CP, CollectiveKind.ALL_GATHER): 2,
            },
        ),
    ],
)
def test_gradients_and_parameters_are_summed_and_gathered_once(
    zero: int, expected: dict[tuple[Group, CollectiveKind], int]
) -> None:
    options = {"npus": 8, "tp": 1, "global_batch": 8, "sequence": 2048, "dp_overlap": False}
    report = step("llama-2-7b", zero=zero, **options)
    whole = 6_738_415_616
    found = {(use.group, use.kind): use.size_bytes for use in report.comms if use.ranks > 1}
    assert found == {key: size * whole for key, size in expected.items()}


def test_every_parameter_is_gathered_twice_and_reduced_once_with_zero_3() -> None:
    report = step("llama-2-7b", npus=8, zero=3, global_batch=8, sequence=2048)
    moved: dict[str, int] = {}
    for use in report.comms:
        moved[use.kind] = moved.get(use.kind, 0) + use.size_bytes * use.count
    whole = 6_738_415_616
    assert moved[CollectiveKind.ALL_GATHER] == 2 * 2 * whole
    assert moved[CollectiveKind.REDUCE_SCATTER] in (2 * whole, 4 * whole)


@pytest.mark.parametrize(("pp", "times"), [(1, 4), (2, 1)])
def test_a_pipeline_gathers_parameters_once_a_step_with_zero_2(pp: int, times: int) -> None:
    """Four microbatches: parameters stay until the last one; gradients are reduced after each."""
    report = step("llama-2-7b", npus=8, tp=1, pp=pp, zero=2, sequence=2048, microbatches=4)
    layer = 2 * (4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096)
    counts = {use.kind: use.count for use in report.comms if use.size_bytes == layer}
    assert counts[CollectiveKind.ALL_GATHER] == times * 32 // pp
    assert counts[CollectiveKind.REDUCE_SCATTER] == 4 * 32 // pp


def test_a_long_sequence_is_split_over_its_ranks() -> None:
    job = {"npus": 16, "global_batch": 8, "sequence": 65536, "tp": 2}
    ring = step("llama-3-8b", cp=4, **job)
    assert {use.kind for use in ring.comms if use.group == "cp"} == {CollectiveKind.SEND_RECV}
    gathered = step("llama-3-8b", cp=4, cp_comm="all_gather", **job)
    assert gathered.breakdown_ps[Part.EXPOSED_CP.key] > 0
    assert ring.breakdown_ps[Part.EXPOSED_CP.key] < gathered.breakdown_ps[Part.EXPOSED_CP.key]


@pytest.mark.parametrize("schedule", ["zb-h1", "zb-v", "dualpipe-v", "gpipe", "interleaved:4"])
def test_models_run_under_every_kind_of_schedule(schedule: str) -> None:
    options = {"npus": 16, "pp": 4, "microbatches": 8, "sequence": 2048, "dp_overlap": True}
    folded, every = (
        step("llama-3-8b", schedule=schedule, fold_ranks=fold, **options) for fold in (True, False)
    )
    assert folded.step_time_ps == every.step_time_ps


def test_assumptions_are_said_once_by_name() -> None:
    warnings = step("llama-3-8b").warnings
    assumed = [text.split()[1] for text in warnings if text.startswith("no ")]
    assert sorted(assumed) == ["degrees", "global_batch", "npus", "sequence"]
    assert sum(text.startswith("defaults of megatron-core:") for text in warnings) == 1


def test_a_script_says_what_flags_may_change(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(
        "torchrun pretrain.py --num-layers 8 --hidden-size 1024 --num-attention-heads 16 --bf16 "
        "--seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 2 --hidden-dropout 0 "
        "--global-batch-size 64 --tensor-model-parallel-size 2 --vocab-size 50257\n"
    )
    report = step(str(path), npus=16)
    assert (report.plan["tp"], report.microbatches) == (2, 4)
    assert step(str(path), npus=16, tp=4, microbatches=3).microbatches == 3


def test_tables_and_files_of_sweeps_may_name_a_public_model(tmp_path: Path) -> None:
    table = tmp_path / "steps.csv"
    table.write_text(
        "workload,topology,npus,tp,global_batch,sequence,measured_s\n"
        "llama-3-8b,hgx-h100,16,2,16,2048,1.0\n"
    )
    (row,) = read_step_table(table)
    (found,), _ = validate_table([row])
    options = {"npus": 16, "tp": 2, "global_batch": 16, "sequence": 2048}
    assert found.simulated_ps == step("llama-3-8b", **options).step_time_ps
    sweep = tmp_path / "sweep.toml"
    sweep.write_text('workload = "llama-3-8b"\n[axes]\ntp = [1, 2]\n')
    assert read_sweep(sweep).workload == "llama-3-8b"


def test_a_workload_file_has_no_device_to_change(moe: Path) -> None:
    with pytest.raises(PlanError, match=r"device is for models only: .* of an unknown device"):
        simulate(moe, "hgx-h100", device="b200")


def test_a_file_says_that_its_times_are_of_an_unknown_device(moe: Path) -> None:
    unknown = "of an unknown device: they are not changed for a100-80gb, the device of hgx-a100"
    assert any(unknown in each for each in simulate(moe, "hgx-a100").report.notes)
    for work, network in ((moe, "ring"), ("llama-3-8b", "hgx-a100")):
        notes = simulate(work, network).report.notes
        assert not [each for each in notes if "unknown device" in each]
