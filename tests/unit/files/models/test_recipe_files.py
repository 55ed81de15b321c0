"""Recipes of other programs: the model that they name, the plan that their keys are."""

from pathlib import Path

import pytest
from helpers import Run

from stepsim.base.errors import WorkloadError
from stepsim.files.load import is_model, read_model
from stepsim.files.models.launch import with_launch
from stepsim.workload.model.architecture import DenseMlp
from stepsim.workload.model.model import Model, Unread

FACTORY = """
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
stage: sft
finetuning_type: full
deepspeed: configs/ds_z3_config.json
template: llama3
cutoff_len: 4096
per_device_train_batch_size: 2
gradient_accumulation_steps: 4
bf16: true
"""
AXOLOTL = """
base_model: NousResearch/Meta-Llama-3.1-8B
sequence_len: 8192
sample_packing: true
gradient_accumulation_steps: 8
micro_batch_size: 1
bf16: auto
gradient_checkpointing: true
fsdp_version: 2
fsdp_config:
  reshard_after_forward: true
"""
MAXTEXT = """
model_name: llama3-8b
per_device_batch_size: 4.0
max_target_length: 8192
ici_fsdp_parallelism: 8
dcn_data_parallelism: 2
ici_tensor_parallelism: 2
remat_policy: full
"""
AUTOMODEL = """
step_scheduler:
  global_batch_size: 64
  local_batch_size: 2
model:
  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained
  pretrained_model_name_or_path: Qwen/Qwen3-8B
distributed:
  strategy: fsdp2
  tp_size: 2
  cp_size: 1
  sequence_parallel: false
packed_sequence:
  packed_sequence_size: 4096
"""
SIZES = """
  num_layers: 4
  hidden_size: 512
  ffn_hidden_size: 1024
  num_attention_heads: 8
"""
NEMO = f"""
trainer:
  devices: 8
  num_nodes: 4
  precision: bf16
model:{SIZES}
  micro_batch_size: 1
  global_batch_size: 128
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 2
  virtual_pipeline_model_parallel_size: 2
  encoder_seq_length: 2048
  num_query_groups: 4
  normalization: rmsnorm
  activation: fast-swiglu
  bias: false
  position_embedding_type: rope
  share_embeddings_and_output_weights: false
  activations_checkpoint_granularity: selective
  data:
    seq_length: ${{model.encoder_seq_length}}
  optim:
    name: distributed_fused_adam
    overlap_grad_sync: true
"""
ZOO = """
ENV_VARS:
  NCCL_NVLS_ENABLE: 0
MODEL_ARGS:
  --tensor-model-parallel-size: ${TP}
  --pipeline-model-parallel-size: ${PP:-2}
  --micro-batch-size: 1
  --global-batch-size: 64
  --seq-length: 4096
  --num-layers: 4
  --hidden-size: 512
  --num-attention-heads: 8
  --group-query-attention: true
  --num-query-groups: 4
  --swiglu: true
  --position-embedding-type: rope
  --bf16: true
  --finetune: false
  --wandb-exp-name: run-TP${TP}-${COMMENT}
"""
TITAN = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 1
seq_len = 8192
[parallelism]
tensor_parallel_degree = 2
[activation_checkpoint]
mode = "full"
"""
REGISTRY = """
def llama3_8b() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("8B"),
        training=TrainingConfig(local_batch_size=1, seq_len=8192),
        activation_checkpoint=ActivationCheckpointConfig(mode="full"),
    )

def llama3_70b() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("70B"),
        training=TrainingConfig(local_batch_size=8, seq_len=8192),
        parallelism=ParallelismConfig(tensor_parallel_degree=8),
        activation_checkpoint=ActivationCheckpointConfig(mode="full"),
    )
"""
TRAINER = """#!/bin/bash
torchrun --nnodes 2 --nproc_per_node=8 train.py \\
    --model_name_or_path meta-llama/Llama-2-7b-hf --model_max_length 2048 \\
    --per_device_train_batch_size 4 --gradient_accumulation_steps 8 --bf16 True \\
    --fsdp "full_shard auto_wrap" --gradient_checkpointing True
