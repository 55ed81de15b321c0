"""Writing result files: whole or not at all.

Cells of CSV files are none that a spreadsheet takes for a formula. It runs a cell that begins with
`=`, `+`, `-`, `@`, a tab or a carriage return, and names in files of others may begin so. Such a
text is written behind an apostrophe, which a spreadsheet shows as the text (OWASP, "CSV
Injection"), and so is one with `#`, which begins a comment. Numbers stay numbers, with their sign
and their unit.
"""

import csv
import io
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from os.path import exists, isdir, isfile, lexists, realpath
from pathlib import Path
from typing import Any, BinaryIO

from stepsim.base.errors import OutputError

_FIGURE_SUFFIXES = (".png", ".svg", ".pdf")
_PAGE_SUFFIXES = (".html", ".htm")


def check_writable(path: Path) -> None:
    """Raise OutputError now rather than after a long run when `path` cannot be written."""
    try:
        os.stat(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise OutputError(f"{path}: cannot write: {error.strerror}") from None
    except ValueError:
        raise OutputError(f"{path}: cannot write: no file can have this name") from None
    if isdir(path):
        raise OutputError(f"{path}: cannot write: it is a folder")
    if not isdir(path.parent):
        raise OutputError(f"{path}: cannot write: folder {path.parent} does not exist")
    if not os.access(path if exists(path) else path.parent, os.W_OK):
        raise OutputError(f"{path}: cannot write: permission denied")


def check_separate(inputs: Sequence[Path], outputs: Sequence[Path]) -> None:
    """Raise OutputError when an output would replace an input or another output.

    A file is the same under each of its names, links too.
    """
    known = {realpath(path) for path in inputs}
    for path in outputs:
        if realpath(path) in known:
            raise OutputError(
                f"{path}: cannot write: it is an input, or two outputs go to the same file"
            )
        known.add(realpath(path))
    real = {Path(realpath(path)) for path in outputs}
    for path in outputs:
        if real & set(Path(realpath(path)).parents):
            raise OutputError(f"{path}: cannot write: it lies in a folder that is an output")


def check_figure_path(path: Path) -> None:
    """Raise OutputError unless the suffix names a figure format."""
    check_suffix(path, "draw", _FIGURE_SUFFIXES)


def check_page_path(path: Path) -> None:
    """Raise OutputError unless the suffix says that a browser opens it."""
    check_suffix(path, "write a page as", _PAGE_SUFFIXES)


def check_suffix(path: Path, what: str, allowed: Sequence[str]) -> None:
    """Raise OutputError where `path` cannot be written, or ends in none of the suffixes."""
    check_writable(path)
    if path.suffix.lower() not in allowed:
        shown = path.suffix or "a name without suffix"
        raise OutputError(f"{path}: cannot {what} {shown}: expected {', '.join(allowed)}")


def check_new_folder(path: Path) -> None:
    """Raise OutputError now rather than after a long run when `path` cannot be a new folder."""
    try:
        if os.listdir(path):
            raise OutputError(f"{path}: the folder is not empty: expected a new one")
    except FileNotFoundError:
        if lexists(path):
            raise OutputError(f"{path}: cannot write: it is a link to nothing") from None
    except OSError as error:
        raise OutputError(f"{path}: cannot write: {error.strerror}") from None
    except ValueError:
        raise OutputError(f"{path}: cannot write: no file can have this name") from None
    place = next(each for each in (path, *path.absolute().parents) if lexists(each))
    if not os.access(place, os.W_OK):
        raise OutputError(f"{path}: cannot write: permission denied")


def write_folder(path: Path, files: Iterable[tuple[str, bytes]]) -> list[Path]:
    """Write files by their names into a new folder, all of them or none; returns them.

    Raises OutputError where there is something in the folder, or it cannot be written.
    """
    check_new_folder(path)
    made = [each for each in (path, *path.parents) if not exists(each)]
    written: list[Path] = []
    try:
        with _output_errors(path):
            path.mkdir(parents=True, exist_ok=True)
        for name, content in files:
            written.append(path / name)
            write_whole(written[-1], content)
    except BaseException:
        with suppress(OSError):
            for file in written:
                file.unlink(missing_ok=True)
            for folder in made:
                folder.rmdir()
        raise
    return written


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old one or the whole new one, never a part.

    A link's target is written; what is no regular file, a device or a pipe, is written into. A file
    that is replaced keeps its mode, and its owner where the system lets us.
    """
    with whole_file(path) as file:
        file.write(data)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write in pieces, which takes its place when the block ends well, as `write_whole`.

    Raises OutputError when it cannot be written.
    """
    check_writable(path)
    path = Path(realpath(path))
    if exists(path) and not isfile(path):
        with _output_errors(path), path.open("wb") as file:
            yield file
        return
    with _output_errors(path):
        replaced = path.stat() if exists(path) else None
        part = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
        # the system takes the umask off the mode of a new file
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if replaced else 0o666)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
            if replaced:
                _keep_access(part, replaced)
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


@contextmanager
def _output_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"{path}: cannot write: {error.strerror}") from None


def _keep_access(path: Path, before: os.stat_result) -> None:
    """Give a file the mode of another, and its owner and group where the system lets us."""
    for user, group in ((before.st_uid, -1), (-1, before.st_gid)):
        with suppress(OSError):
            os.chown(path, user, group)
    os.chmod(path, stat.S_IMODE(before.st_mode))  # last: a new owner takes bits away


_FORMULA = ("=", "+", "-", "@", "\t", "\r", "#")
_NUMBER = re.compile(r"[+-]([0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?( ?[A-Za-z%][A-Za-z/]*)?)?")
_QUOTE = "'"


def safe_cell(value: Any) -> Any:
    """A value as a cell may hold it: text that a spreadsheet would run stands behind `'`."""
    if (
        isinstance(value, str)
        and value.lstrip(_QUOTE).startswith(_FORMULA)
        and not _NUMBER.fullmatch(value)
    ):
        return _QUOTE + value
    return value


def text_of_cell(cell: str) -> str:
    """The text that `safe_cell` made a cell of."""
    text = cell.removeprefix(_QUOTE)
    return text if text != cell and safe_cell(text) == cell else cell


def csv_lines(rows: Iterable[Iterable[Any]]) -> str:
    """Rows as lines of CSV, whose texts no spreadsheet runs."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows(
        [safe_cell(value) if isinstance(value, str) else value for value in row] for row in rows
    )
    return text.getvalue()
