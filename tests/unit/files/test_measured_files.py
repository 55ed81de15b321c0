"""Measured runs and benchmarks by their paths: what tells them, how much is read for that."""

from pathlib import Path
from unittest.mock import MagicMock

import pytest
from traces import MadeRun

from stepsim.base.errors import PlanError, TraceError
from stepsim.files.collectives.measurements import load_benchmarks
from stepsim.files.measured import (
    load_measurements,
    load_run,
    load_trace,
    message_bandwidths,
)
from stepsim.files.reading import MAX_FILE_BYTES, open_file
from stepsim.files.traces.forms import RUN_FORMATS, is_measured
from stepsim.measured.step_log import LeafLog
from stepsim.measured.summary import RunSummary

RUN = MadeRun(forward=(10, 12), backward=(20, 21), microbatches=6)
MARK = "transformer-block(module) forward time (no send/recv) - step 1\n"


def test_forms_are_told_by_how_they_begin(tmp_path: Path, workloads: Path) -> None:
    folder = RUN.write(tmp_path / "run")
    first = sorted(folder.iterdir())[0]
    log = workloads / "measured" / "llama_pp8_a40.txt"
    assert all(map(is_measured, (folder, first, log)))
    assert not any(map(is_measured, workloads.glob("*.txt")))
    assert isinstance(load_run(folder), RunSummary)
    assert isinstance(load_run(log), LeafLog)
    starts = [path.read_bytes() for path in (first, log)]
    told = [[bool(form.begins(start)) for form in RUN_FORMATS] for start in starts]
    assert told == [[True, False], [False, True]]


def test_a_log_says_what_it_is_after_its_settings(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_text("> MODEL: a line of the model\n" * 30_000 + MARK)
    assert is_measured(log)
    log.write_text("x" * (1 << 20) + MARK)
    assert not is_measured(log)


def test_a_large_file_is_not_read_to_tell_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A workload is read whole once, by its reader, which refuses what is too large."""
    readers: list[MagicMock] = []

    def counted(path: Path, most: int | None = None) -> MagicMock:
        file = open_file(path, most)
        reader = MagicMock(wraps=file)
        reader.__enter__.return_value = reader
        reader.__exit__.side_effect = lambda *_: file.close()
        readers.append(reader)
        return reader

    path = tmp_path / "huge.txt"
    with path.open("wb") as file:
        file.write(b"HYBRID_TRANSFORMER\n")
        file.truncate(MAX_FILE_BYTES + 1)
    monkeypatch.setattr("stepsim.files.reading.open_file", counted)
    assert not is_measured(path)
    (reader,) = readers
    reader.read.assert_called_once_with(1 << 20)
    assert not is_measured(tmp_path / "absent")


def test_tables_and_runs_are_told_apart(tmp_path: Path, workloads: Path) -> None:
    table = tmp_path / "steps.csv"
    table.write_text(f"workload,measured_s,pp\n{workloads / 'gpt_tp4.txt'},1.5,4\n")
    folder = RUN.write(tmp_path / "run")
    loaded = load_run(folder)
    named = tmp_path / "run.csv"
    named.write_bytes(sorted(folder.iterdir())[0].read_bytes())
    runs, steps = load_measurements([named, str(table), loaded])
    assert isinstance(runs[0], RunSummary)
    assert runs[1:] == [loaded]
    assert [step.measured_ps for step in steps] == [1_500_000_000_000]


def test_what_holds_no_stage_times_is_no_trace(tmp_path: Path, workloads: Path) -> None:
    with pytest.raises(TraceError, match="a log of leaf modules holds no stage times"):
        load_trace(workloads / "measured" / "llama_pp8_a40.txt")
    with pytest.raises(TraceError, match="no such file or folder"):
        load_trace(tmp_path / "absent")


def test_benchmarks_are_chosen_by_their_source(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.csv" for name in ("A100", "H800")]
    for path in paths:
        rows = f"{path.stem},all_reduce,8,1,1024,{20}\n{path.stem},all_reduce,8,1,2048,30\n"
        path.write_text("machine,kind,ranks,nodes,bytes,time_us\n" + rows)
    every = load_benchmarks(paths)
    assert every is not None
    assert [curve.machine for curve in every.curves] == ["A100", "H800"]
    assert load_benchmarks(every) is every
    one = load_benchmarks(every, "H800")
    assert one is not None
    assert [curve.machine for curve in one.curves] == ["H800"]
    assert load_benchmarks(None) is load_benchmarks([]) is None


def test_bandwidths_of_messages_have_units() -> None:
    assert message_bandwidths({"inter_node": "400Gbps"}) == {"fabric.bandwidth": 50e9}
    assert message_bandwidths({}) == {}
    with pytest.raises(PlanError, match="bandwidth is 'rack': expected one of intra_node"):
        message_bandwidths({"rack": "1GB/s"})
