"""A module imports lower layers only, and heavy libraries only where they belong."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import stepsim

PACKAGE = Path(stepsim.__file__).parent

LAYERS = (
    ("errors", "collector"),
    ("units", "shipped"),
    ("workload", "topology"),
    ("parallel", "schedules", "compute"),
    ("planning", "stages", "collectives", "comm_table", "simai_formula", "experts", "buckets"),
    ("p2p", "fragments"),
    ("program", "measured"),
    ("drafts", "calibration"),
    ("taskgraph",),
    ("pricing", "sharing"),
    ("sites", "fabric"),
    ("contention",),
    ("symmetry",),
    ("execution",),
    ("engine", "timeline", "probe"),
    (
        "analysis",
        "link_use",
        "inspection",
        "collective_probe",
        "topology_inspection",
        "topology_picture",
    ),
    ("critical_path", "comm_use", "counters"),
    ("report",),
    ("trace", "figure_style"),
    ("formats",),
    ("drawing",),
    ("plots", "progress"),
    ("collective_plot", "topology_plot"),
    ("loading", "settings"),
    ("job",),
    ("api",),
    ("batch",),
    ("sensitivity", "compare", "validation", "sweep", "doctor"),
    ("runs",),
    ("tables", "measured_tables", "validation_plots"),
    ("diff", "nccl_tables", "html_report"),
    ("cli",),
)
HEAVY = {
    "bokeh": {"html_report"},
    "jinja2": {"html_report"},
    "simpy": {"engine"},
    "networkx": {"topology"},
    "matplotlib": {
        "collective_plot",
        "doctor",
        "drawing",
        "figure_style",
        "plots",
        "sensitivity",
        "sweep",
        "topology_plot",
        "validation_plots",
    },
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def layer_of(module: Path) -> str:
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(module: Path) -> set[str]:
    """Absolute names a module imports, wherever the statement stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            base = node.module or ""
            found |= {f"stepsim.{a.name}" for a in node.names} if base == "stepsim" else {base}
    return found


@pytest.mark.parametrize("module", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_modules_import_lower_layers_only(module: Path) -> None:
    rank = {name: level for level, names in enumerate(LAYERS) for name in names}
    own = layer_of(module)
    if own == "__init__":
        return
    assert own in rank, f"{own} has no layer: add it to LAYERS"
    for name in imports(module):
        if name.startswith("stepsim."):
            other = name.split(".")[1]
            if other in rank and other != own:
                assert rank[other] < rank[own], f"{own} imports {other}"


@pytest.mark.parametrize("library", sorted(HEAVY))
def test_heavy_libraries_are_imported_in_one_place(library: str) -> None:
    users = {layer_of(m) for m in modules() for n in imports(m) if n.split(".")[0] == library}
    assert users == HEAVY[library]


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
