"""One workload under several pipeline schedules."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from stepsim.base.errors import PlanError, ScheduleError
from stepsim.base.structs import replace
from stepsim.engine.run import OnProgress
from stepsim.files.simai.formula import SimaiTotals, simai_formula
from stepsim.files.simai.text import read_simai_document
from stepsim.network.topology import Topology
from stepsim.options import StepOptions
from stepsim.parallel.schedules import Schedule
from stepsim.step.inputs import for_schedule
from stepsim.step.simulate import SimulatedStep, simulate_step
from stepsim.step.work import WorkSource, held_degrees
from stepsim.workload.axes import Part

_DEFAULTS = StepOptions()


class _Candidate(Struct, frozen=True, kw_only=True):
    """A schedule as the user named it: its result, or why it cannot run this job."""

    name: str
    result: SimulatedStep | None = None
    refusal: str = ""


class ComparedSchedules(Struct, frozen=True, kw_only=True):
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
    def warnings(self) -> tuple[str, ...]:
        """Warnings of all candidates, each once."""
        return tuple(dict.fromkeys(w for _, r in self.valid for w in r.report.warnings))


def compare_schedules(
    workload: WorkSource,
    topology: Topology,
    schedules: Sequence[tuple[str, str | Schedule]],
    options: StepOptions = _DEFAULTS,
    *,
    notes: Sequence[str] = (),
    progress: OnProgress | None = None,
) -> ComparedSchedules:
    """Simulate a workload under each of some schedules, which have a name or a noun.

    Schedule options go to the schedules that have them. A schedule that cannot run the job is kept
    with its reason. Raises ScheduleError when none can, and every other error of `simulate`.
    """
    if not schedules:
        raise ScheduleError("no schedules given: expected names such as 1f1b,interleaved:2")
    degrees, said = held_degrees(workload, topology, options)
    options = replace(options, **degrees)
    candidates = []
    for name, schedule in schedules:
        asked = for_schedule(options, schedule)
        try:
            result = simulate_step(
                workload, topology, asked, notes=[*notes, *said], weigh=True, progress=progress
            )
            candidates.append(_Candidate(name=name, result=result))
        except (ScheduleError, PlanError) as error:
            candidates.append(_Candidate(name=name, refusal=str(error)))
    if not any(candidate.result for candidate in candidates):
        raise ScheduleError("; ".join(dict.fromkeys(c.refusal for c in candidates)))
    return ComparedSchedules(candidates=tuple(candidates))


def simai_totals(path: Path, comparison: ComparedSchedules) -> SimaiTotals:
    """SimAI's closed formula of a file for the plan of a comparison, with its default servers."""
    document = read_simai_document(path)
    plan = comparison.valid[0][1].plan
    return simai_formula(document, plan, row_count=document.declared_rows)


def exposed_p2p_ps(result: SimulatedStep) -> int:
    """Point-to-point time that compute waited for, mean over ranks, in ps."""
    return result.report.breakdown_ps[Part.EXPOSED_PP.key]
