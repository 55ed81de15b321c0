"""Which machine a model runs on where nobody says it, and what is said of groups across racks."""

from typing import Any

import pytest

from stepsim import plan, simulate, sweep
from stepsim.base.axes import RankOrder
from stepsim.base.structs import replace
from stepsim.base.units import format_time_ps
from stepsim.explain.report import Report
from stepsim.files.accelerators import device_names, read_device
from stepsim.files.asked import read_inputs
from stepsim.files.load import topology_of
from stepsim.parallel.modes import JobPlacement
from stepsim.workload.model.choices import Precision

MODEL = "qwen3-30b-a3b"
JOB: dict[str, Any] = {
    "cuda_graph": True,
    "device": "gb200",
    "npus": 128,
    "ep": 32,
    "global_batch": 128,
    "sequence": 1024,
}


def test_every_shipped_device_has_a_machine_that_names_it_or_its_generation() -> None:
    for name in device_names():
        machine = read_device(name).topology
        assert machine, name
        assert read_device(topology_of(machine).device).topology == machine


def test_a_device_runs_in_the_machine_that_it_ships_in() -> None:
    for device, machine in (("b200", "hgx-b200"), ("gb300", "gb300-nvl72"), ("b300", "hgx-b300")):
        job = read_inputs("llama-3-8b", None, {"device": device})
        assert job.topology.name == machine
        said = f"no topology given: stepsim assumes {machine}, the machine of {device.upper()}"
        assert job.notes == (f"{said} (--topology sets it)",)


def test_a_device_of_no_machine_keeps_the_default_and_says_whose_links_it_has() -> None:
    job = read_inputs("llama-3-8b", None, {"device": replace(read_device("b200"), topology=None)})
    assert job.topology.name == "hgx-h100"
    (note,) = job.notes
    assert "assumes hgx-h100, whose links are not those of B200" in note


def test_a_device_decides_framework_and_format_where_nobody_says_them() -> None:
    job = read_inputs("llama-3-8b", None, {"device": "v100"})
    assert job.options.precision is Precision.FP16
    assert any(note.startswith("no precision given: stepsim assumes fp16") for note in job.notes)
    job = read_inputs("llama-3-8b", None, {"device": "tpu-v5p"})
    assert getattr(job.options.framework, "name", "") == "maxtext"
    assert any(note.startswith("no framework given: stepsim assumes maxtext") for note in job.notes)
    job = read_inputs("llama-3-8b", None, {"device": "tpu-v5p", "framework": "megatron-core"})
    assert getattr(job.options.framework, "name", "") == "megatron-core"
    job = read_inputs("llama-3-8b", "dgx-v100", {})
    assert job.options.precision is Precision.FP16


def test_a_named_topology_is_taken_with_any_device() -> None:
    job = read_inputs("llama-3-8b", "hgx-h100", {"device": "b200"})
    assert job.topology.name == "hgx-h100"
    assert job.notes == ()


def test_python_plans_and_sweeps_take_the_machine_of_the_device() -> None:
    asked: dict[str, Any] = {"global_batch": 64, "sequence": 1024, "tp": 1}
    asked["microbatch_size"] = 1
    report = simulate("llama-3-8b", device="b200", npus=8, **asked).report
    assert report.topology == "hgx-b200"
    found = plan("llama-3-8b", gpus=8, device="b200", runs=1, **asked)
    assert found.topology == "hgx-b200"
    swept = sweep(
        "llama-3-8b", axes={"microbatch_size": [1]}, device="b200", npus=8, jobs=1, **asked
    )
    plain = swept.to_dict()
    assert plain["topology"] == "hgx-b200"
    assert plain["scenarios"][0]["step_time_ps"] == report.step_time_ps


def test_aligned_groups_cross_nothing_and_what_is_idle_is_noted() -> None:
    report = simulate(MODEL, **JOB).report
    assert not [text for text in report.warnings if "nvlink blocks" in text]
    assert not [finding for finding in report.findings if "placement" in finding.text]
    (note,) = (text for text in report.notes if "takes" in text)
    assert note.startswith("the job takes 64 of the 72 GPUs of each nvlink block")


