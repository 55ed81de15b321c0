"""Traces of Megatron: what is read, and what is refused with file and line."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from traces import MadeRun, line, ps

from stepsim.base.errors import TraceError
from stepsim.files.traces.megatron_trace import read_megatron_trace
from stepsim.measured.run import OpKind
from stepsim.measured.run_profile import fused, of_kinds

Edit = Callable[[list[str]], list[str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = MadeRun(forward=(10, 10, 12), backward=(20, 20, 21), microbatches=6)
    return run.write(tmp_path / "run")


def edit(folder: Path, rank: int, change: Edit) -> Path:
    path = folder / f"pp3_tp1_rank{rank}.txt"
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))
    return path


def replaced(number: int, old: str, new: str) -> Edit:
    def change(lines: list[str]) -> list[str]:
        assert old in lines[number - 1]
        lines[number - 1] = lines[number - 1].replace(old, new)
        return lines

    return change


def test_columns(folder: Path) -> None:
    run = read_megatron_trace(folder)
    first, degrees = run.of_rank(0), run.degrees
    assert run.warnings == ()
    assert degrees
    assert (degrees.pp, degrees.microbatches, degrees.npus) == (3, 6, 3)
    assert degrees.message_bytes == 1024 * 4096 * 2
    assert set(first.duration_ps[of_kinds(first, OpKind.FORWARD)].tolist()) == {10 * 10**9}
    assert fused(first).sum() == 4 * 2 - 4, "one exchange per steady pair"


def test_inner_operations(tmp_path: Path) -> None:
    inner = (
        "'trace_src_func=f,duration=0.25,timestamp=1005.0,input__shape=[2924, 4096],"
        "input__dtype=torch.bfloat16,group=exp,comm_func=all_to_all', "
        "'trace_src_func=g,duration=0.5,timestamp=1006.0,input__shape=[8],"
        "input__dtype=torch.int64,func_name=g,group=exp,comm_func=allgather'"
    )
    folder = MadeRun(forward=(10,), backward=(20,), microbatches=1).write(tmp_path / "run")
    path = folder / "pp1_tp1_rank0.txt"
    path.write_text(path.read_text().replace("sub_operations=[]", f"sub_operations=[{inner}]", 1))
    traced = read_megatron_trace(path).inner
    assert traced.duration_ps.tolist() == [25 * 10**7, 5 * 10**8]
    assert traced.tokens.tolist() == [2924, -1]
    assert traced.parent.tolist() == [0, 0]


REFUSED = [
    (replaced(3, "duration=", "duration=-"), ":3: duration is '-"),
    (replaced(3, "duration=", "duration=nan"), ":3: duration is 'nan"),
    (replaced(3, "stage_id=1", "stage_id=x"), ":3: stage_id is 'x'"),
    (replaced(3, "mg_state=steady", "mg_state=idle"), ":3: mg_state is 'idle'"),
    (replaced(3, "rank:1", "rank:2"), ":3: rank 2, stage 1 in the file of rank 1"),
    (replaced(3, "timestamp=", "clock="), ":3: the line is cut off or has no timestamp"),
    (replaced(2, "forward_step", "forward_stop"), ":2: operation is 'forward_stop'"),
    (replaced(2, "sub_operations=[]", "sub_operations=['trace_src_func=f,x']"), ":2: sub_op"),
    (lambda lines: ["hello\n", *lines], ":1: line is 'hello'"),
    (lambda lines: [*lines[:-1], lines[-1][:-4]], "the line is cut off"),
    (lambda lines: [lines[1], lines[0], *lines[2:]], ":2: timestamp lies"),
    (lambda lines: [line for line in lines if "backward_step(stage_id=1,batch_id=2" not in line],
     "microbatch 2 of rank 1 has 1 forwards and 0 backwards"),
    (lambda lines: [], "no operation in this file"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_wrong_lines_are_refused(folder: Path, change: Edit, message: str) -> None:
    path = edit(folder, 1, change)
    with pytest.raises(TraceError) as caught:
        read_megatron_trace(folder)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_overlap_is_refused(folder: Path) -> None:
    edit(folder, 0, replaced(2, "duration=", "duration=9"))
    with pytest.raises(TraceError, match=r"rank0.txt:2: the operation begins .* before the line"):
        read_megatron_trace(folder)


def unnamed(folder: Path, target: Path, width: int, ranks: Sequence[int]) -> Path:
    """Some ranks of a run of 3 stages, in files whose names tell nothing."""
    target.mkdir()
    for rank in ranks:
        stage = rank // width
        text = (folder / f"pp3_tp1_rank{stage}.txt").read_text()
        (target / f"{rank}.txt").write_text(text.replace(f"rank:{stage}:", f"rank:{rank}:"))
    return target


@pytest.mark.parametrize("ranks", [(0, 1, 2, 3, 4), (0, 2, 4), (1, 3, 5), (0, 3, 4)])
def test_names_need_not_tell_how_many_ranks_there_are(
    folder: Path, tmp_path: Path, ranks: Sequence[int]
) -> None:
    run = read_megatron_trace(unnamed(folder, tmp_path / "plain", 2, ranks))
    assert run.degrees
    assert (run.degrees.npus, run.degrees.pp) == (6, 3)
    assert any(" of 6 has no trace: the other ranks" in text for text in run.warnings)


def test_a_missing_last_stage_is_seen_without_names(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no trace of stage 2 of 3"):
        read_megatron_trace(unnamed(folder, tmp_path / "plain", 2, (0, 1, 2, 3)))


def test_all_forwards_first_tell_no_stages(tmp_path: Path) -> None:
    run = MadeRun(forward=(10, 10), backward=(20, 20), microbatches=4, schedule="gpipe")
    written = run.write(tmp_path / "run")
    for path in list(written.iterdir()):
        path.rename(path.with_name(path.name.removeprefix("pp2_")))
    degrees = read_megatron_trace(written).degrees
    assert degrees
    assert degrees.pp == 2


def test_missing_messages_are_a_warning(folder: Path) -> None:
    edit(folder, 0, lambda lines: [each for each in lines if not is_send(each, 3)])
    (warning,) = read_megatron_trace(folder).warnings
    assert "rank0.txt:2: rank 0 has send_forward, but none of microbatch 3" in warning


def is_send(text: str, microbatch: int) -> bool:
    return "send_forward" in text and f"batch_id={microbatch}," in text


def test_mixed_runs_are_refused(folder: Path) -> None:
    (folder / "pp3_tp1_rank2.txt").rename(folder / "pp4_tp1_rank2.txt")
    with pytest.raises(TraceError, match="pp is 4 in this file's name, 3 in that of"):
        read_megatron_trace(folder)


@pytest.mark.parametrize(
    "times", [("20250818085958", "20250818090001"), ("1755500000", "1755500002")]
)
def test_ranks_of_one_run_may_have_started_seconds_apart(
    folder: Path, times: tuple[str, str]
) -> None:
    stamped(folder, times)
    assert len(read_megatron_trace(folder).ranks) == 3


@pytest.mark.parametrize(
    "times", [("20250818085958", "20250818091000"), ("20251399000000", "20251399000001")]
)
def test_runs_of_different_times_are_refused(folder: Path, times: tuple[str, str]) -> None:
    stamped(folder, times)
    with pytest.raises(TraceError, match=f"time is {times[1]} in this file's name"):
        read_megatron_trace(folder)


def stamped(folder: Path, times: tuple[str, str]) -> None:
    """Rank 0 has the first time in its name, the others the second."""
    for rank in range(3):
        path = folder / f"pp3_tp1_rank{rank}.txt"
        path.rename(folder / f"pp3_tp1_rank{rank}_{times[min(rank, 1)]}.txt")


def test_a_rank_twice_is_refused(folder: Path) -> None:
    text = (folder / "pp3_tp1_rank2.txt").read_text()
    (folder / "again_rank2.txt").write_text(text)
    with pytest.raises(TraceError, match="rank 2 is also in"):
        read_megatron_trace(folder)


def test_other_microbatches_are_refused(folder: Path, tmp_path: Path) -> None:
    other = MadeRun(forward=(10, 10, 12), backward=(20, 20, 21), microbatches=7)
    text = (other.write(tmp_path / "other") / "pp3_tp1_rank2.txt").read_text()
    (folder / "pp3_tp1_rank2.txt").write_text(text)
    with pytest.raises(TraceError, match=r"holds 7 microbatches, .* 6"):
        read_megatron_trace(folder)


def test_clock_jump_ahead_is_a_warning(folder: Path) -> None:
    def jump(lines: list[str]) -> list[str]:
        return [
            line if i < 8 else line.replace("timestamp=1", "timestamp=7")
            for i, line in enumerate(lines)
        ]

    edit(folder, 2, jump)
    warnings = read_megatron_trace(folder).warnings
    assert any("rank2.txt:9: " in text and "clock jumped" in text for text in warnings)


def test_zero_durations_are_a_warning(folder: Path) -> None:
    edit(folder, 0, replaced(1, "duration=10.0", "duration=0.0"))
    warnings = read_megatron_trace(folder).warnings
    assert any("rank0.txt:1: duration is 0, as in 1 forwards" in text for text in warnings)


def test_only_the_last_step_is_used(folder: Path) -> None:
    for rank in range(3):
        path = folder / f"pp3_tp1_rank{rank}.txt"
        text = path.read_text()
        between = line(rank, "optimizer_step", 0, ps(400), ps(410), 1000, "None")
        path.write_text(text + between + text.replace("timestamp=1", "timestamp=2"))
    run = read_megatron_trace(folder)
    assert any("holds 2 steps" in text for text in run.warnings)
    assert len(of_kinds(run.of_rank(0), OpKind.FORWARD)) == 6


def test_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no trace in this folder: expected one file per rank"):
        read_megatron_trace(tmp_path)
