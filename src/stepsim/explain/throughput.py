"""What a step is worth: tokens, floating-point operations, money and energy."""

from math import inf
from typing import TYPE_CHECKING

from stepsim.base.structs import Bytes, Count, Entry

if TYPE_CHECKING:
    from stepsim.workload.model.evidence import Effort, ErrorBand

_TERA = 1e12
_SECONDS_PER_HOUR = 3600
_WATT_SECONDS_PER_KWH = 3.6e6


class Throughput(Entry):
    """What a step of a model is worth, per NPU; None where price or power is not known.

    `mfu` is the model's floating-point operations over the peak of the precision.
    `npu_hours_per_trillion_tokens` are those of all NPUs. `error` is the mean error of predictions
    of this kind, over `error_runs` published runs of `error_source`, each predicted with constants
    that were set without its source; half of the errors are below `error_median`, nine of ten below
    `error_90`. Of such steps of `range_sources` sources 80 % are between `low_s` and `high_s`;
    `range_of` says in words what lies there.
    `memory_bytes` is what the fullest rank holds, of `capacity_bytes`. A step has `global_batch`
    samples of `sequence` tokens, `microbatch_size` of them in a microbatch; 0 where unknown.
    """

    device: str
    framework: str
    parameters: Count
    tokens: Count
    tokens_per_s: float
    model_tflops: float
    hardware_tflops: float
    mfu: float
    npu_hours_per_trillion_tokens: float
    price_per_step: float | None = None
    kwh_per_step: float | None = None
    error: float | None = None
    error_runs: Count = 0
    error_source: str = ""
    error_median: float | None = None
    error_90: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    range_sources: Count = 0
    range_of: str = ""
    memory_bytes: Bytes | None = None
    capacity_bytes: Bytes | None = None
    sequence: Count = 0
    global_batch: Count = 0
    microbatch_size: Count = 0

    @property
    def fits(self) -> bool:
        """Whether the fullest rank holds no more than its device has, as far as that is known."""
        return (self.memory_bytes or 0) <= (self.capacity_bytes or inf)


def throughput(effort: "Effort", npus: int, step_s: float) -> Throughput | None:
    """What a step of so many seconds is worth; None where it takes no time."""
    if not step_s:
        return None
    tokens_per_s = effort.tokens / step_s / npus
    model = effort.model_flops / step_s / npus
    band, told = effort.band, effort.band if effort.band and effort.band.runs else None
    hours = npus * step_s / _SECONDS_PER_HOUR
    return Throughput.taken_from(
        effort,
        tokens_per_s=tokens_per_s,
        model_tflops=model / _TERA,
        hardware_tflops=effort.hardware_flops / step_s / npus / _TERA,
        mfu=model / effort.peak_flops,
        npu_hours_per_trillion_tokens=_TERA / tokens_per_s / _SECONDS_PER_HOUR,
        price_per_step=None if effort.price_per_hour is None else hours * effort.price_per_hour,
        kwh_per_step=(
            None if effort.watts is None else npus * step_s * effort.watts / _WATT_SECONDS_PER_KWH
        ),
        error=told.error if told else None,
        error_runs=told.runs if told else 0,
        error_source=f"{told.source}, on {told.device}" if told else "",
        error_median=told.median if told else None,
        error_90=told.ninety if told else None,
        low_s=step_s * band.low if band and band.others else None,
        high_s=step_s * band.high if band and band.others else None,
        range_sources=band.others if band else 0,
        range_of=_range_of(band) if band and band.others else "",
    )


def _range_of(band: "ErrorBand") -> str:
    """What lies in the range of a band: what it rests on, in words."""
    if band.traced:
        return f"80 % of steps by the errors of {band.others} jobs that the calibration left out"
    tuned = "tuned recipes"
    if band.sparse:
        tuned += ", balanced experts: real data ran up to half as fast"
    return f"80 % of the steps of {band.others} other sources ({tuned})"
