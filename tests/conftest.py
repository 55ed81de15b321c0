"""Fixtures shared by all tests."""

import os
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
