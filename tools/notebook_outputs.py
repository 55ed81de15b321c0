"""Run the notebooks and keep what their cells show, for the pages of the documentation site.

    python tools/notebook_outputs.py [NOTEBOOK...]    all of them, or those whose names begin so

A figure goes to docs/figures/notebooks/NAME-CELL.png, a text to NAME-CELL.txt; both are committed,
so that the site is built without running anything.
"""

import base64
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jupytext
import nbclient
from notebook_pages import NOTEBOOKS, OUTPUTS, cells

_LONGEST = 4000


def outputs(notebook: Path) -> Iterator[tuple[str, bytes]]:
    """Names of files and what the cells of a notebook show."""
    document: Any = jupytext.read(notebook)
    assert len(document.cells) == len(list(cells(notebook.read_text()))), notebook
    place = {"metadata": {"path": str(NOTEBOOKS)}}
    nbclient.NotebookClient(document, timeout=300, kernel_name="python3", resources=place).execute()
    for number, cell in enumerate(document.cells):
        shown = [_shown(each) for each in cell.get("outputs", [])]
        texts = [text for text, _ in shown if text]
        figures = [figure for _, figure in shown if figure]
        if texts:
            yield f"{notebook.stem}-{number:02}.txt", ("\n\n".join(texts) + "\n").encode()
        for figure in figures[:1]:
            yield f"{notebook.stem}-{number:02}.png", base64.b64decode(figure)


def _shown(output: Any) -> tuple[str, str]:
    """Text and picture of an output."""
    data = output.get("data", {})
    if "image/png" in data:
        return "", data["image/png"]
    if "text/markdown" in data:
        return data["text/markdown"], ""
    text = output.get("text", data.get("text/plain", "")) if output.get("name") != "stderr" else ""
    return (f"```text\n{text.rstrip()[:_LONGEST]}\n```", "") if text.strip() else ("", "")


def main(names: list[str]) -> None:
    """Replace what the chosen notebooks showed."""
    OUTPUTS.mkdir(parents=True, exist_ok=True)
    for notebook in sorted(NOTEBOOKS.glob("*.py")):
        if names and not notebook.stem.startswith(tuple(names)):
            continue
        print(notebook.stem, flush=True)
        for old in OUTPUTS.glob(f"{notebook.stem}-*"):
            old.unlink()
        for name, data in outputs(notebook):
            (OUTPUTS / name).write_bytes(data)


if __name__ == "__main__":
    main(sys.argv[1:])
