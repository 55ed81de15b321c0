"""What readers share: opening what is a file, and one clear error for what cannot be read at all.

A path is the user's: it may be a pipe that nobody writes to, a device without end, or huge. Files
that come with stepsim are found by name. Parquet files need a library that not everybody has.
"""

import csv
import errno
import io
import os
import stat
import tomllib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import wraps
from math import nan
from os.path import isfile
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from stepsim.base.errors import StepsimError, UnitError, bad_value
from stepsim.base.process import remembered
from stepsim.base.structs import Document, File, Values, noun_of
from stepsim.base.units import plain_number
from stepsim.base.writing import text_of_cell

_Schema = TypeVar("_Schema")
_Document = TypeVar("_Document", bound=Document)

MAX_FILE_BYTES = 256 << 20


def open_file(path: Path, most: int | None = MAX_FILE_BYTES) -> BinaryIO:
    """A file opened to be read.

    Raises OSError where there is none, it holds more than `most` bytes, or it is a folder, a pipe
    or a device.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except ValueError:
        raise OSError(errno.EINVAL, "no file can have this name") from None
    found, why = os.fstat(handle), ""
    if stat.S_ISDIR(found.st_mode):
        why = "it is a folder"
    elif not stat.S_ISREG(found.st_mode):
        why = "it is a pipe or a device, not a file"
    elif most is not None and found.st_size > most:
        why = f"it is larger than {most >> 20} MiB"
    if why:
        os.close(handle)
        raise OSError(errno.EINVAL, why)
    return os.fdopen(handle, "rb")


def first_bytes(path: Path, size: int) -> bytes:
    """The first bytes of a file; nothing where it cannot be read, which its reader will say."""
    try:
        with open_file(path, most=None) as file:
            start = file.read(min(size, os.fstat(file.fileno()).st_size))
            return start.removeprefix(BOM_UTF8)
    except OSError:
        return b""


def first_columns(path: Path) -> set[str]:
    """The names between the commas of a file's first line."""
    header = first_bytes(path, 4096).split(b"\n", 1)[0].decode(errors="replace")
    return {name.strip() for name in header.split(",")}


def read_bytes(path: Path) -> bytes:
    """What a file holds, without a byte order mark; raises OSError as `open_file`."""
    with open_file(path) as file:
        return file.read(os.fstat(file.fileno()).st_size).removeprefix(BOM_UTF8)


def read_text(path: Path, error: type[StepsimError], what: str, expected: str) -> str:
    """The text of a file; raises `error` saying that this is no `what`, and what was `expected`."""
    try:
        return read_bytes(path).decode()
    except OSError as reason:
        raise error(f"{path}: cannot read the {what}: {reason.strerror}") from None
    except UnicodeDecodeError as reason:
        wrong = f"byte {reason.start} is not UTF-8"
        raise error(f"{path}: not a text file: {wrong}: expected {expected}") from None


def csv_rows(
    path: File, text: str, error: type[StepsimError]
) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """The columns of a table, and its rows by them, each with the number of its line.

    Lines that begin with # are comments. Raises `error` where it is no CSV, a column stands twice,
    or a row has another number of cells, as a number with a comma in it makes.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    lines = (
        (reader.line_num, [text_of_cell(cell.strip()) for cell in row])
        for row in reader
        if any(row) and not row[0].startswith("#")
    )
    rows = []
    try:
        first, names = next(lines, (1, []))
        twice = next((name for name in names if name and names.count(name) > 1), None)
        if twice:
            raise error(f"{path}:{first}: column {twice} stands twice: expected it once")
        for line, cells in lines:
            if len(cells) < len(names) or any(cells[len(names) :]):
                raise error(f"{path}:{line}: expected {len(names)} cells: found {len(cells)}")
            rows.append((line, dict(zip(names, cells, strict=False))))
    except csv.Error as reason:
        raise error(f"{path}:{reader.line_num}: not valid CSV: {reason}") from None
    return names, rows


def read_toml(path: Path, schema: type[_Schema], error: type[StepsimError], what: str) -> _Schema:
    """The `what` in a TOML file, as `schema` has it; raises `error` naming the entry at fault."""
    raw = toml_values(path, read_text(path, error, what, f"a {what} in TOML"), error)
    return noun_of(str(path), raw, schema, error)


def toml_values(path: Path, text: str, error: type[StepsimError]) -> Values:
    """Plain data of the text of a TOML file; raises `error` naming it."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        why = "its lists or tables are nested too deeply"
    except ValueError as reason:
        why = str(reason)
    raise error(f"{path}: not valid TOML: {why}")


