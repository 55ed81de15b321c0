"""What every result of the Python interface can do: be data, tables, files, and seen."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import asdict

from stepsim.base.arguments import checked
from stepsim.base.documents import Document
from stepsim.base.errors import StepsimError
from stepsim.files.writing import write_whole
from stepsim.show.frames import Columns, Tables, csv_text, frame_of, tables_of
from stepsim.show.notebook import html_of
from stepsim.show.tables.model import Shown

_Noun = TypeVar("_Noun")


class Viewed:
    """The ways to look at a result. Its document has all of it, its tables are columns.

    It is no ABC: some results are structs, which have a metaclass of their own.
    """

    __slots__ = ()

    def _document(self) -> Document:
        """The result as a document."""
        raise NotImplementedError

    def _shown(self) -> Iterable[Shown]:
        """What the command line prints of it."""
        raise NotImplementedError

    def _tables(self) -> Tables:
        """Its tables by name, the one asked for most first."""
        return tables_of(self._document())

    def to_json(self) -> str:
        """The whole result as JSON, as the command's `--json` writes it."""
        return self._document().to_json().decode()

    def to_dict(self) -> dict[str, Any]:
        """The whole result as plain dictionaries, lists, numbers and texts: what `to_json` says."""
        plain: dict[str, Any] = msgspec.json.decode(self.to_json())
        return plain

    def write_json(self, path: str | Path) -> None:
        """Write the whole result as JSON; raises OutputError when that cannot be."""
        write_whole(Path(path), self.to_json().encode())

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables, that of `--csv` first."""
        return tuple(self._tables())

    @checked
    def to_frame(self, table: str | None = None) -> Any:
        """A table of the result as a pandas DataFrame: the first of `tables`, or that of a name.

        Times are in ps, sizes in bytes, rates in bytes/s, as the names of the columns say. Without
        pandas it is a dictionary of numpy arrays. Raises StepsimError for a name that is no table.
        """
        return frame_of(self._table(table))

    @checked
    def write_csv(self, path: str | Path, table: str | None = None) -> None:
        """Write a table as `to_frame` gives it, as CSV; raises OutputError, StepsimError."""
        write_whole(Path(path), csv_text(self._table(table)).encode())

    def _table(self, name: str | None) -> Columns:
        known = self._tables()
        name = next(iter(known)) if name is None else name
        if name not in known:
            raise StepsimError(f"table is {name!r}: expected one of {', '.join(known)}")
        return known[name]()

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return html_of(self._shown())


def taken_as(kind: type[_Noun], noun: Any, **more: Any) -> _Noun:
    """A noun as one of a class with the same fields; `more` are those that it lacks."""
    return kind(**asdict(noun), **more)
