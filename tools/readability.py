"""Measure how easily the prose of README and docs reads: Flesch reading ease, by textstat.

    python tools/readability.py [PAGE...]    a line per page: ease, words of prose, words in all

Exits with 1 if a page reads less easily than EASE or is longer than LENGTH words. Pages of the
reference and the appendix are measured, without a limit. Headings, code blocks, tables and figures
are not prose. Code inside a sentence counts as one short word, a decimal number as one word.
"""

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import textstat
from pages import ROOT, pages

EASE = 50.0
"""The least Flesch reading ease of a page: 206.8 - 1.015 words/sentence - 84.6 syllables/word
(Flesch 1948)."""
LENGTH = 3000
"""The most words of a page, those of code and tables included."""
REFERENCE = ("docs/reference/", "docs/formats.md", "docs/coverage.md", "docs/appendix/")
"""Where pages stand that are looked up, not read."""

_NOT_PROSE = re.compile(
    r"^```[\s\S]*?^```$|<!--[\s\S]*?-->|^#.*$|^\|.*$|!\[[^\]]*\]\([^)]*\)|^::: .*(?:\n {4}.*)*",
    re.MULTILINE,
)
_LINE_OF_ITS_OWN = re.compile(r"^\s*(?:[-*]|\d+\.) +", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a page reads: its ease, and its number of words with and without code and tables."""

    name: str
    ease: float
    prose_words: int
    words: int

    @property
    def held(self) -> bool:
        """Whether the page is one to be read, not one to look things up in."""
        return not self.name.startswith(REFERENCE)


def prose(text: str) -> str:
    """What is left of a page in Markdown when all but sentences is taken away."""
    text = _NOT_PROSE.sub("\n\n", text)
    text = re.sub(r"`[^`\n]*(?:\n[^`\n]*)?`", "code", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)|<https?:[^>]*>|[*_]", r"\1", text)
    text = re.sub(r"(?<=\d)[.,](?=\d)", "", text)
    blocks = re.split(r"\n\s*\n", _LINE_OF_ITS_OWN.sub("\n\n", text))
    return "\n".join(_ended(" ".join(block.split())) for block in blocks if block.strip())


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence.rstrip(':;,')}."


def readings(names: list[Path]) -> Iterator[Reading]:
    """How each page reads."""
    for page in names:
        text = page.read_text()
        plain = prose(text)
        yield Reading(
            name=str(page.relative_to(ROOT)),
            ease=textstat.flesch_reading_ease(plain),
            prose_words=len(plain.split()),
            words=len(text.split()),
        )


def main() -> None:
    """Print how pages read."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pages", nargs="*", type=Path, help="default: README and docs")
    names = [path.resolve() for path in parser.parse_args().pages] or pages()
    bad = False
    for each in readings(names):
        wrong = each.held and (each.ease < EASE or each.words > LENGTH)
        bad = bad or wrong
        mark = " <" if wrong else ""
        print(f"{each.ease:6.1f} {each.prose_words:6} {each.words:6}  {each.name}{mark}")
    sys.exit(bad)


if __name__ == "__main__":
    main()
