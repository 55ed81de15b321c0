"""Fixtures shared by all tests."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


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
