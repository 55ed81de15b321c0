"""What of a model's training is chosen by name: formats, recomputation, exchanges, kernels."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from stepsim.base.units import NameWithFields


class Precision(NameWithFields):
    """Number format of the matrix products; master weights and sums are fp32 in all.

    `element_bytes` is what an operand's element takes, `casts` whether inputs are converted first.
    """

    element_bytes: float
    casts: bool

    BF16 = "bf16", 2.0, False
    FP16 = "fp16", 2.0, False
    FP8 = "fp8", 1.0, True
    MXFP8 = "mxfp8", 1.0, True
    NVFP4 = "nvfp4", 0.5, True


class Recompute(StrEnum):
    """What of the forward runs again in the backward instead of being kept.

    `SELECTIVE` is core attention, `OPERATORS` every second product (torch's per-operator policy),
    `FULL` whole layers.
    """

    NONE = "none"
    SELECTIVE = "selective"
    OPERATORS = "operators"
    FULL = "full"


class StateFormat(StrEnum):
    """What gradients and optimizer are kept in, beside weights in bf16.

    `FP32` is 4 bytes of a gradient and 12 of the optimizer, master weights among them; `BF16` is 2
    and 4, both moments of Adam, as a model that was loaded in bf16 is tuned without autocast;
    `BF16_GRADIENTS` is 2 and 12, as Megatron-LM's --grad-reduce-in-bf16 has it.
    """

    FP32 = "fp32"
    BF16 = "bf16"
    BF16_GRADIENTS = "bf16-gradients"

    @property
    def held(self) -> Mapping[str, Any]:
        """Bytes of a parameter, by the fields of a framework."""
        return {
            "gradient_bytes": 4 if self is StateFormat.FP32 else 2,
            "optimizer_bytes": 4.0 if self is StateFormat.BF16 else 12.0,
        }


class RecomputeModule(StrEnum):
    """Part of a layer whose outputs are dropped after the forward and made again.

    Names are those of Megatron-LM's `recompute_modules`. `NORMS` drops what norms make,
    `ACTIVATION` what experts' activations make, `UP_PROJECTION` queries, keys and values of latent
    attention, `MLP` all that a dense MLP keeps, `EXPERTS` all that experts keep but the layer's
    input, `HYPER_CONNECTIONS` what residual streams are mixed to, `DELTA_NORM` the gated norm of a
    delta net; core attention keeps nothing where it is one kernel, which runs again all the same.
    """

    NORMS = "layernorm"
    ACTIVATION = "moe_act"
    UP_PROJECTION = "mla_up_proj"
    MLP = "mlp"
    EXPERTS = "moe"
    CORE_ATTENTION = "core_attn"
    HYPER_CONNECTIONS = "mhc"
    DELTA_NORM = "gdn_norm_out"


RecomputeModules = tuple[RecomputeModule, ...]


class GraphScope(StrEnum):
    """Part of a layer that a CUDA graph holds, by the names of Megatron-LM's `cuda_graph_scope`.

    `ROUTER` has the norm before it and the shared experts as well, `PREPROCESS` what is counted
    before tokens are sent.
    """

    ATTENTION = "attn"
    MAMBA = "mamba"
    MLP = "mlp"
    ROUTER = "moe_router"
    PREPROCESS = "moe_preprocess"


GraphScopes = tuple[GraphScope, ...]


class ContextParallelKind(StrEnum):
    """How ranks that share a sequence exchange keys and values."""

    RING = "ring"
    ALL_GATHER = "all_gather"
    ALL_TO_ALL = "all_to_all"


class AttentionKernel(StrEnum):
    """Whether core attention is one kernel, or products with score tensors in memory between."""

    FLASH = "flash"
    UNFUSED = "unfused"


class ExpertDispatch(NameWithFields):
    """How tokens reach experts: one all-to-all, or a library that sends each token once a node.

    DeepEP and HybridEP with `FP8` send tokens to their experts in 8 bits, with a scale for 128
    elements; all that comes back is in 16 (DeepSeek-V3 technical report, section 3.3.2). `once`
    says that a token goes to a node once, `element_bytes` what its elements take on the way to
    experts. What carries them is the `engine`, by its name in `engines.toml` and `dispatch.toml`.
    """

    once: bool
    element_bytes: float
    engine: str

    ALL_TO_ALL = "all_to_all", False, 2.0, "point_to_point"
    DEEPEP = "deepep", True, 2.0, "deepep"
    DEEPEP_FP8 = "deepep_fp8", True, 1 + 4 / 128, "deepep"
    HYBRIDEP = "hybridep", True, 2.0, "hybridep"
    HYBRIDEP_FP8 = "hybridep_fp8", True, 1 + 4 / 128, "hybridep"
