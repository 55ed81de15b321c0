"""One workload under several pipeline schedules.

`stepsim compare --json` writes the comparison as a document.
"""

from collections.abc import Sequence
from math import gcd
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from msgspec import Meta
from msgspec.structs import asdict

from stepsim.base.axes import Part
from stepsim.base.errors import PlanError, ScheduleError, StepsimError, bad_value
from stepsim.base.structs import Document, Entry, Names, Noun, Picoseconds, Values, replace
from stepsim.explain.report import Report
from stepsim.files.asked import StepInputs
from stepsim.parallel.inspection import inspect_workload
from stepsim.parallel.schedules import Schedule
from stepsim.step.doubts import weighed
from stepsim.step.job import Job, for_schedule, held_degrees, job_of
from stepsim.step.prepared import SimulatedStep, prepare
from stepsim.workload.model.model import Model
from stepsim.workload.rows import Workload

if TYPE_CHECKING:
    from stepsim.core.events import OnProgress


class _Candidate(Noun):
    """A schedule as the user named it: its result, or why it cannot run this job."""

    name: str
    result: SimulatedStep | None = None
    refusal: str = ""


class ComparedSchedules(Noun):
    """Candidates in the order asked for; speed-ups are over the first that runs."""

    candidates: tuple[_Candidate, ...]

    @property
    def valid(self) -> tuple[tuple[str, SimulatedStep], ...]:
        """Names and results of the candidates that run."""
        return tuple((c.name, c.result) for c in self.candidates if c.result)

    def speedup(self, result: SimulatedStep) -> float:
        """Step time of the first valid candidate over this one's."""
        return self.valid[0][1].step_time_s / result.step_time_s

    @property
    def warnings(self) -> Names:
        """Warnings of all candidates, each once."""
        return tuple(dict.fromkeys(w for _, r in self.valid for w in r.report.warnings))


_PLAIN, _LEAST_PP = "1f1b", 2
# Schedules that are compared with 1F1B and its interleaved forms where nobody names any.
_USUAL = ("zb-h1", "zb-v", "dualpipe-v")
_MOST_CHUNKS = 8
# How many interleaved forms are compared.
_INTERLEAVED = 2


def compare_schedules(
    asked: StepInputs,
    schedules: Sequence[tuple[str, str | Schedule]] | None,
    progress: "OnProgress | None" = None,
    *,
    weigh: bool = False,
) -> ComparedSchedules:
    """Simulate a workload under each of some schedules, which have a name or a noun.

    Without any those are taken that are usual for the job, of a recorded run its own order first. A
    model of which no degree is given takes a plan with a pipeline: without one all schedules are
    alike. Schedule options go to the schedules that have them. A schedule that cannot run the job
    is kept with its reason. What doubts about the input are worth is said by the report of the
    first that runs, with `weigh` by each. Raises ScheduleError when none can, and the other errors
    of `simulate`.
    """
    if schedules is not None and not schedules:
        raise ScheduleError("no schedules given: expected names such as 1f1b,interleaved:2")
    # the plan that all schedules have where it is not said: that of 1F1B, with a pipeline
    plain = replace(asked, options=for_schedule(asked.options, _PLAIN))
    degrees, said = held_degrees(plain, least_pp=_LEAST_PP)
    if schedules is None:
        job = job_of(plain.asking(**degrees))
        usual: list[str | Schedule] = [*_usual_schedules(job)]
        if not isinstance(asked.workload, Workload | Model):
            usual = [
                asked.options.schedule,
                _PLAIN,
                "interleaved:2",
                *usual,
            ]  # layers are seldom told
        named = {each.label if isinstance(each, Schedule) else each: each for each in usual}
        schedules = [*named.items()]
    asked = asked.asking(*said, **degrees)
    candidates = list[_Candidate]()
    for name, schedule in schedules:
        other = replace(asked, options=for_schedule(asked.options, schedule))
        try:
            ready = prepare(other)
            result = ready.reported(ready.timeline(progress), weigh=True)
            if weigh or not any(candidate.result for candidate in candidates):
                result = replace(result, report=weighed(result.report, ready))
            candidates.append(_Candidate(name=name, result=result))
        except (ScheduleError, PlanError) as error:
            candidates.append(_Candidate(name=name, refusal=str(error)))
    if not any(candidate.result for candidate in candidates):
        raise ScheduleError("; ".join(dict.fromkeys(c.refusal for c in candidates)))
    return ComparedSchedules(candidates=tuple(candidates))


def _usual_schedules(job: Job) -> list[str]:
    """Names of schedules to compare for a job where nobody names any.

    Interleaved forms have the fewest chunks that divide the layers of a rank: none where none do.
    """
    layers = gcd(*inspect_workload(job.workload, job.plan).layers_per_stage)
    chunks = [n for n in range(2, _MOST_CHUNKS + 1) if layers % n == 0]
    return [_PLAIN, *(f"interleaved:{n}" for n in chunks[:_INTERLEAVED]), *_USUAL]


class CandidateDocument(Report, kw_only=False):
    """A schedule that runs; `speedup` is over the first that does."""

    # msgspec writes fields that are not by keyword only first: these stand before the others
    name: str
    valid: Annotated[bool, Meta(extra_json_schema={"const": True})]
    speedup: float
    exposed_p2p_ps: Picoseconds = 0


class _RefusedEntry(Entry):
    """A schedule that cannot run the job, and why."""

    name: str
    valid: Annotated[bool, Meta(extra_json_schema={"const": False})] = False
    refusal: str


_EITHER = (CandidateDocument, _RefusedEntry)
# One of two types that no key of text tells apart, as msgspec wants it.
_AnyCandidate = Annotated[
    Any,
    Meta(extra_json_schema={"anyOf": [{"$ref": f"#/$defs/{each.__name__}"} for each in _EITHER]}),
]


class ComparisonDocument(Document):
    """`stepsim compare --json`: one workload under several schedules, in the order asked for."""

    named: ClassVar[tuple[type, ...]] = (*_EITHER, *Report.named)

    candidates: tuple[_AnyCandidate, ...]

    @classmethod
    def of(cls, comparison: ComparedSchedules) -> Self:
        """The document of a comparison."""
        return cls(
            candidates=tuple(
                _RefusedEntry(name=each.name, refusal=each.refusal)
                if each.result is None
                else CandidateDocument(
                    **asdict(each.result.report),
                    name=each.name,
                    valid=True,
                    speedup=comparison.speedup(each.result),
                    exposed_p2p_ps=each.result.report.breakdown_ps[Part.EXPOSED_PP.key],
                )
                for each in comparison.candidates
            )
        )

    @classmethod
    def from_plain(cls, raw: Values, place: str) -> Self:
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
