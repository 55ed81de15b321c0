"""The table of a sweep as CSV or Parquet, in the order of the scenarios."""

from pathlib import Path
from typing import Any

from stepsim.base.errors import OutputError
from stepsim.base.units import Quantity
from stepsim.explore.sweep.store import NUMBER_TYPES, STEP_COLUMNS
from stepsim.explore.sweep.table import SweepTable
from stepsim.files.reading import parquet_library
from stepsim.files.writing import csv_lines, whole_file

_CSV, _PARQUET = ".csv", ".parquet"


def check_export_path(path: Path) -> None:
    """Raise OutputError unless the suffix names a format that can be written here."""
    if path.suffix not in (_CSV, _PARQUET):
        shown = path.suffix or "a name without suffix"
        raise OutputError(f"{path}: cannot write {shown}: expected {_CSV} or {_PARQUET}")
    if path.suffix == _PARQUET:
        parquet_library(path, OutputError)


def write_table(table: SweepTable, path: Path) -> None:
    """Write the table to a .csv or .parquet file; raises OutputError."""
    check_export_path(path)
    if path.suffix == _CSV:
        write_csv(table, path)
    else:
        _write_parquet(table, path)


def write_csv(table: SweepTable, path: Path) -> None:
    """Write one line per scenario, empty where there is no number; raises OutputError."""
    with whole_file(path) as file:
        file.write(csv_lines([table.header]).encode())
        for columns in table.pieces():
            file.write(csv_lines(zip(*columns, strict=True)).encode())


def _write_parquet(table: SweepTable, path: Path) -> None:
    arrow, parquet = parquet_library(path, OutputError)
    schema = arrow.schema(list(zip(table.header, _types(table, arrow), strict=True)))
    with whole_file(path) as file, parquet.ParquetWriter(file, schema) as writer:
        for columns in table.pieces():
            writer.write_table(arrow.table(dict(zip(table.header, columns, strict=True)), schema))


def _types(table: SweepTable, arrow: Any) -> list[Any]:
    of_axis = {
        Quantity.BANDWIDTH: arrow.float64(),
        Quantity.FACTOR: arrow.float64(),
        Quantity.SWITCH: arrow.string(),
        Quantity.NAME: arrow.string(),
    }
    of_number = {"real": arrow.float64(), "integer": arrow.int64()}
    axes = [of_axis.get(axis.quantity, arrow.int64()) for axis in table.axes]
    numbers = [of_number[NUMBER_TYPES[name]] for name in (*STEP_COLUMNS, *table.part_columns)]
    return [*axes, *numbers, arrow.string()]
