"""Nothing in the package runs what it reads, and every file is written whole or not at all."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import stepsim

PACKAGE = Path(stepsim.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
NEVER_CALLED = {"eval", "exec", "compile", "os.system", "os.popen", "__import__", "input"}
NEVER_IMPORTED = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "subprocess", "yaml"}
PICKLES = "base/executors.py"
"""Packs a job for the question's own workers, and is never given bytes from a file."""
YAML = {"files/models/recipes.py", "files/topology/astra_network.py"}
"""Read recipes and networks by the readers of YAML that make plain values alone."""
YAML_AS_DATA = ("yaml.safe_load", "yaml.compose")
WRITES = {"write_text", "write_bytes", "savefig", "to_csv", "to_parquet"}
OUTPUTS = "base/writing.py"
INPUTS = "files/reading.py"
OWN_FILES = {
    "show/page/page.py",
    "base/structs.py",
    "files/store.py",
    "cli/root.py",
    "serve/alone.py",
}
"""Read what came with the package, a database by SQLite, or nothing."""
TEMPORARY = {"serve/export.py", "serve/library.py"}
"""Write and read in a temporary folder of their own."""
NO_FILES = {"library.open", "webbrowser.open", "tarfile.open"}
"""Open no file: a noun's own, an address, bytes that were read."""


Named = tuple[str, ast.Module]


@pytest.fixture(scope="module")
def modules() -> list[Named]:
    """Every module of the package by its name, read once."""
    return [(name_of(file), ast.parse(file.read_text("utf-8"))) for file in FILES]


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Calls by what is called, `os.system` or `eval`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


def name_of(file: Path) -> str:
    return file.relative_to(PACKAGE).as_posix()


def test_runs_nothing_it_reads(modules: list[Named]) -> None:
    for file, tree in modules:
        allowed = {"pickle"} if file == PICKLES else {"yaml"} if file in YAML else set()
        assert not NEVER_IMPORTED & set(imports(tree)) - allowed, file
        for name, call in calls(tree):
            line = f"{file}:{call.lineno}: {name}"
            assert name not in NEVER_CALLED, line
            assert not name.startswith("yaml.") or name in YAML_AS_DATA, line
            keywords = {word.arg: ast.unparse(word.value) for word in call.keywords}
            assert keywords.get("shell", "False") == "False", line
            assert keywords.get("allow_pickle", "False") == "False", line


def test_only_workers_unpack(modules: list[Named]) -> None:
    users = {
        file
        for file, tree in modules
        for name, _ in calls(tree)
        if name.rpartition(".")[2] == "unpack" and "struct" not in name
    }
    assert users == {"explore/sweep/run.py", "explore/plan/search.py"}


def test_files_are_written_in_one_place(modules: list[Named]) -> None:
    for file, tree in modules:
        for name, call in calls(tree) if file not in TEMPORARY else ():
            line, last = f"{file}:{call.lineno}: {name}", name.rpartition(".")[2]
            assert last not in WRITES, line
            if last == "open" and name not in NO_FILES:
                assert file == OUTPUTS or not opens_to_write(call), line


def opens_to_write(call: ast.Call) -> bool:
    """Whether a call of a function named open gives a mode that writes."""
    keywords = [word.value for word in call.keywords if word.arg == "mode"]
    modes = [ast.unparse(given) for given in [*call.args, *keywords]]
    return any(mode.strip("'\"")[:1] in ("w", "a", "x") for mode in modes)


def test_files_are_read_in_one_place(modules: list[Named]) -> None:
    for file, tree in modules:
        if file in {INPUTS, OUTPUTS, *OWN_FILES, *TEMPORARY}:
            continue
        for name, call in calls(tree):
            reads = name in ("open", "os.open", "io.open") or (
                name.endswith((".open", ".read_text", ".read_bytes")) and "reading" not in name
            )
            assert not reads or name in NO_FILES, f"{file}:{call.lineno}: {name}"
