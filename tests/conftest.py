"""Fixtures shared by all tests."""

import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import Run
from hypothesis import settings

from stepsim import cli

for profile, examples in (("quick", 6), ("thorough", 100)):
    settings.register_profile(
        profile, deadline=None, derandomize="CI" in os.environ, max_examples=examples
    )
settings.load_profile("quick")  # pytest --hypothesis-profile=thorough tries more

ROOT = Path(__file__).resolve().parents[1]


def pytest_collection_finish() -> None:
    """The collector does not walk through all tests again as each of them runs."""
    gc.freeze()


@pytest.fixture(scope="session")
def workloads() -> Path:
    """The repository's workload files."""
    return ROOT / "workloads"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The reference material beside the checkout."""
    folder = Path(os.environ.get("STEPSIM_SHARED", ROOT.parent / "shared"))
    if not (folder / "reference").is_dir():
        pytest.skip(f"reference material not found at {folder} (set STEPSIM_SHARED)")
    return folder


@pytest.fixture
def write_workload(tmp_path: Path) -> Callable[[str | bytes], Path]:
    """Writes a workload text, byte for byte, and returns its file."""

    def write(text: str | bytes) -> Path:
        path = tmp_path / "workload.txt"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs one command; returns exit code, stdout and stderr."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["stepsim", *map(str, arguments)])
        code: Any = 0
        try:
            cli.main()
        except SystemExit as exit_:
            code = exit_.code
        gc.enable()
        out, err = capsys.readouterr()
        return code or 0, out, err

    return call


@pytest.fixture
def moe(workloads: Path) -> Path:
    """A pipeline of 4 stages on 128 NPUs."""
    return workloads / "moe_128.txt"
