"""Words of a script: texts, of which some are not known, and how a shell expands them.

A word that is not known is what stands in the script, with what nobody says: a variable of the
environment, the output of a command, or a condition that decides between several texts.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from operator import add, eq, ge, gt, le, lt, mul, ne, rshift, sub
from typing import TYPE_CHECKING

import msgspec

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


# A mark: what nobody knows in hexadecimal digits, which are one word for a shell.
_MARK = re.compile("\x01([0-9a-f]*)\x02")
Words = tuple[str, ...]
"""Those of a command, or of a variable; what nobody knows stands in them as a mark."""
Environment = Mapping[str, str]
"""Variables that a script is given, by name."""


def marked_word(unknown: Unknown) -> str:
    """A word that nobody knows."""
    return f"\x01{msgspec.json.encode(unknown).hex()}\x02"


def unknown_in(word: str) -> Unknown | None:
    """What nobody knows of a word; None where all is known."""
    found = _MARK.search(word)
    return _marked(found) if found else None


def shown_word(word: str) -> str:
    """A word with the names of what nobody knows."""
    return _MARK.sub(lambda found: f"${{{_marked(found).name}}}", word)


def _marked(found: re.Match[str]) -> Unknown:
    return msgspec.json.decode(bytes.fromhex(found[1]), type=Unknown)


def is_known(words: Sequence[str]) -> bool:
    """Whether all words are known."""
    return not any(map(_MARK.search, words))


def one_word(parts: Iterable[str], between: str = "") -> str:
    """Parts as one word; raises WorkloadError where it is longer than any that a shell takes."""
    word = between.join(parts)
    if len(word) > _LONGEST:
        raise WorkloadError("with its variables filled in it is too long")
    return word


def is_unset(words: Sequence[str]) -> bool:
    """Whether words are a variable that nothing sets."""
    unknown = unknown_in(words[0]) if len(words) == 1 else None
    return unknown is not None and unknown.unset


def joined(pieces: Iterable[Sequence[str]]) -> list[str]:
    """Words of what stands side by side without a space: the ends of neighbours are one word."""
    found: list[str] = []
    for piece in pieces:
        if found and piece:
            found[-1] = one_word((found[-1], piece[0]))
            found += piece[1:]
        else:
            found += piece
    return found


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


def calculated(operator: str, first: int | None, second: int | None) -> int | None:
    """A whole number as a shell computes it; None where it cannot be, or nobody knows a side."""
    if first is None or second is None:
        return None
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
