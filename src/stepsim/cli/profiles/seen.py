"""`stepsim inspect` and `stepsim simulate` of profiles."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from stepsim.base.errors import PlanError
from stepsim.cli.common.terminal import check_outputs, show, warn

if TYPE_CHECKING:
    from stepsim.measured.profile.events import Profile
    from stepsim.measured.profile.stragglers import Stragglers
    from stepsim.show.tables.model import Shown


def inspect_profile(
    path: Path, *, json: str | None = None, csv: Path | None = None, quiet: bool = False
) -> None:
    """Print where the steps of a profile go, and which workers are slow.

    Of a profile without times, what it holds.
    """
    from stepsim.measured.profile.contents import ContentsDocument
    from stepsim.show.tables.profiles import contents_shown, profile_shown

    check_outputs([path], json=json, files=[csv])
    profile = read_with_progress(path, quiet=quiet)
    if profile.is_timed:
        _show_profile(profile, profile_shown, json=json, csv=csv, quiet=quiet)
        return
    warn(profile.warnings, quiet=quiet)
    show(json, lambda: ContentsDocument.of(profile).to_json(), contents_shown(profile), csv)


def simulate_profile(path: Path, *, json: str | None = None, quiet: bool = False) -> None:
    """Replay every step of a profile."""
    from stepsim.show.tables.profiles import profile_replay_shown

    check_outputs([path], json=json)
    profile = read_with_progress(path, quiet=quiet)
    _show_profile(profile, profile_replay_shown, json=json, quiet=quiet)


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


def _show_profile(
    profile: "Profile",
    tables: "Callable[[Stragglers], Iterable[Shown]]",
    *,
    json: str | None,
    csv: Path | None = None,
    quiet: bool,
) -> None:
    from stepsim.measured.profile.document import ProfileDocument
    from stepsim.measured.profile.pipeline import pipeline_waits
    from stepsim.measured.profile.stragglers import find_stragglers

    warn(profile.warnings, quiet=quiet)
    found = find_stragglers(pipeline_waits(profile))
    show(json, lambda: ProfileDocument.of(found).to_json(), tables(found), csv)
