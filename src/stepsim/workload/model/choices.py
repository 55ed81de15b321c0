"""What of a model's training is chosen by name: formats, recomputation, exchanges, kernels."""

from enum import StrEnum


class Precision(StrEnum):
    """Number format of the matrix products; master weights and sums are fp32 in all.

    `element_bytes` is what an operand's element takes, `casts` whether inputs are converted first.
    """

    element_bytes: float
    casts: bool

    def __new__(cls, name: str, element_bytes: float, casts: bool) -> "Precision":
        """A format with its name, the bytes of an element, and whether operands are converted."""
        precision = str.__new__(cls, name)
        precision._value_ = name
        precision.element_bytes = element_bytes
        precision.casts = casts
        return precision

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


class ContextParallelKind(StrEnum):
    """How ranks that share a sequence exchange keys and values."""

    RING = "ring"
    ALL_GATHER = "all_gather"
    ALL_TO_ALL = "all_to_all"


class AttentionKernel(StrEnum):
    """Whether core attention is one kernel, or products with score tensors in memory between."""

    FLASH = "flash"
    UNFUSED = "unfused"


class ExpertDispatch(StrEnum):
    """How tokens reach experts: one all-to-all, or DeepEP's, which sends each token once a node."""

    ALL_TO_ALL = "all_to_all"
    DEEPEP = "deepep"
