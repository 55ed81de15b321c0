"""Run what the README and the docs show, and compare it with what they print.

    python tools/pages.py [PAGE...]           run pages, all by default
    python tools/pages.py --fill [PAGE...]    write the true outputs below the commands, and the
                                              figures that the page shows and its commands draw

A page runs in a folder of its own that has the shipped workloads and topologies and an empty
`docs/figures`, its blocks in order: `console` blocks are commands with what they print, `sh` blocks
are commands whose output is not shown, `python` blocks are programs, and a block with a title is a
file of that name. A block below `<!-- not run: REASON -->` is only shown.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from quick_stepsim import quick_stepsim

ROOT = Path(__file__).resolve().parents[1]
PROVIDED = ("workloads", "topologies")
FIGURES = Path("docs", "figures")
SHOWN = {"", "text", "yaml"}
"""Languages of blocks that are neither run nor checked."""

_FENCE = re.compile(r"^```(?P<head>[^`\n]*)\n(?P<text>(?:(?!```).*\n)*?)```$", re.MULTILINE)
_MARK = re.compile(r"<!-- not run: (.+) -->\n\n?$")
_FIGURE = re.compile(r"!\[[^\]]*\]\(([^)]+)\)")
_OF_INPUTS = "ignore::UserWarning"
"""Pages do not show what Python warns of their inputs: the pages are about something else."""
_TITLE = re.compile(r'title="([^"/]+)"')


class PageError(Exception):
    """A block that does not do what its page says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block: where its text starts (line from 1, offset), and why it is not run."""

    page: Path
    line: int
    start: int
    language: str
    title: str | None
    text: str
    mark: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of a console block as it is written, and what is printed below it."""

    shown: str
    expected: tuple[str, ...]

    @property
    def script(self) -> str:
        """The command without its prompt."""
        return self.shown.removeprefix("$ ")


def pages() -> list[Path]:
    """The README and every page of the docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page; raises PageError for a fence that would go unnoticed."""
    text = page.read_text()
    found = []
    for match in _FENCE.finditer(text):
        language, _, options = match["head"].partition(" ")
        mark = _MARK.search(text, 0, match.start())
        title = _TITLE.search(options)
        found.append(
            Block(
                page=page,
                line=text.count("\n", 0, match.start("text")) + 1,
                start=match.start("text"),
                language=language,
                title=title[1] if title else None,
                text=match["text"],
                mark=mark[1] if mark else None,
            )
        )
    if 2 * len(found) != len(re.findall(r"^\s*(?:```|~~~)", text, re.MULTILINE)):
        raise PageError(f"{page}: a fence is indented, unclosed, or made of ~~~")
    return found


def commands(block: Block) -> list[Command]:
    """The commands of a console block; a line that ends in a backslash goes on."""
    found: list[tuple[list[str], list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append(([line], []))
        elif found and not found[-1][1] and found[-1][0][-1].endswith("\\"):
            found[-1][0].append(line)
        elif found:
            found[-1][1].append(line)
        else:
            raise PageError(f"{block.page}:{block.line}: a console block begins with '$ '")
    return [Command(shown="\n".join(a), expected=tuple(b)) for a, b in found]


def run_page(page: Path, folder: Path, *, fill: bool = False) -> Iterator[str]:
    """Do what a page says in an empty folder; yields what differs, or fills in the outputs."""
    for name in PROVIDED:
        (folder / name).symlink_to(ROOT / name)
    (folder / FIGURES).mkdir(parents=True)
    filled: list[tuple[Block, str]] = []
    for block in blocks(page):
        if block.mark:
            continue
        try:
            shown = _do(block, folder)
        except PageError as difference:
            yield f"{page.relative_to(ROOT)}:{block.line}: {difference}"
            continue
        if shown == block.text:
            continue
        filled.append((block, shown))
        if not fill:
            yield f"{page.relative_to(ROOT)}:{block.line}: printed\n{shown}not\n{block.text}"
    if fill:
        _rewrite(page, filled)
        _keep_figures(page, folder)


def _do(block: Block, folder: Path) -> str:
    """Write, run or check a block; its text as it should be."""
    if block.title:
        (folder / block.title).write_text(block.text)
    elif block.language == "console":
        return "".join(_answer(command, folder) for command in commands(block))
    elif block.language == "sh":
        _run(["bash", "-euo", "pipefail", "-c", block.text], folder)
    elif block.language == "python":
        _run([sys.executable, "-c", block.text], folder, warnings=f"error,{_OF_INPUTS}")
    elif block.language == "toml":
        tomllib.loads(block.text)
    elif block.language == "json":
        json.loads(block.text)
    elif block.language not in SHOWN:
        raise PageError(f"nobody knows how to run a block of {block.language!r}")
    return block.text


def _answer(command: Command, folder: Path) -> str:
    output = _run(["bash", "-c", command.script], folder)
    lines = [command.shown, *(line.rstrip() for line in output.splitlines())]
    return "".join(f"{line}\n" for line in lines)


def _run(arguments: Sequence[str], folder: Path, *, warnings: str = _OF_INPUTS) -> str:
    """Standard output and error of a program that must succeed, under filters of warnings."""
    places = quick_stepsim(), Path(sys.executable).parent, os.environ["PATH"]
    path = os.pathsep.join(map(str, places))
    run = subprocess.run(
        arguments,
        cwd=folder,
        env=os.environ | {"PATH": path, "NO_COLOR": "1", "PYTHONWARNINGS": warnings},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if run.returncode:
        raise PageError(f"{arguments[-1]!r} exits with {run.returncode}\n{run.stdout}")
    return run.stdout


def _rewrite(page: Path, filled: Sequence[tuple[Block, str]]) -> None:
    text = page.read_text()
    for block, shown in reversed(filled):
        text = text[: block.start] + shown + text[block.start + len(block.text) :]
    page.write_text(text)


def _keep_figures(page: Path, folder: Path) -> None:
    """Copy what the page's commands drew to where it shows it."""
    for target in _FIGURE.findall(page.read_text()):
        for drawn in (folder / Path(target).name, folder / FIGURES / Path(target).name):
            if drawn.is_file():
                shutil.copyfile(drawn, page.parent / target)


def main() -> None:
    """Run the pages that are named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fill", action="store_true", help="write the true outputs")
    parser.add_argument("pages", nargs="*", type=Path, help="default: README and docs")
    arguments = parser.parse_args()
    wrong = 0
    for page in [path.resolve() for path in arguments.pages] or pages():
        with tempfile.TemporaryDirectory() as folder:
            for difference in run_page(page, Path(folder), fill=arguments.fill):
                print(difference, file=sys.stderr)
                wrong += 1
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
