"""What a sweep has found, as a document: `stepsim sweep --json`."""

from collections.abc import Iterator
from typing import Annotated, Any, Self

from msgspec import Meta

from stepsim.base.structs import (
    Bytes,
    BytesPerSecond,
    Count,
    Document,
    Entry,
    Names,
    Picoseconds,
    Share,
)
from stepsim.explore.sweep.table import SweepTable


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
            own: dict[str, Any] = dict(zip(table.header, row, strict=True))
            own["fits"] = None if own["fits"] is None else bool(own["fits"])
            settings = {axis.name: own.pop(axis.column) for axis in table.axes}
            times = {part.removesuffix("_ps"): own.pop(part) for part in parts}
            kept = times if times and own["error"] is None else None
            yield _SweptEntry(settings=settings, breakdown_ps=kept, **own)
