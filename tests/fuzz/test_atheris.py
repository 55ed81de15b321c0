"""Coverage-guided fuzzing of every reader, for a short while."""

import subprocess
import sys
from pathlib import Path

import pytest
from fuzz.targets import TARGETS

pytest.importorskip("atheris", reason="the extra [fuzz] is not installed")
HARNESS = Path(__file__).with_name("atheris_harness.py")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_no_reader_fails(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(HARNESS), name, "corpus", "-runs=3000", "-timeout=60"]
    process = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert process.returncode == 0, process.stderr[-3000:]
    assert "Done 3000 runs" in process.stderr
