"""Architectures by the name that a configuration gives them: what the code of each fixes.

Facts of the model classes in Hugging Face transformers 4.57. What a configuration says itself is
read by `stepsim.files.models.huggingface`; a family says what it does not.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct, field

from stepsim.base.structs import replace
from stepsim.workload.model.architecture import NormKind, QkNorm


class WindowRule(StrEnum):
    """Which layers have the sliding window where no `layer_types` say."""

    ALL = "all"
    NONE = "none"
    EVEN = "even"
    PATTERN = "all but every nth"
    UPPER = "from max_window_layers, where use_sliding_window"


class Family(Struct, frozen=True, kw_only=True):
    """What the code of an architecture fixes; keys named here may change it.

    `bias` is that of queries, keys and values, `output_bias` and `mlp_bias` are others; `bias_keys`
    set all three, `attention_bias_key` the first two. `nested` configurations describe their text
    model in `text_config`. `learned` positions are in `max_position_embeddings` or its synonyms,
    `extra_positions` more. `clamps` limits what activations of experts take. With
    `output_gate` what attention makes is gated by a second projection; an `indexer`
    chooses what latent attention reads; one that `compresses` has keys for several tokens.
    `defaults` are what
    the class of the configuration has for keys that a published one may leave out.
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
    defaults: Mapping[str, int] = field(default_factory=dict)


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
    defaults={  # Gemma3TextConfig
        "vocab_size": 262_208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 4096,
    },
)
_LLAMA4 = Family(qk_norm_key="use_qk_norm")
_WHOLE = Family(qk_norm=QkNorm.WHOLE)
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
        "Mistral3ForConditionalGeneration": replace(_MISTRAL, nested=True),
        "MixtralForCausalLM": _MISTRAL,
        "Phi3ForCausalLM": _MISTRAL,
        "Qwen2ForCausalLM": _QWEN2,
        "Qwen2MoeForCausalLM": replace(_QWEN2, shared_gate=True),
        "Qwen3ForCausalLM": _QWEN3,
        "Qwen3MoeForCausalLM": _QWEN3,
        "Qwen3NextForCausalLM": _QWEN3_NEXT,
        "Qwen3_5ForCausalLM": _QWEN3_NEXT,
        "Qwen3_5ForConditionalGeneration": replace(_QWEN3_NEXT, nested=True),
        "Qwen3_5MoeForCausalLM": _QWEN3_NEXT,
        "Qwen3_5MoeForConditionalGeneration": replace(_QWEN3_NEXT, nested=True),
        "Qwen3VLForConditionalGeneration": replace(_QWEN3, nested=True),
        "Qwen3VLMoeForConditionalGeneration": replace(_QWEN3, nested=True),
        "DeepseekForCausalLM": _LLAMA,
        "DeepseekV2ForCausalLM": _LLAMA,
        "DeepseekV3ForCausalLM": _LLAMA,
        "DeepseekV32ForCausalLM": Family(indexer=True),
        "DeepseekV4ForCausalLM": Family(compresses=True, clamps=True),
        "GlmMoeDsaForCausalLM": Family(indexer=True, output_follows=False),
        "KimiK25ForConditionalGeneration": replace(_LLAMA, nested=True),
        "Glm4MoeForCausalLM": Family(
            output_follows=False, qk_norm=QkNorm.SHARED, qk_norm_key="use_qk_norm"
        ),
        "MiniMaxM2ForCausalLM": Family(qk_norm=QkNorm.WHOLE, qk_norm_key="use_qk_norm"),
        "GptOssForCausalLM": Family(
            bias=True, mlp_bias=True, router_bias=True, sinks=True, clamps=True
        ),
        "Llama4ForCausalLM": _LLAMA4,
        "Llama4ForConditionalGeneration": replace(_LLAMA4, nested=True),
        "OlmoForCausalLM": Family(norm=NormKind.PLAIN),
        "Olmo2ForCausalLM": _WHOLE,
        "Olmo3ForCausalLM": _WHOLE,
        "OlmoeForCausalLM": _WHOLE,
        "GemmaForCausalLM": _GEMMA,
        "Gemma2ForCausalLM": _GEMMA2,
        "Gemma3ForCausalLM": _GEMMA3,
        "Gemma3ForConditionalGeneration": replace(_GEMMA3, nested=True),
        "Gemma4ForCausalLM": replace(_GEMMA3, defaults={}),
        "Gemma4ForConditionalGeneration": replace(_GEMMA3, nested=True, defaults={}),
        "CohereForCausalLM": Family(
            norm=NormKind.LAYER_NO_BIAS,
            norms=1,
            tied=True,
            qk_norm=QkNorm.PER_HEAD,
            qk_norm_key="use_qk_norm",
        ),
        "NemotronForCausalLM": Family(gated=False, activation="relu2", norm=NormKind.LAYER),
        "NemotronHForCausalLM": Family(gated=False, activation="relu2"),
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

_HYBRID = "layers with a state instead of attention"
REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "JambaForCausalLM": _HYBRID,
        "BambaForCausalLM": _HYBRID,
        "Zamba2ForCausalLM": _HYBRID,
        "FalconH1ForCausalLM": _HYBRID,
        "MambaForCausalLM": _HYBRID,
        "Mamba2ForCausalLM": _HYBRID,
        "RwkvForCausalLM": _HYBRID,
        "GraniteMoeHybridForCausalLM": _HYBRID,
        "RecurrentGemmaForCausalLM": _HYBRID,
        "KimiLinearForCausalLM": _HYBRID,
        "MiniMaxText01ForCausalLM": _HYBRID,
    }
)
"""Architectures that are known and not modelled, and why."""
