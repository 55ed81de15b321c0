"""Profiles from Python: where steps go, which workers are slow, and what would help."""

from collections.abc import Iterable
from pathlib import Path

from stepsim.base.arguments import checked
from stepsim.base.documents import Document
from stepsim.explain.improve import Improvements, ImprovementsDocument, improve_profile
from stepsim.explain.profile_document import ProfileDocument
from stepsim.explain.stragglers import Stragglers, find_stragglers
from stepsim.face.viewed import Viewed, taken_as
from stepsim.files.measured import load_profile
from stepsim.measured.profile.events import Profile
from stepsim.measured.profile.pipeline import pipeline_waits
from stepsim.show.tables.model import Shown
from stepsim.show.tables.profiles import improvements_shown, profile_replay_shown

__all__ = ["improve", "load_profile", "stragglers"]


class ImprovementsResult(Viewed, Improvements, frozen=True, kw_only=True, eq=False):
    """Changes of a profile, and the ways to see them."""

    def _document(self) -> Document:
        return ImprovementsDocument.of(self)

    def _shown(self) -> Iterable[Shown]:
        return improvements_shown(self)

    @checked
    def write_report(self, path: str | Path) -> None:
        """Write everything there is to see as one HTML page; raises OutputError."""
        from stepsim.show.page.write import write_improvements

        write_improvements(self, path, command="")


class StragglersResult(Viewed, Stragglers, frozen=True, kw_only=True, eq=False):
    """What the slow workers of a profile cost, and the ways to see it."""

    def _document(self) -> Document:
        return ProfileDocument.of(self)

    def _shown(self) -> Iterable[Shown]:
        return profile_replay_shown(self)


@checked
def stragglers(run: Profile | str | Path) -> StragglersResult:
    """Every step of a profile replayed, and what its slow workers cost.

    Raises TraceError for profiles that cannot be read or replayed.
    """
    return taken_as(StragglersResult, find_stragglers(pipeline_waits(_profile(run))))


@checked
def improve(run: Profile | str | Path, *, node_size: int | None = None) -> ImprovementsResult:
    """Named changes of a profile, ranked by what they would gain.

    `node_size` is the ranks per node where the profile does not tell them. Raises TraceError for
    profiles that cannot be read or replayed.
    """
    return taken_as(ImprovementsResult, improve_profile(_profile(run).on_nodes(node_size)))


def _profile(run: Profile | str | Path) -> Profile:
    return run if isinstance(run, Profile) else load_profile(run)
