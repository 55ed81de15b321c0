"""What a step of a model is: tokens and floating-point operations, and what they run on."""

from stepsim.base.records import dataclass
from stepsim.workload.model.device import Device
from stepsim.workload.model.framework import ErrorBand, Framework


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


def error_band(framework: Framework, device: Device, *, sparse: bool) -> ErrorBand | None:
    """Errors of published runs with this framework: on this device, else on the others together.

    None where no run of the kind was compared.
    """
    alike = [each for each in framework.errors if each.sparse is sparse]
    here = [each for each in alike if each.device == device.name]
    if here:
        return here[0]
    if not alike:
        return None
    runs = sum(each.runs for each in alike)
    return ErrorBand(
        device=", ".join(each.device for each in alike),
        sparse=sparse,
        error=sum(each.error * each.runs for each in alike) / runs,
        runs=runs,
        source=", ".join(dict.fromkeys(each.source for each in alike)),
    )
