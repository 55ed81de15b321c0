"""Names in documents are printed as they are, without escapes, and no spreadsheet runs them."""

import csv
import os
import subprocess
from pathlib import Path

import pytest
from fuzz import seeds
from fuzz.surface import STEPSIM
from helpers import Run

import stepsim
from stepsim.base.errors import StepsimError


def topology(name: str) -> str:
    quoted = name.replace("\\", "\\\\").replace("\x1b", "\\u001b")
    return seeds.EXPLICIT.replace('"pair"', f'"{quoted}"').replace('"test"', f'"{quoted}"')


def test_names_that_the_encoding_lacks(tmp_path: Path) -> None:
    path = tmp_path / "é日.txt"
    path.write_text(seeds.SMALL_WORKLOAD)
    found = subprocess.run(
        [*STEPSIM, "simulate", path, "-q"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert "\\xe9\\u65e5.txt" in found.stdout
    assert found.stderr == ""


def test_escapes_in_names_are_shown(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(topology("\x1b[2Jx"))
    code, out, _ = run("inspect", path)
    assert code == 0
    assert "\x1b" not in out
    assert "\\x1b[2Jx" in out


def test_row_names(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "w.txt"
    text = seeds.SMALL_WORKLOAD.replace("mlp", "%s{0}\x1b[31m")
    path.write_text(text)
    assert run("simulate", path, "-q")[0] == 0
    path.write_text(text.replace("3000 NONE", "3000 \x1b[1m"))
    code, _, err = run("simulate", path, "-q")
    assert code == 2
    assert "%s{0}\\x1b[31m" in err
    assert "\x1b" not in err


def test_errors_are_one_line() -> None:
    with pytest.raises(StepsimError) as error:
        stepsim.load_topology("a\nerror: b\x1b[0m")
    assert str(error.value).isprintable()
    again = type(error.value)(*error.value.args)
    assert str(again) == str(error.value)


FORMULAS = ["=1+2+cmd", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)"]


@pytest.mark.parametrize("name", FORMULAS)
def test_names_that_a_spreadsheet_would_run(name: str, run: Run, tmp_path: Path) -> None:
    work, network, table = (tmp_path / each for each in ("w.txt", "t.toml", "out.csv"))
    work.write_text(seeds.SMALL_WORKLOAD.replace("mlp", name.replace(" ", "_")))
    network.write_text(topology(name))
    for command in (
        ("simulate", work, "-t", network, "-q", "--csv", table),
        ("collective", "--kind", "all_reduce", "--size", "1MiB", "-t", network, "--csv", table),
        ("inspect", network, "--csv", table),
    ):
        table.unlink(missing_ok=True)
        code, _, err = run(*command)
        assert (code, err) == (0, ""), command
        cells = [cell for row in csv.reader(table.read_text().splitlines()) for cell in row]
        assert [each for each in cells if each.startswith(("=", "@", "+cmd", "-2+3"))] == []
