"""Axes and ranges of sweeps, and the grid they span."""

import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from sweeps import SMALL

import stepsim
from stepsim.base.errors import PlanError, SweepError
from stepsim.explore.sweep import Grid, Study, parse_axis
from stepsim.files.axes import OPTION_AXES, make_axis
from stepsim.network.topology import Topology
from stepsim.options import OPTIONS

GBPS = 125_000_000.0


@pytest.mark.parametrize(
    ("text", "texts", "values"),
    [
        (
            "fabric.bandwidth=100..400 Gbps:3",
            "100 Gbps|250 Gbps|400 Gbps",
            (1.25e10, 3.125e10, 5e10),
        ),
        ("nvlink.bandwidth=300,450,900 GB/s", "300 GB/s|450 GB/s|900 GB/s", (3e11, 4.5e11, 9e11)),
        ("nvlink.bandwidth=50 GB/s,inf", "50 GB/s|inf", (5e10, math.inf)),
        ("fabric.latency=100..900 ns:5", "100 ns|300 ns|500 ns|700 ns|900 ns", None),
        ("x.bandwidth=1..1024 GB/s:11 log", None, tuple(2.0**i * 1e9 for i in range(11))),
        ("compute_scale=0.5..1.5:11", None, tuple(i / 10 for i in range(5, 16))),
        ("microbatches=8..64:4", "8|27|45|64", (8, 27, 45, 64)),
        ("dp_overlap=on,off", "on|off", (True, False)),
        ("schedule=1f1b,interleaved:4", "1f1b|interleaved:4", ("1f1b", "interleaved:4")),
        ("algorithm=ring;hierarchical:ring,direct", "ring|hierarchical:ring,direct", None),
        ("dp_bucket=1..4 MiB:4", "1 MiB|2 MiB|3 MiB|4 MiB", tuple(i << 20 for i in range(1, 5))),
    ],
)
def test_values_of_an_axis(text: str, texts: str | None, values: tuple[object, ...] | None) -> None:
    axis = parse_axis(text)
    if texts is not None:
        assert "|".join(axis.texts) == texts
    if values is not None:
        assert axis.values == values
        assert [type(value) for value in axis.values] == [type(value) for value in values]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bandwidth", "is no axis: expected NAME=RANGE"),
        ("speed=1,2", "unknown axis 'speed': expected npus, pp, microbatches"),
        ("fabric.bandwidth=", "it has no values"),
        ("fabric.bandwidth=100..800:8", "'100' has no unit"),
        ("fabric.bandwidth=100 ns", "unknown unit 'ns'"),
        ("fabric.bandwidth=100..800 Gbps", "does not say how many values"),
        ("fabric.bandwidth=800..100 Gbps:8", "is reversed"),
        ("fabric.bandwidth=100..800 Gbps:0", "has 0 values: expected 2 to 100000"),
        ("fabric.bandwidth=100..100 Gbps:2", "equal ends"),
        ("fabric.bandwidth=100 Gbps..1 GB/s:2", "same unit"),
        ("fabric.bandwidth=100...800 Gbps:2", "is not a range such as"),
        ("fabric.bandwidth=400 Gbps,50 GB/s", "400 Gbps and 50 GB/s are the same value"),
        ("fabric.latency=0..10 ns:3 log", "a log range starts above 0"),
        ("microbatches=1..3:9", "are the same value"),
        ("microbatches=1.5,2", "is not a whole number"),
        ("global_batch=0..99999999999", "expected 2 to 100000"),
        ("algorithm=ring,nope", "'nope' is not a valid Algorithm: expected auto, ring"),
        ("algorithm=all_to_all=nvls", "nvls cannot carry out all_to_all"),
        ("compute_scale=0,1", "is not a factor above 0"),
        ("dp_overlap=yes", "'yes' is not on or off"),
        ("contention=some", "contention is 'some': expected one of none, siblings, fair"),
        ("schedule=1f1b,nope", "schedule is 'nope': expected one of"),
        ("schedule=missing.csv", "no such file"),
    ],
)
def test_what_is_no_axis_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(SweepError) as caught:
        parse_axis(text)
    assert message in str(caught.value)


NUMBERS = st.decimals(min_value="0.001", max_value="100000", places=3)


