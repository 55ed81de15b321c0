"""The notebooks run."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "notebook", sorted((ROOT / "notebooks").glob("*.py")), ids=lambda p: p.stem
)
def test_notebooks_run(notebook: Path, tmp_path: Path) -> None:
    (tmp_path / "workloads").symlink_to(ROOT / "workloads")
    subprocess.run([sys.executable, notebook], cwd=tmp_path, check=True)
