"""Measured tables: what they say at, between and beyond their sizes, and their CSV."""

import os
from pathlib import Path

import numpy as np
import pytest

from stepsim.base.axes import CollectiveKind
from stepsim.base.errors import CalibrationError, OutputError
from stepsim.files.collectives.measurements import read_measurements
from stepsim.files.collectives.times_csv import (
    parse_comm_table,
    write_comm_table,
)
from stepsim.files.reading import MAX_FILE_BYTES
from stepsim.network.collectives.flows import bus_factor
from stepsim.network.measured_times import CommTable, MeasuredCurve

KIB, MIB, US = 1 << 10, 1 << 20, 10**6
AR = CollectiveKind.ALL_REDUCE


def curve(
    points: dict[int, int],
    *,
    machine: str = "box",
    source: str = "run",
    ranks: int = 8,
    nodes: int = 1,
) -> MeasuredCurve:
    return MeasuredCurve(
        machine=machine,
        source=source,
        kind=AR,
        ranks=ranks,
        nodes=nodes,
        sizes=tuple(points),
        times_ps=tuple(points.values()),
    )


def alpha_beta(
    low: int, high: int, latency_us: float = 20, us_per_mib: float = 8
) -> dict[int, int]:
    """Powers of two from `low` to `high` bytes."""
    powers = range(low.bit_length() - 1, high.bit_length())
    return {1 << p: round((latency_us + us_per_mib * (1 << p) / MIB) * US) for p in powers}


def table(*curves: MeasuredCurve) -> CommTable:
    return CommTable(source="table.csv", curves=curves)


WHOLE = table(curve(alpha_beta(2 * KIB, 64 * MIB)))


@pytest.mark.parametrize(
    ("kind", "ranks", "factor"),
    [
        (CollectiveKind.ALL_REDUCE, 8, 1.75),
        (CollectiveKind.REDUCE_SCATTER, 4, 0.75),
        (CollectiveKind.ALL_TO_ALL, 2, 0.5),
        (CollectiveKind.BROADCAST, 8, 1),
        (CollectiveKind.SEND_RECV, 2, 1),
        (CollectiveKind.ALL_REDUCE, 1, 0),
    ],
)
def test_bus_bandwidth_is_that_of_nccl_tests(
    kind: CollectiveKind, ranks: int, factor: float
) -> None:
    assert bus_factor(kind, ranks) == factor


def test_bus_bandwidth_of_a_published_line() -> None:
    """2 ranks, 1 MiB in 44.21 us: the table itself says 23.72 GB/s (vTrain, A100)."""
    speed = curve({MIB: 44_210_000}, ranks=2).bus_bandwidth()
    assert speed / 1e9 == pytest.approx([23.72], rel=1e-3)


def test_between_sizes_a_smooth_curve_is_met_within_a_few_percent() -> None:
    for size in (3 * KIB, 96 * KIB, 3 * MIB, 48 * MIB):
        expected = (20 + 8 * size / MIB) * US
        assert WHOLE.time_ps(AR, 8, 1, size) == pytest.approx(expected, rel=0.02)


def test_sizes_beside_are_all_that_a_time_depends_on() -> None:
    [known] = WHOLE.curves
    for size in (3 * KIB, 6 * KIB, 12 * KIB, 3 * MIB, 24 * MIB, 48 * MIB):
        [wanted] = known.interpolate(np.array([size]))
        assert known.duration_ps(size) == round(wanted)


def test_interpolation_is_the_monotone_cubic_of_its_definition() -> None:
    """In powers of 4: points (0, 0), (1, 2), (2, 6) have secants 2 and 4.

    The slope is 2 / (1/2 + 1/4) = 8/3 at the middle one, (3 * 2 - 4) / 2 = 1 at the first and
    (3 * 4 - 2) / 2 = 5 at the last; half way the cubic is at (0 + 2) / 2 + (1 - 8/3) / 8, and at
    (2 + 6) / 2 + (8/3 - 5) / 8.
    """
    found = curve({1: 1, 4: 16, 16: 4096}).interpolate(np.array([2]))
    assert found == pytest.approx([4 ** (1 - 5 / 24)])
    found = curve({1: 1, 4: 16, 16: 4096}).interpolate(np.array([8]))
    assert found == pytest.approx([4 ** (4 - 7 / 24)])


