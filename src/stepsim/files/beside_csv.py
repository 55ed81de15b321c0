"""Tables of kernels alone and beside communication, written by `stepsim calibrate overlap`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from stepsim.base.errors import CalibrationError, bad_value
from stepsim.files.reading import csv_rows, read_text
from stepsim.measured.kernels_beside import BesideRow

_SIDES = ("grid", "block")
_RENAMED = {"class": "kernel_class"}
_NEEDED = ("class", "kernel", "comm_kind", "comm_kernel", "alone_us", "beside_us")


def read_beside_rows(path: Path) -> list[BesideRow]:
    """Rows of a table; raises CalibrationError naming file, row and column.

    What a table does not have is not known: quartiles are then the medians, counts two.
    """
    text = read_text(path, CalibrationError, "table of kernels", "CSV")
    rows = csv_rows(path, text, CalibrationError)
    names = rows[0].keys() if rows else ()
    for name in _NEEDED:
        if name not in names:
            raise CalibrationError(f"{path}: no column {name}: expected {', '.join(_NEEDED)}")
    return [_row(path, row, number) for number, row in enumerate(rows, start=2)]


def _row(path: Path, row: dict[str, str], number: int) -> BesideRow:
    alone, beside = row["alone_us"], row["beside_us"]
    values: dict[str, Any] = {
        **{f"alone_p{part}_us": alone for part in (25, 75)},
        **{f"beside_p{part}_us": beside for part in (25, 75)},
        **dict(_told(row)),
    }
    for name in _SIDES:
        values[name] = [side for side in row.get(name, "").split("x") if side]
    try:
        found = msgspec.convert(values, BesideRow, strict=False)
    except msgspec.ValidationError as reason:
        raise CalibrationError(f"{path}: row {number}: {reason}") from None
    for name in ("alone_us", "beside_us"):
        if not getattr(found, name) > 0:
            place = f"{path}: row {number}"
            raise CalibrationError(bad_value(place, name, row[name], "a time above 0"))
    return found


def _told(row: dict[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in row.items():
        field = _RENAMED.get(name, name)
        if field in BesideRow.__struct_fields__ and value:
            yield field, value
