"""Architectures by the name that a configuration gives them: what the code of each fixes.

Facts of the model classes in Hugging Face transformers 4.57. What a configuration says itself is
read by `stepsim.files.models.huggingface`; a family says what it does not.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from stepsim.base.structs import Noun, replace
from stepsim.workload.model.architecture import NormKind, QkNorm


class WindowRule(StrEnum):
    """Which layers have the sliding window where no `layer_types` say."""

    ALL = "all"
    NONE = "none"
    EVEN = "even"
    PATTERN = "all but every nth"
    UPPER = "from max_window_layers, where use_sliding_window"


class Family(Noun):
    """What the code of an architecture fixes; keys named here may change it.

    `bias` is that of queries, keys and values, `output_bias` and `mlp_bias` are others; `bias_keys`
    set all three, `attention_bias_key` the first two. `nested` configurations describe their text
    model in `text_config`. `learned` positions are in `max_position_embeddings` or its synonyms,
    `extra_positions` more. `clamps` limits what activations of experts take. With
    `output_gate` what attention makes is gated by a second projection; an `indexer`
    chooses what latent attention reads; one that `compresses` has keys for several tokens.
    `nth` layers see all where windows have a pattern. A `mixer` stands in place of attention in
    some layers, or in all that `always_mixes`; gates of one with `full_gates` have no low rank.
    `head_gates` gate each head by a number. Layers of `singles` are one part of a pattern each;
    `doubled` ones are two, of which the first has experts as well. Experts
    may have the dense MLP `dense_beside` them as a shared one; `shared_is_dense` where the shared
    width is that of dense layers. `tower` says how what sees is described. One that `is_guessed` is
    taken for a class that nobody knows.
    """

    gated: bool = True
    activation: str = "silu"
    norm: NormKind = NormKind.RMS
    norms: int = 2
    bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    bias_key: str = ""
    attention_bias_key: str = "attention_bias"
    mlp_bias_key: str = "mlp_bias"
    output_follows: bool = True
    qk_norm: QkNorm = QkNorm.NONE
    qk_norm_key: str = ""
    tied: bool = False
    learned: bool = False
    extra_positions: int = 0
    embedding_norm: bool = False
    final_norm: bool = True
    window: WindowRule = WindowRule.NONE
    nested: bool = False
    router_bias: bool = False
    shared_gate: bool = False
    sinks: bool = False
    clamps: bool = False
    output_gate: bool = False
    indexer: bool = False
    compresses: bool = False
    nth: int = 6
    mixer: str = ""
    always_mixes: bool = False
    full_gates: bool = False
    head_gates: bool = False
    singles: bool = False
    doubled: bool = False
    dense_beside: bool = False
    shared_is_dense: bool = False
    tower: str = ""
    is_guessed: bool = False


_LLAMA = Family()
_MISTRAL = Family(window=WindowRule.ALL)
_QWEN2 = Family(bias=True, output_follows=False, window=WindowRule.UPPER)
_QWEN3 = Family(qk_norm=QkNorm.SHARED, window=WindowRule.UPPER)
_QWEN3_NEXT = Family(qk_norm=QkNorm.SHARED, shared_gate=True, output_gate=True)
_GEMMA = Family(activation="gelu_pytorch_tanh", tied=True)
_GEMMA2 = replace(_GEMMA, norms=4, window=WindowRule.EVEN)
_GEMMA3 = replace(
    _GEMMA2,
    qk_norm=QkNorm.SHARED,
    window=WindowRule.PATTERN,
)
_LLAMA4 = Family(qk_norm_key="use_qk_norm")
_WHOLE = Family(qk_norm=QkNorm.WHOLE)
_COHERE2 = Family(norm=NormKind.LAYER_NO_BIAS, norms=1, tied=True, window=WindowRule.PATTERN, nth=4)
_EXAONE = Family(qk_norm=QkNorm.SHARED, window=WindowRule.PATTERN, nth=4)
_GLM = Family(bias=True, output_follows=False)
_GLM_MOE = Family(output_follows=False, qk_norm=QkNorm.SHARED, qk_norm_key="use_qk_norm")
_ERNIE = Family(bias_key="use_bias")
_BAILING = Family(bias_key="use_bias", attention_bias_key="use_qkv_bias")
_STEP = Family(head_gates=True, qk_norm=QkNorm.SHARED)
_QWEN3_5 = replace(_QWEN3_NEXT, nested=True, tower="qwen3")
_QWEN3_VL = replace(_QWEN3, nested=True, tower="qwen3")
_GEMMA4 = replace(_GEMMA3, dense_beside=True)
_KIMI = Family(mixer="kimi")
_GPT = Family(
    gated=False,
    activation="gelu",
    norm=NormKind.LAYER,
    bias=True,
    output_bias=True,
    mlp_bias=True,
    tied=True,
)
_GPT2 = replace(_GPT, learned=True)
_MPT = Family(gated=False, activation="gelu", norm=NormKind.LAYER_NO_BIAS, tied=True)

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "LlamaForCausalLM": _LLAMA,
        "LLaMAForCausalLM": _LLAMA,
        "InternLMForCausalLM": Family(bias_key="bias"),
        "InternLM2ForCausalLM": Family(bias_key="bias"),
        "BaichuanForCausalLM": _LLAMA,
        "AquilaForCausalLM": _LLAMA,
        "GraniteForCausalLM": _LLAMA,
        "DeciLMForCausalLM": _LLAMA,
        "SmolLM3ForCausalLM": Family(tied=True, window=WindowRule.UPPER),
        "MistralForCausalLM": _MISTRAL,
        "MinistralForCausalLM": _MISTRAL,
        "Ministral3ForCausalLM": _MISTRAL,
        "Mistral4ForCausalLM": _LLAMA,
        "Mistral3ForConditionalGeneration": replace(_MISTRAL, nested=True, tower="pixtral"),
        "VoxtralForConditionalGeneration": replace(_LLAMA, nested=True),
        "MixtralForCausalLM": _MISTRAL,
        "Phi3ForCausalLM": _MISTRAL,
        "Qwen2ForCausalLM": _QWEN2,
        "Qwen2MoeForCausalLM": replace(_QWEN2, shared_gate=True),
        "Qwen3ForCausalLM": _QWEN3,
        "Qwen3MoeForCausalLM": _QWEN3,
        "Qwen3NextForCausalLM": _QWEN3_NEXT,
        "Qwen3_5ForCausalLM": _QWEN3_NEXT,
        "Qwen3_5ForConditionalGeneration": _QWEN3_5,
        "Qwen3_5MoeForCausalLM": _QWEN3_NEXT,
        "Qwen3_5MoeForConditionalGeneration": _QWEN3_5,
        "Qwen2VLForConditionalGeneration": replace(_QWEN2, nested=True, tower="qwen2"),
        "Qwen2_5_VLForConditionalGeneration": replace(_QWEN2, nested=True, tower="qwen2.5"),
        "Qwen3VLForConditionalGeneration": _QWEN3_VL,
        "Qwen3VLMoeForConditionalGeneration": _QWEN3_VL,
        "DeepseekForCausalLM": _LLAMA,
        "DeepseekV2ForCausalLM": _LLAMA,
        "DeepseekV3ForCausalLM": _LLAMA,
        "DeepseekV32ForCausalLM": Family(indexer=True),
        "DeepseekV4ForCausalLM": Family(compresses=True, clamps=True),
        "GlmMoeDsaForCausalLM": Family(indexer=True, output_follows=False),
        "KimiK2ForCausalLM": _LLAMA,
        "KimiK25ForConditionalGeneration": replace(_LLAMA, nested=True, tower="moonvit"),
        "Kimi_K25ForConditionalGeneration": replace(_LLAMA, nested=True, tower="moonvit"),
        "KimiVLForConditionalGeneration": replace(_LLAMA, nested=True, tower="moonvit"),
        "KimiLinearForCausalLM": _KIMI,
        "GlmForCausalLM": _GLM,
        "Glm4ForCausalLM": replace(_GLM, norms=4),
        "Glm4vForConditionalGeneration": replace(_GLM, norms=4, nested=True, tower="glm4v"),
        "Glm4vMoeForConditionalGeneration": replace(_GLM, nested=True, tower="glm4v"),
        "Glm4MoeLiteForCausalLM": _LLAMA,
        "Glm4MoeForCausalLM": _GLM_MOE,
        "SolarOpenForCausalLM": _GLM_MOE,
        "MiniMaxM2ForCausalLM": Family(qk_norm=QkNorm.WHOLE, qk_norm_key="use_qk_norm"),
        "GptOssForCausalLM": Family(
            bias=True, output_bias=True, mlp_bias=True, router_bias=True, sinks=True, clamps=True
        ),
        "Llama4ForCausalLM": _LLAMA4,
        "Llama4ForConditionalGeneration": replace(_LLAMA4, nested=True, tower="llama4"),
        "OlmoForCausalLM": Family(norm=NormKind.PLAIN),
        "Olmo2ForCausalLM": _WHOLE,
        "Olmo3ForCausalLM": _WHOLE,
        "OlmoeForCausalLM": _WHOLE,
        "FlexOlmoForCausalLM": _WHOLE,
        "OlmoHybridForCausalLM": replace(_WHOLE, mixer="delta"),
        "GemmaForCausalLM": _GEMMA,
        "Gemma2ForCausalLM": _GEMMA2,
        "Gemma3ForCausalLM": _GEMMA3,
        "Gemma3ForConditionalGeneration": replace(_GEMMA3, nested=True, tower="siglip"),
        "VaultGemmaForCausalLM": replace(_GEMMA2, norms=2),
        "Gemma4ForCausalLM": _GEMMA4,
        "Gemma4ForConditionalGeneration": replace(_GEMMA4, nested=True, tower="gemma4"),
        "CohereForCausalLM": Family(
            norm=NormKind.LAYER_NO_BIAS,
            norms=1,
            tied=True,
            qk_norm=QkNorm.PER_HEAD,
            qk_norm_key="use_qk_norm",
        ),
        "NemotronForCausalLM": Family(gated=False, activation="relu2", norm=NormKind.LAYER),
        "Cohere2ForCausalLM": _COHERE2,
        "Cohere2MoeForCausalLM": _COHERE2,
        "NemotronHForCausalLM": Family(gated=False, activation="relu2", singles=True),
        "JambaForCausalLM": Family(mixer="mamba"),
        "BambaForCausalLM": Family(mixer="mamba2"),
        "GraniteMoeForCausalLM": _LLAMA,
        "GraniteMoeSharedForCausalLM": _LLAMA,
        "GraniteMoeHybridForCausalLM": Family(mixer="mamba2", shared_is_dense=True),
        "FalconH1ForCausalLM": Family(mixer="parallel", always_mixes=True),
        "MambaForCausalLM": Family(mixer="mamba", always_mixes=True, tied=True),
        "FalconMambaForCausalLM": Family(mixer="mamba", always_mixes=True, tied=True),
        "Mamba2ForCausalLM": Family(mixer="mamba2", always_mixes=True),
        "Lfm2ForCausalLM": Family(mixer="convolution", qk_norm=QkNorm.SHARED, tied=True),
        "Lfm2MoeForCausalLM": Family(mixer="convolution", qk_norm=QkNorm.SHARED, tied=True),
        "MiniMaxForCausalLM": Family(mixer="lightning"),
        "MiniMaxText01ForCausalLM": Family(mixer="lightning"),
        "MiniMaxM1ForCausalLM": Family(mixer="lightning"),
        "BailingMoeForCausalLM": _BAILING,
        "BailingMoeV2ForCausalLM": replace(
            _BAILING, qk_norm=QkNorm.SHARED, qk_norm_key="use_qk_norm"
        ),
        "BailingMoeLinearForCausalLM": replace(_BAILING, mixer="lightning"),
        "BailingMoeLinearV2ForCausalLM": replace(
            _BAILING, qk_norm=QkNorm.SHARED, qk_norm_key="use_qk_norm", mixer="lightning"
        ),
        "BailingMoeV2_5ForCausalLM": replace(_BAILING, mixer="lightning"),
        "BailingHybridForCausalLM": Family(mixer="kimi", full_gates=True, head_gates=True),
        "Exaone4ForCausalLM": _EXAONE,
        "ExaoneMoEForCausalLM": _EXAONE,
        "ExaoneMoeForCausalLM": _EXAONE,
        "ExaoneForCausalLM": _LLAMA,
        "Ernie4_5ForCausalLM": replace(_ERNIE, tied=True),
        "Ernie4_5_ForCausalLM": replace(_ERNIE, tied=True),
        "Ernie4_5_MoeForCausalLM": replace(_ERNIE, tied=True),
        "HunYuanDenseV1ForCausalLM": Family(qk_norm=QkNorm.SHARED, qk_norm_key="use_qk_norm"),
        "HunYuanMoEV1ForCausalLM": Family(qk_norm=QkNorm.SHARED, qk_norm_key="use_qk_norm"),
        "SeedOssForCausalLM": Family(bias=True, output_follows=False),
        "Dots1ForCausalLM": Family(qk_norm=QkNorm.SHARED),
        "ApertusForCausalLM": Family(gated=False, activation="xielu", qk_norm=QkNorm.SHARED),
        "AfmoeForCausalLM": Family(
            norms=4, qk_norm=QkNorm.SHARED, output_gate=True, window=WindowRule.PATTERN, nth=4
        ),
        "LongcatFlashForCausalLM": Family(doubled=True, dense_beside=True),
        "MiMoForCausalLM": replace(_QWEN2, window=WindowRule.NONE),
        "MiMoV2FlashForCausalLM": Family(),
        "MiMoV2ForCausalLM": Family(),
        "MistralLarge3ForCausalLM": _LLAMA,
        "StepVLForConditionalGeneration": replace(_QWEN3, nested=True),
        "HYV3ForCausalLM": Family(qk_norm=QkNorm.SHARED),
        "GraniteSWAForCausalLM": Family(sinks=True, tied=True),
        "MiniMaxM3SparseForConditionalGeneration": Family(
            qk_norm=QkNorm.SHARED, mixer="blocks", nested=True, tower="minimax"
        ),
        "LagunaForCausalLM": Family(qk_norm=QkNorm.SHARED),
        "MellumForCausalLM": _QWEN3,
        "YoutuForCausalLM": Family(tied=True),
        "HeliumForCausalLM": _LLAMA,
        "CwmForCausalLM": _LLAMA,
        "Jais2ForCausalLM": Family(
            gated=False,
            activation="relu2",
            norm=NormKind.LAYER,
            bias=True,
            output_bias=True,
            mlp_bias=True,
        ),
        "Step3TextForCausalLM": _LLAMA,
        "Step3VLForConditionalGeneration": replace(_LLAMA, nested=True),
        "Step3p5ForCausalLM": _STEP,
        "Step3p7ForConditionalGeneration": replace(_STEP, nested=True, tower="step"),
        "InternVLForConditionalGeneration": replace(_QWEN2, nested=True),
        "LlavaForConditionalGeneration": replace(_LLAMA, nested=True),
        "ArceeForCausalLM": Family(gated=False, activation="relu2"),
        "StableLmForCausalLM": Family(
            norm=NormKind.LAYER, attention_bias_key="use_qkv_bias", output_follows=False
        ),
        "PhiForCausalLM": replace(_GPT, norms=1, tied=False, head_bias=True),
        "PhimoeForCausalLM": replace(_MISTRAL, norm=NormKind.LAYER, head_bias=True),
        "PhiMoEForCausalLM": replace(_MISTRAL, norm=NormKind.LAYER, head_bias=True),
        "Starcoder2ForCausalLM": replace(_GPT, bias_key="use_bias", window=WindowRule.ALL),
        "GPT2LMHeadModel": _GPT2,
        "GPTBigCodeForCausalLM": _GPT2,
        "GPTJForCausalLM": replace(
            _GPT, norms=1, bias=False, output_bias=False, tied=False, head_bias=True
        ),
        "GPTNeoXForCausalLM": replace(_GPT, tied=False),
        "OPTForCausalLM": replace(
            _GPT2, activation="relu", bias_key="enable_bias", extra_positions=2
        ),
        "BloomForCausalLM": replace(_GPT, embedding_norm=True),
        "FalconForCausalLM": replace(
            _GPT, norms=1, bias=False, output_bias=False, mlp_bias=False, bias_key="bias"
        ),
        "MPTForCausalLM": _MPT,
        "MptForCausalLM": _MPT,
        "DbrxForCausalLM": Family(norm=NormKind.LAYER_NO_BIAS),
    }
)
"""Every architecture that is read, by name."""

REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "Zamba2ForCausalLM": "attention layers that share their weights",
        "ZambaForCausalLM": "attention layers that share their weights",
        "RwkvForCausalLM": "layers of RWKV",
        "RecurrentGemmaForCausalLM": "recurrent layers of Griffin",
        "Gemma3nForCausalLM": "predicted residual streams (AltUp) and low-rank residuals (Laurel)",
        "Gemma3nForConditionalGeneration": (
            "predicted residual streams (AltUp) and low-rank residuals (Laurel)"
        ),
        "DiffLlamaForCausalLM": "differences of two attentions",
        "JetMoeForCausalLM": "experts of attention",
        "BitNetForCausalLM": "weights of three values",
    }
)
"""Architectures that are known and not modelled, and why."""

FAMILIES_BY_KEY: Mapping[str, Family] = MappingProxyType(
    {
        "compress_ratios": FAMILIES["DeepseekV4ForCausalLM"],
        "index_topk": FAMILIES["DeepseekV32ForCausalLM"],
        "kv_lora_rank": FAMILIES["DeepseekV3ForCausalLM"],
        "linear_num_value_heads": FAMILIES["Qwen3NextForCausalLM"],
        "hybrid_override_pattern": FAMILIES["NemotronHForCausalLM"],
        "mamba_d_ssm": FAMILIES["FalconH1ForCausalLM"],
        "attn_layer_period": FAMILIES["JambaForCausalLM"],
        "mamba_n_heads": FAMILIES["BambaForCausalLM"],
        "conv_L_cache": FAMILIES["Lfm2ForCausalLM"],
        "n_embd": _GPT2,
        "use_qk_norm": Family(qk_norm=QkNorm.SHARED, qk_norm_key="use_qk_norm"),
        "layer_types": _MISTRAL,
        "use_sliding_window": Family(window=WindowRule.UPPER),
        "sliding_window": _MISTRAL,
        "num_attention_heads": _LLAMA,
    }
)
"""The family of an architecture that nobody here knows, by the first of these keys that it has."""
