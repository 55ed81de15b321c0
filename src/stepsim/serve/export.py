"""Files that a page takes away: the same ones that `stepsim simulate` writes."""

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from stepsim.base.errors import PlanError
from stepsim.files.asked import StepInputs
from stepsim.step.prepared import SimulatedStep

_Writer = Callable[[SimulatedStep, StepInputs, Path, str], None]


def exported(kind: str, run: SimulatedStep, job: StepInputs, command: str) -> tuple[str, bytes]:
    """Name and content of a file of a run; raises PlanError for an unknown kind."""
    if kind not in _WRITERS:
        raise PlanError(f"export is {kind!r}: expected one of {', '.join(_WRITERS)}")
    name, write = _WRITERS[kind]
    with TemporaryDirectory(prefix="stepsim-") as folder:
        path = Path(folder, name)
        write(run, job, path, command)
        return name, path.read_bytes()


def _json(run: SimulatedStep, job: StepInputs, path: Path, command: str) -> None:
    path.write_bytes(run.document().to_json())


def _csv(run: SimulatedStep, job: StepInputs, path: Path, command: str) -> None:
    from stepsim.files.spans_csv import write_spans

    write_spans(run.timeline.spans(), path)


def _figure(run: SimulatedStep, job: StepInputs, path: Path, command: str) -> None:
    from stepsim.show.figures.style import FigureStyle
    from stepsim.show.figures.timelines import drawn_step, plot_timelines

    plot_timelines([drawn_step(run.timeline, run.report)], path, style=FigureStyle.SCREEN)


def _report(run: SimulatedStep, job: StepInputs, path: Path, command: str) -> None:
    from stepsim.show.page.write import find_what_if, write_step

    write_step(run, path, command=command, what_if=find_what_if(job))


def _trace(run: SimulatedStep, job: StepInputs, path: Path, command: str) -> None:
    from stepsim.show.trace.perfetto import write_trace
    from stepsim.show.trace.processes import traced

    write_trace([traced(run, None)], path, command)


_WRITERS: Mapping[str, tuple[str, _Writer]] = MappingProxyType(
    {
        "report": ("step.html", _report),
        "figure": ("step.svg", _figure),
        "trace": ("step.json.gz", _trace),
        "csv": ("spans.csv", _csv),
        "json": ("step.json", _json),
    }
)
EXPORTS = tuple(_WRITERS)
"""Kinds of files that a page offers."""
