"""A simulated step held against recordings: sums, self-comparison, and what is named first."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import stepsim
from stepsim.base.errors import PlanError
from stepsim.explain.against import Against, kind_of
from stepsim.explain.as_profile import profile_of_step
from stepsim.explain.differences import ordered_differences
from stepsim.files.traces.kineto import read_kineto
from stepsim.files.traces.kineto_write import write_kineto
from stepsim.measured.profile.events import Profile

JOBS: dict[str, dict[str, Any]] = {
    "llama-2-7b": {"npus": 8, "tp": 1, "pp": 1, "global_batch": 8},
    "mixtral-8x7b": {"npus": 8, "tp": 1, "pp": 1, "ep": 8, "global_batch": 8},
    "llama-3.1-8b": {"npus": 8, "tp": 2, "pp": 2, "global_batch": 8},
    "phi-4": {"npus": 8, "tp": 1, "pp": 4, "global_batch": 8},
    "qwen3-8b": {"npus": 8, "tp": 4, "pp": 1, "global_batch": 8},
    "qwen3-30b-a3b": {"npus": 16, "tp": 1, "pp": 2, "ep": 8, "global_batch": 16},
    "gpt3-175b": {"npus": 64, "tp": 8, "pp": 8, "global_batch": 8},
}
QUICK = ("llama-2-7b", "mixtral-8x7b")
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in JOBS if name not in QUICK]
EVERY = [*QUICK, *SLOW]
CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "bandwidth halved": ({"numbers": {"nvlink.bandwidth": "225 GB/s"}}, "exposed communication"),
    "attention unfused": ({"attention": "unfused"}, "compute"),
    "a gap of the host": ({"loss_time": "20 ms"}, "gaps"),
}


@cache
def simulated(model: str) -> stepsim.Result:
    return stepsim.simulate(model, **JOBS[model])


def recorded(result: stepsim.Result, folder: Path, ranks: list[int] | None = None) -> Profile:
    """A step as it is read from the trace that was written of it."""
    profile = profile_of_step(result.timeline, source="job", ranks=ranks, kernels=True)
    write_kineto(profile, folder)
    return read_kineto(folder)


def check_sums(against: Against) -> None:
    for name in ("predicted", "measured"):
        step = getattr(against, f"{name}_step_ps")
        assert sum(getattr(row, f"{name}_ps") for row in against.rows) == step
        assert sum(getattr(row, f"{name}_ps") for row in against.summed("part")) == step


@pytest.mark.parametrize("model", EVERY)
def test_a_step_held_against_its_own_trace_differs_in_no_row(model: str, tmp_path: Path) -> None:
    result = simulated(model)
    against = result.against(recorded(result, tmp_path / "run")).against
    check_sums(against)
    assert against.measured_step_ps > 0
    assert ordered_differences(against.rows) == []
    assert all(row.predicted_count == row.measured_count for row in against.rows)
    assert against.differences == ()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("model", EVERY)
def test_what_was_changed_is_named_first(model: str, change: str, tmp_path: Path) -> None:
    options, part = CHANGES[change]
    options = dict(options)
    network = None
    if numbers := options.pop("numbers", None):
        network = stepsim.load_topology("hgx-h100", JOBS[model]["npus"], numbers=numbers)
    changed = stepsim.simulate(model, network, **JOBS[model], **options)
    against = simulated(model).against(recorded(changed, tmp_path / "run")).against
    check_sums(against)
    first = ordered_differences(against.summed("part", "name"))[0]
    assert first.part == part
    assert first.difference_ps > 0
    if part == "compute":
        assert first.name == "attention"
        assert "the trace runs the unfused kernels" in against.differences[0]
    if part == "gaps":
        assert first.name == "host gaps before loss"


def test_products_without_shapes_are_matched_by_their_order(tmp_path: Path) -> None:
    result = simulated("llama-2-7b")
    recorded(result, tmp_path / "run", ranks=[3])
    (path,) = (tmp_path / "run").iterdir()
    trace = json.loads(path.read_text())
    for event in trace["traceEvents"]:
        event["args"].pop("Input Dims", None)
    path.write_text(json.dumps(trace))
    against = result.against(read_kineto(tmp_path / "run")).against
    assert against.ranks == (3,), "one rank is held against the same rank"
    assert ordered_differences(against.rows) == []
    assert any("(qkv)" in row.item for row in against.rows)
    assert any("no shapes were recorded" in note for note in against.notes)


def test_a_gap_put_into_a_trace_is_the_only_difference(tmp_path: Path) -> None:
    result = simulated("llama-2-7b")
    recorded(result, tmp_path / "run", ranks=[0])
    (path,) = (tmp_path / "run").iterdir()
    trace = json.loads(path.read_text())
    last = max(e["ts"] for e in trace["traceEvents"] if e["name"] == "stepsim::optimizer")
    for event in trace["traceEvents"]:
        event["ts"] += 82_000 * (event["ts"] >= last)
        event["dur"] += 82_000 * event["name"].startswith("ProfilerStep")
    path.write_text(json.dumps(trace))
    against = result.against(read_kineto(tmp_path / "run")).against
    check_sums(against)
    (only,) = ordered_differences(against.rows)
    assert (only.part, only.name) == ("gaps", "host gaps before optimizer")
    assert only.difference_ps == 82_000 * 10**6
    assert against.differences[0].startswith("82 ms more of host gaps before optimizer")


def test_recordings_of_other_jobs_are_refused_by_name(tmp_path: Path) -> None:
    result = simulated("llama-2-7b")
    other = recorded(simulated("phi-4"), tmp_path / "run")
    assert any("is it a recording of this model" in n for n in result.against(other).against.notes)
    small = stepsim.simulate("llama-2-7b", npus=4, tp=1, pp=1, global_batch=4)
    with pytest.raises(PlanError, match=r"a job of 8 ranks was recorded, 4 are simulated"):
        small.against(other)


FORMS: dict[str, dict[str, Any]] = {
    "kineto/deepseek_train.json.gz": {"npus": 64},
    "kineto/hta_nccl_data.json.gz": {"npus": 2},
    "kineto/hta_sampled_rank-0.json.gz": {"npus": 128},
    "kineto/param_dlrm_8ranks.tar.gz": {"npus": 8},
    "ndtimeline/trace-ST.parquet": {"npus": 8, "pp": 4},
    "nsys/mfu_2gpu_before.sqlite": {"npus": 2},
    "chakra/chakra_feeder_tests.tar.gz": {"npus": 8},
}
RUNS = {
    "pp2_tp1_exp4_expn8_dp8_nl8_hs4096_sl1024": 2,
    "pp2_tp1_exp8_expn8_dp8_nl8_hs4096_sl4096": 2,
    "pp4_tp1_exp2_expn8_dp4_nl8_hs4096_sl1024": 4,
    "pp4_tp1_exp4_expn16_dp4_nl8_hs4096_sl4096": 4,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_profile_adds_up(form: str, shared: Path) -> None:
    options = FORMS[form] | {"global_batch": FORMS[form]["npus"], "zero": 1}
    result = stepsim.simulate("llama-2-7b", **options)
    against = result.against(shared / "reference" / "profiles" / form).against
    check_sums(against)
    assert against.differences


@pytest.mark.parametrize("run", RUNS)
def test_runs_without_kernels_are_compared_phase_by_phase(run: str, shared: Path) -> None:
    result = stepsim.simulate("mixtral-8x7b", npus=16, pp=RUNS[run], ep=4, global_batch=16)
    path = shared / "reference" / "measured" / "megatron_moe_16gpu" / run
    against = result.against(path).against
    check_sums(against)
    compute = {row.name for row in against.rows if row.part == "compute"}
    assert compute == {"forward", "backward", "update"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nccl _reduce_scatter_base", "reduce_scatter"),
        ("nccl all_to_allv", "all_to_all"),
        ("tp all_gather", "all_gather"),
        ("deep_ep dispatch", "all_to_all"),
        ("nccl SendRecv", "send_recv"),
    ],
)
def test_a_collective_is_known_by_its_name(name: str, kind: str) -> None:
    assert kind_of(name) == kind
