"""Tokens of experts: a router's counts by layer and microbatch, or one number each."""

from pathlib import Path

from stepsim.base.errors import WorkloadError
from stepsim.files.reading import csv_rows, first_columns, number_in, read_text, whole_number
from stepsim.workload.expert_load import ExpertCounts, make_counts

_COLUMNS = ("layer", "microbatch", "expert")
_MOST_NUMBER = 9999
_MOST_TOKENS = 1e18


def is_expert_counts(path: Path) -> bool:
    """Whether a file has a router's counts: its first line names the columns."""
    return {*_COLUMNS, "tokens"} <= first_columns(path)


def read_expert_counts(path: Path) -> ExpertCounts:
    """Tokens of experts by layer and microbatch; what is counted twice adds up.

    Layers, microbatches and experts count from 0. Raises WorkloadError naming file, row and value,
    and PlanError where nothing is counted.
    """
    text = read_text(path, WorkloadError, "expert load", "CSV")
    rows: dict[tuple[int, int], dict[int, float]] = {}
    for number, row in csv_rows(path, text, WorkloadError)[1]:
        place = f"{path}:{number}"
        layer, microbatch, expert = (
            whole_number(place, name, row[name], WorkloadError, 0, _MOST_NUMBER)
            for name in _COLUMNS
        )
        tokens = rows.setdefault((layer, microbatch), {})
        tokens[expert] = tokens.get(expert, 0.0) + _tokens(place, row["tokens"])
    return make_counts(str(path), rows)


def read_expert_load(path: Path) -> list[float]:
    """Tokens of every expert, in order; raises WorkloadError naming file and line."""
    text = read_text(path, WorkloadError, "expert load", "a number per line")
    return [
        _tokens(f"{path}:{number}", word)
        for number, line in enumerate(text.splitlines(), start=1)
        if (word := line.partition("#")[0].strip())
    ]


def _tokens(place: str, text: str) -> float:
    return number_in(place, "tokens", text, WorkloadError, 0, _MOST_TOKENS)
