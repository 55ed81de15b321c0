"""What nccl-tests prints, in the layouts of its versions."""

from pathlib import Path

import pytest

from stepsim.base.axes import CollectiveKind
from stepsim.base.errors import CalibrationError
from stepsim.files.collectives.measurements import read_measurements
from stepsim.files.collectives.nccl_tests import is_nccl_tests, parse_nccl_tests

AR, AG = CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER
HEADER = (
    "#       size         count      type   redop    root     time   algbw   busbw #wrong"
    "     time   algbw   busbw #wrong"
)
UNITS = "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)"


def ranks(number: int, nodes: int = 1) -> list[str]:
    per_node = -(-number // nodes)
    return [
        f"#  Rank {rank:2} Group  0 Pid {4000 + rank} on host{rank // per_node} device "
        f"{rank % per_node:2} [0000:{rank:02x}:00] NVIDIA H100 80GB HBM3"
        for rank in range(number)
    ]


def row(size: int, time: str, factor: float, *, wrong: str = "0", redop: str = "sum") -> str:
    speed = size / float(time) / 1e3
    cells = f"{time:>8} {speed:8.2f} {speed * factor:8.2f} {wrong:>6}"
    return f"{size:12} {size // 4:13} {'float':>9} {redop:>7} {'-1':>7} {cells} {cells}"


def log(
    *rows: str,
    program: str = "all_reduce_perf",
    head: list[str] | None = None,
    header: str = HEADER,
) -> str:
    lines = [
        "# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807",
        *([f"# Collective test starting: {program}"] if program else []),
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 128 step: 2(factor) warmup iters: 1 iters: 20",
        "#",
        "# Using devices",
        *(ranks(8) if head is None else head),
        "#",
        header,
        UNITS,
        *rows,
        "# Out of bounds values : 0 OK",
        "# Avg bus bandwidth    : 41.4",
    ]
    return "\n".join(lines) + "\n"


LINE = row(2**20, "70.5", 1.75)


def test_ranks_nodes_machine_and_times_out_of_place() -> None:
    in_place = "4194304 1048576 float sum -1 141 29.75 52.06 0 99.9 41.99 73.48 0"
    found = parse_nccl_tests(log(LINE, in_place, head=ranks(8, 2)), source="a.log")
    (curve,) = found.curves
    assert curve.key == ("NVIDIA H100 80GB HBM3", "a.log", AR, 8, 2)
    assert curve.size_bytes.tolist() == [2**20, 2**22]
    assert curve.time_ps.tolist() == [70_500_000, 141_000_000]
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("program", "kind", "factor"),
    [
        ("all_gather_perf", CollectiveKind.ALL_GATHER, 0.875),
        ("reduce_scatter_perf", CollectiveKind.REDUCE_SCATTER, 0.875),
        ("alltoall_perf", CollectiveKind.ALL_TO_ALL, 0.875),
        ("broadcast_perf", CollectiveKind.BROADCAST, 1),
        ("reduce_perf", CollectiveKind.REDUCE, 1),
        ("sendrecv_perf", CollectiveKind.SEND_RECV, 1),
        ("gather_perf", CollectiveKind.GATHER, 0.875),
        ("scatter_perf", CollectiveKind.SCATTER, 0.875),
    ],
)
def test_every_program(program: str, kind: CollectiveKind, factor: float) -> None:
    text = log(row(2**20, "70.5", factor, redop="none", wrong="N/A"), program=program)
    found = parse_nccl_tests(text, source="a.log")
    assert found.curves[0].kind is kind
    assert found.curves[0].time_ps.tolist() == [70_500_000]


OLD = "#       size         count    type   redop     time   algbw   busbw  error"
OLD += "     time   algbw   busbw  error"
OLDEST = OLD.replace("   redop", "")


@pytest.mark.parametrize(
    ("header", "line"),
    [
        (OLD, "1048576 262144 float sum 70.5 14.87 26.03 2e-07 70.6 14.85 25.99 2e-07"),
        (OLDEST, "1048576 262144 float 70.5 14.87 26.03 2e-07 70.6 14.85 25.99 2e-07"),
        (HEADER, "1048576 262144 float -1 70.5 14.87 26.03 0 70.6 14.85 25.99 N/A"),
        (f"{HEADER} timestamp", f"{LINE}  2025-08-20 19:55:37"),
        (
            HEADER.replace("#wrong", "#wrong i_min i_max i_p99 i_cv%"),
            "1048576 262144 float sum -1 70.5 14.87 26.03 0 70 71 71 1 70.6 14.85 26 0 70 71 71 1",
        ),
    ],
)
def test_layouts_of_other_versions(header: str, line: str) -> None:
    found = parse_nccl_tests(log(line, header=header), source="a.log")
    assert found.curves[0].time_ps.tolist() == [70_500_000]


def test_a_time_too_long_for_its_column_is_rounded() -> None:
    line = "17179869184 4294967296 float sum -1 1.2e+06 14.32 25.05 0 1.2e+06 14.32 25.05 0"
    assert parse_nccl_tests(log(line), source="a.log").curves[0].time_ps.tolist() == [12 * 10**11]


