"""Megatron-LM's arguments of hybrid models: they give what the configuration of the model gives."""

from pathlib import Path

import pytest

from stepsim.base.errors import WorkloadError
from stepsim.files.load import is_model, read_model
from stepsim.workload.model.architecture import (
    Architecture,
    DenseMlp,
    ExpertMlp,
    LatentAttention,
)
from stepsim.workload.model.delta_net import GatedDeltaNet
from stepsim.workload.model.mamba import Mamba2
from stepsim.workload.model.sparse_attention import SparseLatentAttention

USUAL = (
    "--bf16 --normalization RMSNorm --disable-bias-linear --position-embedding-type rope "
    "--untie-embeddings-and-output-weights --hidden-dropout 0 --seq-length 4096 "
)
QWEN = (
    "--num-layers 40 --hidden-size 2048 --num-attention-heads 16 --group-query-attention "
    "--num-query-groups 2 --kv-channels 256 --qk-layernorm --attention-output-gate --swiglu "
    "--experimental-attention-variant gated_delta_net --linear-attention-freq 4 "
    "--linear-num-key-heads 16 --linear-num-value-heads 32 --linear-key-head-dim 128 "
    "--linear-value-head-dim 128 --linear-conv-kernel-dim 4 --num-experts 256 --moe-router-topk 8 "
    "--moe-ffn-hidden-size 512 --moe-shared-expert-intermediate-size 512 "
    "--moe-shared-expert-gate --padded-vocab-size 248320 --mtp-num-layers 1"
)
DEEPSEEK = (
    "--num-layers 61 --hidden-size 7168 --num-attention-heads 128 --ffn-hidden-size 18432 "
    "--swiglu --multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 "
    "--qk-pos-emb-head-dim 64 --v-head-dim 128 --experimental-attention-variant dsa "
    "--dsa-indexer-n-heads 64 --dsa-indexer-head-dim 128 --dsa-indexer-topk 2048 "
    "--dsa-indexer-loss-coeff 0.01 --dsa-indexer-use-sparse-loss --num-experts 256 "
    "--moe-router-topk 8 --moe-ffn-hidden-size 2048 --moe-shared-expert-intermediate-size 2048 "
    "--moe-layer-freq ([0]*3+[1]*58) --moe-router-num-groups 8 --moe-router-group-topk 4 "
    "--padded-vocab-size 129280 --mtp-num-layers 1"
)
NEMOTRON = (
    "--hidden-size 512 --num-attention-heads 8 --squared-relu --ffn-hidden-size 1024 "
    "--mamba-num-heads 16 --mamba-head-dim 64 --mamba-num-groups 4 --mamba-state-dim 32 "
    "--num-experts 16 --moe-router-topk 4 --moe-ffn-hidden-size 256 --moe-latent-size 128 "
    "--padded-vocab-size 1024 --spec megatron.core.models.mamba.mamba_layer_specs mamba_stack_spec "
    "--pipeline-model-parallel-size 2"
)


def read(tmp_path: Path, arguments: str) -> Architecture:
    path = tmp_path / "args.sh"
    path.write_text(USUAL + arguments)
    assert is_model(path)
    return read_model(path).architecture


@pytest.mark.parametrize(
    ("arguments", "name"), [(QWEN, "qwen3.5-35b-a3b"), (DEEPSEEK, "deepseek-v3.2")]
)
def test_arguments_and_configuration_give_the_same_layers(
    arguments: str, name: str, tmp_path: Path
) -> None:
    result, public = read(tmp_path, arguments), read_model(name).architecture
    assert result.layers == public.layers
    assert result.prediction_layers == public.prediction_layers
    assert result.parameters() == public.parameters()


def test_a_pattern_says_parts_stages_and_predictions(tmp_path: Path) -> None:
    pattern = "--hybrid-layer-pattern M-M*|-MEE/*E"
    result = read(tmp_path, f"{NEMOTRON} {pattern}")
    mamba = Mamba2(heads=16, head_dim=64, groups=4, state=32)
    assert result.layers[0].attention == mamba
    assert [type(layer.mlp) for layer in result.layers] == [
        type(None), DenseMlp, type(None), type(None), DenseMlp, type(None), ExpertMlp, ExpertMlp
    ]  # fmt: skip
    assert all(layer.norms == 1 for layer in result.layers)
    (predicted,) = result.prediction_layers
    assert isinstance(predicted.mlp, ExpertMlp)
    assert predicted.mlp.latent == 128
    assert read_model(tmp_path / "args.sh").asked["layout"] == "4,4"
    older = f"--hybrid-override-pattern M-M*-MEE --num-layers {result.depth} --is-hybrid-model"
    assert read(tmp_path, f"{NEMOTRON} {older}").layers == result.layers


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            f"{NEMOTRON} --hybrid-layer-pattern MXM",
            "-layer-pattern is 'MXM': expected letters of",
        ),
        (f"{NEMOTRON} --hybrid-layer-pattern MM --num-layers 3", "expected 3 letters"),
        (f"{NEMOTRON} --hybrid-mlp-ratio 0.5", "--num-layers is missing"),
        (f"{NEMOTRON} --num-layers 4 --hybrid-attention-ratio 2", "expected a number from 0 to 1"),
        (f"{NEMOTRON} --hybrid-layer-pattern MD", "expected --multi-latent-attention"),
        (QWEN.replace("gated_delta_net", "kda"), "is 'kda': expected gated_delta_net, or dsa"),
        (QWEN.replace("freq 4", "freq [1]*3"), "--linear-attention-freq is '[1]*3': expected"),
        (f"{DEEPSEEK} --dsa-indexer-topk-freq 2", "--dsa-indexer-topk-freq 2: what it changes"),
    ],
)
def test_what_is_not_modelled_is_named(arguments: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError) as caught:
        read(tmp_path, arguments)
    assert words in str(caught.value)


def test_shares_of_attention_and_mlps_are_a_pattern(tmp_path: Path) -> None:
    shares = "--is-hybrid-model --hybrid-attention-ratio 0.25 --hybrid-mlp-ratio 0.25"
    result = read(tmp_path, f"{NEMOTRON} --num-layers 8 {shares}")
    assert result.layers == read(tmp_path, f"{NEMOTRON} --hybrid-layer-pattern MM*-M*M-").layers


def test_letters_of_a_pattern_may_be_delta_nets_and_sparse_attention(tmp_path: Path) -> None:
    latent = "--multi-latent-attention --kv-lora-rank 64 --dsa-indexer-n-heads 4 "
    latent += "--dsa-indexer-head-dim 32 --dsa-indexer-topk 64"
    result = read(tmp_path, f"{NEMOTRON} {latent} --hybrid-layer-pattern GD-*")
    net, sparse, _, attention = (layer.attention for layer in result.layers)
    assert net == GatedDeltaNet(heads=32, key_heads=16, key_dim=128, value_dim=128)
    assert isinstance(sparse, SparseLatentAttention)
    assert isinstance(attention, LatentAttention)


def test_windows_may_be_skipped_and_sinks_learned(tmp_path: Path) -> None:
    small = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --padded-vocab-size 128 "
    result = read(
        tmp_path,
        f"{small} --window-size (127,0) --window-attn-skip-freq 2 --softmax-type learnable",
    )
    kinds = [layer.attention for layer in result.layers]
    assert [getattr(kind, "window", 0) for kind in kinds] == [127, None, 127, None]
    assert all(getattr(kind, "sinks", False) for kind in kinds)
