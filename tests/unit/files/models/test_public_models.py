"""Parameters of public models, as their vendors' checkpoints have them."""

import pytest

from stepsim.base.errors import WorkloadError
from stepsim.files.load import is_model, public_names, read_model

PUBLISHED = {
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "tinyllama-1.1b": 1_100_048_384,
    "yi-34b": 34_388_917_248,
    "deepseek-67b": 67_424_935_936,
    "mistral-7b": 7_241_732_096,
    "mistral-nemo-12b": 12_247_782_400,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen2-57b-a14b": 57_409_001_472,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_419_200,
    "kimi-k2": 1_026_408_232_448,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "olmoe-7b": 6_919_161_856,
    "olmo-7b": 6_888_095_744,
    "olmo-2-7b": 7_298_617_344,
    "olmo-2-13b": 13_716_198_400,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "phi-3-mini": 3_821_079_552,
    "phi-2": 2_779_683_840,
    "starcoder2-3b": 3_030_371_328,
    "starcoder2-7b": 7_173_923_840,
    "starcoder2-15b": 15_957_889_024,
    "command-r-35b": 34_980_831_232,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "pythia-160m": 162_322_944,
    "pythia-410m": 405_334_016,
    "pythia-1.4b": 1_414_647_808,
    "pythia-2.8b": 2_775_208_960,
    "pythia-6.9b": 6_857_302_016,
    "pythia-12b": 11_846_072_320,
    "gpt-neox-20b": 20_554_567_680,
    "opt-125m": 125_239_296,
    "opt-1.3b": 1_315_758_080,
    "opt-6.7b": 6_658_473_984,
    "opt-30b": 29_974_540_288,
    "bloom-560m": 559_214_592,
    "bloom-7b1": 7_069_016_064,
    "bloom-176b": 176_247_271_424,
    "gpt-j-6b": 6_050_882_784,
    "falcon-7b": 6_921_720_704,
    "falcon-40b": 41_303_293_952,
    "falcon-180b": 178_558_488_576,
    "mpt-7b": 6_649_286_656,
    "mpt-30b": 29_958_176_768,
    "dbrx-132b": 131_596_523_520,
    "nemotron-4-340b": 341_000_000_000,
    "glm-4.5-air": 106_852_245_504,
    "megatron-1t": 1_008_000_000_000,
}
"""Parameters of the checkpoints on huggingface.co; those of gpt3 and larger from the papers."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_the_published_ones(name: str) -> None:
    found = read_model(name).architecture.parameters()
    assert found == pytest.approx(PUBLISHED[name], rel=0.001)


@pytest.mark.parametrize("name", public_names())
def test_every_public_model_is_read_without_an_assumption(name: str) -> None:
    model = read_model(name)
    assert is_model(name)
    assert model.source == name
    known = ("in chunks of", "its text model alone", "change nothing")
    assert [note for note in model.warnings if not any(k in note for k in known)] == []


@pytest.mark.parametrize(
    ("name", "active"),
    [("mixtral-8x7b", 12.9e9), ("deepseek-v3", 37.6e9), ("qwen3-30b-a3b", 3.3e9)],
)
def test_active_parameters_are_those_of_one_token(name: str, active: float) -> None:
    found = read_model(name).architecture.parameters(active=True)
    assert found == pytest.approx(active, rel=0.02)


def test_names_count_in_any_case_and_unknown_ones_are_answered_with_close_ones() -> None:
    assert read_model("Llama-3.1-8B").source == "llama-3.1-8b"
    with pytest.raises(WorkloadError, match=r"no model named 'llama-3.1-9b': did you mean llama-3"):
        read_model("llama-3.1-9b")
