"""Check that docstrings give units, the errors that are raised, and where formulas are from.

    python tools/docstrings.py

Prints what lacks them, and exits with 1 if anything does. That everything public has a docstring is
checked by ruff.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import stepsim
from stepsim.base import errors

PACKAGE = Path(stepsim.__file__).parent

_ERRORS = {name for name in vars(errors) if name.endswith("Error")}
_NUMERIC = re.compile(r"\b(int|float|NDArray|Ints|Floats|Times)\b")
_RATE = re.compile(
    r"(^|_)(time|times|duration|durations|latency|latencies|bandwidth|bandwidths|busbw|algbw"
    r"|capacity|capacities|overhead|delay|rate|rates)$"
)
_RATE_UNIT = re.compile(
    r"\b(ps|ns|us|ms|picoseconds?|nanoseconds?|microseconds?|milliseconds?|seconds?)\b"
    r"|\b(bytes/s|GiB/s|GB/s|bytes per second|factors?|shares?|ratio|relative)\b",
    re.IGNORECASE,
)
_SIZE = re.compile(r"(^|_)sizes?$")
_SIZE_UNIT = re.compile(
    r"\b(bytes|[KMGT]i?B|NPUs?|ranks|members|scenarios|samples|microbatches|positions?|places?|length)\b"
)
_UNITS = ((_RATE, _RATE_UNIT), (_SIZE, _SIZE_UNIT))
"""Names of numbers that mean nothing without a unit, unless they end in one (`latency_ps`)."""

_ORGANISING = {
    *("__init__", "algorithms", "asked", "base", "choices", "flows", "levels", "runtime", "steps"),
    *("activations", "kinds"),
}
"""Files among the algorithms that hold no formula of others."""

FORMULAS = (
    *("network/collectives", "parallel/schedules", "parallel/p2p"),
    *("network/topology/wirings/dragonfly", "network/topology/wirings/fat_tree"),
    *("network/fair_rates", "network/measured_times", "network/one_collective"),
)
_SOURCE = re.compile(
    r"et al\.|\((19|20)\d\d\)|arXiv|\b(19|20)\d\d\b|NCCL|nccl-tests|Megatron|[Tt]orch|SimAI"
    r"|ASTRA-sim|MPICH|DualPipe|[Cc]losed form|[Tt]extbook"
)

_Definition = ast.FunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Public:
    """A public name: where it is, what it is, its docstring, and those that stand around it."""

    place: str
    node: _Definition
    context: str

    @property
    def docstring(self) -> str:
        """Its own docstring."""
        return ast.get_docstring(self.node) or ""


def public(text: str, file: str) -> Iterator[Public]:
    """Public functions, classes and methods of a module."""
    tree = ast.parse(text)
    about = ast.get_docstring(tree) or ""
    for node in _named(tree.body):
        yield Public(place=f"{file}: {node.name}", node=node, context=about)
        if isinstance(node, ast.ClassDef):
            inside = f"{about}\n{ast.get_docstring(node) or ''}"
            for inner in _named(node.body):
                place = f"{file}: {node.name}.{inner.name}"
                yield Public(place=place, node=inner, context=inside)


def _named(body: list[ast.stmt]) -> Iterator[_Definition]:
    for node in body:
        if isinstance(node, _Definition) and not node.name.startswith("_"):
            yield node


def silent_errors(each: Public) -> Iterator[str]:
    """Errors of a user that a function raises itself, where its docstring speaks of none."""
    if isinstance(each.node, ast.ClassDef) or re.search(r"[Rr]aise", each.docstring):
        return
    raised = {
        getattr(inner.exc.func, "id", "")
        for inner in ast.walk(each.node)
        if isinstance(inner, ast.Raise) and isinstance(inner.exc, ast.Call)
    }
    for name in sorted(raised & _ERRORS):
        if name not in each.docstring:
            yield f"{each.place} raises {name}: its docstring does not say so"


def bare_numbers(each: Public) -> Iterator[str]:
    """Parameters, results and fields that are numbers of something, and no docstring says what."""
    around = f"{each.docstring}\n{each.context}"
    for name in _numbers(each.node):
        for kind, unit in _UNITS:
            if kind.search(name) and not unit.search(around):
                yield f"{each.place}: {name} has no unit in its name or the docstring"


def _numbers(node: _Definition) -> Iterator[str]:
    if isinstance(node, ast.ClassDef):
        given = [n for n in node.body if isinstance(n, ast.AnnAssign)]
        named = [(ast.unparse(n.target), ast.unparse(n.annotation)) for n in given]
    else:
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        named = [(a.arg, ast.unparse(a.annotation)) for a in arguments if a.annotation]
        named.append((node.name, ast.unparse(node.returns) if node.returns else ""))
    for name, annotation in named:
        if _NUMERIC.search(annotation) and "Callable" not in annotation:
            yield name


def without_source(file: str, text: str) -> Iterator[str]:
    """A module with formulas of others, where no docstring says whose."""
    docs = [ast.get_docstring(ast.parse(text)) or "", *(p.docstring for p in public(text, file))]
    if not _SOURCE.search("\n".join(docs)):
        yield f"{file} names no source of its formulas"


def problems(file: str, text: str) -> Iterator[str]:
    """What the docstrings of a module lack; a command's are its help, and all its errors exit."""
    if not file.startswith("cli/"):
        for each in public(text, file):
            yield from silent_errors(each)
            yield from bare_numbers(each)
    if file.startswith(FORMULAS) and Path(file).stem not in _ORGANISING:
        yield from without_source(file, text)


def main() -> None:
    """Print what is wrong."""
    missing = [each for each in FORMULAS if not list(PACKAGE.glob(f"{each}*"))]
    found = [f"{each}: no such module: see FORMULAS in tools/docstrings.py" for each in missing]
    for module in sorted(PACKAGE.rglob("*.py")):
        found += problems(module.relative_to(PACKAGE).as_posix(), module.read_text())
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