@pytest.mark.parametrize("prefix", ["[1,12]<stdout>:", " 0: "])
def test_what_launchers_put_before_a_line_is_not_read(prefix: str) -> None:
    text = "\n".join(prefix + line for line in log(LINE).splitlines())
    assert is_nccl_tests(text)
    assert parse_nccl_tests(text, source="a.log").curves[0].ranks == 8


def test_noise_between_lines_is_not_read() -> None:
    noisy = log("host0: NCCL INFO Channel 00/02 : 0 1 2 3", LINE, "", "# a remark")
    assert len(parse_nccl_tests(noisy, source="a.log").curves[0].size_bytes) == 1


def test_several_runs_in_one_text() -> None:
    text = log(LINE) + log(row(2**20, "40.0", 0.875), program="all_gather_perf", head=ranks(8, 2))
    found = parse_nccl_tests(text, source="a.log")
    assert [(c.kind, c.nodes) for c in found.curves] == [(AR, 1), (AG, 2)]


def test_runs_of_one_group_are_repeats() -> None:
    text = log(LINE) + log(row(2**20, "80.5", 1.75))
    assert parse_nccl_tests(text, source="a.log").curves[0].time_ps.tolist() == [75_500_000]


def test_a_run_that_does_not_name_itself() -> None:
    """The command before it, the file's name, or the caller tell."""
    bare = log(LINE, program="")
    echoed = f"$ mpirun -np 8 ./build/all_reduce_perf -b 1M -e 1M\n{bare}"
    assert parse_nccl_tests(echoed, source="a.log").curves[0].kind is AR
    assert parse_nccl_tests(bare, source="x/8gpu-AllReduce.log").curves[0].kind is AR
    assert parse_nccl_tests(bare, source="a.log", kind=AR).curves[0].kind is AR
    with pytest.raises(CalibrationError, match=r"a.log:14: no collective named.*--kind"):
        parse_nccl_tests(bare, source="a.log")
    with pytest.raises(CalibrationError, match=r"a.log:33: no collective named"):
        parse_nccl_tests(log(LINE) + bare, source="a.log")


def test_wrong_results_are_warned_about() -> None:
    found = parse_nccl_tests(log(row(2**20, "70.5", 1.75, wrong="3")), source="a.log")
    assert found.warnings == ("a.log:17: 3 wrong results in this measurement",)


TWICE = [*ranks(8)[:3], *ranks(8)[:1]]
SPLIT = [line.replace("Group  0", "Group  1") for line in ranks(8)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (log(LINE, head=[]), "a.log:7: no rank before this line: expected '# Rank 0"),
        (log(LINE, head=ranks(8)[1:]), "a.log:14: no rank 0"),
        (log(LINE, head=TWICE), "a.log:9: rank 0 occurs twice: expected each once"),
        (log(LINE, head=SPLIT), "a.log:6: group 1: several groups"),
        (
            log(LINE, program="hypercube_perf"),
            "a.log:15: program is 'hypercube_perf': expected one of all_reduce",
        ),
        (log(LINE[:70]), "a.log:17: fields is 7: expected 13"),
        (log(LINE.replace("70.5", "0.00")), "a.log:17: time_us is '0.00'"),
        (log(LINE.replace("70.5", "-nan")), "a.log:17: time_us: '-nan us' is not"),
        (log(LINE.replace("1048576", "9" * 5000, 1)), "9999 ... 9999"),
        (log(LINE.replace("26.03", "fast")), "a.log:17: busbw_GBs: 'fast GB/s' is not"),
        (log(row(2**20, "70.5", 0.875)), "a.log:17: busbw_GBs is 13.01, but size and"),
        (log(LINE, header=HEADER.replace(" time", " cputime")), "a.log:15: times of the CPU"),
        (log(), "a.log: no measurement"),
    ],
)
def test_wrong_output_is_one_error_that_says_where(text: str, said: str) -> None:
    with pytest.raises(CalibrationError) as caught:
        parse_nccl_tests(text, source="a.log")
    assert said in str(caught.value)


def test_sizes_per_rank_of_an_all_gather_are_noticed() -> None:
    """Of 8 ranks that send 1 MiB each the bus bandwidth is 8 times what that size gives."""
    line = "1048576 262144 float none -1 70.5 118.98 104.11 0 70.5 118.98 104.11 0"
    with pytest.raises(CalibrationError, match="size of the full buffer"):
        parse_nccl_tests(log(line, program="all_gather_perf"), source="a.log")


def test_files_are_told_apart_by_what_they_hold(tmp_path: Path) -> None:
    logs, tables = tmp_path / "run.csv", tmp_path / "table.txt"
    logs.write_text(log(LINE))
    tables.write_text("kind,ranks,nodes,bytes,time\nall_gather,4,1,1024,10 us\n")
    found = read_measurements([logs, tables])
    assert [(c.kind, c.ranks, c.source) for c in found.curves] == [
        (AR, 8, str(logs)),
        (AG, 4, str(tables)),
    ]


def test_a_run_that_ended_before_its_first_size_is_still_one_of_nccl_tests(tmp_path: Path) -> None:
    path = tmp_path / "crash.log"
    path.write_text("\n".join([*ranks(8), "host0: Test CUDA failure common.cu:502"]))
    with pytest.raises(CalibrationError, match=r"crash.log: no measurement of nccl-tests"):
        read_measurements([path])
