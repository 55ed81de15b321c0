"""Notebooks as pages of the documentation site: a hook that mkdocs calls (`hooks` in mkdocs.yml).

Each notebook becomes a page with its text and code. Figures are drawn when somebody runs it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
_CELL = "# %%"


def on_files(files: Any, *, config: Any) -> Any:
    """Add a page per notebook; mkdocs calls this once per build."""
    for notebook in sorted(NOTEBOOKS.glob("*.py")):
        page = "".join(cells(notebook.read_text()))
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=page))
    return files


def cells(text: str) -> Iterator[str]:
    """The cells of a notebook (Jupytext's percent format) as Markdown."""
    for cell in text.split(f"\n{_CELL}")[1:]:
        head, _, body = cell.partition("\n")
        lines = body.strip().splitlines()
        if "[markdown]" in head:
            yield "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines) + "\n\n"
        elif lines:
            yield "\n".join(["```python", *lines, "```"]) + "\n\n"
