"""Modules of the package that no test imports, the longest first, and how many there are.

    python tools/untested.py [--through]

A test imports a module where it names it, or something in it. With `--through` also a module whose
names it takes from a package that hands them on. A module that stands in both lists is held only by
what others do with it.
"""

import argparse
import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"


def modules() -> dict[str, Path]:
    """Modules by their dotted names; a package is named as its folder."""
    found = {}
    for path in sorted((SOURCE / "stepsim").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """What a file imports: a module, and a name in it or nothing."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


def homes(module: str, name: str, known: Mapping[str, Path]) -> Iterator[str]:
    """Modules that a name comes from: the one that is imported, and those it is handed on from."""
    if f"{module}.{name}" in known:
        yield f"{module}.{name}"
    elif module in known:
        yield module
        if known[module].name == "__init__.py":
            for origin, handed in imports(known[module]):
                if handed == name and origin != module:
                    yield from homes(origin, handed, known)


def untested(known: Mapping[str, Path], *, through: bool) -> list[tuple[int, str]]:
    """Lines and names of modules with code that no test imports."""
    seen: set[str] = set()
    for path in (ROOT / "tests").rglob("*.py"):
        for module, name in imports(path):
            origins = list(homes(module, name, known))
            seen.update(origins if through else origins[:1])
    lines = {name: len(path.read_text("utf-8").splitlines()) for name, path in known.items()}
    left = [(lines[name], name) for name in known if name not in seen and lines[name] > 1]
    return sorted(left, reverse=True)


def main() -> int:
    """Print the list."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--through", action="store_true", help="names from packages count too")
    asked = parser.parse_args()
    known = modules()
    left = untested(known, through=asked.through)
    for lines, name in left:
        print(f"{lines:5} {name}")
    total = sum(lines for lines, _ in left)
    print(f"{len(left)} of {len(known)} modules, {total:,} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
