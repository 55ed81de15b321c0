"""`stepsim calibrate nccl`: measured collectives as a plain table, without what disturbed them."""

import re
from pathlib import Path

import pytest
from helpers import Run

from stepsim.base.axes import CollectiveKind
from stepsim.base.structs import replace
from stepsim.files.collectives.measurements import read_measurements
from stepsim.files.collectives.times_csv import format_comm_table
from stepsim.network.measured_times import CommTable, MeasuredCurve

KIB, MIB = 1 << 10, 1 << 20
POWERS = tuple(1 << power for power in range(10, 34))


def curve(sizes: tuple[int, ...] = POWERS, machine: str = "box") -> MeasuredCurve:
    """An all-reduce over 8 ranks: 33 us + size / (350 / 3 GB/s)."""
    times = [33_000_000 + round(size * 3 / 350e9 * 1e12) for size in sizes]
    return MeasuredCurve(
        machine=machine,
        source="8 over 1",
        kind=CollectiveKind.ALL_REDUCE,
        ranks=8,
        nodes=1,
        sizes=sizes,
        times_ps=tuple(times),
    )


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """A table with one outlier and a second machine."""
    first, last = curve().times_ps[:3], curve().times_ps[4:]
    spoilt = replace(curve(), times_ps=(*first, 7 * curve().times_ps[3], *last))
    path = tmp_path / "measured.csv"
    table = CommTable(source="t", curves=(spoilt, curve(machine="other")))
    path.write_text(format_comm_table(table))
    return path


def test_times_bandwidths_and_outliers_are_printed(run: Run, measured: Path) -> None:
    status, out, _ = run("calibrate", "nccl", measured, "--source", "box")
    lines = out.splitlines()
    assert status == 0
    assert lines[0] == "all_reduce over 8 ranks in 1 node (box: 8 over 1)"
    assert lines[1].split() == ["size", "time", "algbw", "busbw"]
    assert any("8 GiB" in line and "204.1" in line for line in lines)
    assert "outliers left out: 1" in out
    assert "8 KiB in 231.5 us, 7.0 times what its neighbours say" in out
    assert len([line for line in lines if re.match(r" *[\d.]+ [KMG]iB ", line)]) == 23


def test_a_table_is_written_for_steps_to_read(run: Run, measured: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    assert run("calibrate", "nccl", measured, "--table", table, "-q")[0] == 0
    assert [len(each.size_bytes) for each in read_measurements([table]).curves] == [23, 24]


def test_every_size_can_be_shown(run: Run, measured: Path) -> None:
    dense = CommTable(source="t", curves=(curve(tuple(range(MIB, 40 * MIB, MIB))),))
    measured.write_text(format_comm_table(dense))
    shown = [run("calibrate", "nccl", measured, *more)[1] for more in ((), ("--sizes",))]
    assert [len(re.findall(r"(?m)^ *\d+ MiB ", text)) for text in shown] == [6, 39]


def test_what_cannot_be_done_is_one_line(run: Run, measured: Path) -> None:
    assert "expected texts of" in run("calibrate", "nccl", measured, "--source", "nothing")[2]
    expected = "--kind is 'ring': expected one of all_reduce"
    assert expected in run("calibrate", "nccl", measured, "--kind", "ring")[2]
    assert "it is an input" in run("calibrate", "nccl", measured, "--table", measured)[2]
