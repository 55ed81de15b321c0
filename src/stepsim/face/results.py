"""Results of the Python interface: the nouns of the program, and the ways to look at them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stepsim.base.fields import checked
from stepsim.base.structs import Document, File, Names
from stepsim.documents.table import Sheet
from stepsim.explore.noise.draws import NoiseDocument, NoiseResult
from stepsim.explore.sensitivity import Sensitivity
from stepsim.face.described import opened
from stepsim.face.viewed import Drawn, Viewed, taken_as
from stepsim.files.asked import StepInputs
from stepsim.files.spans_csv import span_lines
from stepsim.measured.profile.events import Profile
from stepsim.show.figures.style import FigureStyle
from stepsim.show.frames import Columns, Tables, columns_of_rows, tables_of
from stepsim.step.against import StepAgainst, hold_against
from stepsim.step.compare import ComparedSchedules, ComparisonDocument
from stepsim.step.prepared import SimulatedStep
from stepsim.views.against import against_shown
from stepsim.views.answer import answer_of
from stepsim.views.comparison import comparison_shown
from stepsim.views.lanes import stored
from stepsim.views.step import step_tables
from stepsim.views.studies import noise_shown, plot_noise, plot_sensitivity, sensitivity_shown
from stepsim.views.timelines import plot_against

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Result(Viewed, SimulatedStep):
    """A simulated step, and the ways to see it; `inputs` are None for a replay.

    `memory` says what ranks hold, in bytes, and whether it `fits`; None where nobody said.
    """

    inputs: StepInputs | None = None

    def __repr__(self) -> str:
        """One line, for shells: the report and its spans are long."""
        return f"<Result {'; '.join(answer_of(self.report).lines)}>"

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens per second of one GPU; None where the workload is no model."""
        rates = self.report.throughput
        return rates.tokens_per_s if rates else None

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation, a share; None where the workload is no model."""
        rates = self.report.throughput
        return rates.mfu if rates else None

    @property
    def warnings(self) -> Names:
        """What a reader should know of the input, the weightiest first."""
        return self.report.said

    def _document(self) -> Document:
        return stored(self)

    def _shown(self) -> Sheet:
        return step_tables(self.report, len(self.ranks.actors)).values()

    def _said(self) -> Sequence[str]:
        return *answer_of(self.report).lines, *self.warnings

    def _tables(self) -> Tables:
        return {"spans": self._spans, **tables_of(self.document())}

    def _spans(self) -> Columns:
        header, *rows = span_lines(self.timeline.spans())
        return columns_of_rows([str(name) for name in header], rows)

    @checked
    def plot(
        self,
        path: File | None = None,
        *,
        messages: bool = False,
        style: FigureStyle | str = FigureStyle.SCREEN,
    ) -> "Figure":
        """The pipeline timeline, `messages` as arrows; with a path also a .png, .svg or .pdf file.

        `style` is `screen`, or a paper's `column` or `page`. Raises OutputError when the file
        cannot be written.
        """
        from stepsim.show.figures.timelines import plot_timelines
        from stepsim.views.timelines import drawn_step

        runs = [drawn_step(self.timeline, self.report)]
        return plot_timelines(runs, path, messages=messages, style=style)

    @checked
    def plot_memory(
        self,
        path: File | None = None,
        *,
        style: FigureStyle | str = FigureStyle.SCREEN,
    ) -> "Figure":
        """What ranks hold over time; raises PlanError where nothing says it, OutputError."""
        from stepsim.views.memory import plot_memory

        return plot_memory(self, path, style=style)

    @checked
    def write_report(self, path: File) -> None:
        """Write everything there is to see as one HTML page; raises OutputError."""
        from stepsim.views.pages import step_page

        step_page(self, self.inputs).write(path)

    @checked
    def write_trace(
        self,
        path: File,
        *,
        ranks: Sequence[int] | None = None,
        window: str | None = None,
        command: str = "",
    ) -> None:
        """Write a trace for Perfetto (.json, .json.gz): every class of ranks, or those of `ranks`.

        `window` is a part of the step, e.g. `2s..3s`. `command` is kept in it. Raises PlanError for
        ranks the job does not have and for a window behind the step, OutputError.
        """
        from stepsim.show.perfetto import write_trace
        from stepsim.views.processes import TracedRun, trace_processes
        from stepsim.views.window import WHOLE, parse_window

        shown = WHOLE if window is None else parse_window(window)
        write_trace(trace_processes([TracedRun(self, ranks, shown)]), Path(path), command)

    @checked
    def against(self, trace: Profile | File) -> "AgainstResult":
        """The step beside a recorded one: a profile, read already or by its path.

        Raises PlanError where the recording is of another job, TraceError where it cannot be read.
        """
        from stepsim.files.measured import load_profile

        return taken_as(AgainstResult, hold_against(self, opened(trace, load_profile)))


class AgainstResult(Drawn, StepAgainst):
    """A simulated step beside a recorded one, and the ways to see both.

    `plot` draws both timelines on one axis.
    """

    def _document(self) -> Document:
        return self.against

    def _shown(self) -> Sheet:
        return against_shown(self.against)

    def _said(self) -> Sequence[str]:
        return self.against.notes

    _draw = plot_against

    @checked
    def write_report(self, path: File) -> None:
        """Write both timelines and every row as one HTML page; raises OutputError."""
        from stepsim.views.pages import against_page

        against_page(self).write(path)


class Comparison(Viewed, ComparedSchedules):
    """Candidates in the order asked for, and the ways to see them."""

    inputs: StepInputs

    _kind = ComparisonDocument

    def _shown(self) -> Sheet:
        return comparison_shown(ComparisonDocument.of(self))

    @checked
    def plot(
        self,
        path: File | None = None,
        *,
        messages: bool = False,
        style: FigureStyle | str = FigureStyle.SCREEN,
    ) -> "Figure":
        """All timelines on one time axis, as `Result.plot` draws one."""
        from stepsim.show.figures.timelines import plot_timelines
        from stepsim.views.timelines import drawn_step

        runs = [drawn_step(step.timeline, step.report) for _, step in self.valid]
        return plot_timelines(runs, path, messages=messages, style=style)

    @checked
    def write_report(self, path: File) -> None:
        """Write everything there is to see as one HTML page; raises OutputError."""
        from stepsim.views.pages import comparison_page

        comparison_page(self, self.inputs).write(path)


# to_json gives bytes of documents and a text of results
class SensitivityResult(Drawn, Sensitivity):  # type: ignore[misc]
    """What each parameter is worth, and the ways to see it; `plot` draws a bar per parameter."""

    _kind = Sensitivity

    _shown = sensitivity_shown

    _draw = plot_sensitivity

    @checked
    def write_report(self, path: File) -> None:
        """Write everything there is to see as one HTML page; raises OutputError."""
        from stepsim.views.pages import sensitivity_page

        sensitivity_page(self).write(path)


class NoiseDistribution(Drawn, NoiseResult, eq=False):
    """Step times under noise, and the ways to see them; `plot` draws a histogram."""

    _kind = NoiseDocument

    _shown = noise_shown

    def _tables(self) -> Tables:
        return {"samples": lambda: {"step_time_ps": self.step_time_ps.tolist()}}

    _draw = plot_noise
