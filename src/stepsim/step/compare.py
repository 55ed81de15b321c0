"""One workload under several pipeline schedules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os.path import isfile
from pathlib import Path
from typing import Any

from stepsim.base.errors import PlanError, ScheduleError
from stepsim.files.load import load_workload
from stepsim.files.simai.formula import SimaiTotals, simai_formula
from stepsim.files.simai.text import read_simai_document
from stepsim.network.topology import Topology
from stepsim.parallel.schedules import options_of, parse_name
from stepsim.step.simulate import SimulatedStep, simulate
from stepsim.workload.axes import Part
from stepsim.workload.rows import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A schedule as the user named it: its result, or why it cannot run this job."""

    name: str
    result: SimulatedStep | None = None
    refusal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSchedules:
    """Candidates in the order asked for; speed-ups are over the first that runs."""

    candidates: tuple[Candidate, ...]

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


def compare(
    workload: Workload | str | Path,
    schedules: Sequence[str],
    topology: Topology | str | Path | None = None,
    **options: Any,
) -> ComparedSchedules:
    """Simulate a workload under each schedule; `options` are those of `simulate`.

    Schedule options go to the schedules that have them. A schedule that cannot run the job is kept
    with its reason. Raises ScheduleError when none can,
    and every other error of `simulate`.
    """
    if not schedules:
        raise ScheduleError("no schedules given: expected names such as 1f1b,interleaved:2")
    workload = workload if isinstance(workload, Workload) else load_workload(workload)
    candidates = []
    names = [name.strip() for name in schedules]
    for name in names:
        _check_name(name)
    asked = options.pop("schedule_options", None) or {}
    for name in names:
        try:
            result = simulate(
                workload,
                topology,
                schedule=name,
                schedule_options=accepted_options(name, asked),
                **options,
            )
            candidates.append(Candidate(name=name, result=result))
        except (ScheduleError, PlanError) as error:
            candidates.append(Candidate(name=name, refusal=str(error)))
    if not any(candidate.result for candidate in candidates):
        raise ScheduleError("; ".join(dict.fromkeys(c.refusal for c in candidates)))
    return ComparedSchedules(candidates=tuple(candidates))


def accepted_options(schedule: str, asked: Mapping[str, object]) -> dict[str, object]:
    """The schedule options asked for that a schedule has."""
    return {name: value for name, value in asked.items() if name in options_of(schedule)}


def _check_name(name: str) -> None:
    """Raise ScheduleError for what is no schedule at all, rather than one that cannot run."""
    if not name.endswith(".csv"):
        parse_name(name)
    elif not isfile(name):
        raise ScheduleError(f"{name}: cannot read the schedule: no such file")


def simai_totals(path: Path, comparison: ComparedSchedules) -> SimaiTotals:
    """SimAI's closed formula of a file for the plan of a comparison, with its default servers."""
    document = read_simai_document(path)
    plan = comparison.valid[0][1].report.plan
    return simai_formula(document, plan, row_count=document.declared_rows)


def exposed_p2p_ps(result: SimulatedStep) -> int:
    """Point-to-point time that compute waited for, mean over ranks, in ps."""
    return result.report.mean_breakdown_ps()[Part.EXPOSED_PP]
