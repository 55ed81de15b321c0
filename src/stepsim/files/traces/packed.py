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

from stepsim.base.errors import TraceError
from stepsim.base.structs import Names
from stepsim.files.reading import open_file
from stepsim.files.traces.forms import is_archive, traces_in

_MOST_BYTES = 4 << 30
_MOST_FOLD = 100  # what a packed file may unpack to, beside some bytes that any may: traces do 20
_ANY_BYTES = 16 << 20
_GZIP = b"\x1f\x8b"
_RANK = re.compile(r"(?:rank|worker)[-_]?(\d{1,9})", re.IGNORECASE)


def rank_in_name(name: str) -> int | None:
    """The number after `rank` or `worker` in the name of a file, None where there is none."""
    told = _RANK.search(Path(name).name)
    return int(told[1]) if told else None


def packed_files(
    path: Path,
    ends: Names,
    begins: Callable[[bytes], bool],
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[tuple[str, bytes]]:
    """Names and contents of a file, of those in a folder, or of those in an archive.

    `progress` hears of files done and of all, those of a folder. Raises TraceError for what cannot
    be read, is cut short or too large.
    """
    if isdir(path):
        files = sorted(traces_in(path, ends, begins))
        for done, each in enumerate(files):
            if progress:
                progress(done, len(files))
            yield str(each), _contents(each)
        return
    data = _contents(path)
    if not is_archive(data):
        yield str(path), data
        return
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive:
                file = archive.extractfile(member) if member.name.endswith(ends) else None
                if file:
                    where = f"{path}: {member.name}"
                    yield where, _unpacked(file.read(), where)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise TraceError(f"{path}: cannot read the archive: {error}") from None


def _contents(path: Path) -> bytes:
    """A file, unpacked; raises TraceError for what is cut short, or too large."""
    try:
        with open_file(path, _MOST_BYTES) as file:
            return _unpacked(file.read(), str(path))
    except EOFError:
        raise TraceError(f"{path}: the gzip file is cut short: expected a whole one") from None
    except (OSError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise TraceError(f"{path}: cannot read the trace: {reason}") from None


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
