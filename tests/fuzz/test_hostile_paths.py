"""A path is the user's: it may be no file, or have a name that a terminal obeys."""

import os
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from helpers import Run

from stepsim.base.errors import OutputError, StepsimError
from stepsim.base.writing import check_separate, check_writable, write_whole
from stepsim.explain.diff import diff_results
from stepsim.face.sweeps import load_sweep
from stepsim.files.calibrations import read_calibration
from stepsim.files.collectives.measurements import read_measurements
from stepsim.files.expert_counts import read_expert_load
from stepsim.files.load import is_topology, load_result, read_topology
from stepsim.files.measured import load_run
from stepsim.files.reading import read_bytes
from stepsim.files.schedule_csv import read_schedule
from stepsim.files.simai.text import read_simai_text
from stepsim.files.step_table import read_step_table
from stepsim.files.sweep_toml import read_sweep
from stepsim.files.traces.forms import is_measured
from stepsim.files.traces.optimus_log import read_optimus_log

READERS: Mapping[str, tuple[Callable[[Path], object], str]] = {
    "workload": (read_simai_text, ".txt"),
    "toml": (read_topology, ".toml"),
    "astra": (read_topology, ".yml"),
    "simai": (read_topology, ""),
    "schedule": (read_schedule, ".csv"),
    "sweep": (read_sweep, ".toml"),
    "calibration": (read_calibration, ".toml"),
    "table": (read_step_table, ".csv"),
    "load": (read_expert_load, ".txt"),
    "measurements": (lambda path: read_measurements([path]), ".csv"),
    "run": (load_run, ".txt"),
    "log": (read_optimus_log, ".txt"),
    "result": (load_result, ".json"),
    "database": (load_sweep, ".sqlite"),
}
TELLERS = (is_measured, lambda path: is_topology(str(path)))
HOSTILE = "\x1b[31mred\x1b[0m\nerror: forged\r\x07\u202e\udcff"


def refusal(reader: str, path: Path) -> str:
    """What a reader says of a path, and that nobody takes it for anything."""
    for tell in TELLERS:
        tell(path)
    with pytest.raises(StepsimError) as error:
        READERS[reader][0](path)
    message = str(error.value)
    assert message.isprintable()
    return message


def named(folder: Path, reader: str, name: str | None = None) -> Path:
    """A path that a reader is for, of its own unless it is named."""
    return folder / f"{reader if name is None else name}{READERS[reader][1]}"


@pytest.mark.parametrize(
    ("make", "called"),
    [
        (os.mkfifo, "pipe"),  # nobody writes to it
        (lambda path: path.symlink_to("/dev/zero"), "device"),
        (Path.mkdir, "folder"),
    ],
    ids=["waits", "endless", "tree"],
)
def test_what_is_no_file(make: Callable[[Path], object], called: str, tmp_path: Path) -> None:
    for reader in READERS:
        path = named(tmp_path, reader)
        make(path)
        assert called in refusal(reader, path) or reader == "database"


def test_sparse_file_of_10_gigabytes(tmp_path: Path) -> None:
    for reader in READERS:
        path = named(tmp_path, reader)
        with path.open("wb") as file:
            file.truncate(10 << 30)
        tracemalloc.start()
        try:
            message = refusal(reader, path)
            assert tracemalloc.get_traced_memory()[1] < 64 << 20, reader
        finally:
            tracemalloc.stop()
        assert "256 MiB" in message or reader == "database"


def test_no_buffer_is_larger_than_the_file(tmp_path: Path) -> None:
    path = tmp_path / "small.txt"
    path.write_bytes(b"x" * 10_000)
    tracemalloc.start()
    try:
        assert read_bytes(path) == b"x" * 10_000
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_links_in_a_circle(tmp_path: Path) -> None:
    for reader in READERS:
        path = named(tmp_path, reader)
        path.symlink_to(path)
        refusal(reader, path)
        check_separate([path], [tmp_path / "out"])
        with pytest.raises(OutputError):
            check_writable(path)


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 5000, "no/such/folder/x"])
def test_names_that_no_file_has(name: str, tmp_path: Path) -> None:
    for reader in READERS:
        refusal(reader, named(tmp_path, reader, name))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_that_may_not_be_read(tmp_path: Path) -> None:
    for reader in READERS:
        path = named(tmp_path, reader)
        path.write_text("x")
        path.chmod(0)
        assert "ermission" in refusal(reader, path)


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes somebody else")
@pytest.mark.parametrize("command", ["sweep X", "report X -o o.html", "simulate X"])
def test_file_of_somebody_else_is_one_line(
    command: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "x.sqlite"
    path.write_text("x")
    path.chmod(0)
    tmp_path.chmod(0o777)
    words = [str(path) if word == "X" else word for word in command.split(" ")]
    run(*words)  # loads what it needs as long as it may
    folders = [each for each in tmp_path.parents if not each.stat().st_mode & 1]
    for folder in folders:
        folder.chmod(folder.stat().st_mode | 0o11)
    os.seteuid(65534)
    try:
        code, _, err = run(*words)
    finally:
        os.seteuid(0)
    assert code == 2
    assert err.startswith("error: "), err
    assert "ermission" in err
    assert err.count("\n") == 1


def test_names_that_a_terminal_would_obey(tmp_path: Path) -> None:
    for reader in READERS:
        path = named(tmp_path, reader, HOSTILE)
        path.unlink(missing_ok=True)
        refusal(reader, path)
        path.write_bytes(b"\x1b[31m rubbish \x07 \n")
        message = refusal(reader, path)
        assert "\\x1b[31mred" in message or "rubbish" in message


def test_command_line_escapes_names(run: Run, tmp_path: Path) -> None:
    for arguments in (
        ["simulate", tmp_path / HOSTILE],
        ["inspect", tmp_path / HOSTILE],
        ["sweep", tmp_path / f"{HOSTILE}.toml"],
        ["diff", tmp_path / HOSTILE, tmp_path / HOSTILE],
    ):
        code, out, err = run(*arguments)
        assert code == 2
        assert out == ""
        assert err.startswith("error: ")
        assert err.count("\n") == 1
        assert err.rstrip("\n").isprintable()


def test_workload_with_a_hostile_name_is_simulated(
    run: Run, workloads: Path, tmp_path: Path
) -> None:
    path = tmp_path / HOSTILE
    path.write_bytes((workloads / "gpt_tp4.txt").read_bytes())
    json = tmp_path / "out.json"
    code, out, _ = run("simulate", path, "--json", json)
    assert code == 0
    assert all(line.isprintable() for line in out.split("\n"))
    assert diff_results(load_result(json), load_result(json)).identical


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, "no/such/folder/x"])
def test_outputs_that_cannot_be(name: str, tmp_path: Path) -> None:
    with pytest.raises(OutputError):
        check_writable(tmp_path / name)
    with pytest.raises(OutputError):
        write_whole(tmp_path / name, b"x")


def test_sweep_file_with_impossible_outputs(run: Run, workloads: Path, tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    for entry in ('database = "a\\u0000b"', 'export = ["a\\u0000.csv"]', 'plot = "\\u0000.png"'):
        path.write_text(
            f'workload = "{workloads / "gpt_tp4.txt"}"\n[axes]\nmicrobatches = [2]\n'
            f"[output]\n{entry}\n"
        )
        code, _, err = run("sweep", path)
        assert code == 2
        assert err.splitlines()[-1].startswith("error: ")
