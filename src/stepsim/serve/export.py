"""Files that a page takes away: the same ones that `stepsim simulate` writes."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from stepsim.base.errors import PlanError
from stepsim.files.asked import StepInputs
from stepsim.step.prepared import SimulatedStep

EXPORTS: Mapping[str, str] = {
    "report": "step.html",
    "figure": "step.svg",
    "trace": "step.json.gz",
    "csv": "spans.csv",
    "json": "step.json",
}
"""Kinds of files that a page offers, and what they are called."""


def exported(kind: str, run: SimulatedStep, job: StepInputs, command: str) -> bytes:
    """The content of a file of a run; raises PlanError for an unknown kind."""
    if kind not in EXPORTS:
        raise PlanError(f"export is {kind!r}: expected one of {', '.join(EXPORTS)}")
    with TemporaryDirectory(prefix="stepsim-") as folder:
        path = Path(folder, EXPORTS[kind])
        if kind == "json":
            from stepsim.views.lanes import stored

            path.write_bytes(stored(run).to_json())
        elif kind == "csv":
            from stepsim.files.spans_csv import write_spans

            write_spans(run.timeline.spans(), path)
        elif kind == "figure":
            from stepsim.show.figures.timelines import plot_timelines
            from stepsim.views.timelines import drawn_step

            plot_timelines([drawn_step(run.timeline, run.report)], path)
        elif kind == "report":
            from stepsim.views.pages import step_page

            step_page(run, job).write(path, command)
        else:
            from stepsim.show.perfetto import write_trace
            from stepsim.views.processes import TracedRun, trace_processes

            write_trace(trace_processes([TracedRun(run)]), path, command)
        return path.read_bytes()
