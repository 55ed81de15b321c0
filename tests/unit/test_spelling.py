"""The prose of the README and the docs is spelled as a dictionary or the project's list has it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import ROOT, pages

WORDS = Path(__file__).parent / "words.txt"
"""The project's own words: names, abbreviations, terms of the field; one a line, sorted."""

NOT_PROSE = re.compile(
    r"^```.*?^```$|`[^`\n]*`|<!--.*?-->|\]\([^)]*\)|^::: .*(?:\n {4}.*)*", re.MULTILINE | re.DOTALL
)
NAME = re.compile(r"\S*[_/=.]\w\S*|\S*\d\S*")
WORD = re.compile(r"[^\W\d_]+")


def words(text: str) -> Iterator[str]:
    """Words of a text in Markdown, without code, links, and what is written like a name."""
    for word in WORD.findall(NAME.sub(" ", NOT_PROSE.sub(" ", text.replace("'s", "")))):
        if len(word) > 2 and (word.islower() or word.istitle()):
            yield word.lower()


def known() -> list[str]:
    return WORDS.read_text().split()


def test_words_are_spelled_well() -> None:
    spellchecker = pytest.importorskip("spellchecker")
    dictionary = spellchecker.SpellChecker()
    dictionary.word_frequency.load_words(known())
    wrong: dict[str, Path] = {}
    for page in pages():
        for word in dictionary.unknown(set(words(page.read_text()))):
            wrong.setdefault(word, page.relative_to(ROOT))
    assert not wrong, f"misspelled, or missing in {WORDS.relative_to(ROOT)}: {wrong}"


def test_the_words_are_used_and_sorted() -> None:
    used = {word for page in pages() for word in words(page.read_text())}
    assert known() == sorted(set(known()))
    assert set(known()) <= used, set(known()) - used


def test_a_wrong_word_is_found() -> None:
    found = set(words("A `wrnog` [link](wrnog.md), wrnog-tset and GPUs; 3rd file_name Transfer's."))
    assert found == {"link", "wrnog", "tset", "and", "transfer"}