"""
HYDRA = """
python pretrain.py trainer.devices=8 trainer.num_nodes=2 trainer.precision=bf16 \\
    model.micro_batch_size=4 model.global_batch_size=64 model.encoder_seq_length=2048 \\
    model.hidden_size=512 model.num_layers=4 model.num_attention_heads=8 \\
    model.position_embedding_type=rope ++model.optim.name=distributed_fused_adam
"""
DEEPSPEED = """{"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": "auto",
"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
"bf16": {"enabled": true}}"""

CASES: dict[str, tuple[str, str | None, dict[str, object]]] = {
    "factory.yaml": (
        FACTORY,
        "llama-3-8b",
        {"zero": "3", "microbatch_size": 2, "microbatches": "4", "recompute": "full"},
    ),
    "axolotl.yml": (
        AXOLOTL,
        "llama-3.1-8b",
        {"zero": "3", "sequence": "8192", "recompute": "full", "precision": "bf16", "tp": 1},
    ),
    "maxtext.yml": (
        MAXTEXT,
        "llama-3-8b",
        {"npus": 32, "microbatch_size": 8, "tp": 2, "framework": "maxtext", "zero": "3"},
    ),
    "automodel.yaml": (
        AUTOMODEL,
        "qwen3-8b",
        {"tp": "2", "global_batch": "64", "sequence": "4096", "zero": "3"},
    ),
    "nemo.yaml": (
        NEMO,
        None,
        {"npus": 32, "tp": 2, "pp": 2, "schedule": "interleaved:2", "zero": 1, "sequence": 2048},
    ),
    "titan.toml": (TITAN, "llama-3.1-8b", {"tp": 2, "recompute": "full", "sequence": 8192}),
    "trainer.sh": (
        TRAINER,
        "llama-2-7b",
        {"npus": 16, "zero": "3", "microbatch_size": "4", "microbatches": "8"},
    ),
    "hydra.sh": (HYDRA, None, {"npus": 16, "zero": 1, "microbatch_size": 4, "global_batch": 64}),
}


BOMB = "a0: &a0 [1, {b: 2}]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30)
)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def asked(model: Model) -> dict[str, str]:
    return {name: str(value) for name, value in model.asked.items()}


@pytest.mark.parametrize("name", CASES)
def test_a_recipe_is_its_model_and_its_plan(tmp_path: Path, name: str) -> None:
    text, public, plan = CASES[name]
    path = written(tmp_path, name, text)
    assert is_model(path)
    model = read_model(path)
    found = asked(model)
    assert {key: found.get(key) for key in plan} == {k: str(v) for k, v in plan.items()}
    if public:
        assert model.architecture.layers == read_model(public).architecture.layers
    else:
        assert (model.architecture.depth, model.architecture.hidden) == (4, 512)


def test_what_the_environment_says_is_read(tmp_path: Path) -> None:
    told = asked(read_model(written(tmp_path, "zoo.yaml", ZOO), {"TP": "4"}))
    assert (told["tp"], told["pp"]) == ("4", "2")


@pytest.mark.parametrize(
    ("name", "text", "option", "why"),
    [
        ("zoo.yaml", ZOO, "tp", "give --env TP=VALUE, or --tp"),
        ("axolotl.yml", AXOLOTL, "npus", "give --gpus"),
        ("zoo.yaml", ZOO, "npus", "give --gpus"),
        (
            "maxtext.yml",
            MAXTEXT.replace("remat_policy: full", "remat_policy: save_qkv_proj"),
            "recompute",
            "remat_policy is save_qkv_proj",
        ),
    ],
)
def test_what_nobody_says_or_knows_is_asked_for(
    name: str, text: str, option: str, why: str, tmp_path: Path
) -> None:
    unread = read_model(written(tmp_path, name, text)).asked[option]
    assert isinstance(unread, Unread)
    assert why in unread.why


def test_one_job_of_a_registry_is_chosen(tmp_path: Path) -> None:
    path = written(tmp_path, "config_registry.py", REGISTRY)
    with pytest.raises(WorkloadError, match="one of llama3_8b, llama3_70b"):
        read_model(path)
    model = read_model(path, {"CONFIG": "llama3_70b"})
    assert (model.architecture.depth, asked(model)["tp"]) == (80, "8")


def test_deepspeed_is_a_plan_and_says_what_is_left_out(tmp_path: Path) -> None:
    path = written(tmp_path, "ds.json", DEEPSPEED)
    model = with_launch(read_model("llama-3-8b"), path)
    assert asked(model) == {"zero": "2", "microbatch_size": "2", "precision": "bf16"}
    assert any("offload_optimizer.device is cpu" in note for note in model.warnings)


def test_files_that_a_recipe_names_are_read(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    written(tmp_path / "configs", "ds_z3_config.json", DEEPSPEED)
    model = read_model(written(tmp_path, "factory.yaml", FACTORY))
    assert asked(model)["zero"] == "2", "what the file says, not what its name says"
    assert asked(model)["microbatch_size"] == "2"


@pytest.mark.parametrize("text", ["- 1\n- 2\n", "", "a: 1"])
def test_what_is_no_recipe_is_no_model(tmp_path: Path, text: str) -> None:
    assert not is_model(written(tmp_path, "x.yaml", text))


@pytest.mark.parametrize("text", ["a: [1", "a: " + "[" * 3000, "a: &a {b: *a}", BOMB, "? {}"])
def test_what_is_no_yaml_is_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(WorkloadError, match=r"x.yaml: (not|no|more) [^\n]*$"):
        read_model(written(tmp_path, "x.yaml", text))


TORCHTITAN = """
[model]
name = "llama3"
flavor = "8B"
[activation_checkpoint]
mode = "full"
[training]
seq_len = 4096
"""


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "job.toml",
            TORCHTITAN + "enable_cpu_offload = true\n",
            "training.enable_cpu_offload is true",
        ),
        (
            "job.toml",
            TORCHTITAN + '[optimizer]\nname = "AdamW"\nstate_dtype = "bfloat16"\n',
            "optimizer.state_dtype is bfloat16: priced as AdamW",
        ),
        ("job.toml", TORCHTITAN + '[optimizer]\nname = "Muon"\n', "optimizer.name is Muon: priced"),
        ("axolotl.yml", AXOLOTL + "optimizer: adamw_torch_8bit\n", "optimizer is adamw_torch_8bit"),
        (
            "axolotl.yml",
            AXOLOTL + "  fsdp_offload_params: true\n",
            "fsdp_config.fsdp_offload_params is true",
        ),
        ("factory.yaml", FACTORY + "torch_dtype: bfloat16\n", "torch_dtype is bfloat16"),
        ("factory.yaml", FACTORY.replace("bf16: true", ""), "neither bf16 nor fp16 is set"),
        (
            "factory.yaml",
            FACTORY.replace("ds_z3_config", "ds_z3_offload_config"),
            "whose offload is not modelled",
        ),
    ],
)
def test_what_matters_and_is_not_modelled_is_said(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    notes = read_model(written(tmp_path, name, text)).warnings
    assert [note for note in notes if said in note]


def test_what_is_usual_is_not_said(tmp_path: Path) -> None:
    for name, text in (("a.yml", AXOLOTL + "optimizer: adamw_torch_fused\n"), ("f.yaml", FACTORY)):
        notes = read_model(written(tmp_path, name, text)).warnings
        assert not [note for note in notes if "optim" in note or "bf16" in note]
    assert not read_model(written(tmp_path, "job.toml", TORCHTITAN)).warnings


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("axolotl.yml", AXOLOTL + "adapter: qlora\n", "adapter is qlora"),
        ("axolotl.yml", AXOLOTL + "reward_model: true\n", "reward_model is"),
        ("axolotl.yml", AXOLOTL + "unfrozen_parameters: [lm_head]\n", "unfrozen_parameters is"),
        ("factory.yaml", FACTORY.replace("full", "lora"), "finetuning_type is lora"),
        ("factory.yaml", FACTORY + "num_generations: 8\n", "num_generations is"),
        ("factory.yaml", FACTORY + "use_badam: true\n", "use_badam is"),
        ("job.toml", TORCHTITAN + "[grpo]\nkl_beta = 0.0\n", "grpo"),
    ],
)
def test_what_trains_otherwise_is_refused_by_its_key(
    name: str, text: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(WorkloadError, match=f"{said}.*: only a full training by next tokens"):
        read_model(written(tmp_path, name, text))


def test_a_job_whose_model_is_no_section_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="model is 3: expected a table of keys"):
        read_model(written(tmp_path, "job.toml", "model = 3\n[training]\nflavor = '8B'\n"))


def test_a_pipeline_of_maxtext_has_a_microbatch_for_each_stage(tmp_path: Path) -> None:
    """The batch is per_device_batch_size for every device, those of a pipeline among them."""
    text = MAXTEXT + "ici_pipeline_parallelism: 4\n"
    job = read_model(written(tmp_path, "maxtext.yml", text))
    assert (job.asked["microbatches"], job.asked["pp"]) == (4, 4)
    assert any("how often its stages repeat" in note for note in job.warnings)


def test_a_job_of_nemo_refers_to_its_own_keys(tmp_path: Path) -> None:
    text = """
