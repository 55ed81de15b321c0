"""Profiles of every form: from a path to operations in columns."""

from collections.abc import Callable
from dataclasses import dataclass
from os.path import isdir
from pathlib import Path

from stepsim.base.errors import TraceError
from stepsim.files.reading import first_bytes
from stepsim.files.traces.kineto import is_kineto, is_kineto_folder, read_kineto
from stepsim.files.traces.ndtimeline import is_ndtimeline, read_ndtimeline
from stepsim.files.traces.nsys import is_nsys, read_nsys
from stepsim.measured.profile.events import Profile

_BEGINNING = 1 << 16
"""Bytes that tell what a file is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFormat:
    """A form of profiles: how its files begin, which folders hold several, and who reads it."""

    name: str
    begins: Callable[[bytes], bool]
    read: Callable[[Path], Profile]
    is_folder: Callable[[Path], bool] = lambda _: False


PROFILE_FORMATS = (
    ProfileFormat(name="NDTimeline parquet", begins=is_ndtimeline, read=read_ndtimeline),
    ProfileFormat(
        name="PyTorch profiler traces",
        begins=is_kineto,
        read=read_kineto,
        is_folder=is_kineto_folder,
    ),
    ProfileFormat(name="Nsight Systems SQLite", begins=is_nsys, read=read_nsys),
)


def is_profile(path: Path) -> bool:
    """Whether a path is a profile."""
    return _profile_format(path) is not None


def read_profile(path: Path) -> Profile:
    """Read a profile; raises TraceError naming file and place."""
    form = _profile_format(path)
    if form is None:
        names = ", ".join(each.name for each in PROFILE_FORMATS)
        raise TraceError(f"{path}: not a profile: expected {names}")
    return form.read(path)


def _profile_format(path: Path) -> ProfileFormat | None:
    if isdir(path):
        return next((each for each in PROFILE_FORMATS if each.is_folder(path)), None)
    start = first_bytes(path, _BEGINNING)
    return next((each for each in PROFILE_FORMATS if each.begins(start)), None)
