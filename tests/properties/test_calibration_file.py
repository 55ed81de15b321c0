"""Calibration files: whatever a calibration holds is read as it was written."""

import string
import tomllib
from typing import Any

import msgspec
from hypothesis import given, strategies as st

from stepsim.base.axes import CollectiveKind
from stepsim.base.fields import numbers
from stepsim.base.structs import replace, toml_text
from stepsim.measured.calibration.calibration import (
    Calibration,
    ExpertImbalance,
    Fitted,
    FittedSpeed,
    FittedTime,
    LayerTimes,
    LeafOverhead,
    LinkFit,
)
from stepsim.measured.clocks import NodePlacement
from stepsim.network.measured_times import MeasuredCurve
from stepsim.workload.model.calibration import HeldStep, MeasuredKernels
from stepsim.workload.model.choices import Precision

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ['a "box"', "\x7f", "a\nb", "#", "[x]", "\\", "'''", '"""', "\x00", "\r"]
)
PLAIN = st.text(string.ascii_letters, min_size=1, max_size=8)
COUNTS = st.integers(1, 1 << 24)
TIMES = st.integers(0, 10**15)
RESIDUALS = st.floats(0, 1e6)
TIMED = st.builds(FittedTime, value=TIMES, residual=RESIDUALS, samples=COUNTS)
RATED = st.builds(FittedSpeed, value=st.floats(1e7, 1e13), residual=RESIDUALS, samples=COUNTS)


@st.composite
def curves(draw: st.DrawFn) -> MeasuredCurve:
    sizes = draw(st.lists(st.integers(1, 1 << 40), min_size=1, max_size=6, unique=True))
    times = draw(st.lists(st.integers(1, 10**15), min_size=len(sizes), max_size=len(sizes)))
    ranks = draw(st.integers(2, 64))
    return MeasuredCurve(
        machine=draw(TEXTS),
        source=draw(TEXTS),
        kind=draw(st.sampled_from(CollectiveKind)),
        ranks=ranks,
        nodes=draw(st.integers(1, ranks)),
        sizes=tuple(sorted(sizes)),
        times_ps=tuple(times),
    )


MACHINE: dict[str, Any] = {
    "device": TEXTS,
    "framework": TEXTS,
    "precision": st.sampled_from(Precision),
}
SECONDS = st.floats(1e-9, 1e9)
KERNELS = st.builds(
    MeasuredKernels,
    **MACHINE,
    kernels=TEXTS,
    operators=st.lists(TEXTS, max_size=3).map(tuple),
    factor=st.floats(1e-6, 1e9),
    count=COUNTS,
    rate=TEXTS,
)
HELD = st.builds(
    HeldStep,
    **MACHINE,
    source=TEXTS,
    job=TEXTS,
    experts=st.booleans(),
    mixes=st.booleans(),
    npus=COUNTS,
    sequence=COUNTS,
    cp=COUNTS,
    predicted_s=SECONDS,
    measured_s=SECONDS,
)
CALIBRATIONS = st.builds(
    Calibration,
    kernels=st.lists(KERNELS, max_size=2).map(tuple),
    held=st.lists(HELD, max_size=3).map(tuple),
    sources=st.lists(TEXTS, max_size=3).map(tuple),
    traces=st.lists(PLAIN, max_size=3).map(tuple),
    node_size=COUNTS,
    host_overhead=TIMED | st.none(),
    gradient_launch=TIMED | st.none(),
    gradient_scaling=RATED | st.none(),
    optimizer=RATED | st.none(),
    leaf_overhead=st.builds(
        LeafOverhead,
        action=TIMED,
        layer_factor=st.builds(
            Fitted, value=st.floats(1, 100), residual=st.floats(0, 1), samples=COUNTS
        ),
    )
    | st.none(),
    point_to_point=st.lists(
        st.builds(
            LinkFit,
            placement=st.sampled_from(NodePlacement),
            latency_ps=TIMES,
            bandwidth=st.floats(1e7, 1e13),
            residual=st.floats(0, 10),
            samples=COUNTS,
            sizes=st.lists(st.integers(0, 1 << 40), max_size=3).map(tuple),
            both_ways=st.booleans(),
        ),
        max_size=2,
        unique_by=lambda link: link.placement,
    ).map(tuple),
    expert_imbalance=st.lists(
        st.builds(
            ExpertImbalance,
            source=TEXTS,
            ep=COUNTS,
            experts=COUNTS | st.none(),
            mean=st.floats(0, 1e6),
            largest=st.floats(0, 1e6),
            samples=COUNTS,
        ),
        max_size=2,
    ).map(tuple),
    layer_times=st.lists(
        st.builds(
            LayerTimes,
            source=TEXTS,
            experts=COUNTS | st.none(),
            tp=COUNTS,
            ep=COUNTS,
            **dict.fromkeys(("hidden", "sequence"), COUNTS),
            **{
                f"{name}_ps": st.integers(-(10**15), 10**15)
                for name in (
                    *("forward", "backward", "first_forward", "first_backward"),
                    *("last_forward", "last_backward", "get_batch", "loss"),
                )
            },
        ),
        max_size=2,
    ).map(tuple),
    unidentified=st.lists(st.tuples(TEXTS, TEXTS), max_size=2).map(tuple),
    collective=st.lists(curves(), max_size=2).map(tuple),
)


def read(text: str) -> Calibration:
    return msgspec.convert(numbers(tomllib.loads(text), Calibration), Calibration)


@given(CALIBRATIONS)
def test_a_calibration_file_is_read_as_it_was_written(calibration: Calibration) -> None:
    """All but bandwidths come back exactly; these have twelve digits."""
    text = toml_text(calibration)
    again = read(text)
    assert toml_text(again) == text
    rough = dict.fromkeys(("gradient_scaling", "optimizer"))
    links = [replace(link, bandwidth=1.0) for link in calibration.point_to_point]
    exact = replace(calibration, **rough, point_to_point=tuple(links))
    links = [replace(link, bandwidth=1.0) for link in again.point_to_point]
    assert replace(again, **rough, point_to_point=tuple(links)) == exact
