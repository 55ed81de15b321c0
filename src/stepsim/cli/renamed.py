"""Old names of commands, which are options of others now and work in this release.

An old name is rewritten into the same command in its new spelling before anything of it is read.
docs/decisions/0055 says why each became what it is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

_END_OF_OPTIONS = "--"
_QUIET = frozenset({"-q", "--quiet", "-qv", "-vq"})
_CHUNKS = ("--chunks", "--vpp")
_SHAPE = frozenset({"--pp", "--microbatches", "-m", *_CHUNKS})
"""Options of the old `convert`; each takes a value."""


def renamed(words: Sequence[str]) -> list[str]:
    """The words of a command line in their new spelling; the same where no old name begins them.

    `["check", "plan.toml", "--max-step", "4s"]` is `["plan", "plan.toml", "--max-step", "4s",
    "--check"]`.
    """
    rewrite = RENAMED.get(words[0]) if words else None
    return rewrite(list(words[1:])) if rewrite else list(words)


def advice(old: Sequence[str], new: Sequence[str]) -> str:
    """The line that gives the new spelling; empty where there is nothing to say, or -q stands."""
    if old[:1] == new[:1] or _QUIET.intersection(_options(old)):
        return ""
    import shlex

    command = shlex.join(["stepsim", *new])
    return f"advice: the name {old[0]} goes with the next release; the same command is: {command}"


def _options(words: Sequence[str]) -> Sequence[str]:
    """The words before `--`, behind which only arguments stand."""
    return words[: words.index(_END_OF_OPTIONS)] if _END_OF_OPTIONS in words else words


def _with(words: list[str], *flags: str) -> list[str]:
    """The words with flags at the end of their options."""
    at = len(_options(words))
    return [*words[:at], *flags, *words[at:]]


def _arguments(words: Sequence[str], valued: frozenset[str]) -> Iterator[int]:
    """Places of the words that are neither options nor values of the options named."""
    end = len(_options(words))
    before = ""
    for place, word in enumerate(words):
        is_argument = place > end or not (word.startswith("-") or before in valued)
        if is_argument and place != end:
            yield place
        before = word


def _moved(words: list[str], nth: int, flag: str, valued: frozenset[str]) -> list[str]:
    """The words with an argument, counted from 0, as the value of a flag; alone if it is absent."""
    places = list(_arguments(words, valued))
    if len(places) <= nth:
        return words if _asks_for_help(words) else _with(words, flag)
    rest = [word for place, word in enumerate(words) if place != places[nth]]
    return _with(rest, flag, words[places[nth]])


def _asks_for_help(words: Sequence[str]) -> bool:
    return not {"-h", "--help"}.isdisjoint(_options(words))


def _convert(words: list[str]) -> list[str]:
    """`convert NAME OUT.csv --chunks 2` is `inspect NAME:2 --csv OUT.csv`."""
    words = _moved(words, 1, "--csv", _SHAPE)
    rest: list[str] = []
    chunks, before = "", ""
    for word in words:
        flag, equals, value = word.partition("=")
        if before in _CHUNKS:
            chunks, rest = word, rest[:-1]
        elif equals and flag in _CHUNKS:
            chunks = value
        else:
            rest.append(word)
        before = word
    name = next(_arguments(rest, _SHAPE | {"--csv"}), None)
    if chunks and name is not None and rest[name].partition(":")[2] != chunks:
        rest[name] += f":{chunks}"
    return ["inspect", *rest]


RENAMED: Mapping[str, Callable[[list[str]], list[str]]] = MappingProxyType(
    {
        "sweep-report": lambda words: ["sweep", *words],
        "sensitivity": lambda words: ["simulate", *_with(words, "--sensitivity")],
        "check": lambda words: ["plan", *_with(words, "--check")],
        "export-site": lambda words: ["serve", *_moved(words, 0, "--site", frozenset())],
        "convert": _convert,
    }
)
"""What each old name is now: a function of the words after it."""
