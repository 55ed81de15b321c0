"""Protocols fitted to times that protocols made, and written into a topology file."""

from pathlib import Path

import numpy as np
import pytest

from stepsim.base.errors import CalibrationError
from stepsim.base.structs import replace
from stepsim.files.collectives.fits import write_fitted
from stepsim.files.load import topology_of
from stepsim.files.reading import topology_file
from stepsim.measured.calibration.accuracy import (
    accuracy_of,
    errors_of,
    fit_with_accuracy,
    modelled_ps,
)
from stepsim.measured.calibration.protocols import group_members, with_library
from stepsim.network.measured_times import MeasuredCurve
from stepsim.network.topology import Topology
from stepsim.network.topology.dimension import PLAIN, Library, Protocol
from stepsim.workload.rows import CollectiveKind

US = 1_000_000
SIZES = 2 ** np.arange(10, 31, 2, dtype=np.int64)
TRUE = Library(
    protocols=(
        Protocol(
            name="LL",
            algorithms=("ring",),
            steps_ps=(("nvlink", 300_000),),
            rates=(("nvlink", 0.2),),
            copy_bandwidth=100e9,
        ),
        Protocol(
            name="Simple",
            algorithms=("ring",),
            launch_ps=25 * US,
            steps_ps=(("nvlink", 2 * US),),
            rates=(("nvlink", 0.9),),
            copy_bandwidth=600e9,
        ),
    )
)


def machine() -> Topology:
    return replace(topology_of("hgx-h100"), algorithms=("ring",), library=TRUE)


def curve(ranks: int) -> MeasuredCurve:
    times = np.ones(len(SIZES), dtype=np.int64)
    bare = MeasuredCurve(
        machine="made",
        source="here",
        kind=CollectiveKind.ALL_GATHER,
        ranks=ranks,
        nodes=1,
        size_bytes=SIZES,
        time_ps=times,
    )
    return replace(bare, time_ps=modelled_ps(machine(), bare))


def test_a_fit_meets_times_of_protocols_at_a_group_it_has_not_seen() -> None:
    plain = with_library(machine(), PLAIN)
    fitted = fit_with_accuracy(plain, [curve(2), curve(8)])
    assert np.abs(errors_of(fitted, curve(4))).max() < 0.08
    assert {each.name for each in fitted.library.protocols} == {"LL", "LL128", "Simple"}
    stated = fitted.library.accuracy
    assert [(a.kind, a.nodes, a.most_ranks) for a in stated] == [("all_gather", 1, 8)] * 3
    assert all(each.good and each.mean <= each.largest < 0.08 for each in stated)
    assert sum(each.samples for each in stated) == 2 * len(SIZES)


def test_accuracy_is_of_what_is_measured() -> None:
    slower = replace(curve(8), time_ps=2 * curve(8).time_ps)
    (small, *_) = accuracy_of(machine(), [slower])
    assert small.mean == small.largest == pytest.approx(0.5)
    assert not small.good


def test_a_written_topology_gives_the_times_of_the_fit(tmp_path: Path) -> None:
    known = replace(TRUE, accuracy=accuracy_of(machine(), [curve(8)]))
    target = tmp_path / "mine.toml"
    write_fitted(topology_file("hgx-h100"), with_library(machine(), known), target)
    read = topology_of(target)
    assert read.name == "mine"
    assert read.library == known
    assert read.link_classes == machine().link_classes
    assert "fitted by `stepsim calibrate nccl`\nto made, here." in read.source


def test_groups_that_the_topology_cannot_hold_are_refused() -> None:
    with pytest.raises(CalibrationError, match="9 ranks in 1 nodes: hgx-h100 has 16 NPUs, 8 in"):
        group_members(machine(), 9, 1)
    with pytest.raises(CalibrationError, match="no curve of more than one rank"):
        fit_with_accuracy(machine(), [])