model:
  num_layers: 4
  hidden_size: 1024
  ffn_hidden_size: ${multiply:3, ${.hidden_size}}
  num_attention_heads: 8
  max_position_embeddings: 2048
  micro_batch_size: 1
  encoder_seq_length: 2048
  fp8: False
  fp8_hybrid: True
trainer: {num_nodes: 2, devices: 8, precision: bf16}
"""
    model = read_model(written(tmp_path, "nemo.yaml", text))
    mlp = model.architecture.layers[0].mlp
    assert isinstance(mlp, DenseMlp)
    assert mlp.width == 3 * 1024
    assert model.asked.get("precision", "bf16") == "bf16"


@pytest.mark.parametrize("said", ["true", "false"])
def test_switches_of_automodel_are_switches(tmp_path: Path, said: str) -> None:
    text = AUTOMODEL.replace("sequence_parallel: false", f"sequence_parallel: {said}")
    text = text.replace("  pretrained_model", "  config:\n    pretrained_model")
    text += f"parallelizer:\n  reshard_after_forward: {said}\n"
    job = read_model(written(tmp_path, "automodel.yaml", text)).asked
    assert job["sequence_parallel"] == ("on" if said == "true" else "off")
    assert job.get("reshard", "on") == ("on" if said == "true" else "off")


def test_yaml_of_nobody_known_is_said_to_be_that(run: Run, tmp_path: Path) -> None:
    path = written(tmp_path, "team.yaml", "work_group: ${TEAM:amd}\nmodules:\n  trainer: x\n")
    status, _, err = run("simulate", path)
    assert status == 2
    assert "this looks like YAML of keys that belong to no form of recipe" in err


SIZES_OF_TITAN = """
[model]
name = "llama3"
flavor = "8B"
[training]
batch_size = 8
seq_len = 4096
tensor_parallel_degree = 4
data_parallel_shard_degree = 2
[experimental]
pipeline_parallel_degree = 2
pipeline_parallel_microbatches = 4
pipeline_parallel_schedule = "1f1b"
context_parallel_degree = 2
[float8]
enable_float8_linear = true
[activation_checkpoint]
mode = "full"
"""
PIPELINE = AUTOMODEL.replace(
    "  tp_size: 2\n",
    "  tp_size: 2\n  pp_size: 2\n  pipeline:\n    pp_schedule: interleaved1f1b\n",
)


@pytest.mark.parametrize(
    ("name", "text", "plan"),
    [
        (
            "axolotl.yml",
            AXOLOTL + "dp_shard_size: 4\ndp_replicate_size: 2\ntensor_parallel_size: 2\n",
            {"npus": 16, "shard_ranks": 4},
        ),
        (
            "axolotl.yml",
            AXOLOTL.replace("NousResearch/Meta-Llama-3.1-8B", "Qwen/Qwen3-30B-A3B")
            + "dp_shard_size: 2\nexpert_parallel_size: 4\n",
            {"npus": 8, "ep": 4, "shard_ranks": 2},
        ),
        (
            "axolotl.yml",
            AXOLOTL.replace("gradient", "#") + "  activation_checkpointing: true\n",
            {"recompute": "full"},
        ),
        ("automodel.yaml", PIPELINE, {"microbatch_size": 1, "schedule": "interleaved"}),
        (
            "automodel.yaml",
            PIPELINE.replace(
                "pp_schedule", "pp_microbatch_size: 2\n    layers_per_stage: 6\n    pp_schedule"
            ),
            {"microbatch_size": 2, "chunks": 3},
        ),
        (
            "job.toml",
            SIZES_OF_TITAN,
            {"tp": 4, "cp": 2, "pp": 2, "npus": 32, "microbatch_size": 2, "precision": "fp8"},
        ),
        ("sft.yaml", FACTORY + "enable_liger_kernel: true\n", {"loss_chunks": 128256 // 4096}),
        ("maxtext.yml", MAXTEXT, {"npus": 32, "shard_ranks": 8}),
    ],
    ids=[
        "replicas times shards times splits are the size",
        "experts of axolotl take GPUs of their own",
        "FSDP recomputes where it is told to",
        "a pipeline of automodel cuts the local batch",
        "36 layers, 6 stages on 2 ranks",
        "degrees of older torchtitans stand elsewhere",
        "a loss of Liger has parts of its logits",
        "replicas of maxtext are not shards",
    ],
)
def test_keys_say_the_plan(name: str, text: str, plan: dict[str, object], tmp_path: Path) -> None:
    found = asked(read_model(written(tmp_path, name, text)))
    assert {key: found.get(key) for key in plan} == {k: str(v) for k, v in plan.items()}


@pytest.mark.parametrize("line", ["layers_per_stage: many", "pp_size: two"])
def test_a_word_for_a_number_of_a_pipeline_is_named(line: str, tmp_path: Path) -> None:
    text = PIPELINE.replace("  pp_size: 2\n", f"  pp_size: 2\n  {line}\n")
    with pytest.raises(WorkloadError, match=f"{line.replace(': ', ' is .')}.: expected a whole"):
        read_model(written(tmp_path, "automodel.yaml", text))


def test_maxtext_shards_over_all_where_it_does_not_say_so(tmp_path: Path) -> None:
    text = MAXTEXT.replace("ici_fsdp_parallelism: 8\n", "")
    model = read_model(written(tmp_path, "default.yml", text))
    assert "shard_ranks" not in model.asked
    assert any("sharded over all GPUs" in note for note in model.warnings)


def test_what_a_recipe_leaves_to_accelerate_is_assumed_aloud(tmp_path: Path) -> None:
    text = FACTORY.replace("deepspeed: configs/ds_z3_config.json\n", "")
    notes = " ".join(read_model(written(tmp_path, "sft.yaml", text)).warnings)
    assert "replicas with whole states assumed" in notes
    assert "every sample is taken as long as that" in notes


def test_a_configuration_of_gpt_neox_is_read(tmp_path: Path) -> None:
    text = """