def test_a_time_below_the_smallest_size_is_latency() -> None:
    floor = alpha_beta(2 * KIB, 64 * MIB)[2 * KIB]
    assert [WHOLE.time_ps(AR, 8, 1, size) for size in (1, 1000, 2047)] == [floor] * 3


def test_latency_is_known_up_to_64_kib_and_15_percent() -> None:
    flat = alpha_beta(64 * KIB, 64 * MIB)
    assert table(curve(flat)).time_ps(AR, 8, 1, KIB) == flat.pop(64 * KIB)
    assert table(curve(flat)).time_ps(AR, 8, 1, KIB) is None
    grown = {KIB: 20, 4 * KIB: 23, 16 * KIB: 80}
    assert table(curve(grown)).time_ps(AR, 8, 1, 1) == 20
    assert table(curve(grown | {4 * KIB: 24})).time_ps(AR, 8, 1, 1) is None


def test_above_the_largest_size_the_last_bandwidth_holds() -> None:
    last = alpha_beta(2 * KIB, 64 * MIB)[64 * MIB]
    assert WHOLE.time_ps(AR, 8, 1, 256 * MIB) == 4 * last


@pytest.mark.parametrize(
    ("points", "size"),
    [
        (alpha_beta(4 * MIB, 64 * MIB), 2 * MIB),  # begins where size counts
        (alpha_beta(MIB, 64 * MIB, latency_us=1000), 2 * KIB),  # flat, but above 64 KiB
        (alpha_beta(2 * KIB, MIB), 2 * MIB),  # ends where latency counts
        ({MIB: US, 2 * MIB: 2 * US}, 4 * MIB),  # too short a range to tell
        ({MIB: US}, MIB + 1),
        (alpha_beta(2 * KIB, 64 * MIB), 0),
    ],
)
def test_where_measurements_do_not_reach_there_is_no_time(
    points: dict[int, int], size: int
) -> None:
    assert table(curve(points)).time_ps(AR, 8, 1, size) is None


def test_no_curve_no_time() -> None:
    assert WHOLE.time_ps(AR, 4, 1, MIB) is None
    assert WHOLE.time_ps(AR, 8, 2, MIB) is None
    assert WHOLE.time_ps(CollectiveKind.ALL_GATHER, 8, 1, MIB) is None
    alone = table(curve(alpha_beta(2 * KIB, MIB), ranks=1))
    assert alone.time_ps(AR, 1, 1, MIB) is None


def test_a_time_of_centuries_is_an_error() -> None:
    with pytest.raises(CalibrationError, match=r"over 8 ranks in 1 node.*2\*\*63"):
        WHOLE.time_ps(AR, 8, 1, 1 << 62)


TWO = table(
    curve({MIB: 10 * US}, machine="H800", source="first"),
    curve({MIB: 20 * US}, machine="H800", source="second"),
    curve({MIB: 30 * US}, machine="A800", source="first", ranks=4),
)


def test_two_sources_of_one_group_need_a_choice() -> None:
    with pytest.raises(CalibrationError) as caught:
        TWO.time_ps(AR, 8, 1, MIB)
    words = ["table.csv", "2 curves of all_reduce over 8 ranks in 1 node", "'H800: first'"]
    words += ["'H800: second'", "--comm-source"]
    assert [word for word in words if word not in str(caught.value)] == []
    assert TWO.time_ps(AR, 4, 1, MIB) == 30 * US


@pytest.mark.parametrize(
    ("terms", "time"), [("second", 20), ("h800,!SECOND", 10), ("H800, first", 10), ("!first", 20)]
)
def test_a_source_is_chosen_by_what_its_text_holds(terms: str, time: int) -> None:
    assert TWO.choose(terms).time_ps(AR, 8, 1, MIB) == time * US


def test_a_choice_that_fits_nothing_names_what_there_is() -> None:
    with pytest.raises(CalibrationError, match=r"'B200'.*'A800: first', 'H800: first'"):
        TWO.choose("B200")


