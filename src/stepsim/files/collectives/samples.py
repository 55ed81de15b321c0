"""What readers of measured collectives share: names of collectives, samples into curves."""

from collections.abc import Iterable

import numpy as np

from stepsim.base.axes import CollectiveKind
from stepsim.base.errors import CalibrationError, bad_value
from stepsim.network.measured_times import MeasuredCurve

# Machine, source, kind, ranks, nodes.
_CurveKey = tuple[str, str, CollectiveKind, int, int]
CurveSample = tuple[_CurveKey, int, int]
"""A measurement: its curve, bytes, ps."""

_KINDS = {kind.replace("_", ""): kind for kind in CollectiveKind}


def collective_kind(name: str, place: str, field: str) -> CollectiveKind:
    """The collective that a name such as `all_reduce`, `AllReduce` or `alltoall_perf` means.

    Raises CalibrationError naming the place and the field.
    """
    plain = name.strip().casefold().replace("_", "").replace("-", "").removesuffix("perf")
    if plain not in _KINDS:
        raise CalibrationError(bad_value(place, field, name, f"one of {', '.join(CollectiveKind)}"))
    return _KINDS[plain]


def curves_of(samples: Iterable[CurveSample]) -> tuple[MeasuredCurve, ...]:
    """Curves in the order of their first samples; a size measured several times has the median."""
    found: dict[_CurveKey, dict[int, list[int]]] = {}
    for key, size, time in samples:
        found.setdefault(key, {}).setdefault(size, []).append(time)
    return tuple(
        MeasuredCurve(
            machine=machine,
            source=source,
            kind=kind,
            ranks=ranks,
            nodes=nodes,
            sizes=tuple(sorted(times)),
            times_ps=tuple(round(float(np.median(times[size]))) for size in sorted(times)),
        )
        for (machine, source, kind, ranks, nodes), times in found.items()
    )