@given(NUMBERS, NUMBERS, st.integers(2, 40), st.booleans())
def test_ranges_have_exact_ends_the_count_asked_for_and_texts_that_mean_the_value(
    a: Decimal, b: Decimal, count: int, log: bool
) -> None:
    low, high = sorted((a, b))
    text = f"{low}..{high} GB/s:{count}" + (" log" if log else "")
    assume(float(high) > float(low) * (1 + 1e-9))  # closer ends than 12 digits tell apart
    axis = make_axis("x.bandwidth", text)
    assert len(axis) == count
    assert axis.values[0] == pytest.approx(float(str(low)) * 1e9, rel=1e-15)
    assert axis.values[-1] == pytest.approx(float(str(high)) * 1e9, rel=1e-15)
    assert list(axis.values) == sorted(axis.values)
    again = make_axis("x.bandwidth", ",".join(axis.texts))
    assert (again.values, again.texts) == (axis.values, axis.texts)


AXES = ("x.bandwidth=1..5 GB/s:5", "chunks=1,2,3", "y.latency=1,2 us", "dp_overlap=on,off")


@given(st.permutations(AXES), st.integers(1, 4))
def test_a_grid_numbers_every_combination_once_groups_together(
    order: list[str], count: int
) -> None:
    grid = Grid(axes=tuple(map(parse_axis, order[:count])))
    seen = set()
    for start in range(0, grid.size, grid.group_size):
        group = start // grid.group_size
        span = range(start, start + grid.group_size)
        columns = grid.columns(span)
        for i in range(grid.group_size):
            settings = grid.settings(group) | {n: c[i] for n, c in columns.items()}
            by_name = grid.values(start + i)
            for axis in grid.axes:
                place = axis.texts.index(by_name[axis.name])
                assert axis.values[place] == settings[axis.name]
            seen.add(tuple(by_name.values()))
    assert len(seen) == grid.size == math.prod(len(axis) for axis in grid.axes)


@given(st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=4), st.integers(1, 7))
def test_cut_spans_cover_the_same_scenarios_within_groups(
    pairs: list[tuple[int, int]], most: int
) -> None:
    grid = Grid(axes=tuple(map(parse_axis, AXES[:2])))
    spans = [range(min(pair), max(pair)) for pair in pairs]
    pieces = list(grid.cut(spans, lambda _: most))
    assert [i for span in spans for i in span] == [i for piece in pieces for i in piece]
    for piece in pieces:
        assert 0 < len(piece) <= most
        assert piece[0] // grid.group_size == piece[-1] // grid.group_size


def test_columns_have_the_units_of_the_inside() -> None:
    axes = ("fabric.bandwidth=100,200 Gbps", "fabric.latency=1,2 us", "compute_scale=0.5,1")
    columns = Grid(axes=tuple(map(parse_axis, axes))).columns(range(8))
    assert columns["fabric.bandwidth"].tolist() == [100 * GBPS] * 4 + [200 * GBPS] * 4
    assert columns["fabric.latency"].dtype == np.int64
    assert columns["fabric.latency"].tolist() == [10**6, 10**6, 2 * 10**6, 2 * 10**6] * 2
    assert columns["compute_scale"].tolist() == [0.5, 1.0] * 4


def test_a_grid_refuses_axes_given_twice_none_and_too_many_scenarios() -> None:
    with pytest.raises(SweepError, match="needs at least one axis"):
        Grid(axes=())
    with pytest.raises(SweepError, match="axis chunks is given twice"):
        Grid(axes=(parse_axis("chunks=1,2"), parse_axis("chunks=4")))
    wide = ("x.bandwidth=1..9 GB/s:20000", "y.bandwidth=1..9 GB/s:20000")
    with pytest.raises(SweepError, match="20000 x 20000 = 400000000 scenarios"):
        Grid(axes=tuple(map(parse_axis, wide)))


def swept(topology: Topology, axis: str) -> Study:
    return Study(
        workload=stepsim.load_workload(SMALL),
        topology=topology,
        grid=Grid(axes=(parse_axis(axis),)),
    )


def test_an_axis_of_links_that_are_not_there_is_refused() -> None:
    topology = stepsim.load_topology("hgx-h100")
    with pytest.raises(SweepError, match="has no links 'ib': expected nvlink, fabric"):
        swept(topology, "ib.bandwidth=1,2 GB/s")


def test_links_to_a_shared_nic_have_no_numbers() -> None:
    from jobs import make_batch

    topology = stepsim.load_topology("dgx-v100")
    with pytest.raises(SweepError, match="fabric-host of topology dgx-v100 have no numbers"):
        swept(topology, "fabric-host.latency=1,2 us")
    batch = make_batch("workloads/gpt_tp4.txt", topology, npus=16)
    with pytest.raises(PlanError, match=r"unknown column 'fabric-host\.latency'"):
        batch.evaluate({"fabric-host.latency": [1, 2]})


def test_every_argument_axis_is_an_argument_of_simulate() -> None:

    assert OPTION_AXES.keys() < OPTIONS.keys()
