"""Files about the project agree with the program: README, Dockerfile, citation, issue forms."""

import json
import re
import tomllib
from pathlib import Path

from pages import blocks

import stepsim

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"


def first_command() -> list[str]:
    block = next(block for block in blocks(README) if block.language == "sh")
    return block.text.strip().partition(" && ")[2].split()


def test_the_readme_is_short_and_says_what_licence_there_is() -> None:
    text = README.read_text()
    assert len(text.splitlines()) <= 200
    assert "## Licence\n\nNo licence is chosen yet." in text
    assert not list(ROOT.glob("LICEN[CS]E*"))


def test_the_container_runs_the_first_command_of_the_readme() -> None:
    lines = dict(re.findall(r"^(\w+) (.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    run = [*json.loads(lines["ENTRYPOINT"]), *json.loads(lines["CMD"])]
    assert run == first_command()


def test_the_version_stands_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert f"version: {stepsim.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_lowest_versions_can_be_installed_and_ci_tests_them() -> None:
    """Every dependency says a version from which it works, which `.ci/run` makes the only one."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    floors = dict(text.split(">=") for text in declared)
    assert all(re.fullmatch(r"[0-9]+(\.[0-9]+)*", floor) for floor in floors.values())
    steps = (ROOT / ".ci" / "run").read_text()
    assert 'text.replace(">=", "==")' in steps
    assert "on_lowest_versions; on_other_pythons" in steps


def test_folders_that_contributing_names_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    changes = text.partition("## Ten typical changes")[2].partition("\n## ")[0]
    assert len(re.findall(r"^\d+\. \*\*", changes, re.MULTILINE)) == 10
    named = set(re.findall(r"`([a-z]+(?:/[\w.]+)+/?)`", changes))
    assert len(named) > 15
    for name in named:
        stem = name.partition(".R")[0].partition(".S")[0]
        places = [ROOT / stem, ROOT / "src/stepsim" / stem, ROOT / "src/stepsim" / f"{stem}.py"]
        assert any(place.exists() for place in places), name


def test_issue_forms_ask_for_the_command() -> None:
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    texts = {form.stem: form.read_text() for form in forms}
    assert set(texts) == {"bug", "config", "feature", "wrong-number"}
    for name in ("bug", "wrong-number"):
        assert "Command and whole output" in texts[name]
    assert (ROOT / "docs" / "guides" / "check.md").exists()
    assert "docs/guides/check.md" in texts["wrong-number"]
