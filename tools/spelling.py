"""Check that README and docs are spelled as a dictionary or the project's list of words has it.

    python tools/spelling.py

Prints the words that neither knows, and exits with 1 if there are any, or if the list is not sorted
or holds words that no page uses.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from pages import ROOT, pages
from spellchecker import SpellChecker

WORDS = Path(__file__).parent / "words.txt"
"""The project's own words: names, abbreviations, terms of the field; one a line, sorted."""

_NOT_PROSE = re.compile(
    r"^```.*?^```$|`[^`\n]*`|<!--.*?-->|\]\([^)]*\)|^::: .*(?:\n {4}.*)*", re.MULTILINE | re.DOTALL
)
_NAME = re.compile(r"\S*[_/=.]\w\S*|\S*\d\S*")
_WORD = re.compile(r"[^\W\d_]+")


def words(text: str) -> Iterator[str]:
    """Words of a text in Markdown, without code, links, and what is written like a name."""
    for word in _WORD.findall(_NAME.sub(" ", _NOT_PROSE.sub(" ", text.replace("'s", "")))):
        if len(word) > 2 and (word.islower() or word.istitle()):
            yield word.lower()


def problems(texts: dict[str, str], known: list[str]) -> Iterator[str]:
    """What is wrong with the words of some texts, by their names, and with the project's list."""
    dictionary = SpellChecker()
    dictionary.word_frequency.load_words(known)
    used: set[str] = set()
    for name, text in texts.items():
        found = set(words(text))
        unknown = dictionary.unknown(found - used)
        yield from (f"{name}: {word} is misspelled, or missing in words.txt" for word in unknown)
        used |= found
    if known != sorted(set(known)):
        yield "words.txt: expected every word once, sorted"
    yield from (f"words.txt: no page uses {word}" for word in sorted(set(known) - used))


def main() -> None:
    """Print what is wrong."""
    texts = {str(page.relative_to(ROOT)): page.read_text() for page in pages()}
    found = list(problems(texts, WORDS.read_text().split()))
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
