"""Rules of Megatron-LM's arguments: each is kept by a good line, and broken by a bad one."""

import shlex

import pytest

from stepsim.files.models.megatron_rules import broken_rules, megatron_rules

PLAN = (
    "--num-layers 32 --num-attention-heads 32 --group-query-attention --num-query-groups 8 "
    "--tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 --world-size 64 "
    "--micro-batch-size 1 --global-batch-size 64 --seq-length 4096 "
    "--max-position-embeddings 8192 --sequence-parallel --tp-comm-overlap --bf16 "
    "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"
)
FSDP = "--use-megatron-fsdp --ckpt-format fsdp_dtensor"
TORCH = "--use-torch-fsdp2 --num-layers 8 --untie-embeddings-and-output-weights"
PLAIN = "--num-layers 32 --pipeline-model-parallel-size 4"
LAYOUT = "--pipeline-model-parallel-layout Et*8|t*8|t*8|t*8L"
EXPERTS = "--num-layers 8 --num-experts 8 --expert-model-parallel-size 4"
IN_PAIRS = f"{EXPERTS} --overlap-moe-expert-parallel-comm"
BESIDE_WEIGHTS = "--overlap-dispatch-backward-with-experts-wgrad"

GOOD = (
    PLAN,
    f"{PLAN} --num-virtual-stages-per-pipeline-rank 8",
    f"{PLAN} --num-layers-per-virtual-pipeline-stage 2",
    f"{PLAIN} {LAYOUT}",
    f"{PLAIN} --pipeline-model-parallel-layout E(t|)*3tL --num-layers $LAYERS",
    f"{PLAIN} --decoder-first-pipeline-num-layers 5 --decoder-last-pipeline-num-layers 5 "
    "--num-layers 32",
    "--num-layers 30 --pipeline-model-parallel-size 4 --account-for-loss-in-pipeline-split "
    "--account-for-embedding-in-pipeline-split --num-virtual-stages-per-pipeline-rank 2",
    f"{PLAN} {FSDP} --data-parallel-sharding-strategy optim_grads_params",
    f"{TORCH} --no-gradient-accumulation-fusion",
    f"{EXPERTS} --moe-token-dispatcher-type flex --moe-enable-deepep",
    f"{IN_PAIRS} --delay-wgrad-compute",
    f"{IN_PAIRS} --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2",
    f"{EXPERTS} --moe-shared-expert-overlap {BESIDE_WEIGHTS}",
    "--recompute-granularity full --recompute-method block --recompute-num-layers 3",
    "--recompute-granularity selective --enable-cuda-graph",
    "--fp8-format e4m3 --fp8-recipe mxfp8",
    "--fp4-format e2m1 --fp4-recipe nvfp4",
    "--context-parallel-size 4 --cp-comm-type a2a --num-attention-heads 32 --seq-length 4096",
)
BAD = {
    "--pipeline-model-parallel-layout goes without --num-virtual": (
        f"{PLAIN} {LAYOUT} --num-virtual-stages-per-pipeline-rank 1"
    ),
    "--num-virtual-stages-per-pipeline-rank goes without": (
        f"{PLAIN} --num-virtual-stages-per-pipeline-rank 2 "
        "--num-layers-per-virtual-pipeline-stage 4"
    ),
    "--pipeline-model-parallel-layout goes without --decoder": (
        f"{PLAIN} {LAYOUT} --account-for-loss-in-pipeline-split"
    ),
    "--decoder-first-pipeline-num-layers goes without": (
        f"{PLAIN} --decoder-first-pipeline-num-layers 8 --account-for-loss-in-pipeline-split"
    ),
    "--decoder-last-pipeline-num-layers goes without": (
        f"{PLAIN} --decoder-last-pipeline-num-layers 8 --account-for-loss-in-pipeline-split"
    ),
    "--num-layers-per-virtual-pipeline-stage goes without": (
        f"{PLAIN} --decoder-last-pipeline-num-layers 8 --num-layers-per-virtual-pipeline-stage 4"
    ),
    "has a multiple of --pipeline-model-parallel-size virtual": (
        "--pipeline-model-parallel-size 3 --pipeline-model-parallel-layout Et|t|t|tL"
    ),
    "begins with E, ends with L": (
        "--num-layers 5 --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et|ttL"
    ),
    "has its prediction layers together": (
        "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Etm|t|t|mL"
    ),
    "--num-layers, with the ends that count": "--num-layers 61 --pipeline-model-parallel-size 2",
    "leave a multiple of the other stages": f"{PLAIN} --decoder-first-pipeline-num-layers 7",
    "virtual stages need --pipeline-model-parallel-size above 1": (
        "--num-layers 8 --num-virtual-stages-per-pipeline-rank 2"
    ),
    "virtual stages need microbatches": (
        "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 "
        "--world-size 8 --micro-batch-size 1 --global-batch-size 12"
    ),
    "--overlap-param-gather needs --overlap-grad-reduce": (
        "--overlap-param-gather --use-distributed-optimizer"
    ),
    "--overlap-param-gather needs --use-distributed-optimizer": (
        "--overlap-param-gather --overlap-grad-reduce"
    ),
    "--use-megatron-fsdp needs --use-distributed-optimizer": FSDP,
    "--use-megatron-fsdp goes without --use-torch-fsdp2": (
        f"{FSDP} {TORCH} --use-distributed-optimizer"
    ),
    "--use-megatron-fsdp and --ckpt-format fsdp_dtensor": (
        "--use-megatron-fsdp --use-distributed-optimizer"
    ),
    "--data-parallel-sharding-strategy is one of": (
        "--use-distributed-optimizer --data-parallel-sharding-strategy optim_grads_params"
    ),
    "--use-torch-fsdp2 goes without": f"{TORCH} --pipeline-model-parallel-size 2",
    "--bf16 goes without --fp16": "--bf16 --fp16",
    "--fp8-format goes without --fp4-format": "--fp8-format hybrid --fp4-format e2m1",
    "--fp4-recipe needs --fp4-format": "--fp4-recipe nvfp4",
    "--fp8-recipe needs --fp8-format": "--fp8-recipe mxfp8",
    "--seq-length is a multiple of 2 x": "--context-parallel-size 2 --seq-length 4098",
    "--max-position-embeddings is at least": "--max-position-embeddings 2048 --seq-length 4096",
    "--recompute-granularity full needs": "--recompute-granularity full",
    "--recompute-granularity selective goes without": (
        "--recompute-activations --recompute-method uniform"
    ),
    "--sequence-parallel needs": "--sequence-parallel",
    "--tp-comm-overlap needs --sequence-parallel": (
        "--tp-comm-overlap --tensor-model-parallel-size 2"
    ),
    "experts with --tensor-model-parallel-size above 1": (
        "--num-experts 8 --tensor-model-parallel-size 2"
    ),
    "--expert-model-parallel-size above 1 divides": (
        "--num-layers 8 --num-experts 6 --expert-model-parallel-size 4"
    ),
    "--overlap-moe-expert-parallel-comm needs": "--overlap-moe-expert-parallel-comm",
    "in a pipeline virtual stages": f"{IN_PAIRS} --pipeline-model-parallel-size 2",
    "--overlap-moe-expert-parallel-comm goes without --recompute": (
        f"{IN_PAIRS} --recompute-granularity full"
    ),
    "--overlap-moe-expert-parallel-comm goes without --moe-shared": (
        f"{IN_PAIRS} --moe-shared-expert-overlap"
    ),
    "--delay-wgrad-compute needs": f"{EXPERTS} --delay-wgrad-compute",
    f"{BESIDE_WEIGHTS} goes without": f"{IN_PAIRS} {BESIDE_WEIGHTS}",
    "--moe-enable-deepep needs": f"{EXPERTS} --moe-enable-deepep",
    "--moe-token-dispatcher-type flex needs": "--moe-token-dispatcher-type flex",
    "CUDA graphs go without": "--recompute-granularity full --recompute-method uniform "
    "--recompute-num-layers 1 --cuda-graph-impl local",
    "--enable-cuda-graph goes without": "--enable-cuda-graph --external-cuda-graph",
    "--num-attention-heads is a multiple": (
        "--num-attention-heads 6 --tensor-model-parallel-size 4"
    ),
    "--num-query-groups is a multiple": (
        "--group-query-attention --num-query-groups 2 --tensor-model-parallel-size 4"
    ),
    "--cp-comm-type a2a needs": (
        "--num-attention-heads 6 --context-parallel-size 4 --cp-comm-type a2a --seq-length 4096"
    ),
    "the GPUs are a multiple of --tensor-model-parallel-size": (
        "--world-size 6 --tensor-model-parallel-size 4"
    ),
    "the GPUs are a multiple of --expert-tensor-parallel-size": (
        "--world-size 8 --expert-model-parallel-size 16 --num-experts 16"
    ),
    "--global-batch-size is a multiple": (
        "--world-size 8 --micro-batch-size 2 --global-batch-size 24"
    ),
}


def broken(text: str) -> list[str]:
    words = shlex.split(text)
    values: dict[str, str] = {}
    for i, word in enumerate(words):
        if word.startswith("--"):
            after = words[i + 1] if i + 1 < len(words) else "--"
            values[word[2:]] = "" if after.startswith("--") else after
    return list(broken_rules(values))


@pytest.mark.parametrize("line", GOOD)
def test_a_line_that_runs_breaks_no_rule(line: str) -> None:
    assert broken(line) == []


@pytest.mark.parametrize("said", BAD)
def test_a_line_that_does_not_run_breaks_the_rule_that_says_so(said: str) -> None:
    assert [rule for rule in broken(BAD[said]) if said in rule]


def test_every_rule_is_broken_by_a_line() -> None:
    for rule in megatron_rules():
        assert [each for each in BAD if each in rule.sentence], rule


def test_a_variable_that_nobody_sets_breaks_no_rule() -> None:
    assert broken("--num-layers $LAYERS --pipeline-model-parallel-size $PP") == []
