"""Configurations as Hugging Face has them: what is read, and what is refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import Run

from stepsim.base.errors import WorkloadError
from stepsim.files.load import is_model, read_model
from stepsim.files.models.huggingface import architecture_of
from stepsim.workload.model.architecture import (
    Architecture,
    DenseMlp,
    ExpertMlp,
    GroupedAttention,
)
from stepsim.workload.model.compressed_attention import CompressedAttention
from stepsim.workload.model.delta_net import GatedDeltaNet
from stepsim.workload.model.mamba import Mamba2

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 256,
    "vocab_size": 1000,
}
PARAMETERS = {
    "DeepSeek-V3": 671_026_404_352,
    "Kimi-K2-Instruct": 1_026_408_209_408,
    "Kimi-K2.5": 1_026_408_209_408,
    "Llama-3_3-Nemotron-Super-49B-v1": 49_867_145_216,
    "Llama-4-Scout-17B-16E-Instruct": 107_769_861_120,
    "MiniMax-M2.5": 228_689_748_992,
    "Qwen3-30B-A3B": 30_532_122_624,
    "gpt-oss-120b": 116_829_156_672,
}


def read(**changes: Any) -> Architecture:
    values = {key: value for key, value in {**LLAMA, **changes}.items() if value != "absent"}
    return architecture_of(values, place="config.json", name="mine")[0]


@pytest.mark.parametrize("name", PARAMETERS)
def test_reference_configurations_are_read(name: str, shared: Path) -> None:
    path = shared / "reference" / "models" / f"{name}.config.json"
    model = read_model(path)
    assert is_model(path)
    assert model.source == name
    assert model.architecture.parameters() == PARAMETERS[name]


CARDS = {
    "DeepSeek-V3.2": 671e9,
    "DeepSeek-V4-Flash": 284e9,
    "GLM-5": 744e9,
    "Gemma-4-31B-IT": 30.7e9,
    "NVIDIA-Nemotron-3-Super-120B-A12B": 120.6e9,
    "NVIDIA-Nemotron-3-Ultra-550B-A55B": 550e9,
    "Nemotron-H-56B-Base-8K": 56e9,
    "Qwen3.5-122B-A10B": 122e9,
    "Qwen3.5-35B-A3B": 35e9,
    "Qwen3.6-35B-A3B": 35e9,
}
"""Parameters by names, model cards and reports of vendors, without towers for images."""


@pytest.mark.parametrize("name", CARDS)
def test_reference_configurations_have_the_parameters_of_their_cards(
    name: str, shared: Path
) -> None:
    model = read_model(shared / "reference" / "models" / f"{name}.config.json")
    assert model.architecture.parameters() == pytest.approx(CARDS[name], rel=0.01)


def test_keys_that_change_nothing_are_passed_over() -> None:
    usual = {"rope_theta": 1e4, "attention_dropout": 0.1, "use_cache": True, "torch_dtype": "bf16"}
    assert read(**usual, head_dim=None, sliding_window=None, mamba_d_state=0) == read()


def test_a_quantised_release_is_read_with_a_note_and_keys_left_out_are_those_of_the_class() -> None:
    gemma = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "quantization_config": {"quant_method": "fp8"},
        "text_config": {
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "num_hidden_layers": 34,
            "sliding_window": 1024,
        },
        "vision_config": {"hidden_size": 1152},
    }
    found, notes = architecture_of(gemma, place="config.json", name="gemma-3-4b")
    assert found.vocabulary == 262_208
    assert found.parameters() == pytest.approx(3.88e9, rel=0.001)  # gemma-3-4b without its vision
    assert [note.split(": ", 1)[1].split(",")[0].split(":")[0] for note in notes] == [
        "quantization_config is ignored",
        "its vision_config leaves out",
        "its text model alone is trained here",
        "not given",
    ]
    assert "num_hidden_layers 12" in notes[1]
    assert (
        "head_dim 256, num_attention_heads 8, num_key_value_heads 4, vocab_size 262208" in notes[3]
    )


HYBRID: dict[str, Any] = {
    "architectures": ["NemotronHForCausalLM"],
    "hybrid_override_pattern": "M-*E",
    "mamba_num_heads": 16,
    "mamba_head_dim": 8,
    "n_groups": 2,
    "ssm_state_size": 16,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "moe_latent_size": 16,
    "n_shared_experts": 1,
    "moe_shared_expert_intermediate_size": 48,
}


def test_a_pattern_says_the_one_part_of_each_layer() -> None:
    found = read(**HYBRID, mtp_hybrid_override_pattern="*E", num_nextn_predict_layers=1)
    mamba, dense, attention, experts = found.layers
    assert mamba.attention == Mamba2(heads=16, head_dim=8, groups=2, state=16)
    assert [each.norms for each in found.layers] == [1] * 4
    assert (mamba.mlp, dense.attention, attention.mlp, experts.attention) == (None,) * 4
    assert isinstance(dense.mlp, DenseMlp)
    assert isinstance(experts.mlp, ExpertMlp)
    assert (experts.mlp.latent, experts.mlp.shared_width) == (16, 48)
    (predicted,) = found.prediction_layers
    assert (predicted.attention, predicted.mlp) == (attention.attention, experts.mlp)
    names = {"hybrid_override_pattern": "absent", "num_hidden_layers": "absent"}
    listed = ["mamba", "mlp", "attention", "moe"]
    assert read(**{**HYBRID, **names}, layers_block_type=listed).layers == found.layers


LINEAR: dict[str, Any] = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "linear_num_value_heads": 8,
    "linear_num_key_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 32,
    "mtp_num_hidden_layers": 1,
}


def test_linear_attention_stands_where_types_or_an_interval_say() -> None:
    types = ["linear_attention", "linear_attention", "linear_attention", "full_attention"]
    found = read(**LINEAR, layer_types=types)
    net = GatedDeltaNet(heads=8, key_heads=4, key_dim=16, value_dim=32)
    full = found.layers[3].attention
    assert [layer.attention for layer in found.layers] == [net, net, net, full]
    assert isinstance(full, GroupedAttention)
    assert full.gated
    assert found.prediction_layers == (found.layers[3],)
    assert read(**LINEAR, full_attention_interval=4).layers == found.layers


GEMMA: dict[str, Any] = {
    "architectures": ["Gemma4ForConditionalGeneration"],
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "sliding_window": 8,
    "head_dim": 8,
    "global_head_dim": 32,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "use_bidirectional_attention": "vision",
    "hidden_size_per_layer_input": 0,
    "vocab_size_per_layer_input": 1000,
    "hidden_act": "gelu_pytorch_tanh",
}


def test_global_layers_may_have_heads_of_their_own_whose_keys_are_their_values() -> None:
    sliding, full, *_ = (layer.attention for layer in read(**GEMMA).layers)
    assert isinstance(sliding, GroupedAttention)
    assert isinstance(full, GroupedAttention)
    assert (sliding.kv_heads, sliding.head_dim, sliding.shares_values) == (2, 8, False)
    assert (full.kv_heads, full.head_dim, full.shares_values) == (1, 32, True)
    assert full.parameters(64) == 64 * (8 + 1) * 32 + 8 * 32 * 64 + 2 * 32
    shared = [layer.attention for layer in read(**GEMMA, num_kv_shared_layers=1).layers]
    assert [getattr(a, "borrows", None) for a in shared] == [False, False, False, True]


COMPRESSED: dict[str, Any] = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "compress_ratios": [0, 4, 128, 4, 0],
    "head_dim": 16,
    "q_lora_rank": 24,
    "o_groups": 4,
    "o_lora_rank": 12,
    "sliding_window": 8,
    "index_n_heads": 4,
    "index_head_dim": 6,
    "index_topk": 8,
    "hc_mult": 4,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "num_nextn_predict_layers": 1,
}


def test_ratios_say_what_a_key_stands_for() -> None:
    found = read(**COMPRESSED)
    kinds = [each.attention for each in (*found.layers, *found.prediction_layers)]
    assert all(isinstance(each, CompressedAttention) for each in kinds)
    assert [getattr(each, "ratio", None) for each in kinds] == [0, 4, 128, 4, 0]
    assert [getattr(each, "indexer", None) is not None for each in kinds] == [
        False, True, False, True, False
    ]  # fmt: skip
    assert found.streams == 4


def test_tied_ends_of_a_nested_configuration_may_be_said_outside() -> None:
    inner = {key: value for key, value in LLAMA.items() if key != "architectures"}
    qwen = ["Qwen3VLForConditionalGeneration"]
    assert read(architectures=qwen, text_config=inner, tie_word_embeddings=True).tied


def test_modules_that_predict_further_tokens_are_counted() -> None:
    minimax = {"use_mtp": True, "num_mtp_modules": 3, "mtp_transformer_layers": 2}
    assert len(read(**minimax).prediction_layers) == 6
    assert read(**{**minimax, "use_mtp": False}).prediction_layers == ()


@pytest.mark.parametrize(
    ("name", "shipped"),
    [
        ("meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
    ],
)
def test_names_of_repositories_are_shipped_configurations(name: str, shipped: str) -> None:
    assert is_model(name)
    assert read_model(name).source == shipped


def test_a_repository_that_is_not_shipped_is_answered_with_what_is_known() -> None:
    with pytest.raises(WorkloadError, match="Qwen/Qwen3-9B': did you mean qwen3-8b, "):
        read_model("Qwen/Qwen3-9B")
    assert not is_model("tests/absent")
    assert not is_model("absent/workload.txt")


def test_windows_are_those_of_the_layers_that_have_one() -> None:
    def windows(**changes: Any) -> list[int | None]:
        layers = read(**changes).layers
        return [a.window for a in (x.attention for x in layers) if isinstance(a, GroupedAttention)]

    assert windows(architectures=["MistralForCausalLM"], sliding_window=8) == [8] * 4
    assert windows(architectures=["Gemma2ForCausalLM"], sliding_window=8) == [8, None, 8, None]
    upper = {"use_sliding_window": True, "max_window_layers": 3, "sliding_window": 8}
    assert windows(architectures=["Qwen2ForCausalLM"], **upper) == [None, None, None, 8]
    assert windows(architectures=["Qwen2ForCausalLM"], sliding_window=8) == [None] * 4
    types = ["sliding_attention", "full_attention"] * 2
    assert windows(layer_types=types, sliding_window=8) == [8, None, 8, None]


def test_experts_are_in_the_layers_that_the_keys_say() -> None:
    def sparse(**changes: Any) -> list[bool]:
        experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
        return [layer.is_sparse for layer in read(**experts, **changes).layers]

    assert sparse() == [True] * 4
    assert sparse(first_k_dense_replace=1) == [False, True, True, True]
    assert sparse(decoder_sparse_step=2) == [False, True, False, True]
    assert sparse(mlp_only_layers=[2]) == [True, True, False, True]
    assert sparse(moe_layer_freq=[0, 1, 1, 0]) == [False, True, True, False]
    assert sparse(interleave_moe_layer_step=2) == [False, True, False, True]


def test_a_toml_of_the_same_keys_may_change_a_public_model(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text('based_on = "llama-3.1-8b"\nnum_hidden_layers = 16\n')
    model = read_model(path)
    assert is_model(path)
    assert (model.source, model.architecture.depth) == ("own", 16)
    path.write_text('based_on = "llama-9"\n')
    with pytest.raises(WorkloadError, match="no model named 'llama-9'"):
        read_model(path)
    path.write_text("based_on = [\n")
    with pytest.raises(WorkloadError, match=r"own.toml: not valid TOML"):
        read_model(path)


def test_a_folder_with_a_configuration_is_a_model(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    assert not is_model(folder)
    (folder / "config.json").write_text(json.dumps(LLAMA))
    assert is_model(folder)
    assert read_model(folder).source == "my-model"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"architectures": ' + "[" * 9999])
def test_what_is_no_configuration_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(WorkloadError, match=r"config\.json: "):
        read_model(path)


@pytest.mark.parametrize("indent", [None, 2])
def test_a_configuration_is_a_model_on_the_command_line(
    indent: int | None, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA, indent=indent))
    small = ("--npus", "2", "--global-batch", "2", "--sequence", "64")
    code, out, err = run("simulate", path, *small, "-q")
    assert code == 0, err
    assert out.startswith(f"{tmp_path.name} on 2 H100")


NEW: dict[str, dict[str, Any]] = {
    "NovaForCausalLM": {"nova_magic": 3},
    "NovaMoeForCausalLM": {
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "use_qk_norm": True,
    },
    "NovaLatentForCausalLM": {
        "kv_lora_rank": 16,
        "q_lora_rank": 32,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 8,
        "v_head_dim": 8,
    },
    "nova": {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"] * 2},
}


@pytest.mark.parametrize(
    ("name", "like"),
    [
        ("NovaForCausalLM", "LlamaForCausalLM"),
        ("NovaMoeForCausalLM", "HunYuanMoEV1ForCausalLM"),
        ("NovaLatentForCausalLM", "DeepseekV3ForCausalLM"),
        ("nova", "MistralForCausalLM"),
    ],
)
def test_an_architecture_that_nobody_knows_is_that_of_its_keys(name: str, like: str) -> None:
    """Its layers are those of the family whose keys it has, and a note says that it was guessed."""
    keys = {**LLAMA, **NEW[name]}
    named = {"architectures": [name]} if name[0].isupper() else {"model_type": name}
    values = {key: value for key, value in keys.items() if key != "architectures"} | named
    found, notes = architecture_of(values, place="config.json", name="m")
    known = {key: value for key, value in keys.items() if not key.startswith("nova_")}
    same, _ = architecture_of({**known, "architectures": [like]}, place="config.json", name="m")
    first, other = found.layers[0], same.layers[0]
    assert first.attention == other.attention
    assert (found == same) == (like != "DeepseekV3ForCausalLM"), "whose class has experts"
    assert f"architectures is {name}, which nobody here knows: read as" in notes[0]
    assert ("nova_magic 3" in " ".join(notes)) == ("nova_magic" in values)


NOVA = {"architectures": ["NovaForCausalLM"]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"architectures": ["BertModel"]},
            "architectures is 'BertModel': expected a model that predicts the next token",
        ),
        (
            {"architectures": ["Zamba2ForCausalLM"]},
            "'Zamba2ForCausalLM', which has attention layers that share",
        ),
        ({"architectures": ["RwkvForCausalLM"]}, "'RwkvForCausalLM', which has layers of RWKV"),
        ({"architectures": "absent"}, "architectures is None: expected a list"),
        ({"hidden_size": "absent"}, "hidden_size is missing: expected a whole number"),
        ({"hidden_size": -64}, "hidden_size is -64: expected a whole number of at least 1"),
        ({"num_hidden_layers": 2.5}, "num_hidden_layers is 2.5: expected a whole number"),
        ({"num_attention_heads": True}, "num_attention_heads is True: expected a whole number"),
        ({"num_key_value_heads": 3}, "kv_heads is 3: expected a divisor of 8"),
        ({"num_attention_heads": 7}, "num_attention_heads is 7: expected a divisor of hidden_size"),
        ({"vocab_size": 0}, "vocab_size is 0"),
        ({"hidden_act": "sine"}, "hidden_act is 'sine': expected one of silu, swish"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes': expected true or false"),
        ({"mamba_d_state": 128}, "mamba_d_state is 128: expected it absent"),
        ({"layer_types": ["linear_attention"] * 4}, "layer_types is 'linear_attention'"),
        ({"layer_types": ["full_attention"]}, "layer_types is 1: expected 4 of them"),
        ({"q_lora_rank": 8, "kv_lora_rank": 8}, "qk_nope_head_dim is missing"),
        ({"num_experts": 8, "num_experts_per_tok": 9}, "top_k is 9: expected 1 to 8"),
        (
            HYBRID | {"hybrid_override_pattern": "M-X*"},
            "hybrid_override_pattern is 'X': expected one of M",
        ),
        (
            HYBRID | {"hybrid_override_pattern": "M-"},
            "hybrid_override_pattern is 2: expected 4 of them",
        ),
        (HYBRID | {"n_groups": 3}, "groups is 3: expected a divisor of 16 heads"),
        (HYBRID | {"mamba_hidden_act": "gelu"}, "mamba_hidden_act is 'gelu': expected silu"),
        (
            GEMMA | {"use_bidirectional_attention": "all"},
            "use_bidirectional_attention is 'all': expected it",
        ),
        (
            COMPRESSED | {"compress_ratios": [0, 4]},
            "compress_ratios is 2: expected at least 4 of them",
        ),
        (
            COMPRESSED | {"compress_ratios": "absent", "layer_types": ["sliding_attention"]},
            "layer_types is 1: expected at least 4 of them",
        ),
        (
            COMPRESSED | {"compress_ratios": [0, 4, 8, 4]},
            "compress_ratios is 8: expected 0, 4 or 128",
        ),
        (
            COMPRESSED | {"compress_ratios": [0, [4], 8, 4]},
            "compress_ratios is [4]: expected 0, 4 or 128",
        ),
        (COMPRESSED | {"compress_ratios": "absent"}, "compress_ratios is None: expected at least"),
        (NOVA | {"altup_num_inputs": 4}, "altup_num_inputs is 4"),
        (NOVA | {"ssm_state_size": 128}, "ssm_state_size is 128"),
        (NOVA | {"type_vocab_size": 2}, "type_vocab_size is 2"),
    ],
)
def test_a_wrong_key_is_named_with_what_is_allowed(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        read(**changes)
    assert str(caught.value).startswith("config.json")
    assert words in str(caught.value)
