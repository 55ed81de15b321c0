"""Workloads by the form that their files have."""

from pathlib import Path

import pytest

from stepsim.files import load
from stepsim.files.load import WORKLOAD_FORMATS, WorkloadFormat, workload_of
from stepsim.workload.rows import Microbatch, Row, Work, Workload


def rows_of(path: Path, strict: bool) -> Workload:
    name, idle = "strict" if strict else "row", Work()
    row = Row(name=name, forward=idle, input_grad=idle, weight_grad=idle)
    block = Microbatch(embedding=(), layers=((row,),), head=())
    return Workload(source=path.name, microbatches=(block,))


def test_a_file_is_read_as_what_it_begins_like(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = WorkloadFormat(begins=lambda start: start.startswith(b"rows"), read=rows_of)
    monkeypatch.setattr(load, "WORKLOAD_FORMATS", (other, *WORKLOAD_FORMATS))
    file = tmp_path / "own.rows"
    file.write_text("rows\n")
    found = workload_of(file, strict=True)
    assert (found.source, [row.name for row in found.rows()]) == ("own.rows", ["strict"])


def test_every_file_has_a_format() -> None:
    assert WORKLOAD_FORMATS[-1].begins(b"")
