"""How far a topology's times of collectives are from measured ones, by collective and size."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import PurePath

import numpy as np

from stepsim.base.arrays import Floats, Ints
from stepsim.base.structs import replace
from stepsim.measured.calibration.protocols import fit_protocols, placed_shape, with_library
from stepsim.network.collectives import collective_times_ps
from stepsim.network.collectives.flows import link_parameters
from stepsim.network.measured_times import MeasuredCurve
from stepsim.network.topology import Topology
from stepsim.network.topology.dimension import SIZE_BANDS, Accuracy


def modelled_ps(topology: Topology, curve: MeasuredCurve) -> Ints:
    """Picoseconds of a curve's sizes on a topology, each group by itself.

    Raises CalibrationError where the topology cannot hold the group.
    """
    grown, _, shape = placed_shape(topology, curve)
    launch = np.array([grown.launch_latency_ps])
    links = link_parameters(grown.link_classes)
    return collective_times_ps(shape, curve.size_bytes.astype(np.float64), launch, links)[0]


def errors_of(topology: Topology, curve: MeasuredCurve) -> Floats:
    """Ours / measured - 1 of every size."""
    errors: Floats = modelled_ps(topology, curve) / curve.time_ps - 1
    return errors


def fit_with_accuracy(
    topology: Topology, curves: Sequence[MeasuredCurve], start: Topology | None = None
) -> Topology:
    """`fit_protocols`, and in the library how far its times are from the curves."""
    fitted = fit_protocols(topology, curves, start)
    stated = replace(fitted.library, accuracy=accuracy_of(fitted, curves))
    return with_library(fitted, stated)


def accuracy_of(topology: Topology, curves: Sequence[MeasuredCurve]) -> tuple[Accuracy, ...]:
    """Errors of curves of more than one rank: by kind, in one node or over several, and by size."""
    together: dict[tuple[str, bool], list[MeasuredCurve]] = defaultdict(list)
    for curve in curves:
        if curve.ranks > 1:
            together[curve.kind, curve.nodes > 1].append(curve)
    return tuple(
        row for (kind, _), alike in together.items() for row in _bands(topology, kind, alike)
    )


def _bands(topology: Topology, kind: str, curves: Sequence[MeasuredCurve]) -> Iterator[Accuracy]:
    sizes = np.concatenate([curve.size_bytes for curve in curves])
    errors = np.abs(np.concatenate([errors_of(topology, curve) for curve in curves]))
    for first, end in SIZE_BANDS:
        inside = (sizes >= first) & (sizes < end)
        if inside.any():
            yield Accuracy(
                kind=str(kind),
                nodes=max(curve.nodes for curve in curves),
                most_ranks=max(curve.ranks for curve in curves),
                first_bytes=int(sizes[inside].min()),
                last_bytes=int(sizes[inside].max()),
                mean=float(errors[inside].mean()),
                largest=float(errors[inside].max()),
                samples=int(inside.sum()),
                source="; ".join(dict.fromkeys(map(_origin, curves))),
            )


def _origin(curve: MeasuredCurve) -> str:
    """Machine and run in a few words: a file by its name, a publication by its first word."""
    run = curve.source.split()[0] if curve.source.split() else ""
    path = PurePath(curve.source)
    return f"{curve.machine}, {path.name if path.suffix else run}".strip(", ")
