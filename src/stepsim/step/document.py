"""A comparison of schedules as a document: what `stepsim compare --json` writes."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Self

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

from stepsim.base.documents import Document, Entry
from stepsim.base.errors import StepsimError, bad_value
from stepsim.base.fields import Picoseconds
from stepsim.files.simai.formula import SimaiTotals
from stepsim.results.report import Report
from stepsim.step.compare import ComparedSchedules, exposed_p2p_ps


class CandidateDocument(Report, frozen=True, kw_only=False):
    """A schedule that runs; `speedup` is over the first that does."""

    # msgspec writes fields that are not by keyword only first: these stand before the others
    name: str
    valid: Annotated[bool, Meta(extra_json_schema={"const": True})]
    speedup: float
    exposed_p2p_ps: Picoseconds = 0


class _RefusedEntry(Entry, frozen=True, kw_only=True):
    """A schedule that cannot run the job, and why."""

    name: str
    valid: Annotated[bool, Meta(extra_json_schema={"const": False})] = False
    refusal: str


_EITHER = (CandidateDocument, _RefusedEntry)
_AnyCandidate = Annotated[
    Any,
    Meta(extra_json_schema={"anyOf": [{"$ref": f"#/$defs/{each.__name__}"} for each in _EITHER]}),
]
"""One of two types that no key of text tells apart, as msgspec wants it."""


class ComparisonDocument(Document, frozen=True, kw_only=True):
    """`stepsim compare --json`: one workload under several schedules, in the order asked for."""

    named: ClassVar[tuple[type, ...]] = (*_EITHER, *Report.named)

    candidates: tuple[_AnyCandidate, ...]
    simai_formula: SimaiTotals | msgspec.UnsetType = msgspec.UNSET

    @classmethod
    def of(cls, comparison: ComparedSchedules, simai: SimaiTotals | None = None) -> Self:
        """The document of a comparison, with SimAI's closed formula if that was asked for."""
        return cls(candidates=tuple(_candidates(comparison)), simai_formula=simai or msgspec.UNSET)

    @classmethod
    def from_plain(cls, raw: dict[str, Any], place: str) -> Self:
        """As for every document; raises StepsimError unless a candidate has run."""
        found = raw.get("candidates")
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise StepsimError(bad_value(place, "candidates", found, "a list of objects"))
        read = [
            _EITHER[each.get("valid") is not True].from_plain(each, f"{place}: candidates[{i}]")
            for i, each in enumerate(found)
        ]
        document = super().from_plain(raw | {"candidates": read}, place)
        if not document.runs:
            raise StepsimError(f"{place}: candidates: none of them ran: expected at least one")
        return document

    @property
    def runs(self) -> tuple[CandidateDocument, ...]:
        """Schedules that run."""
        return tuple(each for each in self.candidates if isinstance(each, CandidateDocument))

    @property
    def refused(self) -> tuple[_RefusedEntry, ...]:
        """Schedules that cannot run."""
        return tuple(each for each in self.candidates if isinstance(each, _RefusedEntry))


def _candidates(comparison: ComparedSchedules) -> Iterator[CandidateDocument | _RefusedEntry]:
    for each in comparison.candidates:
        if each.result is None:
            yield _RefusedEntry(name=each.name, refusal=each.refusal)
        else:
            yield CandidateDocument(
                **asdict(each.result.report),
                name=each.name,
                valid=True,
                speedup=comparison.speedup(each.result),
                exposed_p2p_ps=exposed_p2p_ps(each.result),
            )
