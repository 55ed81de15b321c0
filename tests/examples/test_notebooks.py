"""Every notebook runs, shows its figures and ends with a conclusion made of computed numbers."""

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "figures" / "notebooks"
"""What the site shows below the cells: `python tools/notebook_outputs.py` draws it."""
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.py"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda p: p.stem)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_notebooks_run(notebook: Path) -> None:
    jupytext = pytest.importorskip("jupytext")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    document: Any = jupytext.read(notebook)
    place = {"metadata": {"path": str(ROOT / "notebooks")}}
    nbclient.NotebookClient(document, timeout=120, kernel_name="python3", resources=place).execute()
    shown = [o for c in document.cells for o in c.get("outputs", [])]
    assert not [o for o in shown if o.output_type == "error"]
    assert any("image/png" in o.get("data", {}) for o in shown)
    for number, cell in enumerate(document.cells):
        drawn = any("image/png" in o.get("data", {}) for o in cell.get("outputs", []))
        assert (PICTURES / f"{notebook.stem}-{number:02}.png").exists() == drawn
    *_, story, code = document.cells
    assert story.source.rstrip().endswith("## Conclusion")
    conclusion = code.outputs[-1].data["text/markdown"]
    assert re.search("[0-9]", conclusion)
    assert "nan" not in conclusion


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebooks_are_paired(notebook: Path) -> None:
    text = notebook.read_text()
    assert "formats: ipynb,py:percent" in text.partition("# %%")[0]
    assert text.partition("# %% [markdown]\n")[2].startswith("# # ")


def test_the_docs_list_every_notebook() -> None:
    page, site = ((ROOT / name).read_text() for name in ("docs/notebooks.md", "mkdocs.yml"))
    for notebook in NOTEBOOKS:
        assert f"notebooks/{notebook.name}" in page
        assert f"notebooks/{notebook.stem}.md" in site
