"""Files that a page takes away: the same ones that `stepsim simulate` writes."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from stepsim.base.errors import PlanError
from stepsim.files.asked import StepInputs
from stepsim.step.prepared import SimulatedStep

_NAMES: Mapping[str, str] = {
    "report": "step.html",
    "figure": "step.svg",
    "trace": "step.json.gz",
    "csv": "spans.csv",
    "json": "step.json",
}
EXPORTS = tuple(_NAMES)
"""Kinds of files that a page offers."""


def exported(kind: str, run: SimulatedStep, job: StepInputs, command: str) -> tuple[str, bytes]:
    """Name and content of a file of a run; raises PlanError for an unknown kind."""
    if kind not in _NAMES:
        raise PlanError(f"export is {kind!r}: expected one of {', '.join(_NAMES)}")
    with TemporaryDirectory(prefix="stepsim-") as folder:
        path = Path(folder, _NAMES[kind])
        if kind == "json":
            from stepsim.show.page.lanes import stored

            path.write_bytes(stored(run).to_json())
        elif kind == "csv":
            from stepsim.files.spans_csv import write_spans

            write_spans(run.timeline.spans(), path)
        elif kind == "figure":
            from stepsim.show.figures.timelines import drawn_step, plot_timelines

            plot_timelines([drawn_step(run.timeline, run.report)], path)
        elif kind == "report":
            from stepsim.show.page.write import step_page

            step_page(run, job).write(path, command)
        else:
            from stepsim.show.trace.perfetto import write_trace
            from stepsim.show.trace.processes import TracedRun

            write_trace([TracedRun(run)], path, command)
        return path.name, path.read_bytes()
