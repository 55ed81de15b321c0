"""Fits and tables against measured NCCL collectives: the acceptance lines, and what misses them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stepsim.base.arrays import Floats
from stepsim.base.structs import replace
from stepsim.base.units import PS_PER_S
from stepsim.files.collectives.measurements import read_measurements
from stepsim.files.load import topology_of
from stepsim.measured.calibration.curves import CurveFit
from stepsim.measured.calibration.link_classes import Pattern, Regime
from stepsim.measured.calibration.nccl import NcclFit, fit_nccl
from stepsim.measured.clocks import NodePlacement
from stepsim.network.measured_times import CommTable, MeasuredCurve
from stepsim.network.two_levels import interconnect_of
from stepsim.workload.rows import CollectiveKind

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
def fit(table: CommTable) -> NcclFit:
    return fit_nccl(table)


@pytest.fixture(scope="module")
def fits(fit: NcclFit) -> list[CurveFit]:
    """Curves of more than one rank."""
    return [each for machine in fit.machines for each in machine.curves if each.curve.ranks > 1]


def left_out(curve: MeasuredCurve, first: int) -> Floats:
    """Errors of every second size, told by the table of the others; the ends stay."""
    out = np.zeros(len(curve.size_bytes), dtype=bool)
    out[first::2] = True
    out[[0, -1]] = False
    kept = replace(curve, size_bytes=curve.size_bytes[~out], time_ps=curve.time_ps[~out])
    half = CommTable(source="half", curves=(kept,))
    told = [
        half.time_ps(curve.kind, curve.ranks, curve.nodes, int(s)) for s in curve.size_bytes[out]
    ]
    errors: Floats = np.abs(np.array(told, dtype=np.float64) / curve.time_ps[out] - 1)
    return errors


def test_every_table_is_read(table: CommTable, fits: list[CurveFit]) -> None:
    """vTrain's dense tables, Echo's two clusters, and nccl-tests issue 309 (16 H100, 32 sizes)."""
    assert len(table.curves) == 40
    assert sum(len(curve.size_bytes) for curve in table.curves) == 14_336 + 206 + 378 + 32
    assert len(fits) == 39
    assert {curve.kind for curve in table.curves} == {
        CollectiveKind.ALL_REDUCE,
        CollectiveKind.SEND_RECV,
    }


def test_fit_is_within_5_percent_from_16_mib_on(table: CommTable, fits: list[CurveFit]) -> None:
    """Median per source, group size and placement; outliers, left out of the fit, count too."""
    measured = {curve.key: curve for curve in table.curves}
    for each in fits:
        curve = measured[each.curve.key]
        large = curve.size_bytes >= LARGE
        errors = np.abs(each.times_ps(curve.size_bytes[large]) / curve.time_ps[large] - 1)
        assert np.median(errors) <= 0.025, curve.label


@pytest.mark.parametrize("first", [0, 1])
def test_dense_tables_interpolate_within_1_percent(fits: list[CurveFit], first: int) -> None:
    dense = [each.curve for each in fits if len(each.curve.size_bytes) == DENSE]
    assert len(dense) == 14
    for curve in dense:
        assert left_out(curve, first).mean() <= 0.0065, curve.label


@pytest.mark.parametrize("first", [0, 1])
def test_power_of_two_tables_interpolate_within_5_percent(fits: list[CurveFit], first: int) -> None:
    """All together, and each but the four that jump between protocols."""
    sparse = [each.curve for each in fits if len(each.curve.size_bytes) < DENSE]
    errors = {curve.key: left_out(curve, first) for curve in sparse}
    assert len(errors) == 25
    assert np.median(np.concatenate(list(errors.values()))) <= 0.025
    for curve in sparse:
        limit = MISSED.get((curve.ranks, curve.nodes), 0.05)
        assert np.median(errors[curve.key]) <= limit, curve.label


def test_lists_of_what_misses_are_not_longer_than_needed(fits: list[CurveFit]) -> None:
    for each in fits:
        if (each.curve.ranks, each.curve.nodes) in MISSED:
            assert max(np.median(left_out(each.curve, first)) for first in (0, 1)) > 0.05


def test_outliers_of_the_tables(fit: NcclFit) -> None:
    """Two warm-ups, disturbances of a shared machine, and steps of the protocol."""
    found = sorted((o.curve.split(" (")[0], o.size_bytes >> 10) for o in fit.outliers)
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
    assert all("A800" in o.curve for o in fit.outliers if "in 1 node" in o.curve)


def machine(fit: NcclFit, start: str) -> Callable[[NodePlacement], float]:
    found = next(each for each in fit.machines if each.machine.startswith(start))

    def bandwidth(placement: NodePlacement) -> float:
        capacity = found.capacity(placement)
        return capacity.bandwidth / 1e9 if capacity else 0.0

    return bandwidth


@pytest.mark.parametrize(
    ("start", "inside", "between"),
    [
        ("H800", 212.7, 9.92),
        ("A800", 161.0, 0),
        ("Azure", 230.7, 14.56),
        ("a100", 230.2, 0),
        ("v100", 135.0, 0),
    ],
)
def test_bandwidths_of_full_nodes(fit: NcclFit, start: str, inside: float, between: float) -> None:
    bandwidth = machine(fit, start)
    assert bandwidth(NodePlacement.INTRA_NODE) == pytest.approx(inside, rel=2e-3)
    assert bandwidth(NodePlacement.INTER_NODE) == pytest.approx(between, rel=2e-3)


def test_small_latencies_of_the_azure_machine_are_steps(fit: NcclFit) -> None:
    """1, 2, 4, 8 ranks take 4.5, 8.65, 16.3, 31.4 us: one launch and 2(n-1) steps of 1.9 us."""
    found = next(each for each in fit.machines if each.machine.startswith("Azure"))
    small = found.latency(Regime.SMALL)
    assert small is not None
    assert small.launch is not None
    assert small.node_step is not None
    assert small.pattern is Pattern.TREE
    assert small.launch.value / 1e6 == pytest.approx(4.5, abs=0.1)
    assert small.node_step.value / 1e6 == pytest.approx(1.9, abs=0.05)


def test_the_h100_table_of_issue_309_is_used_whole(fits: list[CurveFit]) -> None:
    """16 ranks, 8 B to 16 GiB: no outlier, 469 GB/s bus bandwidth at the top, 1 % in between.

    The one step that two neighbours do not tell is NCCL's change of protocol at 512 KiB: 17 %.
    """
    curve = next(each.curve for each in fits if "issue 309" in each.curve.source)
    assert (curve.ranks, curve.nodes, len(curve.size_bytes)) == (16, 2, 32)
    assert curve.bus_bandwidth()[-1] / 1e9 == pytest.approx(469.2, rel=1e-3)
    for first, worst in ((0, 0.175), (1, 0.12)):
        errors = left_out(curve, first)
        assert np.median(errors) <= 0.0105
        assert errors.max() <= worst


def test_what_tables_without_nodes_or_small_sizes_cannot_tell(fit: NcclFit) -> None:
    found = next(each for each in fit.machines if each.machine == "a100")
    assert found.latency(Regime.SMALL) is None
    assert found.capacity(NodePlacement.INTER_NODE) is None
    names = [name for name, _ in found.unidentified]
    assert names == [
        "bandwidth between nodes",
        "latency, small sizes",
        "step between nodes, bulk sizes",
    ]


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