@pytest.mark.parametrize(
    ("points", "nodes", "message"),
    [
        ({}, 1, "as many sizes as times"),
        ({2: 1, 1: 1}, 1, "sizes must be above 0 and ascend"),
        ({1: 0, 2: 1}, 1, "times must be above 0"),
        ({1: 1}, 9, "nodes is 9: expected 1 to the 8 ranks"),
    ],
)
def test_columns_are_checked(points: dict[int, int], nodes: int, message: str) -> None:
    with pytest.raises(CalibrationError, match=message):
        curve(points, nodes=nodes)


def test_a_curve_stands_once_in_a_table() -> None:
    with pytest.raises(CalibrationError, match=r"table.csv.*expected each curve once"):
        table(curve({MIB: US}), curve({MIB: US}))


def with_changes(changes: dict[int, float]) -> CommTable:
    points = alpha_beta(2 * KIB, 64 * MIB)
    return table(curve({size: round(time * changes.get(size, 1)) for size, time in points.items()}))


def test_outliers_are_left_out_and_named() -> None:
    spoilt = {2 * KIB: 12.0, 32 * KIB: 1.7, 512 * KIB: 27.0, 4 * MIB: 3.0, 64 * MIB: 1.8}
    kept, rejected = with_changes(spoilt).without_outliers()
    assert {outlier.size_bytes for outlier in rejected} == set(spoilt)
    assert set(kept.curves[0].size_bytes.tolist()).isdisjoint(spoilt)
    assert kept.curves[0].time_ps.tolist() == [
        time for size, time in alpha_beta(2 * KIB, 64 * MIB).items() if size not in spoilt
    ]
    worst = next(str(each) for each in rejected if each.size_bytes == 2 * KIB)
    assert worst == (
        "all_reduce over 8 ranks in 1 node (box: run): 2 KiB in 240.2 us, "
        "12.0 times what its neighbours say"
    )


def test_a_smooth_curve_a_fast_point_and_a_short_curve_have_no_outliers() -> None:
    for each in (WHOLE, with_changes({MIB: 0.7}), table(curve({1: 1, 2: 900, 4: 2}))):
        assert each.without_outliers()[1] == ()


def test_dense_curves_keep_small_spikes() -> None:
    points = {size * MIB: (50 + 8 * size) * US for size in range(1, 300)}
    points[100 * MIB] = round(points[100 * MIB] * 1.15)
    assert table(curve(points)).without_outliers()[1] == ()


OWN = """machine,source,kind,ranks,nodes,bytes,time
H800,run 1,all_reduce,8,1,64 MiB,669.768 us
H800,run 1,all_reduce,8,1,2048,71406 ns
H800,run 1,all_reduce,8,2,2048,0.1 ms
"""


def test_the_tables_own_columns_take_units() -> None:
    found = parse_comm_table(OWN, source="own.csv")
    assert found.warnings == ()
    assert [c.key for c in found.curves] == [
        ("H800", "run 1", AR, 8, 1),
        ("H800", "run 1", AR, 8, 2),
    ]
    assert found.curves[0].size_bytes.tolist() == [2048, 64 * MIB]
    assert found.curves[0].time_ps.tolist() == [71_406_000, 669_768_000]
    assert found.time_ps(AR, 8, 2, 2048) == 10**8


def test_bus_bandwidth_tells_the_time() -> None:
    text = "kind,ranks,nodes,bytes,busbw\nallreduce,8,1,175000000,175 GB/s\n"
    assert parse_comm_table(text, source="t.csv").time_ps(AR, 8, 1, 175_000_000) == 1_750 * US


def test_columns_of_other_tables_are_known_by_name() -> None:
    text = (
        "hw,op,gpus,size_bytes,time_us,busbw_GBs,oneway_us,oneway_GBs\n"
        "A,all_reduce,2,1048576,44.21,23.72,,\n"
        "A,sendrecv,2,1048576,200,,100.5,10.43\n"
    )
    found = parse_comm_table(text, source="other.csv")
    assert found.time_ps(AR, 2, 1, MIB) == 44_210_000
    assert found.time_ps(CollectiveKind.SEND_RECV, 2, 1, MIB) == 100_500_000
    assert found.warnings == ("other.csv: no column nodes: stepsim assumes one node",)
    assert found.curves[0].origin == "A: other.csv"


