"""What holds of every measured table."""

import numpy as np
from hypothesis import given, strategies as st
from unit.network.test_measured_times import curve

from stepsim.base.structs import replace
from stepsim.files.collectives.times_csv import format_comm_table, parse_comm_table
from stepsim.network.measured_times import CommTable, MeasuredCurve

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=12)


def curve_of(points: dict[int, int]) -> MeasuredCurve:
    return curve(dict(sorted(points.items())))


POINTS = st.dictionaries(st.integers(1, 2**40), st.integers(1, 2**50), min_size=2, max_size=12)
"""Times in any order."""
CURVES = POINTS.map(curve_of)
RISING = POINTS.map(
    lambda points: curve_of(dict(zip(sorted(points), sorted(points.values()), strict=True)))
)


def inside(curve: MeasuredCurve, share: float) -> int:
    """A size within the measured range."""
    first, last = int(curve.size_bytes[0]), int(curve.size_bytes[-1])
    return min(last, first + round(share * (last - first)))


@given(CURVES)
def test_measured_sizes_take_their_measured_times(curve: MeasuredCurve) -> None:
    found = [curve.duration_ps(size) for size in curve.size_bytes.tolist()]
    assert found == curve.time_ps.tolist()


@given(CURVES, st.floats(0, 1))
def test_a_time_lies_between_those_of_the_sizes_beside_it(
    curve: MeasuredCurve, share: float
) -> None:
    size = inside(curve, share)
    right = int(np.searchsorted(curve.size_bytes, size))
    beside = curve.time_ps[max(0, right - 1) : right + 1]
    found = curve.duration_ps(size)
    assert found is not None
    assert beside.min() * (1 - 1e-12) - 1 <= found <= beside.max() * (1 + 1e-12) + 1


@given(RISING, st.floats(0, 1), st.floats(0, 1))
def test_between_rising_times_more_bytes_are_never_faster(
    curve: MeasuredCurve, first: float, second: float
) -> None:
    low, high = sorted((inside(curve, first), inside(curve, second)))
    times = curve.duration_ps(low), curve.duration_ps(high)
    assert times[0] is not None
    assert times[1] is not None
    assert times[0] <= times[1] * (1 + 1e-12) + 1


@given(RISING, st.integers(1, 2**50))
def test_beyond_the_ends_times_are_not_less_and_not_more(curve: MeasuredCurve, size: int) -> None:
    size = min(size, int(curve.size_bytes[-1]) << 12)
    found = curve.duration_ps(size)
    first, last = int(curve.size_bytes[0]), int(curve.size_bytes[-1])
    if found is None:
        assert not first <= size <= last
    elif size < first:
        assert found == curve.time_ps[0]
    elif size > last:
        assert found >= curve.time_ps[-1]


@given(CURVES, st.integers(1, 1000), st.integers(1, 1000), st.floats(0, 1))
def test_units_do_not_matter(
    curve: MeasuredCurve, byte_scale: int, time_scale: int, share: float
) -> None:
    size = np.array([inside(curve, share)])
    other = replace(
        curve,
        sizes=tuple(size * byte_scale for size in curve.sizes),
        times_ps=tuple(time * time_scale for time in curve.times_ps),
    )
    scaled = other.interpolate(size * byte_scale)
    np.testing.assert_allclose(scaled, curve.interpolate(size) * time_scale, rtol=1e-9)


@given(CURVES)
def test_outliers_and_the_rest_are_the_whole(curve: MeasuredCurve) -> None:
    kept, rejected = CommTable(source="t", curves=(curve,)).without_outliers()
    sizes = kept.curves[0].size_bytes.tolist()
    assert len(sizes) >= min(3, len(curve.size_bytes))
    assert sorted([*sizes, *(each.size_bytes for each in rejected)]) == curve.size_bytes.tolist()
    assert all(each.factor > 1.5 for each in rejected)
    assert kept.without_outliers()[1] == ()


@given(TEXT, TEXT, CURVES)
def test_a_written_table_reads_as_it_was(machine: str, source: str, curve: MeasuredCurve) -> None:
    named = replace(curve, machine=machine.strip(), source=source.strip() or "run")
    text = format_comm_table(CommTable(source="t", curves=(named,)))
    (again,) = parse_comm_table(text, source="t").curves
    assert again.key == named.key
    assert again.size_bytes.tolist() == named.size_bytes.tolist()
    assert again.time_ps.tolist() == named.time_ps.tolist()
