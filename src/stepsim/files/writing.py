"""Writing result files: whole or not at all."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os.path import exists, isdir, isfile, realpath
from pathlib import Path
from typing import BinaryIO

from stepsim.base.errors import OutputError

FIGURE_SUFFIXES = (".png", ".svg", ".pdf")
PAGE_SUFFIXES = (".html", ".htm")


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
    """Raise OutputError when an output would replace an input or another output."""
    known = {realpath(path) for path in inputs if "\0" not in str(path)}
    for path in outputs:
        if realpath(path) in known:
            raise OutputError(
                f"{path}: cannot write: it is an input, or two outputs go to the same file"
            )
        known.add(realpath(path))


def check_figure_path(path: Path) -> None:
    """Raise OutputError unless the suffix names a figure format."""
    _check_suffix(path, "draw", FIGURE_SUFFIXES)


def check_page_path(path: Path) -> None:
    """Raise OutputError unless the suffix says that a browser opens it."""
    _check_suffix(path, "write a page as", PAGE_SUFFIXES)


def _check_suffix(path: Path, what: str, allowed: Sequence[str]) -> None:
    if path.suffix.lower() not in allowed:
        shown = path.suffix or "a name without suffix"
        raise OutputError(f"{path}: cannot {what} {shown}: expected {', '.join(allowed)}")


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old one or the whole new one, never a part.

    A link's target is written; what is no regular file, a device or a pipe, is written into.
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
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
            os.chmod(name, 0o666 & ~_umask())
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


@contextmanager
def _output_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(f"{path}: cannot write: {error.strerror}") from None


def _umask() -> int:
    """The process's file mode mask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
