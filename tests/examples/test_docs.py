"""Pages do what they say, link what exists, and say all that the program has."""

import html.parser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from pages import ROOT, PageError, blocks, pages, run_page
from quick_stepsim import quick_stepsim
from reference import outputs

from stepsim import cli
from stepsim.cli.commands import COMMANDS

MARKS = {
    "installs": 4,
    "starts servers": 3,
    "needs measured runs of your own": 1,
    "the profile is not part of this repository": 2,
}
"""Why blocks are only shown, and how many are. A new one is a decision: add it here."""

FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"(?<!\\)\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


SLOW = {"docs/performance.md", "docs/figures.md"}
"""Pages that compute for long: a million scenarios, every figure."""


def to_run() -> list[Any]:
    marks = {True: (pytest.mark.slow,), False: ()}
    return [pytest.param(page, id=name(page), marks=marks[name(page) in SLOW]) for page in pages()]


@pytest.mark.parametrize("page", to_run())
def test_a_page_prints_what_it_shows(page: Path, tmp_path: Path) -> None:
    differences = list(run_page(page, tmp_path))
    assert not differences, "\n\n".join([*differences, "python tools/pages.py --fill"])


def test_blocks_that_are_not_run_are_known() -> None:
    found = [block.mark for page in pages() for block in blocks(page) if block.mark]
    assert {mark: found.count(mark) for mark in found} == MARKS


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("```console\n$ echo 1\n2\n```\n", "printed\n$ echo 1\n1"),
        ("```console\n$ false\n```\n", "exits with 1"),
        ("```console\nno prompt\n```\n", "begins with"),
        ("```python\nimport nothing_of_this_name\n```\n", "ModuleNotFoundError"),
        ("```sh\nfalse | true\n```\n", "exits with 1"),
        ("```fortran\nEND\n```\n", "'fortran'"),
        ('```text title="a.txt"\n1\n```\n```console\n$ cat a.txt\n2\n```\n', "printed"),
    ],
)
def test_a_wrong_page_is_found(
    text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pages.ROOT", tmp_path)
    page, folder = tmp_path / "page.md", tmp_path / "folder"
    page.write_text(text)
    folder.mkdir()
    (difference,) = run_page(page, folder)
    assert says in difference


@pytest.mark.parametrize("words", ["--version", "simulate missing", "simulate --pp", "inspect -h"])
def test_pages_run_the_command_as_it_is(words: str, tmp_path: Path) -> None:
    code = "import sys; sys.argv[0] = 'stepsim'; from stepsim.cli import main; main()"
    answers = [
        subprocess.run([*command, *words.split()], capture_output=True, check=False, cwd=tmp_path)
        for command in ([str(quick_stepsim() / "stepsim")], [sys.executable, "-c", code])
    ]
    quick, whole = ((each.returncode, each.stdout, each.stderr) for each in answers)
    assert quick == whole


@pytest.mark.parametrize("text", ["  ```sh\n  false\n  ```\n", "```sh\nfalse\n", "~~~sh\n~~~\n"])
def test_a_hidden_block_is_an_error(text: str, tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(text)
    with pytest.raises(PageError, match="fence"):
        blocks(tmp_path / "page.md")


def test_fill_writes_what_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pages.ROOT", tmp_path)
    page, folder = tmp_path / "page.md", tmp_path / "folder"
    page.write_text("```console\n$ echo 1\n2\n$ echo 3 \\\n  4\n```\n")
    folder.mkdir()
    assert not list(run_page(page, folder, fill=True))
    assert page.read_text() == "```console\n$ echo 1\n1\n$ echo 3 \\\n  4\n3 4\n```\n"


def prose(page: Path) -> str:
    """A page without code."""
    return INLINE.sub("", FENCED.sub("", page.read_text()))


def anchors(page: Path) -> set[str]:
    """Anchors that the headings of a page have, on the site as on GitHub."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCED.sub("", page.read_text())):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", pages(), ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(prose(page)):
        parts = urlsplit(target)
        if parts.scheme or parts.netloc:
            assert parts.scheme == "https", f"{target}: expected https"
            assert re.fullmatch(r"[a-z0-9.-]+\.[a-z]+", parts.netloc), target
            continue
        file = page.parent / unquote(parts.path) if parts.path else page
        assert file.exists(), f"{page.name} links {target}"
        if parts.fragment:
            assert parts.fragment in anchors(file), f"{page.name} links {target}"


def test_figures_are_shown() -> None:
    """A figure that no page shows is one that nobody looks at."""
    shown = {
        (page.parent / target).resolve()
        for page in pages()
        for target in re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", page.read_text())
    }
    files = {path for path in (ROOT / "docs" / "figures").iterdir() if path.is_file()}
    assert files <= shown


GENERATED = outputs()


@pytest.mark.parametrize("path", GENERATED, ids=name)
def test_generated_pages_are_current(path: Path) -> None:
    assert path.read_bytes() == GENERATED[path], "run python tools/reference.py"


def test_every_option_is_in_the_reference() -> None:
    folder = ROOT / "docs" / "reference" / "cli"
    page = "\n".join(path.read_text() for path in sorted(folder.glob("*.md")))
    parts = re.compile(r"^##? ([^\n]+)\n(.*?)(?=^##? |\Z)", re.MULTILINE | re.DOTALL)
    sections = dict(parts.findall(page))
    checked = 0
    for title in COMMANDS:
        command: Any = cli.make_app().get_command(None, title)
        for inner, each in getattr(command, "commands", {"": command}).items():
            text = whole(sections, f"stepsim {title} {inner}".strip())
            for parameter in each.params:
                options = [*parameter.opts, *parameter.secondary_opts]
                for option in [o for o in options if o.startswith("-") and o != "--help"]:
                    assert f"`{option}`" in text or f"`{option}/" in text or f"/{option}`" in text
                    checked += 1
    assert checked > 100


def whole(sections: dict[str, str], title: str) -> str:
    """A section, with those that it says to go on with."""
    text = sections[title]
    shared = [each for each in sections if f"And the [{each[0].lower()}{each[1:]}]" in text]
    return text + "".join(whole(sections, each) for each in shared)


class Loads(html.parser.HTMLParser):
    """What a page makes a browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in ("script", "img", "iframe", "source"):
            self.found.append(values.get("src") or "")
        elif tag == "link" and values.get("rel") != "canonical":
            self.found.append(values.get("href") or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built without a warning."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install 'stepsim[docs]'")
    folder = tmp_path_factory.mktemp("docs") / "site"
    run = subprocess.run(  # not --quiet: it silences what --strict counts
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return folder


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    built = sorted(site.rglob("*.html"))
    assert len(built) >= len(pages())  # the README is not in it, a page for wrong addresses is
    for page in built:
        loads = Loads()
        loads.feed(page.read_text())
        assert not [each for each in loads.found if urlsplit(each).netloc], page
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"url\(\s*[\"']?(?:https?:)?//", sheet.read_text()), sheet


def test_search_works_from_the_disk(site: Path, tmp_path: Path) -> None:
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("chromium is not installed")
    flags = ["headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "dump-dom"]
    flags += ["disable-sync", "disable-background-networking", "disable-component-update"]
    flags += [f"user-data-dir={tmp_path}", "virtual-time-budget=20000"]
    run = subprocess.run(
        [browser, *(f"--{flag}" for flag in flags), f"file://{site}/index.html?q=contention"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    found = re.findall(r'href="([^"]*)\?h=contention"', run.stdout)
    assert any(each.endswith("guides/contention.html") for each in found), run.stderr