"pipe-parallel-size": 4
"model-parallel-size": 2
"num-layers": 44
"hidden-size": 6144
"num-attention-heads": 64
"seq-length": 2048
"max-position-embeddings": 2048
"pos-emb": "rotary"
"no-weight-tying": true
"zero_optimization": {"stage": 1, "overlap_comm": true}
"fp16": {"enabled": true}
"train_micro_batch_size_per_gpu": 4
"gradient_accumulation_steps": 32
"checkpoint-activations": true
"optimizer": {"type": "Adam", "params": {"lr": 0.1}}
"activation": "swiglu"
"use_bias_in_attn_linear": false
"moe_num_experts": 4
"moe_top_k": 1
"""
    model = read_model(written(tmp_path, "20B.yml", text))
    job, experts = model.asked, [layer.is_sparse for layer in model.architecture.layers]
    assert experts == [True, False] * 22, "expert_interval is 2 where nobody says it"
    dense = model.architecture.layers[1].mlp
    assert isinstance(dense, DenseMlp)
    assert (dense.width, dense.bias) == (8192, False), "two thirds of 4 x 6144, half of it gates"
    asked = {"tp": 2, "pp": 4, "zero": 1, "precision": "fp16", "microbatch_size": 4}
    assert (asked | {"microbatches": "32", "recompute": "full"}).items() <= job.items()
