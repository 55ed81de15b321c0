"""Profiles from Python: where steps go, which workers are slow, and what would help."""

from pathlib import Path

from stepsim.files.measured import load_profile
from stepsim.measured.profile.events import Profile
from stepsim.measured.profile.pipeline import pipeline_waits
from stepsim.measured.profile.stragglers import Stragglers, find_stragglers
from stepsim.validation.improve import Improvements, improve_profile

__all__ = ["improve", "load_profile", "stragglers"]


def stragglers(run: Profile | str | Path) -> Stragglers:
    """Every step of a profile replayed, and what its slow workers cost.

    Raises TraceError for profiles that cannot be read or replayed.
    """
    return find_stragglers(pipeline_waits(_profile(run)))


def improve(run: Profile | str | Path) -> Improvements:
    """Named changes of a profile, ranked by what they would gain.

    Raises TraceError for profiles that cannot be read or replayed.
    """
    return improve_profile(_profile(run))


def _profile(run: Profile | str | Path) -> Profile:
    return run if isinstance(run, Profile) else load_profile(run)
