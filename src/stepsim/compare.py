"""One workload under several pipeline schedules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os.path import isfile
from pathlib import Path
from typing import Any

import msgspec

from stepsim.analysis import Part
from stepsim.api import Result, simulate
from stepsim.errors import PlanError, ScheduleError
from stepsim.figure_style import FigureStyle
from stepsim.formats.json_text import json_text
from stepsim.formats.result_json import report_dict
from stepsim.loading import load_workload
from stepsim.report import SCHEMA_VERSION
from stepsim.schedules import options_of, parse_name
from stepsim.simai_formula import SimaiTotals, simai_formula
from stepsim.topology import Topology
from stepsim.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A schedule as the user named it: its result, or why it cannot run this job."""

    name: str
    result: Result | None = None
    refusal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Candidates in the order asked for; speed-ups are over the first that runs."""

    candidates: tuple[Candidate, ...]

    @property
    def valid(self) -> tuple[tuple[str, Result], ...]:
        """Names and results of the candidates that run."""
        return tuple((c.name, c.result) for c in self.candidates if c.result)

    def speedup(self, result: Result) -> float:
        """Step time of the first valid candidate over this one's."""
        return self.valid[0][1].step_time_s / result.step_time_s

    def plot(
        self,
        path: str | Path,
        *,
        messages: bool = False,
        style: FigureStyle | str = FigureStyle.SCREEN,
    ) -> None:
        """Draw all timelines on one time axis, `messages` as arrows; raises OutputError."""
        from stepsim.plots import plot_timelines

        runs = [(result.timeline, result.report) for _, result in self.valid]
        plot_timelines(runs, Path(path), messages=messages, style=style)

    def write_trace(
        self, path: str | Path, *, ranks: Sequence[int] | None = None, command: str = ""
    ) -> None:
        """Write all runs as one trace, as `Result.write_trace` does for one."""
        from stepsim.formats.perfetto import write_trace

        write_trace(
            [result.traced(ranks, name) for name, result in self.valid], Path(path), command
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of all candidates, each once."""
        return tuple(dict.fromkeys(w for _, r in self.valid for w in r.report.warnings))


def comparison_json(comparison: Comparison, simai: SimaiTotals | None = None) -> bytes:
    """The comparison as UTF-8 JSON, see `comparison_dict`."""
    document = comparison_dict(comparison)
    if simai:
        document["simai_formula"] = msgspec.to_builtins(simai)
    return json_text(document)


def comparison_dict(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain data: an entry per candidate, valid (without `ranks`) or refused."""
    return {
        "schema_version": SCHEMA_VERSION,
        "candidates": [_candidate(comparison, candidate) for candidate in comparison.candidates],
    }


def _candidate(comparison: Comparison, candidate: Candidate) -> dict[str, Any]:
    if candidate.result is None:
        return {"name": candidate.name, "valid": False, "refusal": candidate.refusal}
    report = report_dict(candidate.result.report)
    return {
        "name": candidate.name,
        "valid": True,
        "speedup": comparison.speedup(candidate.result),
        "exposed_p2p_ps": exposed_p2p_ps(candidate.result),
        **{key: value for key, value in report.items() if key != "ranks"},
    }


def compare(
    workload: Workload | str | Path,
    schedules: Sequence[str],
    topology: Topology | str | Path | None = None,
    **options: Any,
) -> Comparison:
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
    return Comparison(candidates=tuple(candidates))


def accepted_options(schedule: str, asked: Mapping[str, object]) -> dict[str, object]:
    """The schedule options asked for that a schedule has."""
    return {name: value for name, value in asked.items() if name in options_of(schedule)}


def _check_name(name: str) -> None:
    """Raise ScheduleError for what is no schedule at all, rather than one that cannot run."""
    if not name.endswith(".csv"):
        parse_name(name)
    elif not isfile(name):
        raise ScheduleError(f"{name}: cannot read the schedule: no such file")


def simai_totals(workload: Workload, comparison: Comparison) -> SimaiTotals:
    """SimAI's closed formula for the plan of a comparison, with SimAI's default servers."""
    plan = comparison.valid[0][1].report.plan
    return simai_formula(workload, plan, row_count=workload.declared_rows)


def exposed_p2p_ps(result: Result) -> int:
    """Point-to-point time that compute waited for, mean over ranks, in ps."""
    return result.report.mean_breakdown_ps()[Part.EXPOSED_PP]
