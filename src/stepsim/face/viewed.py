"""What every result of the Python interface can do: be data, tables, files, and seen.

Notebooks show a result as a piece of HTML.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec
from msgspec.structs import asdict

from stepsim.base.errors import StepsimError
from stepsim.base.fields import checked
from stepsim.base.structs import Document, File, Names, Values
from stepsim.base.writing import write_whole
from stepsim.documents.table import Sheet
from stepsim.show.figures.style import FigureStyle
from stepsim.show.frames import Columns, Tables, csv_text, frame_of, tables_of
from stepsim.show.terminal import shown_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_Noun = TypeVar("_Noun", bound=msgspec.Struct)


class Viewed:
    """The ways to look at a result. Its document has all of it, its tables are columns.

    It is no ABC: some results are structs, which have a metaclass of their own.
    """

    __slots__ = ()

    _kind: ClassVar[Any] = None
    """The type of its document, which it is itself, or which is made `of` it."""

    def _document(self) -> Document:
        """The result as a document."""
        kind, itself = self._kind, isinstance(self, self._kind)
        document: Document = taken_as(kind, self) if itself else kind.of(self)
        return document

    def _shown(self) -> Sheet:
        """What the command line prints of it."""
        raise NotImplementedError

    def _said(self) -> Sequence[str]:
        """What stands above its tables: an answer, and what a reader should know of the input."""
        return ()

    def _tables(self) -> Tables:
        """Its tables by name, the one asked for most first."""
        return tables_of(self._document())

    def __repr__(self) -> str:
        """What the command line prints of it: its fields may hold millions of numbers."""
        return shown_text(self._shown())

    def to_json(self) -> str:
        """The whole result as JSON, as the command's `--json` writes it."""
        return self._document().to_json().decode()

    def to_dict(self) -> Values:
        """The whole result as plain dictionaries, lists, numbers and texts: what `to_json` says."""
        plain: Values = msgspec.json.decode(self.to_json())
        return plain

    def write_json(self, path: File) -> None:
        """Write the whole result as JSON; raises OutputError when that cannot be."""
        write_whole(Path(path), self.to_json().encode())

    @property
    def tables(self) -> Names:
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
    def write_csv(self, path: File, table: str | None = None) -> None:
        """Write a table as `to_frame` gives it, as CSV; raises OutputError, StepsimError."""
        write_whole(Path(path), csv_text(self._table(table)).encode())

    def _table(self, name: str | None) -> Columns:
        known = self._tables()
        name = next(iter(known)) if name is None else name
        if name not in known:
            raise StepsimError(f"table is {name!r}: expected one of {', '.join(known)}")
        return known[name]()

    def _repr_html_(self) -> str:
        """What a notebook shows: the answer, what was assumed, then what a terminal prints."""
        text = "\n".join((*self._said(), shown_text(self._shown())))
        return f"<pre>{escape(text)}</pre>"


class Drawn(Viewed):
    """A result that is a figure, too."""

    __slots__ = ()

    def _draw(self, path: File | None, *, style: FigureStyle | str) -> "Figure":
        """Draw it; a class has the function that does in its place."""
        raise NotImplementedError

    @checked
    def plot(
        self,
        path: File | None = None,
        *,
        style: FigureStyle | str = FigureStyle.SCREEN,
    ) -> "Figure":
        """Its figure; with a path also a .png, .svg or .pdf file.

        `style` is `screen`, or a paper's `column` or `page`. Raises OutputError when the file
        cannot be written.
        """
        return self._draw(path, style=style)


def taken_as(kind: type[_Noun], noun: Any, **more: Any) -> _Noun:
    """A noun as one of a class that has its fields, or some; `more` are those that it lacks."""
    known = asdict(noun) | more
    return kind(**{name: known[name] for name in kind.__struct_fields__ if name in known})
