"""Megatron-LM's arguments as people keep them."""

from pathlib import Path

import pytest

from stepsim.base.errors import WorkloadError
from stepsim.files.load import is_model, read_model
from stepsim.workload.model.architecture import DenseMlp, ExpertMlp, GroupedAttention

GPT = (
    "--num-layers 96 --hidden-size 12288 --num-attention-heads 96 --vocab-size 50257 --seq-length "
    "2048 --max-position-embeddings 2048 --hidden-dropout 0.0 --bf16"
)
SCRIPT = """#!/bin/bash
# GPT-3 on 8 nodes --num-layers 2
TP=8
export PP=16
MODEL_ARGS=(
    --num-layers 96      # layers
    --hidden-size 12288
    --num-attention-heads=96
)
torchrun --nproc_per_node ${GPUS:-8} pretrain_gpt.py ${MODEL_ARGS[@]} \\
    --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size $PP \\
    --num-layers-per-virtual-pipeline-stage 2 --micro-batch-size 1 --global-batch-size 1536 \\
    --bf16 --seq-length 2048 --max-position-embeddings 2048 --vocab-size 50257 \\
    --sequence-parallel --use-distributed-optimizer --overlap-grad-reduce \\
    --recompute-activations --hidden-dropout 0 --lr 1e-4 --save "$CHECKPOINTS"
"""


def write(tmp_path: Path, text: str, name: str = "train.sh") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_launch_script_says_the_model_and_the_plan(tmp_path: Path) -> None:
    path = write(tmp_path, SCRIPT)
    model = read_model(path)
    assert is_model(path)
    assert model.architecture.parameters() == pytest.approx(174.6e9, rel=0.001)
    assert dict(model.asked) == {
        "tp": 8,
        "pp": 16,
        "microbatch_size": 1,
        "global_batch": 1536,
        "sequence": 2048,
        "dp_overlap": True,
        "tp_comm_overlap": False,
        "cuda_graph": False,
        "sequence_parallel": True,
        "zero": 1,
        "recompute": "selective",
        "schedule": "interleaved:3",
        "cp_comm": "ring",
        "npus": 8,
    }


def test_a_yaml_of_arguments_says_the_same_as_the_line(tmp_path: Path) -> None:
    line = read_model(write(tmp_path, f"{GPT} --swiglu", "a.txt"))
    pairs = GPT.replace("--", "\n--").split("\n")[1:]
    text = "".join(
        f"  {name}: {value[0] if value else True}\n" for name, *value in map(str.split, pairs)
    )
    yaml = read_model(
        write(tmp_path, f"MODEL_ARGS:\n{text}  swiglu: true\n  mock: false\n", "a.yaml")
    )
    assert yaml.architecture == line.architecture
    assert yaml.asked == {**line.asked, "npus": yaml.asked["npus"]}


def test_the_vocabulary_is_padded_for_tensor_parallelism(tmp_path: Path) -> None:
    path = write(tmp_path, f"{GPT} --tensor-model-parallel-size 8")
    assert read_model(path).architecture.vocabulary == 51200


def test_modern_layers_and_experts_are_read(tmp_path: Path) -> None:
    modern = (
        " --swiglu --normalization RMSNorm --disable-bias-linear --group-query-attention"
        " --num-query-groups 8 --ffn-hidden-size 1024 --num-experts 64 --moe-router-topk 6"
        " --moe-ffn-hidden-size 512 --moe-layer-freq ([0]*1+[1]*95) --expert-model-parallel-size 8"
        " --untie-embeddings-and-output-weights --position-embedding-type rope --fp8-format hybrid"
    )
    model = read_model(write(tmp_path, GPT + modern, "a.txt"))
    first, last = model.architecture.layers[0], model.architecture.layers[-1]
    assert isinstance(first.mlp, DenseMlp)
    assert isinstance(last.mlp, ExpertMlp)
    assert isinstance(last.attention, GroupedAttention)
    assert (last.attention.kv_heads, last.mlp.experts, last.mlp.top_k) == (8, 64, 6)
    assert not model.architecture.tied
    assert (model.asked["ep"], model.asked["precision"]) == (8, "fp8")


