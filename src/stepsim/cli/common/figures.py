"""Options of commands that show timelines: figures, traces, pages that show everything."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stepsim.base.errors import OutputError, PlanError
from stepsim.base.records import dataclass
from stepsim.cli.common.terminal import command_line
from stepsim.show.figures.style import FigureStyle

if TYPE_CHECKING:
    from stepsim.step.simulate import SimulatedStep

PlotOption = Annotated[
    Path | None, typer.Option("--plot", help="Draw timelines: .png, .svg or .pdf.")
]
PlotMemoryOption = Annotated[
    Path | None,
    typer.Option("--plot-memory", help="Draw memory of ranks over time: .png, .svg or .pdf."),
]
MessagesOption = Annotated[
    bool, typer.Option("--messages", help="Draw an arrow for every message, with --plot.")
]
ReportOption = Annotated[
    Path | None, typer.Option("--report", help="Write the full report as one HTML page.")
]
TraceOption = Annotated[
    Path | None, typer.Option("--trace", help="Write a trace for Perfetto: .json or .json.gz.")
]
RanksOption = Annotated[
    str | None,
    typer.Option(
        "--ranks", help="Ranks in the trace, e.g. 0,8-15.", show_default="one of each class"
    ),
]
StyleOption = Annotated[
    FigureStyle,
    typer.Option(
        "--style",
        help="Size of figures: screen, or a paper's column (3.3 in) or page (7 in).",
    ),
]


def check_messages(messages: bool, plot: Path | None) -> None:
    """Raise OutputError when arrows are asked for and no figure."""
    if messages and not plot:
        raise OutputError("--messages draws arrows into a figure: name one with --plot")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOutput:
    """Where a trace goes, and which ranks it shows: None for one of each class."""

    path: Path
    ranks: tuple[int, ...] | None

    def write(self, steps: "Iterable[tuple[str, SimulatedStep]]") -> None:
        """Write named steps as one trace; raises PlanError for ranks that a job does not have."""
        from stepsim.show.trace.perfetto import write_trace
        from stepsim.show.trace.processes import traced

        runs = [traced(step, self.ranks, name) for name, step in steps]
        write_trace(runs, self.path, command_line())


def check_trace(trace: Path | None, ranks: str | None) -> TraceOutput | None:
    """What was asked for; raises OutputError for no trace's name, PlanError for no ranks."""
    if trace is None:
        if ranks is not None:
            raise PlanError("--ranks chooses what a trace shows: name one with --trace")
        return None
    from stepsim.network.one_collective import parse_ranks
    from stepsim.show.trace.perfetto import check_trace_path

    check_trace_path(trace)
    return TraceOutput(path=trace, ranks=None if ranks is None else parse_ranks(ranks))
