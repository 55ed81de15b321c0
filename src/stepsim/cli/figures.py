"""Options of commands that show timelines: figures, traces, pages that show everything."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Protocol

import typer

from stepsim.cli.terminal import command_line
from stepsim.errors import OutputError, PlanError
from stepsim.figure_style import FigureStyle

PlotOption = Annotated[
    Path | None, typer.Option("--plot", help="Draw timelines: .png, .svg or .pdf.")
]
MessagesOption = Annotated[
    bool, typer.Option("--messages", help="Draw an arrow for every message, with --plot.")
]
ReportOption = Annotated[
    Path | None, typer.Option("--report", help="Write all there is to see as one HTML page.")
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
        help="Width and type of figures: screen, or a paper's column (3.3 in) or page (7 in).",
    ),
]


def check_messages(messages: bool, plot: Path | None) -> None:
    """Raise OutputError when arrows are asked for and no figure."""
    if messages and not plot:
        raise OutputError("--messages draws arrows into a figure: name one with --plot")


class Traceable(Protocol):
    """A result that can be written as a trace."""

    def write_trace(
        self, path: Path, *, ranks: Sequence[int] | None = None, command: str = ""
    ) -> None:
        """Write it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOutput:
    """Where a trace goes, and which ranks it shows: None for one of each class."""

    path: Path
    ranks: tuple[int, ...] | None

    def write(self, result: Traceable) -> None:
        """Write the trace of a result; raises PlanError for ranks that its job does not have."""
        result.write_trace(self.path, ranks=self.ranks, command=command_line())


def check_trace(trace: Path | None, ranks: str | None) -> TraceOutput | None:
    """What was asked for; raises OutputError for no trace's name, PlanError for no ranks."""
    if trace is None:
        if ranks is not None:
            raise PlanError("--ranks chooses what a trace shows: name one with --trace")
        return None
    from stepsim.collective_probe import parse_ranks
    from stepsim.formats.perfetto import check_trace_path

    check_trace_path(trace)
    return TraceOutput(path=trace, ranks=None if ranks is None else parse_ranks(ranks))
