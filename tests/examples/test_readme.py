"""Every command of the README and the docs does what is printed below it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONSOLE = re.compile(r"```console\n\$ (.+)\n((?:.*\n)*?)```")
PYTHON = re.compile(r"```python\n((?:.*\n)*?)```")


def documents() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def examples(pattern: re.Pattern[str]) -> list[tuple[str, ...]]:
    return [match.groups() for d in documents() for match in pattern.finditer(d.read_text())]


@pytest.mark.parametrize(("command", "expected"), examples(CONSOLE))
def test_console_examples_print_what_they_show(command: str, expected: str) -> None:
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    }
    run = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    assert [line.rstrip() for line in run.stdout.splitlines()] == expected.splitlines()


@pytest.mark.parametrize("code", [code for (code,) in examples(PYTHON)])
def test_python_examples_run(code: str, tmp_path: Path) -> None:
    (tmp_path / "workloads").symlink_to(ROOT / "workloads")
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_linked_files_exist() -> None:
    for document in documents():
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links {target}"
