"""The checks of prose that CI runs beside the tests find what is wrong."""

import re
from pathlib import Path

import docstrings
import spelling

ROOT = Path(__file__).resolve().parents[2]

WRONG = '''"""Without a source."""

class Table:
    """Times, by name."""
    size: int

def latency(count: int) -> float:
    """How long it takes."""
    if not count:
        raise PlanError("none")
    return 0.0
'''
RIGHT = '''"""As in Megatron (2021)."""

class Table:
    """A table of `size` bytes."""
    size: int

def latency(count: int) -> float:
    """Seconds that it takes; raises PlanError."""
    raise PlanError("none")
'''


def test_words_are_told_from_names() -> None:
    text = "A `wrnog` [link](wrnog.md), wrnog-tset and GPUs; 3rd file_name Transfer's."
    assert set(spelling.words(text)) == {"link", "wrnog", "tset", "and", "transfer"}


def test_a_wrong_word_and_a_bad_list_are_found() -> None:
    found = list(spelling.problems({"a.md": "A wrnog word."}, ["zebra", "apple"]))
    assert found == [
        "a.md: wrnog is misspelled, or missing in words.txt",
        "words.txt: expected every word once, sorted",
        "words.txt: no page uses apple",
        "words.txt: no page uses zebra",
    ]
    assert not list(spelling.problems({"a.md": "A wrnog word."}, ["wrnog"]))


def test_docstrings_without_units_errors_and_sources_are_found() -> None:
    file = "network/fair_rates.py"
    assert list(docstrings.problems(file, WRONG)) == [
        f"{file}: Table: size has no unit in its name or the docstring",
        f"{file}: latency raises PlanError: its docstring does not say so",
        f"{file}: latency: latency has no unit in its name or the docstring",
        f"{file} names no source of its formulas",
    ]
    assert not list(docstrings.problems(file, RIGHT))
    assert not list(docstrings.problems("cli/options.py", WRONG))


def test_ci_runs_what_pre_commit_runs() -> None:
    """Every hook works without network, and its command stands in `.ci/run`."""
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    entries = re.findall(r"^ +entry: (.+)$", hooks, re.MULTILINE)
    assert len(entries) == hooks.count("- id:") == hooks.count("language: system") >= 6
    assert re.findall(r"^ +- repo: (.+)$", hooks, re.MULTILINE) == ["local"]
    ci = (ROOT / ".ci" / "run").read_text()
    for entry in entries:
        line = re.compile(rf"^{re.escape(entry)}( --check)?( \.)?$", re.MULTILINE)
        assert line.search(ci), f".ci/run does not run {entry}"
