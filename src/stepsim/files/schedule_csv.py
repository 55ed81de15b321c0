"""Torch's pipeline CSV: one line per rank, its tokens in the order they run.

`0F1` is F (forward), B (full backward), I (input gradient) or W (weight gradient) of stage 0 and
microbatch 1; `(0F4;3B1)OVERLAP_F_B` is one fused pair. Torch writes bubbles as empty fields, which
mean nothing here. Format: torch `PipelineScheduleMulti._dump_csv` and `_Action.from_str`.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from stepsim.base.errors import ScheduleError, bad_value, one_line
from stepsim.base.structs import Noun
from stepsim.files.reading import read_text
from stepsim.parallel.schedules import (
    Action,
    ActionKind,
    FusedPair,
    OrderEntry,
    Placement,
    PlacementKind,
    Schedule,
)
from stepsim.parallel.schedules.check import COMPLETE, find_misplaced

_SINGLE = re.compile("([0-9]{1,9})([FBIW])([0-9]{1,9})")
_FUSED = re.compile(r"\(([0-9]{1,9}F[0-9]{1,9}); *([0-9]{1,9}B[0-9]{1,9})\)OVERLAP_F_B")
_TOKENS = "tokens such as 0F1 (stage; F, B, I or W; microbatch) or (0F4;3B1)OVERLAP_F_B"


class _Part(NamedTuple):
    """An action as a token names it."""

    stage: int
    kind: ActionKind
    microbatch: int


class _Field(Noun):
    """A token at a line and column, both from 1, and its action, or the two of a fused pair."""

    source: str
    line: int
    column: int
    token: str
    parts: tuple[_Part, ...]

    def error(self, allowed: str) -> ScheduleError:
        """The error of a token that is not what is allowed."""
        place = f"{self.source}:{self.line}: column {self.column}"
        return ScheduleError(bad_value(place, "token", self.token, allowed))


def read_schedule(path: Path) -> Schedule:
    """Schedule in a CSV file, named like the file.

    Raises ScheduleError naming file, line, column and token.
    """
    expected = "a schedule in torch's CSV"
    text = read_text(path, ScheduleError, "schedule", expected)
    return parse_schedule(text, source=str(path), name=one_line(path.name))


def format_schedule(schedule: Schedule) -> str:
    """CSV text of a schedule."""
    return "".join(f"{','.join(tokens)}\n" for tokens in schedule.tokens())


def parse_schedule(text: str, *, source: str, name: str) -> Schedule:
    """Schedule in CSV text; `source` is for messages.

    Stages are placed as the lines show: in a loop, a V, or from both ends. Raises ScheduleError
    unless every stage runs every microbatch once, forward and backward, after all that it needs.
    """
    rows = [list(_fields(source, n, line)) for n, line in enumerate(text.rstrip().split("\n"), 1)]
    fields = [field for row in rows for field in row]
    if not fields:
        raise ScheduleError(f"{source}: no actions: expected one line of {_TOKENS} per rank")
    microbatches = 1 + max(part.microbatch for field in fields for part in field.parts)
    placement = _placement(rows, microbatches)
    _check_complete(fields, placement, microbatches)
    schedule = Schedule(
        name=name,
        placement=placement,
        microbatches=microbatches,
        orders=tuple(_order(row, rank, placement) for rank, row in enumerate(rows)),
    )
    misplaced = find_misplaced(schedule)
    if misplaced:
        field = rows[misplaced.rank][misplaced.place]
        raise field.error(f"it after {misplaced.needed}, whose result it needs")
    return schedule


def _fields(source: str, number: int, line: str) -> Iterator[_Field]:
    """Fields of a line that are not empty."""
    for column, text in enumerate(line.split(","), 1):
        token = text.strip()
        fused = _FUSED.fullmatch(token)
        singles = map(_SINGLE.fullmatch, fused.groups() if fused else [token])
        parts = tuple(
            _Part(int(match[1]), ActionKind(match[2]), int(match[3])) for match in singles if match
        )
        field = _Field(source=source, line=number, column=column, token=token, parts=parts)
        if parts:
            yield field
        elif token:
            raise field.error(_TOKENS)


def _placement(rows: list[list[_Field]], microbatches: int) -> Placement:
    """The placement that agrees with every line; the error is at the token that rules all out."""
    last = max((f for row in rows for f in row), key=lambda f: max(p.stage for p in f.parts))
    ranks, stages = len(rows), 1 + max(part.stage for part in last.parts)
    candidates = []
    if stages % ranks == 0:
        candidates.append(Placement(ranks=ranks, chunks=stages // ranks))
    if stages == 2 * ranks:
        candidates.append(Placement(ranks=ranks, chunks=2, kind=PlacementKind.V))
    if stages == ranks and ranks % 2 == 0:
        kind = PlacementKind.BIDIRECTIONAL
        both = Placement(ranks=ranks, chunks=2, kind=kind, microbatches=microbatches)
        candidates.append(both)
    if not candidates:
        shared = f"a number of stages that {ranks} ranks (lines) share evenly, not {stages}"
        raise last.error(shared)
    for rank, row in enumerate(rows):
        for field in row:
            for stage, _, microbatch in field.parts:
                owners = {p: p.rank(stage, microbatch) for p in candidates}
                if rank not in owners.values():
                    lines = " or ".join(str(owner + 1) for owner in sorted({*owners.values()}))
                    raise field.error(f"this stage and microbatch on line {lines}")
                candidates = [p for p in candidates if owners[p] == rank]
    return candidates[0]


def _check_complete(fields: list[_Field], placement: Placement, microbatches: int) -> None:
    """Raise ScheduleError unless each stage runs F and B, or F, I and W, of each microbatch.

    Each once: where an action stands twice the error is at the second place.
    """
    seen: dict[_Part, _Field] = {}
    for field in fields:
        for part in field.parts:
            first = seen.setdefault(part, field)
            if first is not field:
                raise field.error(
                    f"each action once (this one is at line {first.line}, column {first.column})"
                )
    for stage in range(placement.stages):
        for microbatch in range(microbatches):
            kinds = {kind for kind in ActionKind if _Part(stage, kind, microbatch) in seen}
            if kinds in COMPLETE:
                continue
            needed = f"F and B, or F, I and W, of stage {stage} and microbatch {microbatch}"
            if kinds:
                found = (seen[_Part(stage, kind, microbatch)] for kind in kinds)
                raise max(found, key=lambda field: field.column).error(needed)
            place = f"{fields[0].source}:{placement.rank(stage, microbatch) + 1}"
            raise ScheduleError(f"{place}: tokens are missing: expected {needed}")


def _order(row: list[_Field], rank: int, placement: Placement) -> tuple[OrderEntry, ...]:
    chunk_of = {placement.stage(rank, chunk): chunk for chunk in range(placement.chunks)}
    entries = [
        [
            Action(kind=kind, stage=stage, chunk=chunk_of[stage], microbatch=microbatch)
            for stage, kind, microbatch in field.parts
        ]
        for field in row
    ]
    return tuple(
        FusedPair(forward=first, backward=second[0]) if second else first
        for first, *second in entries
    )
