"""Words of a script: texts, of which some are not known, and how a shell expands them.

A word that is not known is what stands in the script, with what nobody says: a variable of the
environment, the output of a command, or a condition that decides between several texts.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from operator import add, eq, ge, gt, le, lt, mul, ne, rshift, sub
from typing import TYPE_CHECKING

from stepsim.base.errors import WorkloadError
from stepsim.base.structs import Noun

if TYPE_CHECKING:
    from tree_sitter import Node

_LONGEST = 1 << 20


class Unknown(Noun, kw_only=False):
    """What nobody says: `name` of a variable or words of a command, first needed in a `line`.

    With `flags` it may hold whole arguments; `unset` is a variable that nothing sets.
    """

    name: str
    line: int
    flags: bool = False
    unset: bool = False


class Word(Noun, kw_only=False):
    """A word, or part of one; what nobody knows stands in its text as a mark."""

    text: str

    @classmethod
    def of(cls, unknown: Unknown) -> "Word":
        """A word that nobody knows."""
        name = unknown.name.encode().hex()
        return cls(f"\x01{unknown.line}x{unknown.flags:d}x{unknown.unset:d}x{name}\x02")

    @property
    def unknown(self) -> Unknown | None:
        """What nobody knows of it; None where all is known."""
        found = _MARK.search(self.text)
        if found is None:
            return None
        line, flags, unset, name = found.groups()
        return Unknown(_said(name), int(line), flags == "1", unset == "1")

    @property
    def shown(self) -> str:
        """Its text with the names of what nobody knows."""
        return _MARK.sub(lambda found: f"${{{_said(found[4])}}}", self.text)

    def __add__(self, other: "Word") -> "Word":
        if len(self.text) + len(other.text) > _LONGEST:
            raise WorkloadError("with its variables filled in it is too long")
        return Word(self.text + other.text)


_MARK = re.compile("\x01([0-9]+)x([01])x([01])x([0-9a-f]*)\x02")
"""A mark: line, flags, unset, and the name in hexadecimal digits: one word for a shell."""


def _said(name: str) -> str:
    return bytes.fromhex(name).decode(errors="replace")


Words = tuple[Word, ...]
"""Those of a command, or of a variable."""
NOTHING = Word("")


def is_unset(words: Sequence[Word]) -> bool:
    """Whether words are a variable that nothing sets."""
    return len(words) == 1 and words[0].unknown is not None and words[0].unknown.unset


def joined(pieces: Iterable[Sequence[Word]]) -> list[Word]:
    """Words of what stands side by side without a space: the ends of neighbours are one word."""
    found: list[Word] = []
    for piece in pieces:
        if found and piece:
            found[-1] = found[-1] + piece[0]
            found += piece[1:]
        else:
            found += piece
    return found


def split(words: Iterable[Word]) -> Iterator[Word]:
    """The words of an expansion without quotes: texts fall apart at spaces."""
    return (Word(part) for word in words for part in word.text.split())


_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": add,
    "-": sub,
    "*": mul,
    "<": lt,
    ">": gt,
    "<=": le,
    ">=": ge,
    "==": eq,
    "!=": ne,
    "&&": lambda a, b: bool(a and b),
    "||": lambda a, b: bool(a or b),
    "<<": lambda a, b: a << min(b, 64),
    ">>": rshift,
}
_MOST = 1 << 62


def calculated(operator: str, first: int, second: int) -> int | None:
    """A whole number as a shell computes it; None where it cannot be."""
    if operator in ("/", "%"):
        if second == 0:
            return None
        whole = abs(first) // abs(second) * (1 if (first < 0) == (second < 0) else -1)
        return whole if operator == "/" else first - whole * second
    if operator == "**":
        return first**second if 0 <= second <= 64 and abs(first) < 1 << 16 else None
    if operator not in _OPERATORS or (second < 0 and operator in ("<<", ">>")):
        return None
    found = _OPERATORS[operator](first, second)
    return int(found) if abs(found) < _MOST else None


def edited(text: str, operator: str, pattern: str, other: str) -> str:
    """What `${X%...}` and its kin leave of a text."""
    if operator in ("/", "//"):
        kinds = {"*": ".*", "?": "."}
        regex = "".join(kinds.get(letter, re.escape(letter)) for letter in pattern)
        return re.sub(regex, lambda _: other, text, count=operator == "/")
    ends = range(len(text) + 1)
    if operator in ("#", "##"):
        cuts = ends if operator == "#" else reversed(ends)
        return next((text[i:] for i in cuts if fnmatchcase(text[:i], pattern)), text)
    cuts = reversed(ends) if operator == "%" else ends
    return next((text[:i] for i in cuts if fnmatchcase(text[i:], pattern)), text)


def line_of(node: "Node") -> int:
    """The line that a node begins in, from 1."""
    return int(node.start_point[0]) + 1


def text_of(node: "Node") -> str:
    """The text of a node."""
    return (node.text or b"").decode(errors="replace")
