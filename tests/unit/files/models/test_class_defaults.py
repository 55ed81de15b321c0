"""Configurations that leave out all but their size have what their class in transformers has."""

from typing import Any

import pytest

from stepsim.files.models.huggingface import architecture_of, class_defaults

TOTALS = {
    "MixtralForCausalLM": (4096, 32, 46_702_792_704),
    "Qwen3MoeForCausalLM": (2048, 24, 15_350_731_776),
    "Qwen3NextForCausalLM": (2048, 48, 79_674_391_296),
    "DeepseekV3ForCausalLM": (7168, 61, 671_026_404_352),
    "GlmForCausalLM": (4096, 40, 9_399_951_360),
    "Glm4ForCausalLM": (4096, 40, 9_400_279_040),
    "Glm4MoeLiteForCausalLM": (2048, 47, 29_943_390_976),
    "GemmaForCausalLM": (3072, 28, 8_537_680_896),
    "Gemma2ForCausalLM": (2304, 26, 2_614_341_888),
    "Gemma3ForCausalLM": (2304, 26, 2_628_658_432),
    "Llama4ForCausalLM": (5120, 48, 107_769_861_120),
    "CohereForCausalLM": (8192, 40, 34_980_831_232),
    "Cohere2ForCausalLM": (8192, 40, 34_980_831_232),
    "SeedOssForCausalLM": (4096, 64, 28_921_040_896),
    "Exaone4ForCausalLM": (4096, 32, 9_429_069_824),
    "ExaoneMoeForCausalLM": (4096, 32, 28_550_639_616),
    "KimiLinearForCausalLM": (2304, 27, 49_133_074_464),
    "JambaForCausalLM": (4096, 32, 51_570_323_328),
    "BambaForCausalLM": (4096, 32, 9_992_765_440),
    "FalconH1ForCausalLM": (4096, 32, 8_514_961_408),
    "GraniteMoeHybridForCausalLM": (4096, 32, 38_601_064_448),
    "Lfm2ForCausalLM": (2560, 32, 2_705_497_600),
    "OlmoHybridForCausalLM": (3840, 32, 7_430_870_688),
    "BailingHybridForCausalLM": (2560, 42, 124_414_191_072),
    "FlexOlmoForCausalLM": (4096, 32, 33_270_665_216),
    "ArceeForCausalLM": (2560, 32, 4_022_766_080),
}
"""Hidden width, layers, and parameters of the class in transformers 5.23, made on no device."""
KIMI = ["full_attention" if n and n % 4 == 0 else "linear_attention" for n in range(27)]


@pytest.mark.parametrize("name", TOTALS)
def test_totals_are_those_of_the_class(name: str) -> None:
    hidden, layers, total = TOTALS[name]
    values: dict[str, Any] = {
        "architectures": [name],
        "hidden_size": hidden,
        "num_hidden_layers": layers,
    }
    if name == "KimiLinearForCausalLM":  # whose published configurations list their layers
        values["layer_types"] = KIMI
    architecture, notes = architecture_of(values, place="config.json", name="left out")
    assert architecture.parameters() == total
    assert "left out: not given, so taken as the class in transformers has it: " in notes[-1]


def test_what_is_said_to_be_nothing_is_nothing() -> None:
    values = {"architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168}
    values |= {"num_hidden_layers": 61, "q_lora_rank": None}
    architecture, _ = architecture_of(values, place="config.json", name="direct")
    assert getattr(architecture.layers[0].attention, "query_rank", 0) is None
    assert class_defaults("DeepseekV3ForCausalLM")["q_lora_rank"] == 1536
    assert class_defaults("AquilaForCausalLM") == {}
