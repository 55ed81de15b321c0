"""What numbers rest on: sources of those of a device or a framework, errors of predictions.

And what a step of a model is worth.
"""

import re
from enum import StrEnum
from typing import Annotated, NamedTuple

from msgspec import Meta, field

from stepsim.base.structs import Amount, Noun, Share, TomlTable


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

    `error` is the mean as a share, `median` and `ninety` the quantiles, over so many runs of
    `source`; `sparse` runs have experts, those of a model that `mixes` have layers without
    usual attention. Between `low` and `high` times a prediction lie 80 % of
    the measured steps of `others` sources of such models, on at most `most_npus` NPUs, with
    sequences up to `most_sequence` and cp up to `most_cp`; 0 where nothing is known of them.
    Sources that were `traced` are jobs that a calibration was held against. Files write the error
    as `mean`, and `experts` for `sparse`; `benchmarks/model_constants.py` writes them.
    """

    device: str
    error: Annotated[Share, Meta(ge=0, le=1e9)] = field(name="mean", default=0.0)
    runs: Annotated[int, Meta(ge=0, description="0: those of kin alone tell its range")] = 0
    source: str = ""
    sparse: bool = field(name="experts", default=False)
    mixes: Annotated[bool, Meta(description="of hybrids and of sparse attention")] = False
    generation: Annotated[str, Meta(description="of the device")] = ""
    median: Amount = 0.0
    ninety: Annotated[Amount, Meta(description="error that 90 % of the runs stay below")] = 0.0
    low: Annotated[Amount, Meta(description="measured over predicted, 10 % of the kind")] = 0.0
    high: Annotated[Amount, Meta(description="measured over predicted, 90 % of the kind")] = 0.0
    others: Annotated[int, Meta(ge=0, description="sources of the kind")] = 0
    traced: bool = False
    most_npus: Annotated[int, Meta(ge=0)] = 0
    most_sequence: Annotated[int, Meta(ge=0)] = 0
    most_cp: Annotated[int, Meta(ge=0)] = 0


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
