"""What a step of a model is: tokens and floating-point operations, and what they run on."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBand:
    """How far off predictions of this kind were: mean error as a share, over so many runs."""

    error: float
    runs: int
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """A step of a model on all its ranks.

    `model_flops` are those that the model needs: twice the forward's in the backward, attention as
    far as its mask reaches. `hardware_flops` are those that run: recomputed ones too. `peak_flops`
    is the peak of one NPU in the precision, in FLOP/s; `price_per_hour` and `watts` are of one NPU.
    `memory_bytes` is what the fullest rank holds, of `capacity_bytes`.
    """

    parameters: int
    tokens: int
    model_flops: float
    hardware_flops: float
    peak_flops: float
    device: str
    framework: str
    price_per_hour: float | None = None
    watts: float | None = None
    band: ErrorBand | None = None
    memory_bytes: int | None = None
    capacity_bytes: int | None = None


_DENSE = {
    "megatron-core": ErrorBand(
        error=0.036, runs=33, source="nemo-24.07, dgxc-25.05, mlperf-gpt3 and simumax-b200"
    ),
    "megatron-2021": ErrorBand(error=0.024, runs=5, source="korthikanti22 and sc21-megatron"),
    "megatron-deepspeed": ErrorBand(error=0.112, runs=42, source="vtrain-multi and bigscience"),
    "composer-fsdp": ErrorBand(error=0.031, runs=81, source="llm-foundry"),
    "torch-fsdp-compiled": ErrorBand(error=0.044, runs=12, source="torchtitan"),
    "torch-fsdp-eager": ErrorBand(error=0.044, runs=12, source="torchtitan"),
    "internevo": ErrorBand(error=0.066, runs=13, source="internevo"),
}
_SPARSE = ErrorBand(error=0.17, runs=32, source="simumax-b200 and megatron-bridge")


def error_band(framework: str, *, sparse: bool) -> ErrorBand | None:
    """Error of `stepsim validate` over the published runs of a kind (docs/accuracy.md)."""
    return _SPARSE if sparse else _DENSE.get(framework)
