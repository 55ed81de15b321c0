"""What predictions of a model on a device were held against: published runs, and how far off.

One record, `frameworks/held.csv`, tells the list of names and the page of coverage. The errors that
a step prints are of the same runs: `[[error]]` tables of the frameworks have them.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from stepsim.workload.model.architecture import Architecture
from stepsim.workload.model.choices import Precision
from stepsim.workload.model.device import Device
from stepsim.workload.model.evidence import Evidence, source_of
from stepsim.workload.model.framework import plain_name

_SAME_SIZE = 1e-4
"""Models of one kind are the same where their parameters differ by no more than this share."""
_MOST_UNLIKE = 2.0
"""Models of one kind are alike up to so many times the parameters."""


class HeldRuns(Struct, frozen=True, kw_only=True):
    """Published runs of a model with `frameworks` on a device, against which steps were held.

    `mean` and `largest` are errors as shares, of predictions whose constants were set without the
    runs of `source`. `experts` says whether the model has some, `mixes` whether it has layers
    without usual attention, `generation` whose device it is.
    """

    frameworks: str
    source: str
    model: str
    device: str
    generation: str
    precision: Precision
    experts: bool
    mixes: bool = False
    parameters: int
    runs: int
    mean: float
    largest: float


class HeldAgainst(Struct, frozen=True, kw_only=True):
    """How many runs predictions were held against, and their mean and largest error as shares.

    Both are None without a run: the error is unknown.
    """

    runs: int = 0
    error: float | None = None
    largest: float | None = None

    @classmethod
    def of(cls, rows: Iterable[HeldRuns]) -> "HeldAgainst":
        """All runs of some rows together."""
        found = list(rows)
        runs = sum(row.runs for row in found)
        if not runs:
            return cls()
        return cls(
            runs=runs,
            error=sum(row.mean * row.runs for row in found) / runs,
            largest=max(row.largest for row in found),
        )


class Nearness(StrEnum):
    """Which runs are the nearest to a model on a device, from its own to none."""

    SAME = "the same model"
    ALIKE = "models of its kind, half to twice its size"
    KIND = "other models of its kind"
    NONE = "unknown"


class Coverage(Struct, frozen=True, kw_only=True):
    """The runs nearest to a model on a device, and what predictions were held against in them."""

    nearness: Nearness
    held: HeldAgainst


class _Looks(NamedTuple):
    """What runs of a model are known by: a plain name, whether it has experts, mixes, its size."""

    name: str
    experts: bool
    mixes: bool
    parameters: int

    @classmethod
    def of(cls, model: Architecture) -> "_Looks":
        return cls(plain_name(model.name), model.is_sparse, model.mixes, model.parameters())

    def is_of_kind(self, row: HeldRuns) -> bool:
        """Whether a run is of a model with experts, and with such layers, as this one is."""
        return (row.experts, row.mixes) == (self.experts, self.mixes)

    def apart(self, row: HeldRuns) -> float:
        """How many times the parameters of one the other has, 1 or more."""
        ratio = self.parameters / row.parameters
        return max(ratio, 1 / ratio)

    def is_same(self, row: HeldRuns) -> bool:
        """Whether a run is of this model: of its kind, and of its name or its size."""
        return self.is_of_kind(row) and (
            plain_name(row.model) == self.name or self.apart(row) <= 1 + _SAME_SIZE
        )


def held_of(architecture: Architecture, held: Iterable[HeldRuns]) -> HeldAgainst:
    """What predictions of a model were held against, on all devices."""
    return HeldAgainst.of(filter(_Looks.of(architecture).is_same, held))


def coverage_of(architecture: Architecture, device: str, held: Sequence[HeldRuns]) -> Coverage:
    """The nearest runs to a model on a device of a name: its own, those like it, of its kind."""
    looks = _Looks.of(architecture)
    kind = [row for row in held if row.device == device and looks.is_of_kind(row)]
    for nearness, rows in (
        (Nearness.SAME, [row for row in kind if looks.is_same(row)]),
        (Nearness.ALIKE, [row for row in kind if looks.apart(row) <= _MOST_UNLIKE]),
        (Nearness.KIND, kind),
    ):
        if rows:
            return Coverage(nearness=nearness, held=HeldAgainst.of(rows))
    return Coverage(nearness=Nearness.NONE, held=HeldAgainst())


def said_of_device(device: Device, framework: str, *, sparse: bool) -> str:
    """That no run on a device told how fast steps on it are; empty where some did.

    The words are of steps with a framework, of models that are `sparse` or dense: no run of that
    kind on the device was compared.
    """
    sustained = source_of(device.sources.get("sustained"))
    if sustained.evidence in (Evidence.UNSAID, Evidence.FITTED):
        return ""
    rate = source_of(device.sources.get("rate"))
    kind = "model with experts" if sparse else "dense model"
    return (
        f"no run of a {kind} on {device.name} with {framework} was held against predictions: the "
        f"error of the step is unknown (rates of products are {rate.brief})"
    )
