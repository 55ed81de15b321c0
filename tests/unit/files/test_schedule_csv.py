"""Torch's pipeline CSV: what is written reads back, what is wrong is named."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from stepsim.base.errors import ScheduleError
from stepsim.files.schedule_csv import (
    format_schedule,
    parse_schedule,
    read_schedule,
)
from stepsim.parallel.schedules import (
    BUILDERS,
    FusedPair,
    Placement,
    PlacementKind,
    Schedule,
    build,
)


def parse(text: str) -> Schedule:
    return parse_schedule(text, source="a.csv", name="mine")


@pytest.mark.parametrize("name", sorted(BUILDERS.keys() - {"auto-zb"}))
@given(data=st.data())
def test_every_schedule_reads_back(name: str, data: st.DataObject) -> None:
    ranks = 2 * data.draw(st.integers(1, 4)) - data.draw(st.integers(0, name != "dualpipe"))
    microbatches = 2 * ranks * data.draw(st.integers(1, 3))
    schedule = build(name, ranks=ranks, microbatches=microbatches)
    again = parse(format_schedule(schedule))
    assert again.tokens() == schedule.tokens()
    assert again.microbatches == microbatches
    if ranks > 1:  # on one rank a V is a loop
        assert again.orders == schedule.orders
        assert again.placement == schedule.placement


def test_tokens_are_torchs() -> None:
    text = format_schedule(build("dualpipe", ranks=2, microbatches=4))
    assert text.splitlines()[0] == "0F0,1F2,0F1,1B2,(1F3;0B0)OVERLAP_F_B,1B3,0I1,0W1"
    assert text.endswith("\n")


def test_a_written_file_reads_back_with_or_without_a_byte_order_mark(tmp_path: Path) -> None:
    schedule, path = build("zb-v", ranks=3, microbatches=7), tmp_path / "mine.csv"
    path.write_text(format_schedule(schedule))
    again = read_schedule(path)
    assert again.orders == schedule.orders
    assert again.name == "mine.csv"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_schedule(path) == again


def test_bubbles_spaces_and_line_ends_mean_nothing() -> None:
    schedule = parse("0F0,,, 0B0 ,\r\n,1F0,1B0\r\n\r\n")
    assert schedule.tokens() == [["0F0", "0B0"], ["1F0", "1B0"]]


@pytest.mark.parametrize(
    ("text", "placement"),
    [
        ("0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0", Placement(ranks=2, chunks=2)),
        ("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0", Placement(ranks=2, chunks=2, kind=PlacementKind.V)),
        (
            "0F0,1F1,1B1,0B0\n1F0,0F1,1B0,0B1",
            Placement(ranks=2, chunks=2, kind=PlacementKind.BIDIRECTIONAL, microbatches=2),
        ),
        ("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1", Placement(ranks=2)),
        ("0F0,1F0,2F0,2B0,1B0,0B0", Placement(ranks=1, chunks=3)),
    ],
)
def test_placement_is_what_the_lines_show(text: str, placement: Placement) -> None:
    schedule = parse(text)
    assert schedule.placement == placement
    for rank in range(placement.ranks):
        for action in schedule.actions(rank):
            assert placement.stage(rank, action.chunk) == action.stage


def test_a_fused_pair_is_one_entry() -> None:
    schedule = parse("0F0,(0F1; 0B0)OVERLAP_F_B,0B1")
    pair = schedule.orders[0][1]
    assert isinstance(pair, FusedPair)
    assert (pair.forward.token, pair.backward.token) == ("0F1", "0B0")
    assert [action.token for action in schedule.actions(0)] == ["0F0", "0F1", "0B0", "0B1"]


BAD = [
    "0X0",
    "F0",
    "0F",
    "-1F0",
    "0f0",
    "0F0.0",
    "0 F0",
    '"0F0"',
    "٠F0",  # noqa: RUF001
    "0F1234567890",
    "0SEND_F0",
    "0UNSHARD",
    "(0F0;0B1)",
    "(0B0;0F1)OVERLAP_F_B",
    "(0F0;0I1)OVERLAP_F_B",
    "(0F0;0B1;0F2)OVERLAP_F_B",
    "(0F0)OVERLAP_F_B",
]


@pytest.mark.parametrize("token", BAD)
def test_a_bad_token_is_named_with_its_place(token: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse(f"0F0,0B0\n1F0,,{token},1B0")
    assert str(caught.value).startswith(f"a.csv:2: column 3: token is {token!r}: expected tokens ")
    assert "0F1" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.csv: no actions: expected one line of tokens"),
        ("0F0", "a.csv:1: column 1: token is '0F0': expected F and B, or F, I and W, of stage 0"),
        ("0F0,0W0,0B0,0I0", "a.csv:1: column 4: token is '0I0': expected F and B"),
        ("0F0,0F1,0B0", "a.csv:1: column 2: token is '0F1': expected .* microbatch 1$"),
        (
            "0F0,0B0,0F1,0B1\n1F0,1B0",
            "a.csv:2: tokens are missing: expected F and B, .* of stage 1 and microbatch 1$",
        ),
        ("0F0,0B0\n1F0,1B0\n\n3F0,3B0", "a.csv:3: tokens are missing: .* stage 2"),
        ("0F0,0F999999999", "a.csv:1: column 1: token is '0F0': expected"),
        ("999999999F0", "a.csv:1: tokens are missing: .* stage 0"),
        (
            "0F0,0B0,0B0",
            r"a.csv:1: column 3: token is '0B0': expected each action once "
            r"\(this one is at line 1, column 2\)",
        ),
        (
            "0F0,(0F1;0B0)OVERLAP_F_B,0B0,0B1",
            r"column 3: token is '0B0': expected each action once .* line 1, column 2\)",
        ),
        (
            "0F0,0B0\n2F0,1B0",
            "a.csv:2: column 1: token is '2F0': expected a number of stages that 2 ranks .* not 3",
        ),
        ("0F0,1B0\n1F0,0B0", "a.csv:1: column 2: token is '1B0': expected .* on line 2"),
        ("0F0,3F0\n1F0,3F1", "a.csv:2: column 2: token is '3F1': expected .* on line 1"),
        ("2F0,3F0\n1F0,0F0,3F0,0F0", "a.csv:1: column 2: token is '3F0': expected .* on line 2"),
        ("1F0,0F0\n2F0,3F0", "a.csv:1: column 1: token is '1F0': expected .* on line 2"),
    ],
)
def test_a_wrong_schedule_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=f"^{message}" if message[0] == "a" else message):
        parse(text)


def test_files_that_cannot_be_read_or_written_are_named(tmp_path: Path) -> None:
    with pytest.raises(ScheduleError, match=r"none\.csv: cannot read the schedule: No such file"):
        read_schedule(tmp_path / "none.csv")
    (tmp_path / "bytes.csv").write_bytes(b"0F0,\xff")
    with pytest.raises(ScheduleError, match=r"bytes\.csv: not a text file: byte 4 is not UTF-8"):
        read_schedule(tmp_path / "bytes.csv")


@pytest.mark.parametrize(
    ("text", "place", "token", "after"),
    [
        ("0F0,0W0,0I0", "a.csv:1: column 2", "0W0", "0I0"),
        ("0B0,0F0", "a.csv:1: column 1", "0B0", "0F0"),
        ("0F0,0B0\n1B0,1F0", "a.csv:2: column 1", "1B0", "1F0"),
        ("1F0,0F0,1B0,0B0", "a.csv:1: column 1", "1F0", "0F0"),
        ("0F0,1F0,0I0,1B0,0W0", "a.csv:1: column 3", "0I0", "1B0"),
        ("(0F0;0B0)OVERLAP_F_B", "a.csv:1: column 1", "(0F0;0B0)OVERLAP_F_B", "0F0"),
    ],
)
def test_an_action_before_what_it_needs_is_named(
    text: str, place: str, token: str, after: str
) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse(text)
    assert str(caught.value) == (
        f"{place}: token is '{token}': expected it after {after}, whose result it needs"
    )


def test_ranks_that_wait_for_each_other_are_named() -> None:
    with pytest.raises(ScheduleError, match=r"deadlock.*: rank 0 at 0B0, rank 1 at 1F1$"):
        parse("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1")