@pytest.mark.parametrize(
    ("more", "layout"),
    [
        ("--pipeline-model-parallel-layout Et*48|t*48L", "Et*48|t*48L"),
        ("--decoder-first-pipeline-num-layers 30", "30,22,22,22"),
        ("--account-for-embedding-in-pipeline-split", "embedding"),
    ],
)
def test_where_layers_lie_is_asked_for(more: str, layout: str, tmp_path: Path) -> None:
    path = write(tmp_path, f"{GPT} --pipeline-model-parallel-size 4 {more}")
    assert read_model(path).asked["layout"] == layout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GPT.replace("--hidden-size 12288 ", ""), "--hidden-size is missing: expected a whole"),
        (GPT.replace("12288", "-1"), "--hidden-size is -1: expected a whole number"),
        (GPT.replace("12288", "12289"), "--num-attention-heads is 96: expected a divisor"),
        (GPT.replace(" --bf16", ""), "no precision is given"),
        (f"{GPT} --retro-add-retriever", "--retro-add-retriever : what it changes"),
        (f"{GPT} --recompute-granularity half", "--recompute-granularity is 'half'"),
        (f"{GPT} --num-experts 8 --moe-layer-freq [1]*3", "--moe-layer-freq is '[1]*3': expected"),
        (f"{GPT} --cp-comm-type ulysses", "--cp-comm-type is 'ulysses'"),
        (
            GPT.replace("12288", "$WIDTH"),
            "--hidden-size is ${WIDTH}: nothing sets $WIDTH: ",
        ),
    ],
)
def test_a_wrong_argument_is_named(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError) as caught:
        read_model(write(tmp_path, text, "args.txt"))
    assert "args.txt: " in str(caught.value)
    assert words in str(caught.value)


def test_arguments_that_contradict_each_other_are_read_with_a_warning(tmp_path: Path) -> None:
    more = (
        "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*24|t*24|t*24|t*24L "
        "--num-virtual-stages-per-pipeline-rank 2 --overlap-grad-reduce --overlap-param-gather"
    )
    model = read_model(write(tmp_path, f"{GPT} {more}"))
    refused = [each for each in model.warnings if each.startswith("Megatron-LM refuses these")]
    assert len(refused) == 2
    assert "--pipeline-model-parallel-layout goes without --num-virtual-stages" in refused[0]
    assert "--overlap-param-gather needs --use-distributed-optimizer" in refused[1]
    assert model.asked["schedule"] == "interleaved:2"
    forgiven = f"{GPT} --sequence-parallel"  # Megatron-LM passes it over
    assert read_model(write(tmp_path, forgiven, "good.sh")).warnings == ()


@pytest.mark.parametrize(
    ("more", "zero"),
    [
        ("", 0),
        ("--use-distributed-optimizer", 1),
        ("--use-torch-fsdp2", 3),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params", 3),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", 2),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim", 1),
        ("--use-megatron-fsdp", 0),
    ],
)
def test_the_sharding_is_what_the_strategy_says(more: str, zero: int, tmp_path: Path) -> None:
    assert read_model(write(tmp_path, f"{GPT} {more}")).asked["zero"] == zero


def test_a_layout_says_its_virtual_stages(tmp_path: Path) -> None:
    more = "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*24|(t*24|)*2t*24L"
    model = read_model(write(tmp_path, f"{GPT} {more}"))
    assert (model.asked["schedule"], model.warnings) == ("interleaved:2", ())


EXPERTS = "--num-experts 8 --expert-model-parallel-size 4 --moe-ffn-hidden-size 1024"
PAIRS = "--overlap-moe-expert-parallel-comm"


@pytest.mark.parametrize(
    ("more", "asked"),
    [
        ("", {"dispatch": "all_to_all", "expert_overlap": False, "delay_wgrad": False}),
        ("--moe-token-dispatcher-type flex --moe-enable-deepep", {"dispatch": "deepep"}),
        (
            "--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep",
            {"dispatch": "hybridep"},
        ),
        (f"{PAIRS} --delay-wgrad-compute", {"expert_overlap": True, "delay_wgrad": True}),
        ("--moe-shared-expert-overlap", {"shared_overlap": True, "expert_overlap": False}),
        (
            f"{PAIRS} --pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2",
            {"expert_overlap": True, "schedule": "combined-1f1b:2"},
        ),
    ],
)
def test_ways_of_tokens_are_read(more: str, asked: dict[str, object], tmp_path: Path) -> None:
    model = read_model(write(tmp_path, f"{GPT} {EXPERTS} {more}"))
    assert {name: model.asked[name] for name in asked} == asked
