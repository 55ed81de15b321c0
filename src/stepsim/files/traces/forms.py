"""Forms of measured runs and of profiles: how their files begin; what reads them comes later."""

import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from itertools import chain
from os.path import exists, isdir, isfile
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from stepsim.base.errors import TraceError
from stepsim.base.structs import Names, Noun, shipped
from stepsim.files.reading import first_bytes

if TYPE_CHECKING:
    from stepsim.measured.profile.events import Profile

# Bytes that tell what a profile is.
_OF_PROFILES = 1 << 16
# Bytes that tell what a run is: a log says so after its settings and its model.
_OF_RUNS = 1 << 20
TRACE_ENDS = (".json", ".json.gz", ".json.tar.gz")
CHAKRA_ENDS = (".et", ".et.gz")
# A length, and the key of a field that is a text or the metadata: no text file begins so.
_LIKE_CHAKRA = re.compile(rb"[\x80-\xff]*[\x00-\x7f][\x0a\x12]")


def is_kineto(start: bytes) -> bool:
    """Whether a file begins as such a trace, or as an archive that may hold some."""
    start = _unpacked(start)
    if is_archive(start):
        return any(each in _first_member(start) for each in (".json", "kineto", "trace"))
    told = (b'"traceEvents"', b'"deviceProperties"', b'"distributedInfo"')
    return start.lstrip().startswith(b"{") and any(each in start for each in told)


def is_chakra(start: bytes) -> bool:
    """Whether a file begins with metadata as such traces do, or as an archive of them."""
    start = _unpacked(start)
    if is_archive(start):
        return _first_member(start).endswith(CHAKRA_ENDS)
    if not _LIKE_CHAKRA.match(start):
        return False
    from google.protobuf.message import DecodeError
    from google.protobuf.proto import parse_length_prefixed

    from stepsim.files.traces.chakra_messages import MetadataMessage

    try:
        told = parse_length_prefixed(MetadataMessage, BytesIO(start))
    except (ValueError, DecodeError):
        return False
    # indented JSON also begins with two lengths: its text is no version
    said = told.version or next((each.name for each in told.attr), "")
    return re.fullmatch(r"[\w.+-]+", said) is not None


def is_archive(start: bytes) -> bool:
    """Whether an unpacked file begins as a tar archive."""
    return start[257:262] == b"ustar"


def traces_in(folder: Path, ends: Names, begins: Callable[[bytes], object]) -> Iterator[Path]:
    """The files of a folder whose names end and whose bytes begin so."""
    try:
        named = [each for each in folder.iterdir() if each.name.endswith(ends)]
    except OSError:
        return
    yield from (each for each in named if begins(first_bytes(each, _OF_PROFILES)))


def element_bytes(program: str) -> Mapping[str, int]:
    """Bytes of an element by the names that a program has for types."""
    return shipped(__file__, "element_bytes.toml", dict[str, dict[str, int]])[program]


def _first_member(start: bytes) -> str:
    """Name of the first file in an archive that begins so."""
    return start[:100].rstrip(b"\0").decode(errors="replace")


def _unpacked(start: bytes) -> bytes:
    """How a file begins once unpacked; as it is unless it was packed with gzip."""
    if not start.startswith(b"\x1f\x8b"):
        return start
    try:
        return zlib.decompressobj(31).decompress(start, _OF_PROFILES)
    except zlib.error:
        return b""


class _Format(Noun):
    """A form of measured runs or of profiles: how its files begin, and what `reads` it.

    Where files of profiles whose names have some `ends` lie in one folder, that is read as a whole,
    with what hears of the progress, files done and all.
    """

    name: str
    begins: Callable[[bytes], object]
    reads: str
    ends: Names = ()

    def read(self, path: Path, *progress: object) -> Any:
        """What is read of a path; what reads it is imported then."""
        return resolve_name(self.reads)(path, *progress)


MEGATRON = _Format(
    name="a trace of Megatron / Echo",
    begins=re.compile(rb"\s*rank:\d+:\w+\(").match,
    reads="stepsim.files.traces.megatron_trace:read_megatron_trace",
)
"""A folder of measured runs holds these."""
RUN_FORMATS = (
    MEGATRON,
    _Format(
        name="a log of Optimus",
        begins=re.compile(rb"forward time \(no send/recv\)").search,
        reads="stepsim.files.traces.optimus_log:read_optimus_log",
    ),
)


_PROFILE_FORMATS = (
    _Format(
        name="NDTimeline parquet",
        begins=re.compile(rb"PAR1").match,
        reads="stepsim.files.traces.ndtimeline:read_ndtimeline",
    ),
    _Format(
        name="PyTorch profiler traces",
        begins=is_kineto,
        reads="stepsim.files.traces.kineto:read_kineto",
        ends=TRACE_ENDS,
    ),
    _Format(
        name="Chakra execution traces",
        begins=is_chakra,
        reads="stepsim.files.traces.chakra:read_chakra",
        ends=CHAKRA_ENDS,
    ),
    _Format(
        name="Nsight Systems SQLite",
        begins=re.compile(rb"SQLite format 3\x00").match,
        reads="stepsim.files.traces.nsys:read_nsys",
    ),
)


def is_profile(path: Path) -> bool:
    """Whether a path is a profile."""
    return format_of(path) in _PROFILE_FORMATS


def read_profile(path: Path, progress: Callable[[int, int], None] | None = None) -> "Profile":
    """Read a profile; raises TraceError naming file and place.

    `progress` hears of the files of a folder that are read, and of all.
    """
    form = format_of(path)
    if form not in _PROFILE_FORMATS:
        names = ", ".join(each.name for each in _PROFILE_FORMATS)
        raise TraceError(f"{path}: not a profile: expected {names}")
    found: Profile = form.read(path, progress) if form.ends else form.read(path)
    return found


def is_measured(path: Path) -> bool:
    """Whether a path is a measured run."""
    return format_of(path) in RUN_FORMATS


def is_recorded(path: Path) -> bool:
    """Whether a path is a measured run or a profile."""
    return exists(path) and format_of(path) is not None


def has_step_lines(path: Path) -> bool:
    """Whether a path, which is no measured run, is a log that tells how long steps took."""
    from stepsim.files.traces.step_lines import tells_steps

    return isfile(path) and tells_steps(first_bytes(path, _OF_RUNS))


def format_of(path: Path) -> _Format | None:
    """The form of a profile or of a measured run; None for a path that is neither.

    A folder without profiles is one of Megatron's traces, which its reader may refuse.
    """
    if isdir(path):
        fits = (each for each in _PROFILE_FORMATS if any(traces_in(path, each.ends, each.begins)))
        return next(fits, MEGATRON)
    start = first_bytes(path, _OF_RUNS)
    profiles = (each for each in _PROFILE_FORMATS if each.begins(start[:_OF_PROFILES]))
    return next(chain(profiles, (each for each in RUN_FORMATS if each.begins(start))), None)
