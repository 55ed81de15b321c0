"""No output replaces what a command reads, nor another output."""

from pathlib import Path

import pytest
from fuzz import surface
from helpers import Run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    surface.prepare(tmp_path)
    (tmp_path / "link.csv").symlink_to("w.txt")
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        "simulate w.txt --csv w.txt",
        "simulate w.txt --csv link.csv",
        "simulate w.txt --csv a.csv --json a.csv",
        "validate steps.csv --json steps.csv",
        "improve profile --apply kernels -o profile/rank0",
        "sweep w.txt --set microbatches=1,2 --db w.txt",
    ],
)
def test_it_is_refused_and_kept(command: str, folder: Path, run: Run) -> None:
    before = contents(folder)
    code, _, err = run(*command.split())
    assert code == 2
    assert err.splitlines()[-1].startswith("error: ")
    assert contents(folder) == before


def contents(folder: Path) -> dict[Path, bytes]:
    return {each: each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def test_files_that_a_sweep_file_names(folder: Path, run: Run) -> None:
    (folder / "s.toml").write_text(
        'workload = "w.txt"\n[axes]\nmicrobatches = [1, 2]\n[output]\nexport = ["link.csv"]\n'
    )
    code, _, err = run("sweep", "s.toml")
    assert code == 2
    assert "it is an input" in err
