"""Expert load files: the tokens of each expert, a number a line; `#` begins a comment."""

from pathlib import Path

from stepsim.base.errors import WorkloadError, bad_value
from stepsim.files.reading import read_text


def read_expert_load(path: Path) -> list[float]:
    """Tokens of every expert, in order; raises WorkloadError naming file and line."""
    text = read_text(path, WorkloadError, "expert load", "a number per line")
    return [
        _tokens(path, number, word)
        for number, line in enumerate(text.splitlines(), start=1)
        if (word := line.partition("#")[0].strip())
    ]


def _tokens(path: Path, line: int, word: str) -> float:
    try:
        tokens = float(word)
    except ValueError:
        tokens = -1.0
    if not 0 <= tokens < float("inf"):
        raise WorkloadError(bad_value(f"{path}:{line}", "tokens", word, "a number from 0"))
    return tokens
