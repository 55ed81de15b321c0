"""Everything public says what it is, its units, what it raises, and where its formulas are from."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import stepsim
from stepsim.base import errors

PACKAGE = Path(stepsim.__file__).parent
ERRORS = {name for name in vars(errors) if name.endswith("Error")}

NUMERIC = re.compile(r"\b(int|float|NDArray|Ints|Floats|Times)\b")
RATE = re.compile(
    r"(^|_)(time|times|duration|durations|latency|latencies|bandwidth|bandwidths|busbw|algbw"
    r"|capacity|capacities|overhead|delay|rate|rates)$"
)
RATE_UNIT = re.compile(
    r"\b(ps|ns|us|ms|picoseconds?|nanoseconds?|microseconds?|milliseconds?|seconds?)\b"
    r"|\b(bytes/s|GiB/s|GB/s|bytes per second|factors?|shares?|ratio|relative)\b",
    re.IGNORECASE,
)
SIZE = re.compile(r"(^|_)sizes?$")
SIZE_UNIT = re.compile(
    r"\b(bytes|[KMGT]i?B|NPUs?|ranks|members|scenarios|samples|microbatches|positions?|places?|length)\b"
)
"""Names of numbers that mean nothing without a unit, unless they end in one (`latency_ps`)."""

ORGANISING = {
    *("__init__", "algorithms", "asked", "base", "choices", "flows", "levels", "runtime", "steps"),
    "activations",
}
"""Files among the algorithms that hold no formula of others."""
FORMULAS = [
    *("network/collectives", "parallel/schedules", "parallel/p2p"),
    *("network/topology/wirings/dragonfly", "network/topology/wirings/fat_tree"),
    *("network/fair_rates", "network/measured_times", "network/one_collective"),
    *("files/simai/formula", "explore/noise/draws"),
    *("measured/calibration/lines", "measured/calibration/link_classes"),
]
SOURCE = re.compile(
    r"et al\.|\((19|20)\d\d\)|arXiv|\b(19|20)\d\d\b|NCCL|nccl-tests|Megatron|[Tt]orch|SimAI"
    r"|ASTRA-sim|MPICH|DualPipe|[Cc]losed form|[Tt]extbook"
)

Definition = ast.FunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Public:
    """A public name: its module, what it is, and the docstrings that a reader of it sees."""

    module: Path
    name: str
    node: Definition
    context: str

    @property
    def docstring(self) -> str:
        return ast.get_docstring(self.node) or ""

    def __str__(self) -> str:
        return f"{self.module.relative_to(PACKAGE)}: {self.name}"


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def public(module: Path) -> Iterator[Public]:
    tree = ast.parse(module.read_text())
    about = ast.get_docstring(tree) or ""
    for node in tree.body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield Public(module, node.name, node, about)
            if isinstance(node, ast.ClassDef):
                inside = f"{about}\n{ast.get_docstring(node) or ''}"
                for inner in node.body:
                    if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_"):
                        yield Public(module, f"{node.name}.{inner.name}", inner, inside)


EVERYTHING = [each for module in modules() for each in public(module)]


def test_everything_public_has_a_docstring() -> None:
    assert len(EVERYTHING) > 800
    assert not [str(each) for each in EVERYTHING if not each.docstring]
    assert not [p for p in modules() if not ast.get_docstring(ast.parse(p.read_text()))]


def raised(node: Definition) -> set[str]:
    """Errors of a user that a body raises itself."""
    found = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Raise) and isinstance(inner.exc, ast.Call):
            found.add(getattr(inner.exc.func, "id", ""))
    return found & ERRORS


def test_errors_are_named() -> None:
    silent = []
    for each in EVERYTHING:
        if isinstance(each.node, ast.ClassDef) or each.module.parent.name == "cli":
            continue  # a command's docstring is its help; all mistakes exit with 2
        for name in raised(each.node):
            if name not in each.docstring and not re.search(r"[Rr]aise", each.docstring):
                silent.append(f"{each} raises {name}")
    assert not silent, "\n".join(silent)


def numbers(node: Definition) -> Iterator[str]:
    """Parameters, results and fields that are numbers of something with a unit."""
    if isinstance(node, ast.ClassDef):
        given = [n for n in node.body if isinstance(n, ast.AnnAssign)]
        named = [(ast.unparse(n.target), ast.unparse(n.annotation)) for n in given]
    else:
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        named = [(a.arg, ast.unparse(a.annotation)) for a in arguments if a.annotation]
        named.append((node.name, ast.unparse(node.returns) if node.returns else ""))
    for name, annotation in named:
        if NUMERIC.search(annotation) and "Callable" not in annotation:
            yield name


@pytest.mark.parametrize(("kind", "unit"), [(RATE, RATE_UNIT), (SIZE, SIZE_UNIT)])
def test_numbers_have_units(kind: re.Pattern[str], unit: re.Pattern[str]) -> None:
    everything = [each for each in EVERYTHING if each.module.parent.name != "cli"]
    found = [(e, name) for e in everything for name in numbers(e.node) if kind.search(name)]
    bare = [
        f"{each}: {name}"
        for each, name in found
        if not unit.search(f"{each.docstring}\n{each.context}")
    ]
    assert len(found) > 20
    assert not bare, "\n".join(bare)


@pytest.mark.parametrize("place", FORMULAS)
def test_formulas_name_their_source(place: str) -> None:
    path = PACKAGE / place
    files = sorted(path.glob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    for file in [each for each in files if each.stem not in ORGANISING]:
        docs = [ast.get_docstring(ast.parse(file.read_text())) or ""]
        docs += [each.docstring for each in public(file)]
        assert SOURCE.search("\n".join(docs)), f"{file.relative_to(PACKAGE)} names no source"
