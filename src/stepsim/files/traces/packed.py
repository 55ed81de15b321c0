"""Traces of several ranks: the files of a folder or of an archive, packed with gzip or plain."""

import gzip
import io
import re
import tarfile
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from os.path import isdir
from pathlib import Path
from typing import IO, cast

from stepsim.base.errors import TraceError
from stepsim.base.structs import Names
from stepsim.files.reading import open_file
from stepsim.files.traces.forms import is_archive, traces_in

_MOST_BYTES = 4 << 30
_MOST_FOLD = 100  # what a packed file may unpack to, beside some bytes that any may: traces do 20
_ANY_BYTES = 16 << 20
_GZIP = b"\x1f\x8b"
_RANK = re.compile(r"(?:(?:rank|worker|npu)[-_]?|\.(?=\d+\.et))(\d{1,9})", re.IGNORECASE)


def rank_in_name(name: str, default: int) -> int:
    """The number after `rank`, `worker` or `npu` in the name of a file, or before `.et`."""
    told = _RANK.search(Path(name).name)
    return int(told[1]) if told else default


def packed_files(
    path: Path,
    ends: Names,
    begins: Callable[[bytes], bool],
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[tuple[str, bytes]]:
    """Names and contents of a file or of those in a folder, and of what archives hold.

    `progress` hears of files done and of all, those of a folder. Raises TraceError for what cannot
    be read, is cut short or too large.
    """
    files = sorted(traces_in(path, ends, begins)) if isdir(path) else [path]
    for done, each in enumerate(files):
        if progress and len(files) > 1:
            progress(done, len(files))
        try:
            yield from _contents(each, ends)
        except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or error
            raise TraceError(f"{each}: cannot read the trace: {reason}") from None


def _contents(path: Path, ends: Names) -> Iterator[tuple[str, bytes]]:
    """A file, or the files of an archive; raises TraceError for one that holds none."""
    with open_file(path, _MOST_BYTES) as file:
        data = _unpacked(file.read(), str(path))
    if not is_archive(data):
        yield str(path), data
        return
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = [each for each in archive if each.isfile() and each.name.endswith(ends)]
        if not members:
            raise TraceError(
                f"{path}: no trace in it: expected files that end in {' or '.join(ends)}"
            )
        for member in members:
            where, inside = f"{path}: {member.name}", cast(IO[bytes], archive.extractfile(member))
            yield where, _unpacked(inside.read(), where)


def _unpacked(data: bytes, where: str) -> bytes:
    """What is not packed, or was with gzip; raises TraceError where that is too large."""
    if not data.startswith(_GZIP):
        return data.removeprefix(BOM_UTF8)
    most = min(_MOST_BYTES, _ANY_BYTES + _MOST_FOLD * len(data))
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
        found = packed.read(most + 1)
    if len(found) > most:
        raise TraceError(f"{where}: unpacks to more than {most >> 20} MiB")
    return found
