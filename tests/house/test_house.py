"""The program does not grow: every figure of `tests/house.toml` is at or below its line.

A commit that lowers a figure writes it down, so that a line is never more than 1 % above it.
`[building]` names a room that is born beside an old one, and tokens that it may have meanwhile.
"""

import json
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from house.counts import counts

from stepsim.options import StepOptions

ROOT = Path(__file__).resolve().parents[2]
HOUSE = tomllib.loads((ROOT / "tests" / "house.toml").read_text("utf-8"))
SLACK = 0.01


def sized(folder: str) -> dict[str, Any]:
    """What `tools/size.py` says of a folder."""
    command = [sys.executable, str(ROOT / "tools" / "size.py"), str(ROOT / folder), "--json"]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))


@pytest.fixture(scope="module")
def figures() -> dict[str, int]:
    source = sized("src/stepsim")
    tokens = {
        folder: sized(folder)["total"]["tokens"] for folder in ("tests", "tools", "benchmarks")
    }
    names = "tokens", "functions", "classes", "modules"
    return {
        **{name: source["total"][name] for name in names},
        "circle_when_run": max(map(len, source["circles"]["run"]), default=0),
        "circle": max(map(len, source["circles"]["all"]), default=0),
        "options": len(fields(StepOptions)),
        "tokens_of_tests": tokens["tests"],
        "tokens_of_tools": tokens["tools"] + tokens["benchmarks"],
        **counts(ROOT / "src" / "stepsim"),
    }


def test_no_figure_is_above_its_line(figures: dict[str, int]) -> None:
    building = sum(HOUSE["building"].values())
    lines = HOUSE["most"] | {"tokens": HOUSE["most"]["tokens"] + building}
    assert figures.keys() == lines.keys()
    assert not {
        name: f"{is_} > {lines[name]}" for name, is_ in figures.items() if is_ > lines[name]
    }


def test_what_became_less_is_written_down(figures: dict[str, int]) -> None:
    lines = HOUSE["most"]
    less = {name: f"{is_}, not {lines[name]}" for name, is_ in figures.items()}
    assert not {
        name: said for name, said in less.items() if figures[name] < (1 - SLACK) * lines[name] - 1
    }


def test_one_room_is_built_at_a_time() -> None:
    assert len(HOUSE["building"]) <= 1
