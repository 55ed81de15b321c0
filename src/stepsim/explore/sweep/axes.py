"""What a sweep varies: named axes, their values, and what kind of thing each one is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from os.path import isfile
from types import MappingProxyType

from stepsim.base.errors import StepsimError, SweepError
from stepsim.base.quantities import Quantity, Value
from stepsim.base.ranges import expand, split_list
from stepsim.engine.contention import Sharing
from stepsim.network.collectives import parse_algorithms
from stepsim.network.topology.links import LAUNCH_LATENCY, LINK_FIELDS
from stepsim.parallel.p2p import P2PMode
from stepsim.parallel.ranks import RankOrder
from stepsim.parallel.schedules import parse_name
from stepsim.parallel.stages import StageRows


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisKind:
    """A quantity and what it does to a run.

    `durations_only`: it changes how long tasks take and never which tasks there are, so scenarios
    along it share one task graph. `choices` are the names allowed, where not every name is.
    """

    quantity: Quantity
    durations_only: bool = False
    choices: tuple[str, ...] = ()
    check: Callable[[str], object] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A name, its kind, and its distinct values with the canonical text of each."""

    name: str
    kind: AxisKind
    texts: tuple[str, ...]
    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        if not self.values or len(self.texts) != len(self.values):
            raise SweepError(f"axis {self.name}: it has no values")
        first: dict[Value, str] = {}
        for text, value in zip(self.texts, self.values, strict=True):
            if value in first:
                raise SweepError(f"axis {self.name}: {first[value]} and {text} are the same value")
            first[value] = text

    def __len__(self) -> int:
        return len(self.values)


def _schedule(text: str) -> None:
    if not text.endswith(".csv"):
        parse_name(text)
    elif not isfile(text):
        raise SweepError(f"{text}: cannot read the schedule: no such file")


def _algorithm(text: str) -> None:
    parse_algorithms([text])


_COUNT = AxisKind(quantity=Quantity.COUNT)
_TIME = AxisKind(quantity=Quantity.TIME)
_SWITCH = AxisKind(quantity=Quantity.SWITCH)
_FACTOR = AxisKind(quantity=Quantity.FACTOR)


def _names(choices: type[StrEnum]) -> AxisKind:
    return AxisKind(quantity=Quantity.NAME, choices=tuple(choices))


ARGUMENT_AXES: Mapping[str, AxisKind] = MappingProxyType(
    {
        "schedule": AxisKind(quantity=Quantity.NAME, check=_schedule),
        "chunks": _COUNT,
        "microbatches": _COUNT,
        "global_batch": _COUNT,
        "microbatch_size": _COUNT,
        "npus": _COUNT,
        "pp": _COUNT,
        "p2p": _names(P2PMode),
        "contention": _names(Sharing),
        "stage_rows": _names(StageRows),
        "tp_overlap": _SWITCH,
        "dp_overlap": _SWITCH,
        "dp_bucket": AxisKind(quantity=Quantity.SIZE),
        "expert_skew": _FACTOR,
        "fused_factor": _FACTOR,
        "get_batch": _TIME,
        "loss_time": _TIME,
        "algorithm": AxisKind(quantity=Quantity.NAME, check=_algorithm),
        "rank_order": _names(RankOrder),
        "compute_scale": AxisKind(quantity=Quantity.FACTOR, durations_only=True),
        "host_overhead": AxisKind(quantity=Quantity.TIME, durations_only=True),
    }
)
"""Axes that are arguments of `stepsim.simulate`."""

TOPOLOGY_AXES: Mapping[str, AxisKind] = MappingProxyType(
    {LAUNCH_LATENCY.name: AxisKind(quantity=LAUNCH_LATENCY.quantity, durations_only=True)}
)
"""Axes of the whole topology."""

LINK_AXES: Mapping[str, AxisKind] = MappingProxyType(
    {field.name: AxisKind(quantity=field.quantity, durations_only=True) for field in LINK_FIELDS}
)
"""Axes of a class of links, written CLASS.bandwidth and so on."""


def parse_axis(text: str) -> Axis:
    """The axis of a text such as `fabric.bandwidth=100..800 Gbps:8`.

    Raises SweepError naming the axis and what is allowed.
    """
    name, equals, values = text.partition("=")
    if not equals:
        raise SweepError(f"{text!r} is no axis: expected NAME=RANGE, e.g. microbatches=8,16,32")
    return make_axis(name.strip(), values)


def make_axis(name: str, values: str) -> Axis:
    """The axis of a name and the text of its values; raises SweepError."""
    kind = _kind(name)
    try:
        texts, parsed = _values(kind, values)
    except StepsimError as error:
        raise SweepError(f"axis {name}: {error}") from None
    return Axis(name=name, kind=kind, texts=texts, values=parsed)


def _kind(name: str) -> AxisKind:
    link, dot, field = name.rpartition(".")
    known = LINK_AXES if dot and link else {**ARGUMENT_AXES, **TOPOLOGY_AXES}
    if (field if dot else name) not in known:
        expected = (
            f"CLASS.{' or CLASS.'.join(LINK_AXES)}"
            if dot
            else f"{', '.join(known)}, or CLASS.FIELD"
        )
        raise SweepError(f"unknown axis {name!r}: expected {expected}")
    return known[field if dot else name]


def _values(kind: AxisKind, text: str) -> tuple[tuple[str, ...], tuple[Value, ...]]:
    if not text.strip():
        raise SweepError("it has no values")
    parse = kind.quantity.parse
    if kind.quantity.numeric:
        whole = kind.quantity is Quantity.COUNT
        texts = tuple(expand(text, parse, whole=whole))
    else:
        texts = tuple(split_list(text))
    for each in texts:
        if kind.choices and each not in kind.choices:
            raise SweepError(f"{each!r} is unknown: expected {', '.join(kind.choices)}")
        if kind.check:
            kind.check(each)
    return texts, tuple(parse(each) for each in texts)
