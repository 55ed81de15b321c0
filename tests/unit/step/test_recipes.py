"""What public recipes of a model set where nobody asks: jobs that ran fit, and it is said."""

from pathlib import Path
from typing import Any

import pytest

from stepsim.base.errors import PlanError
from stepsim.base.structs import replace
from stepsim.files.accelerators import read_framework
from stepsim.files.asked import read_inputs
from stepsim.files.models.launch import launch_of, with_launch
from stepsim.files.reading import shipped_folder
from stepsim.step.job import Job, job_of
from stepsim.step.plans import PlanSpace, step_options_of
from stepsim.step.prepared import prepare
from stepsim.workload.model.choices import Precision, Recompute, RecomputeModule
from stepsim.workload.model.model import Model
from stepsim.workload.plan import Plan

NEMOTRON = {"tp": 8, "pp": 8, "chunks": 12, "npus": 128, "global_batch": 32, "device": "h100"}
LLAMA = {
    "tp": 8,
    "pp": 16,
    "chunks": 8,
    "npus": 16384,
    "global_batch": 2048,
    "sequence": 8192,
    "device": "h100",
}
DEEPSEEK = {
    "pp": 16,
    "ep": 64,
    "npus": 2048,
    "global_batch": 15360,
    "schedule": "dualpipe",
    "precision": "fp8",
    "device": "h800",
}
BRIDGE = {
    "npus": 256,
    "global_batch": 4096,
    "microbatch_size": 1,
    "precision": "mxfp8",
    "framework": "megatron-bridge",
}
GB200 = {**BRIDGE, "pp": 4, "chunks": 4, "ep": 64, "device": "gb200"}
GB300 = {**BRIDGE, "pp": 2, "chunks": 8, "ep": 32, "device": "gb300"}


def made(model: str, **options: Any) -> Job:
    job = read_inputs(model, None, options)
    return job_of(job)


def plan_of(model: str, **options: Any) -> Plan:
    return made(model, **options).plan


def said(model: str, **options: Any) -> list[str]:
    return [note for note in made(model, **options).notes if note.startswith("public recipe")]


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("nemotron-4-340b", NEMOTRON),
        ("llama-3.1-405b", LLAMA),
        ("llama-3.1-405b", {**LLAMA, "npus": 8192}),
        ("deepseek-v3", DEEPSEEK),
        ("deepseek-v3", GB200),
        ("deepseek-v3", GB300),
    ],
)
def test_jobs_that_ran_fit(model: str, options: dict[str, Any]) -> None:
    job = read_inputs(model, None, options)
    assert not prepare(job).unfit


def test_a_recipe_is_said_with_its_source_and_what_turns_it_off() -> None:
    assert said("nemotron-4-340b", **NEMOTRON) == [
        "public recipe of nemotron-4-340b for megatron-core: gradients of 2 bytes, optimizer of 10 "
        "bytes a parameter (NeMo's pretrain_nemotron4_340b.py: grad_reduce_in_fp32 off, "
        "precision-aware optimizer in bf16; --no-recipe turns it off)"
    ]
    assert said("deepseek-v3", **GB200) == [
        "public recipe of deepseek-v3 for megatron-bridge: layout Et*4|(t*4|)*14tmL, recompute "
        "mla_up_proj (perf_recipes of Megatron-Bridge 067f987df; "
        "--no-recipe turns it off)"
    ]
    assert said("nemotron-4-340b", **NEMOTRON, recipe=False) == []
    assert said("deepseek-v3", **GB200, recipe=False) == []


def test_what_is_asked_for_comes_before_a_recipe() -> None:
    plan = plan_of("deepseek-v3", **GB200)
    assert plan.recompute_modules == (RecomputeModule.UP_PROJECTION,)
    assert plan.layout.text() == "Et*4|(t*4|)*14tmL"
    asked = plan_of("deepseek-v3", **GB200, recompute="none", layout="even")
    assert asked.recompute_modules == ()
    assert asked.layout.text() == "even"
    assert said("deepseek-v3", **GB200, recompute="none", layout="even") == []
    assert plan_of("llama-3.1-405b", **LLAMA).zero == 2
    assert plan_of("llama-3.1-405b", **LLAMA, zero=1).zero == 1
    without = plan_of("deepseek-v3", **GB200, recipe=False)
    assert (without.recompute_modules, without.layout.text()) == ((), "even")


def test_a_recipe_of_a_pipeline_holds_for_that_one_alone() -> None:
    assert plan_of("llama-3.1-405b", **{**LLAMA, "pp": 8}).zero == 1
    other = plan_of("deepseek-v3", **{**GB200, "pp": 8, "chunks": 1, "ep": 32})
    assert other.recompute_modules == (RecomputeModule.UP_PROJECTION,)
    assert other.layout.text() == "even"
    assert plan_of("deepseek-v3", **GB300).recompute_modules == ()
    assert plan_of("llama-3.1-405b", **LLAMA, zero=3).zero == 3


def test_models_without_a_recipe_run_as_before() -> None:
    assert said("llama-3-8b", npus=8) == []
    assert plan_of("llama-3.1-405b", **{**LLAMA, "device": "h200"}).zero == 1


def test_the_plan_of_no_degrees_has_its_recipe() -> None:
    """On 256 GB300 of megatron-bridge DeepSeek-V3 recomputes what its recipe says."""
    options = {name: GB300[name] for name in ("npus", "precision", "framework", "device")}
    plan = plan_of("deepseek-v3", **options)
    framework = read_framework("megatron-bridge")
    recipes = framework.recipes_of("DeepSeek-V3", "GB300", Precision.MXFP8)
    degrees = {name: getattr(plan, name) for name in ("tp", "pp", "chunks", "zero")}
    recipe = next(each for each in recipes if each.suits(**degrees))
    assert plan.recompute_modules == recipe.recompute_modules


