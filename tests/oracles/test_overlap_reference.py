"""The law of overlap against kernels of public traces and threads: errors stay where they are."""

from pathlib import Path

import pytest
from accuracy_overlap import (
    WAYS,
    Row,
    clean_rows,
    error,
    grouped,
    law,
    left_out,
    nothing,
    published,
    read_rows,
)

MOST = {"all_to_all": 0.08, "send_recv": 0.07, "all_reduce": 0.13}
"""Errors that are asked for, by kind of communication."""
ENOUGH = 5


@pytest.fixture(scope="module")
def rows(shared: Path) -> list[Row]:
    path = shared / "reference" / "overlap" / "from_traces.csv"
    if not path.exists():
        pytest.skip("the tables of overlap are not here")
    return read_rows(path)


@pytest.mark.parametrize("kind", MOST)
def test_errors_are_what_is_asked_for(rows: list[Row], kind: str) -> None:
    own = grouped(rows, lambda row: row.comm_kind)[kind]
    assert len(own) > 20
    assert error(own, law) <= MOST[kind]
    assert error(own, law) == min(error(own, way) for way in WAYS.values())


def test_no_group_is_worse_than_no_slowdown(rows: list[Row]) -> None:
    groups = grouped(rows, lambda row: f"{row.family}, {row.comm_kind}")
    large = {name: own for name, own in groups.items() if len(own) >= ENOUGH}
    assert len(large) == 3
    for own in large.values():
        assert error(own, law) < error(own, nothing)


def test_constants_that_are_set_without_a_family_serve_it_as_well(shared: Path) -> None:
    path = shared / "reference" / "overlap" / "from_traces.csv"
    if not path.exists():
        pytest.skip("the tables of overlap are not here")
    table = [line.split(" | ") for line in left_out(clean_rows(path)) if "%" in line]
    large = {row[0]: [float(share.strip(" %|")) for share in row[2:]] for row in table}
    for name, count, *_ in table:
        law_error, without, none = large[name]
        if int(count) >= ENOUGH:
            assert without < law_error + 1.0
            assert without < none


def test_published_kernels_are_met() -> None:
    found = published()
    assert [row.what for row in found if not row.is_met] == []
    ring, copies = found[-2:]
    assert copies.predicted < ring.predicted
