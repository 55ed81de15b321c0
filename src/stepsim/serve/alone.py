"""The explorer without a server: a folder whose page runs stepsim in the browser by Pyodide.

Pyodide is CPython compiled to WebAssembly; it and the packages come from its public distribution,
so that the page needs the internet when it is opened. What it runs is `make_ask`, which runs here
as well.
"""

import io
import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from stepsim.base.errors import OutputError, one_line
from stepsim.files.reading import SHIPPED, shipped_folder
from stepsim.files.writing import write_folder
from stepsim.serve.answers import Answers
from stepsim.serve.explorer import Explorer
from stepsim.serve.library import NamedNouns
from stepsim.serve.page import page_parts

PYODIDE = "https://cdn.jsdelivr.net/pyodide/v0.28.3/full/pyodide.js"
PACKAGES = ("numpy", "networkx", "msgspec")
WHEELS = ("simpy", "tomli-w")
"""Packages of Pyodide's distribution, and pure ones that it fetches from the package index."""

_BOOT = """"use strict";
const PACKAGES = %(packages)s, WHEELS = %(wheels)s, WORKLOADS = %(workloads)s;
async function boot() {
  const python = await loadPyodide();
  await python.loadPackage([...PACKAGES, "micropip"]);
  await python.pyimport("micropip").install(WHEELS);
  const code = await (await fetch("stepsim.zip")).arrayBuffer();
  python.unpackArchive(code, "zip", { extractDir: "/stepsim" });
  python.globals.set("NAMES", python.toPy(WORKLOADS));
  python.runPython(`
import sys
sys.path.insert(0, "/stepsim")
from stepsim.serve.alone import make_ask
ask = make_ask(["/stepsim/workloads/" + name for name in NAMES])
`);
  return python.globals.get("ask");
}
const booted = boot();
window.stepsimAsk = async (question) => JSON.parse((await booted)(JSON.stringify(question)));
"""


def make_ask(workloads: Sequence[str]) -> Callable[[str], str]:
    """Answers to questions about some workload files, both as JSON text."""
    library = NamedNouns()
    for each in workloads:
        library.open(Path(each))
    answers = Answers(explorer=Explorer(library=library))

    def ask(question: str) -> str:
        try:
            return json.dumps(answers.answer(json.loads(question)))
        except Exception as error:  # the page lives on, whatever went wrong
            said = one_line(f"{type(error).__name__}: {error}")
            return json.dumps({"error": said, "crash": True})

    return ask


def write_site(folder: Path, workloads: Sequence[Path]) -> list[Path]:
    """Write the page, its start and the program into a folder; returns the files.

    Raises OutputError when the folder is not empty or cannot be written.
    """
    names = [path.name for path in workloads]
    if len(set(names)) < len(names):
        raise OutputError(f"workloads: two files have one name, of {', '.join(sorted(names))}")
    files = {
        "index.html": _page(),
        "explorer.js": page_parts()["js"].encode(),
        "boot.js": _boot(names),
        "stepsim.zip": _program(workloads),
    }
    return write_folder(folder, files.items())


def _page() -> bytes:
    """The explorer's page, with the scripts beside it."""
    parts = page_parts()
    page = parts["html"].replace("/*style*/", parts["css"])
    scripts = "".join(f'<script src="{each}"></script>\n' for each in (PYODIDE, "boot.js"))
    whole = f'{scripts}<script src="explorer.js"></script>'
    return page.replace("<script>/*script*/</script>", whole).encode()


def _boot(workloads: Sequence[str]) -> bytes:
    filled = {"packages": PACKAGES, "wheels": WHEELS, "workloads": workloads}
    return (_BOOT % {name: json.dumps(value) for name, value in filled.items()}).encode()


def _program(workloads: Sequence[Path]) -> bytes:
    """The package, what comes with it and the workloads as a zip, the same bytes every time."""
    package = Path(__file__).parents[1]
    inside = {
        f"stepsim/{path.relative_to(package).as_posix()}": path
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    for kind in SHIPPED:
        folder = shipped_folder(kind)
        files = (path for path in folder.rglob("*") if path.is_file())
        inside |= {f"stepsim/shipped_{kind}/{path.relative_to(folder)}": path for path in files}
    inside |= {f"workloads/{path.name}": path for path in workloads}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(inside):
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, inside[name].read_bytes())
    return content.getvalue()
