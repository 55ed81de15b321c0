"""Cells of CSV files that no spreadsheet takes for a formula.

A spreadsheet runs a cell that begins with `=`, `+`, `-`, `@`, a tab or a carriage return. Names in
files of others may begin so. Such a text is written behind an apostrophe, which a spreadsheet shows
as the text (OWASP, "CSV Injection"). Numbers stay numbers, with their sign and their unit.
"""

import csv
import re
from collections.abc import Iterable
from typing import Any, TextIO

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[+-]([0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?( ?[A-Za-z%][A-Za-z/]*)?)?")
_QUOTE = "'"


def safe_cell(value: Any) -> Any:
    """A value as a cell may hold it: text that a spreadsheet would run stands behind `'`."""
    if isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value):
        return _QUOTE + value
    return value


def text_of_cell(cell: str) -> str:
    """The text that `safe_cell` made a cell of."""
    text = cell.removeprefix(_QUOTE)
    return text if text != cell and safe_cell(text) == cell else cell


def write_csv_rows(file: TextIO, rows: Iterable[Iterable[Any]]) -> None:
    """Write rows as lines of CSV, whose texts no spreadsheet runs."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows(
        [safe_cell(value) if isinstance(value, str) else value for value in row] for row in rows
    )
