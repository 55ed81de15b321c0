"""A room imports lower rooms only, and heavy libraries only where they belong."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import stepsim

PACKAGE = Path(stepsim.__file__).parent

ROOMS = (
    ("base",),
    ("workload",),
    ("parallel",),
    ("network",),
    ("options",),
    ("run",),
    ("documents",),
    ("show",),
    ("core",),
    ("measured",),
    ("explain",),
    ("files",),
    ("step",),
    ("explore", "runs"),
    ("views",),
    ("face", "serve"),
    ("cli",),
)
HEAVY = {
    "simpy": ("core/events.py",),
    "networkx": ("network/topology", "files/topology", "views/topologies"),
    "matplotlib": ("show", "views", "cli", "face"),
    "pandas": ("show/frames.py",),
    "click": ("cli",),
    "tqdm": ("show/terminal.py",),
    "tornado": ("serve/server.py",),
}


@cache
def imports() -> dict[Path, frozenset[str]]:
    """Absolute names that each module imports, wherever the statement stands."""
    return {module: frozenset(imported(module)) for module in sorted(PACKAGE.rglob("*.py"))}


def imported(module: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            base = node.module or ""
            found |= {f"stepsim.{a.name}" for a in node.names} if base == "stepsim" else {base}
    return found


def room_of(module: Path) -> str:
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_rooms_import_lower_rooms_only() -> None:
    floor = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
    for module, names in imports().items():
        own = room_of(module)
        if own in ("__init__", "__main__"):
            continue
        assert own in floor, f"{own} is no room: add it to ROOMS"
        others = {name.split(".")[1] for name in names if name.startswith("stepsim.")}
        for other in (others & floor.keys()) - {own}:
            assert floor[other] < floor[own], f"{module.relative_to(PACKAGE)} imports {other}"


def test_what_shows_knows_no_result() -> None:
    for module, names in imports().items():
        if room_of(module) == "show":
            rooms = {name.split(".")[1] for name in names if name.startswith("stepsim.")}
            assert rooms <= {"__version__", "base", "documents", "run", "show"}, module


@pytest.mark.parametrize("library", sorted(HEAVY))
def test_heavy_libraries_are_imported_where_they_belong(library: str) -> None:
    for module, names in imports().items():
        if library in {name.split(".")[0] for name in names}:
            place = module.relative_to(PACKAGE).as_posix()
            assert place.startswith(HEAVY[library]), f"{place} imports {library}"


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['stepsim', '--help']\n"
        "from stepsim.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'numpy', 'simpy', 'networkx', 'matplotlib', 'msgspec'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_no_public_name_stands_for_two_things() -> None:
    homes: dict[str, list[str]] = {}
    for module in imports():
        for name in defined(module):
            homes.setdefault(name, []).append(module.relative_to(PACKAGE).as_posix())
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}


def defined(module: Path) -> set[str]:
    """Public names of classes, functions and constants that a module makes itself."""
    found: set[str] = set()
    for node in ast.parse(module.read_text()).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Assign(targets=targets):
                found |= {each.id for each in targets if isinstance(each, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
    return {name for name in found if not name.startswith("_")}
