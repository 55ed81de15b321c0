"""Quantities with units: exact values in, one clear error otherwise."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from stepsim.base.errors import UnitError
from stepsim.base.units import (
    MAX_INT64,
    Quantity,
    format_bandwidth,
    format_size_bytes,
    format_time_ps,
    parse_bandwidth,
    parse_size_bytes,
    parse_time_ps,
)

WHOLE = st.integers(0, MAX_INT64)
PARSERS = [parse_time_ps, parse_size_bytes, parse_bandwidth]


@pytest.mark.parametrize(
    ("text", "time_ps"),
    [
        ("1 ps", 1),
        ("500ns", 500_000),
        ("1.5 us", 1_500_000),
        ("2 ms", 2 * 10**9),
        (".5 ns", 500),
        ("2.5E-2 us", 25_000),
        (" 7 ns ", 7_000),
        ("1.0004 ns", 1_000),
        ("1.0006 ns", 1_001),
        ("9223372036854775807 ps", MAX_INT64),
    ],
)
def test_times_are_picoseconds(text: str, time_ps: int) -> None:
    assert parse_time_ps(text) == time_ps


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1.5 KB", 1_500),
        ("64 MB", 64_000_000),
        ("64 MiB", 67_108_864),
        ("3TiB", 3 * 2**40),
    ],
)
def test_sizes_are_bytes(text: str, size: int) -> None:
    assert parse_size_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [
        ("400Gbps", 50e9),
        ("50 GiB/s", 50 * 2**30),
        ("8 bps", 1.0),
        ("1 Gibps", 2**27),
        ("0.1 Tbps", 12.5e9),
        ("inf", math.inf),
    ],
)
def test_bandwidths_are_bytes_per_second(text: str, bytes_per_s: float) -> None:
    assert parse_bandwidth(text) == bytes_per_s


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("5", "has no unit"),
        ("5 parsec", "unknown unit 'parsec'"),
        ("5 NS", "unknown unit 'NS'"),
        ("", "is not a quantity"),
        ("nan", "is not a quantity"),
        ("1 2 ns", "is not a quantity"),
        ("1,5 us", "is not a quantity"),
    ],
)
def test_what_is_no_quantity_is_named(
    parse: Callable[[str], float], text: str, problem: str
) -> None:
    with pytest.raises(UnitError) as caught:
        parse(text)
    assert repr(text) in str(caught.value)
    assert problem in str(caught.value)
    assert "expected" in str(caught.value)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parse_time_ps, "-1 ns"),
        (parse_time_ps, "9223372036854775808 ps"),
        (parse_time_ps, "inf"),
        (parse_size_bytes, "-1 B"),
        (parse_size_bytes, "inf"),
        (parse_bandwidth, "0 GB/s"),
        (parse_bandwidth, "-400 Gbps"),
        (parse_bandwidth, "1e-999 GB/s"),
        (parse_time_ps, "400 Gbps"),
        (parse_size_bytes, "1 us"),
        (parse_bandwidth, "64 MiB"),
    ],
)
def test_values_out_of_range_or_of_another_kind_are_refused(
    parse: Callable[[str], float], text: str
) -> None:
    with pytest.raises(UnitError, match=r"(time|size|bandwidth) such as"):
        parse(text)


@given(WHOLE)
def test_integers_are_parsed_exactly(value: int) -> None:
    assert parse_time_ps(f"{value} ps") == value
    assert parse_size_bytes(f"{value} B") == value


@given(st.floats(1, 1e18))
def test_bandwidths_as_people_type_them_are_exact(bytes_per_s: float) -> None:
    assert parse_bandwidth(Quantity.BANDWIDTH.text(bytes_per_s)) == bytes_per_s
    assert Quantity.BANDWIDTH.text(5e10) == "50 GB/s"


@given(WHOLE)
def test_formatted_times_parse_back_to_four_digits(time_ps: int) -> None:
    text = format_time_ps(time_ps) if time_ps else "0 s"
    rounding = 5e-4 * time_ps + 0.5  # of the four digits, and to a whole ps
    assert parse_time_ps(text) == pytest.approx(time_ps, abs=rounding)


@given(st.integers(0, 2**62))
def test_formatted_sizes_parse_back_to_four_digits(size: int) -> None:
    rounding = 5e-4 * size + 0.5  # of the four digits, and to a whole byte
    assert parse_size_bytes(format_size_bytes(size)) == pytest.approx(size, abs=rounding)


@given(st.floats(1, 1e18) | st.just(math.inf))
def test_formatted_bandwidths_parse_back_to_four_digits(bytes_per_s: float) -> None:
    assert parse_bandwidth(format_bandwidth(bytes_per_s)) == pytest.approx(bytes_per_s, rel=5e-4)


@pytest.mark.parametrize(
    ("time_ps", "text"),
    [
        (0, "0"),
        (999, "999 ps"),
        (1_000, "1 ns"),
        (71_889_000_000, "71.89 ms"),
        (999_960, "1 us"),
        (12 * 10**12, "12 s"),
    ],
)
def test_times_show_one_to_three_digits_before_the_point(time_ps: int, text: str) -> None:
    assert format_time_ps(time_ps) == text
