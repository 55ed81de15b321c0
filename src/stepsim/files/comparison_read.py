"""Reading a comparison that `stepsim compare --json` wrote, see `stepsim.step.compare`."""

from pathlib import Path
from typing import Any

import msgspec

from stepsim.base.errors import StepsimError, bad_value
from stepsim.files.result_read import ResultDocument, check_result, convert


class CandidateDocument(ResultDocument, frozen=True, kw_only=True):
    """A schedule that runs, by the name the user gave it, and its speed-up over the first."""

    name: str
    speedup: float


class RefusedDocument(msgspec.Struct, frozen=True):
    """A schedule that cannot run, and why."""

    name: str
    refusal: str


class ComparisonDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Schedules that run and those that cannot, each in the order asked for."""

    runs: tuple[CandidateDocument, ...]
    refused: tuple[RefusedDocument, ...]


def read_comparison(path: Path, raw: dict[str, Any]) -> ComparisonDocument:
    """The comparison in the plain data of a file.

    Raises StepsimError naming the file, the place in it, the value and what is allowed.
    """
    candidates = raw["candidates"]
    if not isinstance(candidates, list) or not all(isinstance(each, dict) for each in candidates):
        raise StepsimError(bad_value(str(path), "candidates", candidates, "a list of objects"))
    runs, refused = [], []
    for i, each in enumerate(candidates):
        place = f"{path}: candidates[{i}]"
        if each.get("valid") is True:
            runs.append(convert(place, each, CandidateDocument))
            check_result(place, runs[-1])
        else:
            refused.append(convert(place, each, RefusedDocument))
    if not runs:
        raise StepsimError(f"{path}: candidates: none of them ran: expected at least one")
    return ComparisonDocument(runs=tuple(runs), refused=tuple(refused))
