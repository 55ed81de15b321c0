"""`stepsim inspect` and `stepsim simulate` of profiles."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from stepsim.base.errors import PlanError
from stepsim.cli.common.figures import TraceOutput, write_profile_traces
from stepsim.cli.common.terminal import check_outputs, command_line, show, warn
from stepsim.show.figures.style import FigureStyle

if TYPE_CHECKING:
    from stepsim.explain.stragglers import Stragglers
    from stepsim.measured.profile.events import Profile
    from stepsim.show.tables.model import Shown


class ProfileViews(Struct, frozen=True, kw_only=True):
    """Files to write of what a profile recorded; None for those that were not asked for."""

    plot: Path | None = None
    csv: Path | None = None
    trace: TraceOutput | None = None
    report: Path | None = None
    chakra: Path | None = None
    kineto: Path | None = None
    style: FigureStyle = FigureStyle.SCREEN

    def write(self, found: "Stragglers", *, quiet: bool) -> None:
        """Write them; raises OutputError where one cannot be written."""
        profile = found.profile
        if self.trace:
            self.trace.write_profile(profile, quiet=quiet)
        if self.chakra or self.kineto:
            write_profile_traces(profile, self.chakra, self.kineto)
        if self.plot:
            from stepsim.show.figures.timelines import drawn_profile, plot_timelines

            plot_timelines([drawn_profile(profile)], self.plot, style=self.style)
        if self.csv:
            from stepsim.files.spans_csv import write_spans

            write_spans([profile.spans()], self.csv)
        if self.report:
            from stepsim.show.page.write import write_profile

            write_profile(found, self.report, command=command_line())


def inspect_profile(
    path: Path, *, json: str | None = None, csv: Path | None = None, quiet: bool = False
) -> None:
    """Print where the steps of a profile go, and which workers are slow.

    Of a profile without times, what it holds.
    """
    from stepsim.explain.contents import ContentsDocument
    from stepsim.show.tables.profiles import contents_shown, profile_shown

    check_outputs([path], json=json, files=[csv])
    profile = read_with_progress(path, quiet=quiet)
    if profile.is_timed:
        found = _stragglers(profile, quiet=quiet)
        _show_profile(found, profile_shown(found), json=json, csv=csv)
        return
    warn(profile.warnings, quiet=quiet)
    show(json, lambda: ContentsDocument.of(profile).to_json(), contents_shown(profile), csv)


def simulate_profile(
    path: Path, views: ProfileViews, *, json: str | None = None, quiet: bool = False
) -> None:
    """Replay every step of a profile, and show what was recorded."""
    from stepsim.show.tables.profiles import profile_replay_shown

    found = _stragglers(read_with_progress(path, quiet=quiet), quiet=quiet)
    views.write(found, quiet=quiet)
    _show_profile(found, profile_replay_shown(found), json=json)


def read_with_progress(path: Path, *, quiet: bool = False) -> "Profile":
    """Read a profile; a bar on stderr counts the files of a folder."""
    from stepsim.files.measured import load_profile
    from stepsim.show.terminal.progress import progress_bar

    with progress_bar("reading traces", enabled=not quiet) as progress:
        return load_profile(path, progress=progress)


def refuse_for_profiles(path: Path, **given: object) -> None:
    """Raise PlanError for options that do nothing for a profile."""
    asked = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
    if asked:
        raise PlanError(f"{path}: a profile is replayed as it ran: leave out {', '.join(asked)}")


def _stragglers(profile: "Profile", *, quiet: bool) -> "Stragglers":
    """What slows the steps of a profile, once it is said what is wrong with it."""
    from stepsim.explain.stragglers import find_stragglers
    from stepsim.measured.profile.pipeline import pipeline_waits

    warn(profile.warnings, quiet=quiet)
    return find_stragglers(pipeline_waits(profile))


def _show_profile(
    found: "Stragglers",
    tables: "Iterable[Shown]",
    *,
    json: str | None,
    csv: Path | None = None,
) -> None:
    from stepsim.explain.profile_document import ProfileDocument

    show(json, lambda: ProfileDocument.of(found).to_json(), tables, csv)