@pytest.mark.parametrize(
    ("asked", "remedy"),
    [
        ({"placement": JobPlacement.PACKED}, "--placement aligned"),
        ({"rank_order": RankOrder.PP_TP_DP, "pp": 2, "ep": 64}, "--rank-order tp-dp-pp"),
    ],
)
def test_what_a_crossing_costs_is_the_step_of_the_other_placement(
    asked: dict[str, Any], remedy: str
) -> None:
    usual = {name: value for name, value in asked.items() if name in ("pp", "ep")}
    crossing, whole = simulate(MODEL, **JOB | asked), simulate(MODEL, **JOB | usual)
    finding = crossing.report.findings[0]
    assert remedy in finding.text
    assert "ep groups span several nvlink blocks" in finding.text
    ratio = whole.report.step_time_ps / crossing.report.step_time_ps
    assert finding.worth == pytest.approx(ratio - 1)
    assert ratio < 0.95


def said_of_blocks(report: Report) -> list[str]:
    """What a report says of groups in several nodes."""
    texts = (*report.warnings, *(finding.text for finding in report.findings))
    return [text for text in texts if "blocks" in text]


@pytest.mark.parametrize(
    ("model", "degrees", "remedy"),
    [
        ("llama-3-70b", {"tp": 16}, {"tp": 8}),
        ("mixtral-8x22b", {"tp": 2, "ep": 8, "pp": 2, "expert_tp": 4}, {"ep": 2}),
        ("llama-3-70b", {"tp": 4, "cp": 4, "pp": 2}, {"cp": 2}),
    ],
)
def test_groups_that_no_placement_keeps_whole_are_priced_at_a_smaller_degree(
    model: str, degrees: dict[str, int], remedy: dict[str, int]
) -> None:
    job: dict[str, Any] = {"npus": 64, "global_batch": 64, "sequence": 4096, **degrees}
    job |= {"microbatch_size": 1, "chunks": 1}
    across, whole = (simulate(model, "hgx-h100", **job | more).report for more in ({}, remedy))
    (name, degree), *_ = remedy.items()
    worth = whole.step_time_ps / across.step_time_ps - 1
    priced = f"a step of {format_time_ps(whole.step_time_ps)}, {abs(worth):.1%}"
    where = f"{name} groups span several nvlink blocks of 8 GPUs"
    expected = f"{where}, with --{name} {degree} they fit in one: {priced} "
    assert said_of_blocks(across) == [expected + ("shorter" if worth < 0 else "longer")]
    assert bool([each for each in across.findings if each.worth == worth]) == (worth < 0)
    assert said_of_blocks(whole) == []


def test_a_crossing_without_a_smaller_degree_that_runs_has_no_price() -> None:
    job: dict[str, Any] = {"npus": 1024, "tp": 8, "ep": 256, "microbatch_size": 2}
    report = simulate("deepseek-v3", "hgx-h100", **job).report
    assert said_of_blocks(report) == ["ep groups span several nvlink blocks of 8 GPUs"]
    assert not report.findings


@pytest.mark.parametrize(
    ("topology", "degrees"),
    [
        ("gb200-nvl72", {"tp": 16, "npus": 64}),  # one domain
        ("hgx-h100", {"tp": 4, "pp": 4, "npus": 64}),  # replicas and stages lie in several
    ],
)
def test_jobs_of_one_domain_and_replicas_and_stages_across_several_are_as_usual(
    topology: str, degrees: dict[str, Any]
) -> None:
    report = simulate("llama-3-70b", topology, global_batch=64, sequence=4096, **degrees).report
    assert said_of_blocks(report) == []


def test_a_job_that_fits_in_a_rack_has_all_of_it() -> None:
    report = simulate(MODEL, **{**JOB, "npus": 72, "ep": 8, "global_batch": 72}).report
    assert not [text for text in report.notes if "nvlink block" in text]
