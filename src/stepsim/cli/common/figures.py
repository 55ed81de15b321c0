"""Options of commands that show timelines: figures, traces, pages that show everything."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from stepsim.base.errors import OutputError, PlanError
from stepsim.base.units import format_size_bytes
from stepsim.cli.common.terminal import command_line, warn
from stepsim.show.figures.style import FigureStyle

if TYPE_CHECKING:
    from stepsim.measured.profile.events import Profile
    from stepsim.show.trace.processes import TracedProfile, TracedRun
    from stepsim.show.trace.window import Window
    from stepsim.step.simulate import SimulatedStep

_LARGE_BYTES = 200_000_000

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
WindowOption = Annotated[
    str | None,
    typer.Option(
        "--window", help="Part of the step in the trace, e.g. 2s..3s.", show_default="all of it"
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


class TraceOutput(Struct, frozen=True, kw_only=True):
    """Where a trace goes, and what it shows: `ranks` is None for one of each class."""

    path: Path
    ranks: tuple[int, ...] | None
    window: "Window"

    def write(self, steps: "Iterable[tuple[str, SimulatedStep]]", *, quiet: bool = False) -> None:
        """Write named steps as one trace, and say before if it will be large.

        Raises PlanError for ranks that a job does not have, or a window behind a step.
        """
        from stepsim.show.trace.processes import traced

        self._write([traced(s, self.ranks, self.window, name) for name, s in steps], quiet=quiet)

    def write_profile(self, profile: "Profile", *, quiet: bool = False) -> None:
        """Write a profile as a trace, as `write` does."""
        from stepsim.show.trace.processes import TracedProfile

        run = TracedProfile(profile=profile, ranks=self.ranks, window=self.window)
        self._write([run], quiet=quiet)

    def _write(self, runs: "Sequence[TracedRun | TracedProfile]", *, quiet: bool) -> None:
        """Write runs as one trace, and say before if it will be large."""
        from stepsim.show.trace.perfetto import trace_bytes, write_trace

        size_bytes = trace_bytes(sum(run.slices for run in runs), self.path)
        if size_bytes > _LARGE_BYTES:
            text = f"{self.path} will have about {format_size_bytes(size_bytes)}"
            warn([f"{text}: --window and --ranks show less, .json.gz packs"], quiet=quiet)
        write_trace(runs, self.path, command_line())


def check_trace(trace: Path | None, ranks: str | None, window: str | None) -> TraceOutput | None:
    """What was asked for; raises OutputError for no trace's name, PlanError for what it shows."""
    if trace is None:
        for name, text in (("--ranks", ranks), ("--window", window)):
            if text is not None:
                raise PlanError(f"{name} chooses what a trace shows: name one with --trace")
        return None
    from stepsim.network.one_collective import parse_ranks
    from stepsim.show.trace.perfetto import check_trace_path
    from stepsim.show.trace.window import WHOLE, parse_window

    check_trace_path(trace)
    return TraceOutput(
        path=trace,
        ranks=None if ranks is None else parse_ranks(ranks),
        window=WHOLE if window is None else parse_window(window),
    )


def write_traces(
    step: "SimulatedStep", source: str, chakra: Path | None, kineto: Path | None
) -> None:
    """Write all ranks of a step as the traces that other tools read.

    Raises PlanError for a step of too many tasks, OutputError where a folder cannot be written.
    """
    from stepsim.results.as_profile import profile_of_step

    write_profile_traces(profile_of_step(step.timeline, step.prices, source=source), chakra, kineto)


def write_profile_traces(profile: "Profile", chakra: Path | None, kineto: Path | None) -> None:
    """Write a profile as the traces that other tools read; raises OutputError."""
    from stepsim.files.traces.chakra_write import write_chakra
    from stepsim.files.traces.kineto_write import write_kineto

    if chakra:
        write_chakra(profile, chakra)
    if kineto:
        write_kineto(profile, kineto)