def read_document(path: Path, kinds: Mapping[str, type[_Document]], what: str) -> _Document:
    """The document in a JSON file: of the first of some kinds whose key stands in it.

    Raises StepsimError naming the file, the place in it, the value and what is allowed, or that it
    is not `what` was expected.
    """
    text = read_text(path, StepsimError, "result", "a result in JSON")
    try:
        raw = msgspec.json.decode(text)
    except RecursionError:
        raise StepsimError(f"{path}: not a result: its JSON is nested too deeply") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise StepsimError(f"{path}: not valid JSON: {error}") from None
    if isinstance(raw, dict) and "schema_version" in raw:
        for key, kind in kinds.items():
            if key in raw:
                return kind.from_plain(raw, str(path))
    raise StepsimError(f"{path}: not {what}")


def number_of(text: object) -> float:
    """The number that a text says, exactly where it is whole, nan where it says none."""
    try:
        return plain_number(str(text))
    except UnitError:
        return nan


def number_in(
    place: str,
    name: str,
    value: object,
    error: type[StepsimError],
    least: float = 1e-6,
    most: float = 10**9,
) -> float:
    """The number that a value says, within bounds; raises `error` naming the place and the value.

    The bounds that nobody gives keep what multiplies or divides from being tiny or huge.
    """
    number = number_of(value)
    if not least <= number <= most:
        raise error(bad_value(place, name, value, f"a number from {least} to {most}"))
    return number


def whole_number(
    place: str, name: str, value: object, error: type[StepsimError], least: int, most: int
) -> int:
    """The whole number that a value says; raises `error` naming the place and the value."""
    number = number_of(value)
    if not (least <= number <= most and number == int(number)):
        raise error(bad_value(place, name, value, f"a whole number from {least} to {most}"))
    return int(number)


def parquet_library(path: Path, error: type[StepsimError]) -> tuple[Any, Any]:
    """The modules pyarrow and pyarrow.parquet; raises `error` naming the file without them."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise error(
            f"{path}: Parquet needs pyarrow: install it with pip install 'stepsim[parquet]'"
        ) from None
    return pyarrow, parquet


DEFAULT_TOPOLOGY = "hgx-h100"
DEFAULT_FRAMEWORK = "megatron-core"
# Folders of what comes with stepsim, by what a file of each is.
_SHIPPED = {
    "topology": "topologies",
    "device": "devices",
    "framework": "frameworks",
    "model": "models",
}

_Noun = TypeVar("_Noun")


def shipped_once(read: Callable[[Path], _Noun]) -> Callable[[Path], _Noun]:
    """Read a file that comes with stepsim once; a file of the user's may change meanwhile.

    `validate` of 955 published steps takes 4.9 s so, and 12.6 s where none of the readers keeps.
    """
    once = remembered(read)

    @wraps(read)
    def of_path(path: Path) -> _Noun:
        ours = path.parent in map(shipped_folder, _SHIPPED.values())
        return once(path) if ours else read(path)

    return of_path


def topology_names() -> list[str]:
    """Names of the shipped topologies."""
    return shipped_names("topologies")


def shipped_names(kind: str) -> list[str]:
    """Names of the TOML files of a kind that come with stepsim."""
    return sorted(path.stem for path in shipped_folder(kind).glob("*.toml"))


def question(name: str, names: Iterable[str]) -> str:
    """What to ask behind a name that nothing has, where one of the known names is close."""
    close = get_close_matches(name, names, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def named_file(kind: str, name_or_path: File, error: type[StepsimError]) -> Path:
    """File of a shipped name, in any case and by any of its names, or the user's own path.

    Anything with a suffix or a folder is a path, `./NAME` too. What files hold is read where the
    name is that of none of them: most people type that name. Raises `error` where there is no such
    name.
    """
    path, typed = Path(name_or_path), str(name_or_path)
    if os.sep in typed or path.suffix[1:].isalpha():
        return path
    name, folder = typed.lower(), _SHIPPED[kind]
    called = shipped_folder(folder) / f"{name}.toml"
    if isfile(called):
        return called
    names = names_of_files(kind)
    if name in names or isfile(path):
        return names.get(name, path)
    raise error(
        f"no {kind} named {typed!r}{question(name, names)}: expected a file or one of "
        f"{', '.join(shipped_names(folder))}"
    )


# validate of 955 published steps takes 4.2 s so, and 35.0 s without
@remembered
def names_of_files(kind: str) -> dict[str, Path]:
    """Files of a kind by each of their names: what they are called, and `also`."""
    found = dict[str, Path]()
    for path in sorted(shipped_folder(_SHIPPED[kind]).glob("*.toml")):
        text = path.read_bytes().decode()
        also = tomllib.loads(text)["also"] if "\nalso = " in text else []
        found |= {name.lower(): path for name in (path.stem, *also)}
    return found


def shipped_folder(kind: str) -> Path:
    """Files of a kind that come with stepsim: in the installed package, or in the checkout."""
    package = Path(__file__).parents[1]
    installed = package / f"shipped_{kind}"
    return installed if installed.is_dir() else package.parents[1] / kind
