"""Plans in the forms that frameworks are launched with: what is written is read back, and runs."""

from pathlib import Path
from typing import Any

import pytest
from helpers import Run, few

import stepsim
from stepsim.base.errors import StepsimError, WorkloadError
from stepsim.explore.plan.asked import parse_fixed
from stepsim.explore.plan.search import fitting_plans
from stepsim.files.asked import read_inputs
from stepsim.files.load import read_model
from stepsim.files.models.launch import (
    LaunchForm,
    launch_form,
    launch_of,
    with_launch,
)
from stepsim.files.models.megatron_plan import broken_by, megatron_plan
from stepsim.step.model_plan import planned, setup_of
from stepsim.step.plans import make_space
from stepsim.workload.model.choices import ExpertDispatch, Precision, RecomputeModule
from stepsim.workload.model.held import stage_slices
from stepsim.workload.plan import Plan

SHIPPED = (
    *("llama-2-7b", "llama-2-70b", "llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "gpt2"),
    *("gpt3-175b", "qwen3-32b", "qwen3-235b-a22b", "mixtral-8x22b", "deepseek-v3", "glm-4.5-air"),
    *("gemma-2-9b", "nemotron-4-340b", "starcoder2-15b", "falcon-7b"),
)


def test_what_a_framework_lacks_for_experts_is_said() -> None:
    """Another dispatcher in place of the one that was asked for would be another step."""
    beside: dict[str, Any] = {"dispatch": ExpertDispatch.HYBRIDEP, "delay_wgrad": True}
    plan = Plan.of_batch(dp=8, ep=2, global_batch=8, **beside)
    architecture = read_model("mixtral-8x7b").architecture
    refused = launch_of(plan, architecture, "torch-fsdp-compiled").refused
    assert "no dispatch hybridep: expected all_to_all, deepep" in refused
    assert "no delay_wgrad" in refused


def test_overrides_name_all_modules_that_are_recomputed() -> None:
    modules = (RecomputeModule.CORE_ATTENTION, RecomputeModule.MLP)
    plan = Plan.of_batch(dp=8, global_batch=8, recompute_modules=modules)
    lines = launch_of(plan, read_model("llama-2-7b").architecture, "megatron-bridge").lines
    assert "model.recompute_modules=[core_attn,mlp]" in lines


@pytest.mark.parametrize(
    "name", few(SHIPPED, "llama-2-7b", "gpt2", "qwen3-235b-a22b", "deepseek-v3", "falcon-7b")
)
def test_megatron_runs_every_line_of_a_model(name: str) -> None:
    """Of degrees that divide its query groups: other lines are said to be refused."""
    job = read_inputs(name, "hgx-h100", {"global_batch": 512, "sequence": 8192, "dp_overlap": True})
    model = job.model
    fixed = parse_fixed(["mbs=1", "zero=0,1,2,3", "recompute=none,full"])
    space = make_space(job, (64,), fixed=fixed)
    plans = fitting_plans(space, 1e9)[0].plans
    groups = min((getattr(k.attention, "kv_heads", 64)) for k in model.architecture.layer_kinds())
    tried = [plan for plan in plans[:: max(len(plans) // 200, 1)] if groups % plan.tp == 0]
    assert len(tried) > 20
    for plan in tried:
        assert broken_by(plan, model.architecture) == ()
    others = [plan for plan in plans if groups % plan.tp]
    assert all(broken_by(plan, model.architecture) for plan in others[:5])


def test_a_layout_says_how_many_virtual_stages_there_are() -> None:
    model = read_model("llama-3.1-8b")
    asked = {"global_batch": 16, "sequence": 4096, "layout": "10,6,10,6"}
    job = read_inputs(model, "hgx-h100", asked)
    plan = Plan.of_batch(pp=2, chunks=2, global_batch=4, sequence=4096)
    whole = megatron_plan(plan, stage_slices(model.architecture, plan))
    assert whole["num-virtual-stages-per-pipeline-rank"] == "2"
    uneven = make_space(job, (2,), fixed=parse_fixed(["pp=2", "vpp=2", "mbs=1"]))
    for found in uneven.plans():
        said = megatron_plan(found, stage_slices(model.architecture, found))
        assert said["pipeline-model-parallel-layout"] == "Et*10|t*6|t*10|t*6L"
        assert "num-virtual-stages-per-pipeline-rank" not in said


def test_every_framework_has_its_form() -> None:
    forms = {
        "megatron-core": LaunchForm.MEGATRON_LM,
        "nemo-performance": LaunchForm.MEGATRON_LM,
        "megatron-bridge": LaunchForm.MEGATRON_BRIDGE,
        "torch-fsdp-compiled": LaunchForm.TORCHTITAN,
        "torch-fsdp-eager": LaunchForm.TORCHTITAN,
        "megatron-deepspeed": LaunchForm.NONE,
        "my-own": LaunchForm.NONE,
    }
    assert {name: launch_form(name) for name in forms} == forms


UNHIDDEN = {"tp_comm_overlap": True, "sequence_parallel": False}


@pytest.mark.parametrize(
    ("framework", "changes", "said"),
    [
        ("megatron-core", {"recompute": "operators"}, "no recomputation of operators"),
        ("megatron-core", {"tp": 16, "dp": 1}, "--num-query-groups is a multiple"),
        ("megatron-core", {"tp": 2, "dp": 1} | UNHIDDEN, "--tp-comm-overlap needs"),
        ("torch-fsdp-eager", {"zero": 1}, "zero is 1: it replicates"),
        ("torch-fsdp-eager", {"zero": 3, "tp": 2, "tp_comm_overlap": True}, "needs a compiled"),
        ("torch-fsdp-eager", {"zero": 3, "precision": Precision.NVFP4}, "no precision nvfp4"),
        ("torch-fsdp-eager", {"zero": 3, "cuda_graph": True}, "no CUDA graphs"),
    ],
)
def test_why_there_is_no_form_is_said(framework: str, changes: dict[str, Any], said: str) -> None:
    architecture = read_model("llama-3.1-8b").architecture
    plan = Plan.of_batch(**{"dp": 2, "global_batch": 8, **changes})
    launch = launch_of(plan, architecture, framework)
    assert launch.lines == ()
    assert said in " ".join(launch.refused)


def test_jobs_of_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(
        "[job]\ndump_folder = 'out'\n[training]\nlocal_batch_size = 16\nseq_len = 8192\n"
        "[parallelism]\ndata_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 8\n"
        "tensor_parallel_degree = 4\npipeline_parallel_degree = 2\n"
        'pipeline_parallel_schedule = "Interleaved1F1B"\n'
        '[activation_checkpoint]\nmode = "selective"\nselective_ac_option = "op"\n'
        '[model]\nconverters = ["float8"]\n[compile]\nenable = true\n'
    )
    model = with_launch(read_model("llama-3.1-8b"), path)
    asked = dict(model.asked)
    assert asked == {
        "tp": 4,
        "cp": 1,
        "pp": 2,
        "ep": 1,
        "npus": 128,
        "zero": 3,
        "shard_ranks": 8,
        "microbatch_size": 1,
        "microbatches": 16,
        "sequence": 8192,
        "reshard": False,
        "recompute": "operators",
        "precision": "fp8",
        "framework": "torch-fsdp-compiled",
        "tp_comm_overlap": False,
        "cuda_graph": False,
        "layout": "8,9,8,7",
        "schedule": "interleaved:2",
    }


def test_a_job_may_leave_its_replicas_open(tmp_path: Path) -> None:
    """Eight GPUs of tp 2 are four replicas, each of which runs its local batch."""
    path = tmp_path / "job.toml"
    path.write_text(
        "[training]\nbatch_size = 2\nseq_len = 1024\ncompile = true\n"
        "[parallelism]\ntensor_parallel_degree = 2\n[activation_checkpoint]\nmode = 'none'"
    )
    model = stepsim.model("gpt2", path)
    step = stepsim.simulate(model, "hgx-h100", npus=8, precision="bf16")
    inputs = read_inputs(with_launch(read_model("gpt2"), path), "hgx-h100", {"npus": 8})
    setup = setup_of(inputs)
    plan, _ = planned(setup, inputs.topology, inputs.options)
    assert (plan.dp, plan.microbatch_size, plan.global_batch, plan.zero) == (4, 2, 8, 3)
    assert model.asked["framework"] == "torch-fsdp-compiled"
    other = stepsim.simulate(model, "hgx-h100", npus=8, global_batch=16)
    assert other.report.step_time_ps > step.report.step_time_ps
    path.write_text(path.read_text() + '\n[compile]\nenable = true\ncomponents = ["loss"]')
    path.write_text(path.read_text().replace("compile = true\n[par", "[par"))
    assert stepsim.model("gpt2", path).asked["framework"] == "torch-fsdp-eager"


def test_overrides_are_read_as_shells_and_hydra_write_them(tmp_path: Path) -> None:
    text = (
        "torchrun train.py --recipe llama # model.context_parallel_size=4\n"
        "  ++model.tensor_model_parallel_size=8 model.sequence_parallel=True \\\n"
        "  \"model.pipeline_model_parallel_layout='Et|(t|)*2tL'\" train.lr=3\n"
        "  model.virtual_pipeline_model_parallel_size=2 mixed_precision=bf16_with_nvfp4_mixed\n"
    )
    path = tmp_path / "plan.sh"
    path.write_text(text)
    asked = with_launch(read_model("llama-3.1-8b"), path).asked
    assert {
        "tp": 8,
        "sequence_parallel": True,
        "layout": "Et|(t|)*2tL",
        "schedule": "interleaved:4",
        "precision": "nvfp4",
        "framework": "megatron-bridge",
    }.items() <= asked.items()
    assert "cp" not in asked


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.sh", "--lr 3", "no plan of a framework: expected arguments of Megatron-LM"),
        ("a.toml", "[training]\nseq_len = 3", "no job of torchtitan: expected a section"),
        ("a.toml", "=", "not valid TOML"),
        ("a.toml", "parallelism = 3", "parallelism is 3: expected a table of keys"),
        (
            "a.toml",
            "[parallelism]\ntensor_parallel_degree = 0",
            "parallelism.tensor_parallel_degree is 0: expected a whole number of at least 1",
        ),
        (
            "a.toml",
            '[parallelism]\n[activation_checkpoint]\nmode = "selective"',
            "activation_checkpoint.selective_ac_option is '2': expected op",
        ),
        (
            "a.toml",
            '[parallelism]\npipeline_parallel_degree=2\npipeline_parallel_schedule="LoopedBFS"',
            "parallelism.pipeline_parallel_schedule is 'LoopedBFS': expected one of 1F1B",
        ),
        (
            "a.toml",
            '[parallelism]\n[activation_checkpoint]\nmode="none"\n[compile]\ncomponents=true',
            "compile.components is True: expected a list",
        ),
        ("a.sh", "--tensor-model-parallel-size 2", "no precision is given"),
        (
            "a.sh",
            "--tensor-model-parallel-size 2 --bf16 --use-megatron-fsdp "
            "--data-parallel-sharding-strategy all",
            "--data-parallel-sharding-strategy is 'all': expected one of no_shard",
        ),
    ],
)
def test_a_wrong_file_is_named(name: str, text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(WorkloadError) as caught:
        with_launch(read_model("llama-3.1-8b"), path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)


def test_the_command_takes_what_plan_prints(run: Run, tmp_path: Path) -> None:
    asked = ("--gpus", "8", "--global-batch", "16", "--seq", "4096", "-t", "hgx-h100", "-q")
    few = ("--fix", "mbs=1", "--fix", "pp=2", "--runs", "2", "--framework", "torchtitan")
    own = tmp_path / "own.toml"
    found = stepsim.plan(
        "llama-3.1-8b",
        "hgx-h100",
        gpus=8,
        global_batch=16,
        sequence=4096,
        fix={"mbs": 1, "pp": 2},
        runs=2,
        framework="torchtitan",
    )
    code, out, _ = run("plan", "llama-3.1-8b", *asked, *few, "--toml", own)
    assert code == 0
    path = tmp_path / "job.toml"
    path.write_text(out.split("torchtitan:\n")[1])
    best = found.plans[0].step_time_ps
    for file in (path, own):
        code, out, _ = run(
            *("simulate", "llama-3.1-8b", "--plan-file", file, "-t", "hgx-h100", "-q"),
            *("--json", "-"),
        )
        assert f'"step_time_ps": {best}' in out.replace('":', '": ').replace("  ", " ")
        step = stepsim.simulate(stepsim.model("llama-3.1-8b", file), "hgx-h100")
        assert step.report.step_time_ps == best


def test_a_plan_of_a_script_has_its_environment(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(
        "python train.py --tensor-model-parallel-size ${TP} --bf16 --micro-batch-size 1"
        " --global-batch-size 8 --seq-length 1024"
    )
    command = ("simulate", "llama-3.1-8b", "--gpus", 8, "--plan-file", path, "-q")
    code, _, err = run(*command)
    assert code == 2
    assert "--tensor-model-parallel-size is ${TP}: nothing sets $TP: give --env TP=VALUE" in err
    with_variable, with_option = run(*command, "--env", "TP=4"), run(*command, "--tp", 4)
    assert with_variable[0] == 0
    assert with_variable == with_option


def test_a_workload_takes_no_plan(run: Run, moe: Path, tmp_path: Path) -> None:
    path = tmp_path / "plan.sh"
    path.write_text("--tensor-model-parallel-size 2 --bf16")
    code, _, err = run("simulate", moe, "--plan-file", path)
    assert code == 2
    assert "--plan-file gives a model its plan: expected a model" in err
    code, _, err = run("simulate", "llama-3.1-8b", "--plan-file", tmp_path / "none.sh")
    assert code == 2
    assert "none.sh" in err
    with pytest.raises(StepsimError):
        stepsim.model("llama-3.1-8b", tmp_path / "none.sh")


def test_full_gives_the_model_in_words_that_are_read_back(run: Run, tmp_path: Path) -> None:
    """Said as arguments, a model is launched and read as itself, or is not said at all."""
    asked = "--gpus 16 --global-batch 32 --seq 4096 -t hgx-h100 --runs 1 -q --full"
    for name in ("llama-3.1-8b", "qwen3-8b", "mixtral-8x7b"):
        status, out, _ = run("plan", name, *asked.split())
        assert status == 0
        arguments = out.strip().splitlines()[-1]
        assert arguments.startswith("--num-layers ")
        script = tmp_path / "pretrain.sh"
        launcher = "torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py"
        script.write_text(f"{launcher} {arguments} --bf16\n")
        assert read_model(str(script)).architecture.layers == read_model(name).architecture.layers