def test_a_search_has_plans_with_the_recipe_unless_recomputation_is_asked_for() -> None:
    job = read_inputs("deepseek-v3", "gb200-nvl72", {**BRIDGE, "zero": 1})
    setup = made("deepseek-v3", **GB200).setup
    assert setup is not None
    assert setup.interconnect.domain == 64
    fixed: dict[str, tuple[object, ...]] = {
        "tp": (1,),
        "pp": (4,),
        "chunks": (4,),
        "ep": (64,),
        "microbatch_size": (1,),
    }
    base = replace(job.options, device=setup.device, framework=setup.framework)
    space = PlanSpace(
        setup=setup,
        npus=(256,),
        base=replace(base, global_batch=4096, sequence=4096),
        asked=replace(job, options=base),
        fixed=fixed,
    )
    plans = {plan.recompute: plan for plan in space.plans()}
    assert plans[Recompute.NONE].recompute_modules == (RecomputeModule.UP_PROJECTION,)
    assert plans[Recompute.NONE].layout.text() == "Et*4|(t*4|)*14tmL"
    assert plans[Recompute.FULL].recompute_modules == ()
    again = step_options_of(plans[Recompute.NONE], base)
    assert again.recompute is None
    assert step_options_of(plans[Recompute.FULL], base).recompute is Recompute.FULL
    asked = replace(space, fixed={**fixed, "recompute": (Recompute.NONE,)})
    assert [plan.recompute_modules for plan in asked.plans()] == [()]


@pytest.mark.parametrize(
    ("framework", "old", "new", "said"),
    [
        (
            "megatron-core",
            "\nstates = { gradient_bytes = 2 }",
            "\npp = 2\nstates = { gradient_bytes = 2 }",
            "mine.toml: recipe of nemotron-4-340b: states hold for",
        ),
        ("megatron-bridge", "Et|(tt|)*30mL", "Et|(xx|)*30mL", "mine.toml.*layout"),
    ],
)
def test_states_hold_for_all_plans_and_layouts_are_read_with_the_file(
    framework: str, old: str, new: str, said: str, tmp_path: Path
) -> None:
    text = (shipped_folder("frameworks") / f"{framework}.toml").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new))
    with pytest.raises(PlanError, match=said):
        read_framework(path)


def test_names_of_models_are_those_of_any_source() -> None:
    framework = read_framework("megatron-bridge")
    assert framework.recipes_of("Llama-3-70B", "GB200", Precision.FP8)
    assert not framework.recipes_of("llama-3.1-70b", "GB200", Precision.FP8)
    known = framework.of_model("llama-3-70b", "GB200", Precision.FP8)
    assert replace(known, recipes=framework.recipes) == framework


def test_bytes_of_states_are_those_of_the_recipe() -> None:
    """NeMo's recipe in bf16: 2 bytes a gradient, 2 + 8 of the optimizer; in 8 bits 12."""
    framework = read_framework("megatron-core")
    low = framework.of_model("nemotron-4-340b", "H100", Precision.BF16)
    assert (low.gradient_bytes, low.optimizer_bytes) == (2, 10)
    casts = framework.of_job("H100", Precision.FP8, sparse=False)
    casts = casts.of_model("nemotron-4-340b", "H100", Precision.FP8)
    assert (casts.gradient_bytes, casts.optimizer_bytes) == (2, 12)
    assert (framework.gradient_bytes, framework.optimizer_bytes) == (4, 12)


@pytest.mark.parametrize("framework", ["megatron-bridge", "megatron-core"])
def test_what_is_launched_recomputes_the_modules_and_is_read_back(
    framework: str, tmp_path: Path
) -> None:
    """The recipe of DeepSeek-V3 on GB200, and on H800 with Megatron-Core."""
    bridge = framework == "megatron-bridge"
    own = {"schedule": "1f1b", "dispatch": "deepep"}  # Megatron-Core sends no tokens in 8 bits
    options = dict(GB200) if bridge else {**DEEPSEEK, **own}
    model = read_inputs("deepseek-v3", None, options).workload
    assert isinstance(model, Model)
    launch = launch_of(plan_of("deepseek-v3", **options), model.architecture, framework)
    said = "\n".join(launch.lines)
    modules = "[mla_up_proj]" if bridge else "layernorm mla_up_proj moe_act"
    assert modules in said
    path = tmp_path / "plan.sh"
    path.write_text(said)
    back = with_launch(model, path)
    assert "recompute" not in back.asked


@pytest.mark.parametrize("precision", ["bf16", "fp8"])
def test_a_dispatcher_is_the_frameworks_not_that_of_the_one_job_of_a_device(precision: str) -> None:
    job = {"npus": 16, "pp": 2, "ep": 8, "mbs": 1, "global_batch": 128, "precision": precision}
    on = {device: plan_of("qwen3-30b-a3b", device=device, **job) for device in ("h800", "h100")}
    assert on["h800"].dispatch == on["h100"].dispatch == "all_to_all"


def test_a_job_that_ran_with_another_dispatcher_keeps_it_with_its_recipe() -> None:
    assert plan_of("deepseek-v3", **DEEPSEEK).dispatch == "deepep_fp8"
    assert plan_of("deepseek-v3", **DEEPSEEK, recipe=False).dispatch == "all_to_all"
