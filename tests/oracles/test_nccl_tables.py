"""Tables against measured NCCL collectives: the acceptance lines, and what misses them."""

from pathlib import Path

import numpy as np
import pytest
from accuracy_nccl import left_out

from stepsim.base.axes import CollectiveKind
from stepsim.base.units import PS_PER_S
from stepsim.files.collectives.measurements import read_measurements
from stepsim.files.load import topology_of
from stepsim.network.measured_times import CommTable, MeasuredCurve
from stepsim.step.model_plan import interconnect_of

LARGE = 16 << 20
DENSE = 1024

MISSED = {
    (10, 2): 0.072,  # a step of the protocol at 64 KiB to 512 KiB, 30 % high
    (64, 8): 0.064,  # steps at 16 KiB and 256 KiB, noise of 10 % from 16 MiB on
    (128, 16): 0.052,
    (8, 2): 0.060,
}
"""Medians above 5 % of power-of-two tables, every second size left out, either way."""


@pytest.fixture(scope="module")
def table(shared: Path) -> CommTable:
    folder = shared / "reference" / "measured" / "nccl"
    if not folder.is_dir():
        pytest.skip(f"measured NCCL tables not found at {folder}")
    return read_measurements(sorted(folder.glob("*.csv")))


@pytest.fixture(scope="module")
def curves(table: CommTable) -> list[MeasuredCurve]:
    """Curves of more than one rank, without outliers."""
    return [curve for curve in table.without_outliers()[0].curves if curve.ranks > 1]


def test_every_table_is_read(table: CommTable, curves: list[MeasuredCurve]) -> None:
    """vTrain's dense tables, Echo's two clusters, and nccl-tests issue 309 (16 H100, 32 sizes)."""
    assert len(table.curves) == 40
    assert sum(len(curve.size_bytes) for curve in table.curves) == 14_336 + 206 + 378 + 32
    assert len(curves) == 39
    assert {curve.kind for curve in table.curves} == {
        CollectiveKind.ALL_REDUCE,
        CollectiveKind.SEND_RECV,
    }


@pytest.mark.parametrize("first", [0, 1])
def test_dense_tables_interpolate_within_1_percent(curves: list[MeasuredCurve], first: int) -> None:
    dense = [each for each in curves if len(each.size_bytes) == DENSE]
    assert len(dense) == 14
    for curve in dense:
        assert left_out(curve, first).mean() <= 0.0065, curve.label


@pytest.mark.parametrize("first", [0, 1])
def test_power_of_two_tables_interpolate_within_5_percent(
    curves: list[MeasuredCurve], first: int
) -> None:
    """All together, and each but the four that jump between protocols."""
    sparse = [each for each in curves if len(each.size_bytes) < DENSE]
    errors = {curve.key: left_out(curve, first) for curve in sparse}
    assert len(errors) == 25
    assert np.median(np.concatenate(list(errors.values()))) <= 0.025
    for curve in sparse:
        limit = MISSED.get((curve.ranks, curve.nodes), 0.05)
        assert np.median(errors[curve.key]) <= limit, curve.label


def test_lists_of_what_misses_are_not_longer_than_needed(curves: list[MeasuredCurve]) -> None:
    for each in curves:
        if (each.ranks, each.nodes) in MISSED:
            assert max(np.median(left_out(each, first)) for first in (0, 1)) > 0.05


def test_outliers_of_the_tables(table: CommTable) -> None:
    """Two warm-ups, disturbances of a shared machine, and steps of the protocol."""
    outliers = table.without_outliers()[1]
    found = sorted((o.curve.split(" (")[0], o.size_bytes >> 10) for o in outliers)
    group = "all_reduce over {} ranks in {} node{}".format
    expected = {
        group(12, 2, "s"): [256],
        group(14, 2, "s"): [256],
        group(8, 2, "s"): [2048],
        group(2, 1, ""): [32, 64, 131072],
        group(4, 1, ""): [16, 65536],
        group(8, 1, ""): [8, 64, 2048, 16384],
        group(128, 16, "s"): [1, 128],
        group(32, 4, "s"): [2],
        group(64, 8, "s"): [1, 128],
    }
    assert found == sorted((name, size) for name, sizes in expected.items() for size in sizes)
    assert all("A800" in o.curve for o in outliers if "in 1 node" in o.curve)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_the_closed_form_of_an_all_reduce_is_near_a_measured_node(ranks: int, shared: Path) -> None:
    path = shared / "reference/measured/nccl/nccl_allreduce_vtrain_a100_v100.csv"
    curves = [
        curve
        for curve in read_measurements([path]).curves
        if curve.ranks == ranks and "a100" in curve.machine.lower()
    ]
    network = interconnect_of(topology_of("hgx-a100"))
    for curve in curves:
        large = curve.size_bytes >= 3 * LARGE
        size = curve.size_bytes[large].astype(np.float64)
        n = np.full(len(size), float(ranks))
        found = network.seconds(CollectiveKind.ALL_REDUCE, size, n, np.ones(len(size))) * PS_PER_S
        assert np.median(np.abs(found / curve.time_ps[large] - 1)) < 0.05
    assert curves