def test_a_size_measured_several_times_has_the_median() -> None:
    lines = [f"all_reduce,8,1,1024,{time} us" for time in (10, 90, 12)]
    lines += [f"all_reduce,8,1,2048,{time} us" for time in (10, 13)]
    text = "\n".join(["kind,ranks,nodes,bytes,time", *lines])
    assert parse_comm_table(text, source="t.csv").curves[0].time_ps.tolist() == [
        12 * US,
        11_500_000,
    ]


@pytest.mark.parametrize("name", ["AllReduce", "ALL-REDUCE", "all_reduce_perf"])
def test_collectives_go_by_several_names(name: str) -> None:
    text = f"kind,ranks,nodes,bytes,time\n{name},8,1,1,1 us\n"
    assert parse_comm_table(text, source="t.csv").curves[0].kind is AR


HEAD = "kind,ranks,nodes,bytes,time"
GOOD = "all_reduce,8,1,1024,10 us"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["bad.csv:1", "no column kind or op"]),
        (HEAD, ["bad.csv", "no measurement"]),
        (f"{HEAD},node\n{GOOD},1", ["bad.csv:1", "column", "'node'", "nodes", "algbw"]),
        ("kind,ranks,bytes\nall_reduce,8,1", ["bad.csv:1", "no column time"]),
        (f"{HEAD}\n{GOOD},7", ["bad.csv:2", "expected 5 cells", "6"]),
        (f"{HEAD}\n{GOOD}\n\nall_reduced,8,1,1,1 us", ["bad.csv:4", "'all_reduced'", "all_gather"]),
        (f"{HEAD}\nall_reduce,0,1,1,1 us", ["bad.csv:2", "ranks", "'0'", "1 to"]),
        (f"{HEAD}\nall_reduce,{'9' * 5000},1,1,1 us", ["bad.csv:2", "ranks", "..."]),
        (f"{HEAD}\nall_reduce,8,9,1,1 us", ["bad.csv:2", "nodes", "'9'", "1 to 8"]),
        (f"{HEAD}\nall_reduce,8,1,1,7", ["bad.csv:2", "time", "no unit"]),
        (f"{HEAD}\nall_reduce,8,1,1,nan us", ["bad.csv:2", "time", "nan"]),
        (f"{HEAD}\nall_reduce,8,1,1,", ["bad.csv:2", "no time"]),
        (f'{HEAD}\n"{GOOD}', ["bad.csv", "not valid CSV"]),
        ("kind,ranks,bytes,busbw_GBs\nall_reduce,8,1024,0.0", ["bad.csv:2", "no bus bandwidth"]),
        (
            "kind,ranks,bytes,time_us,busbw_GBs\nall_gather,8,1000000,100,70.0",
            ["bad.csv:2", "busbw_GBs is 70.0", "8.75 GB/s", "agree to 5%"],
        ),
    ],
)
def test_a_wrong_table_is_one_error_that_says_where(
    text: str, words: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(CalibrationError) as caught:
        read_measurements([path])
    assert [word for word in words if word not in str(caught.value)] == []
    assert str(path) in str(caught.value)


def test_files_that_are_no_text_or_too_large_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "odd.csv"
    with pytest.raises(CalibrationError, match="cannot read the measurements: No such file"):
        read_measurements([path])
    path.write_bytes(b"kind\xff")
    with pytest.raises(CalibrationError, match="byte 4 is not UTF-8"):
        read_measurements([path])
    os.truncate(path, MAX_FILE_BYTES + 1)
    with pytest.raises(CalibrationError, match="larger than"):
        read_measurements([path])


def test_a_table_cannot_be_written_into_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="does not exist"):
        write_comm_table(TWO, tmp_path / "no" / "out.csv")


def test_several_files_are_one_table(tmp_path: Path) -> None:
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for path in paths:
        path.write_text(f"{HEAD}\n{GOOD}\n")
    found = read_measurements(paths)
    assert found.source == f"{paths[0]}, {paths[1]}"
    assert [c.source for c in found.curves] == [str(path) for path in paths]
