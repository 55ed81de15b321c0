"""Notebooks as pages of the documentation site: a hook that mkdocs calls (`hooks` in mkdocs.yml).

Each notebook becomes a page with its text, its code and what its cells showed when
`tools/notebook_outputs.py` ran them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "notebooks"
OUTPUTS = ROOT / "docs" / "figures" / "notebooks"
_CELL = "# %%"


def on_files(files: Any, *, config: Any) -> Any:
    """Add a page per notebook; mkdocs calls this once per build."""
    for notebook in sorted(NOTEBOOKS.glob("*.py")):
        every = enumerate(cells(notebook.read_text()))
        page = "".join(cell + shown(notebook.stem, number) for number, cell in every)
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=page))
    return files


def shown(stem: str, number: int) -> str:
    """What a cell showed, as Markdown; empty where that is nothing."""
    text, figure = (OUTPUTS / f"{stem}-{number:02}{suffix}" for suffix in (".txt", ".png"))
    parts = [text.read_text()] if text.exists() else []
    if figure.exists():
        parts.append(f"![What the cell above draws](../figures/notebooks/{figure.name})\n")
    return "".join(f"{part}\n" for part in parts)


def cells(text: str) -> Iterator[str]:
    """The cells of a notebook (Jupytext's percent format) as Markdown."""
    for cell in text.split(f"\n{_CELL}")[1:]:
        head, _, body = cell.partition("\n")
        lines = body.strip().splitlines()
        if "[markdown]" in head:
            yield "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines) + "\n\n"
        else:
            yield "\n".join(["```python", *lines, "```"]) + "\n\n"
