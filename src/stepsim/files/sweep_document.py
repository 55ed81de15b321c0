"""What a sweep has found: as the document of `stepsim sweep --json`, and as CSV or Parquet."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Self

from msgspec import Meta

from stepsim.base.errors import OutputError
from stepsim.base.structs import (
    Bytes,
    BytesPerSecond,
    Count,
    Document,
    Entry,
    Names,
    Picoseconds,
    Share,
    Values,
)
from stepsim.base.writing import check_suffix, csv_lines, whole_file
from stepsim.files.reading import parquet_library
from stepsim.files.sweep_table import NUMBER_TYPES, STEP_COLUMNS, SweepTable


class _AxisEntry(Entry):
    """An axis and the texts of its values."""

    name: str
    values: Names


class _SweptEntry(Entry):
    """A scenario: the values of its axes, and its numbers or why it has none.

    `tokens_per_s`, of one NPU, `mfu` and `memory_bytes`, of the fullest rank, are known of models,
    and whether that `fits` the device.
    """

    settings: dict[str, str]
    step_time_ps: Picoseconds | None = None
    pipeline_time_ps: Picoseconds | None = None
    bubble_fraction: Share | None = None
    total_bandwidth_bytes_per_s: BytesPerSecond | None = None
    tokens_per_s: float | None = None
    mfu: float | None = None
    memory_bytes: Bytes | None = None
    fits: bool | None = None
    breakdown_ps: dict[str, Picoseconds] | None = None
    error: str | None = None


class SweepDocument(Document):
    """`stepsim sweep --json`: every scenario that is done, in the order of the axes."""

    workload: str
    topology: str
    size: Annotated[Count, Meta(description="scenarios of the whole sweep")]
    done: Count
    failed: Count
    axes: tuple[_AxisEntry, ...]
    scenarios: tuple[_SweptEntry, ...]

    @classmethod
    def of(cls, table: SweepTable) -> Self:
        """The document of a table."""
        workload, topology = table.source
        axes = tuple(_AxisEntry(name=axis.name, values=axis.texts) for axis in table.axes)
        return cls.taken_from(
            table.progress,
            workload=workload,
            topology=topology,
            axes=axes,
            scenarios=tuple(_swept(table)),
        )


def _swept(table: SweepTable) -> Iterator[_SweptEntry]:
    parts = table.part_columns
    for columns in table.pieces(texts=True):
        for row in zip(*columns, strict=True):
            own: Values = dict(zip(table.header, row, strict=True))
            own["fits"] = None if own["fits"] is None else bool(own["fits"])
            settings = {axis.name: own.pop(axis.column) for axis in table.axes}
            times = {part.removesuffix("_ps"): own.pop(part) for part in parts}
            kept = times if times and own["error"] is None else None
            yield _SweptEntry(settings=settings, breakdown_ps=kept, **own)


_CSV, _PARQUET = ".csv", ".parquet"


def check_export_path(path: Path) -> None:
    """Raise OutputError unless the suffix names a format that can be written here."""
    check_suffix(path, "write", (_CSV, _PARQUET))
    if path.suffix.lower() == _PARQUET:
        parquet_library(path, OutputError)


def write_table(table: SweepTable, path: Path) -> None:
    """Write the table to a .csv or .parquet file; raises OutputError."""
    check_export_path(path)
    if path.suffix.lower() == _CSV:
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
    axes = [arrow.array(axis.shown).type for axis in table.axes]
    kinds = (NUMBER_TYPES[name] for name in (*STEP_COLUMNS, *table.part_columns))
    numbers = [arrow.float64() if kind == "real" else arrow.int64() for kind in kinds]
    types = *axes, *numbers, arrow.string()
    schema = arrow.schema(list(zip(table.header, types, strict=True)))
    with whole_file(path) as file, parquet.ParquetWriter(file, schema) as writer:
        for columns in table.pieces():
            writer.write_table(arrow.table(dict(zip(table.header, columns, strict=True)), schema))
