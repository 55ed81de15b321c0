"""What numbers rest on, and what a step is worth.

Numbers of a device or a framework have sources, predictions have errors. A step is worth tokens,
floating-point operations, money and energy.
"""

import re
from enum import StrEnum
from math import inf
from typing import Annotated, NamedTuple, TypeVar

from msgspec import Meta, field

from stepsim.base.arrays import Floats
from stepsim.base.structs import Amount, AtLeastZero, Bytes, Count, Entry, Noun, Share, TomlTable


class Evidence(StrEnum):
    """What a number rests on, from a measurement of the very thing to a guess.

    `DERIVED` follows from other facts, such as the code of a program. `FITTED` was set on measured
    steps, `SHARED` is that of another device or framework. `UNSAID` has no source.
    """

    MEASURED = "measured kernel"
    DATA_SHEET = "data sheet"
    DERIVED = "derived"
    FITTED = "fitted on"
    SHARED = "shared"
    GUESS = "guess"
    UNSAID = "not said"


class Provenance(NamedTuple):
    """The evidence of a number, and its source in words."""

    evidence: Evidence
    text: str

    @property
    def brief(self) -> str:
        """The evidence, and the source as far as its first comma, semicolon or bracket."""
        return f"{self.evidence}: {re.split('[,;(]', self.text)[0].strip()}"


def source_of(text: str | None) -> Provenance:
    """The source that a text such as `fitted on: runs of nanotron` names.

    A text that begins with no kind of evidence is UNSAID, and stands as it is.
    """
    kind, colon, rest = (text or "").partition(":")
    if colon and kind in list(Evidence):
        return Provenance(Evidence(kind), rest.strip())
    return Provenance(Evidence.UNSAID, text or "")


class ErrorBand(TomlTable):
    """`[[error]]`: how far off predictions on a device were, each set without the source predicted.

    `error` is the mean as a share, `median` and `ninety` the quantiles, which half and 90 % of the
    runs stay below, over so many `runs` of `source` (0: those of kin alone tell its range);
    `sparse` runs have experts, those of a model that `mixes` have layers without usual attention,
    as hybrids and sparse attention. `generation` is that of the device. Between `low` and `high`
    times a prediction lie 80 % of the measured steps of `others` sources of such models, on at most
    `most_npus` NPUs, with sequences up to `most_sequence` and cp up to `most_cp`; 0 where nothing
    is known of them. Sources that were `traced` are jobs that a calibration was held against. Files
    write the error as `mean`, and `experts` for `sparse`; `benchmarks/model_constants.py` writes
    them.
    """

    device: str
    error: Annotated[Share, Meta(ge=0, le=1e9)] = field(name="mean", default=0.0)
    runs: AtLeastZero = 0
    source: str = ""
    sparse: bool = field(name="experts", default=False)
    mixes: bool = False
    generation: str = ""
    median: Amount = 0.0
    ninety: Amount = 0.0
    low: Amount = 0.0
    high: Amount = 0.0
    others: AtLeastZero = 0
    traced: bool = False
    most_npus: AtLeastZero = 0
    most_sequence: AtLeastZero = 0
    most_cp: AtLeastZero = 0


_Seconds = TypeVar("_Seconds", float, Floats)


class Effort(Noun):
    """A step of a model on all its ranks.

    `model_flops` are those that the model needs: twice the forward's in the backward, or fewer
    where no gradient goes on, attention as far as its mask reaches. `hardware_flops` are those that
    run: recomputed ones too. `peak_flops` is the peak of one NPU in the precision, in FLOP/s;
    `price_per_hour` and `watts` are of one NPU. `memory_bytes` is what the fullest rank holds, of
    `capacity_bytes`. A step has `global_batch` samples of `sequence` tokens, `microbatch_size` of
    them in a microbatch.
    """

    parameters: int
    tokens: int
    sequence: int
    global_batch: int
    microbatch_size: int
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

    def rates(self, npus: int, step_s: _Seconds) -> tuple[_Seconds, _Seconds]:
        """Tokens per second of an NPU, and the share of its peak that the model needs."""
        return self.tokens / step_s / npus, self.model_flops / step_s / npus / self.peak_flops


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
    tokens_per_s, mfu = effort.rates(npus, step_s)
    band, told = effort.band, effort.band if effort.band and effort.band.runs else None
    hours = npus * step_s / _SECONDS_PER_HOUR
    return Throughput.taken_from(
        effort,
        tokens_per_s=tokens_per_s,
        model_tflops=effort.model_flops / step_s / npus / _TERA,
        hardware_tflops=effort.hardware_flops / step_s / npus / _TERA,
        mfu=mfu,
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
