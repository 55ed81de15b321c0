"""Tables of measured collectives as CSV: a header that names the columns, a measurement per line.

| columns | what |
|---|---|
| `kind`, `op` or `collective` | all_reduce, all_gather, ... |
| `ranks` or `gpus` | members of the group |
| `nodes` | nodes they are spread over; without the column 1, with a warning |
| `bytes` or `size_bytes` | an integer, or a size with a unit; as in `CommOp` |
| `time`, `time_us`, `us`, `time_ns` or `time_ps` | a time with a unit, or a number |
| `oneway_us` or `oneway_ns` | one message of a send_recv that was timed there and back |
| `busbw`, `busbw_GBs` | bus bandwidth, with a unit or in 1e9 bytes/s |
| `machine`, `hw` or `gpu`; `source` | free text: hardware; run, without the column the file |

A line needs a time or a bus bandwidth; where it has both they must agree to 5 %. `algbw`,
`algbw_GBs` and `oneway_GBs` may be there and are not read; any other column is an error. Lines that
begin with # are comments.
"""

from collections.abc import Callable
from decimal import Decimal
from math import inf
from pathlib import Path
from typing import TypeVar

from stepsim.base.axes import CollectiveKind
from stepsim.base.errors import CalibrationError, bad_value, errors_at
from stepsim.base.structs import Noun, shipped
from stepsim.base.units import PS_PER_S, parse_bandwidth, parse_size_bytes, parse_time_ps
from stepsim.base.writing import csv_lines, write_whole
from stepsim.files.collectives.samples import (
    CurveSample,
    collective_kind,
    curves_of,
)
from stepsim.files.reading import csv_rows, whole_number
from stepsim.network.collectives.flows import bus_factor
from stepsim.network.measured_times import CommTable

_COLUMNS = ("machine", "source", "kind", "ranks", "nodes", "bytes", "time_us")
_MAX_RANKS = 1 << 24
_AGREEMENT = 0.05

_Number = TypeVar("_Number", int, float)

_NOT_READ = ("algbw", "algbw_GBs", "oneway_GBs")
_UNITS = {"us": "us", "ns": "ns", "ps": "ps", "GBs": "GB/s"}


class Line(Noun):
    """A line: its place, and the text and the column's name of each field that is not empty."""

    place: str
    texts: dict[str, str]
    names: dict[str, str]

    def need(self, field: str) -> str:
        """The text of a field; raises CalibrationError where it is empty."""
        if field not in self.texts:
            name = self.names.get(field, field)
            raise CalibrationError(f"{self.place}: {name} is empty: expected a value")
        return self.texts[field]

    def count(self, field: str, most: int) -> int:
        """A whole number from 1 to `most`."""
        text = self.need(field)
        return whole_number(self.place, self.names[field], text, CalibrationError, 1, most)

    def quantity(self, field: str, parse: Callable[[str], _Number], allowed: str) -> _Number:
        """A quantity above 0 with a unit; a number takes the unit that the column's name ends in.

        Raises CalibrationError for what cannot be, saying what is `allowed`.
        """
        text, name = self.need(field), self.names[field]
        unit = _UNITS.get(name.rpartition("_")[2], "")
        with errors_at(f"{self.place}: {name}", CalibrationError):
            value = parse(f"{text} {unit}" if unit else text)
        if not 0 < value < inf:
            raise CalibrationError(bad_value(self.place, name, text, allowed))
        return value


def parse_comm_table(text: str, *, source: str) -> CommTable:
    """Table in CSV text; `source` is the file's name.

    Raises CalibrationError naming file, line, column and value.
    """
    header, rows = csv_rows(source, text, CalibrationError)
    names = _columns(header, source)
    samples = []
    for number, row in rows:
        texts = {field: row[name] for field, name in names.items() if row[name]}
        line = Line(place=f"{source}:{number}", texts=texts, names=names)
        samples.append(sample_of(line, source))
    if not samples:
        raise CalibrationError(f"{source}: no measurement: expected one per line after the header")
    missing = "" if "nodes" in names else f"{source}: no column nodes: stepsim assumes one node"
    return CommTable(
        source=source, curves=curves_of(samples), warnings=(missing,) if missing else ()
    )


def write_comm_table(table: CommTable, path: Path) -> None:
    """Write a table as CSV, whole or not at all; raises OutputError."""
    write_whole(path, format_comm_table(table).encode())


def format_comm_table(table: CommTable) -> str:
    """CSV text of a table, exact to the ps."""
    rows: list[tuple[object, ...]] = [_COLUMNS]
    for curve in table.curves:
        for size, time in zip(curve.sizes, curve.times_ps, strict=True):
            micros = format(Decimal(time).scaleb(-6).normalize(), "f")
            rows.append((*curve.key, size, micros))
    return csv_lines(rows)


def _columns(header: list[str], source: str) -> dict[str, str]:
    """The column's name of each field that the file has."""
    columns = shipped(__file__, "columns.toml", dict[str, tuple[str, ...]])
    fields = {name: field for field, several in columns.items() for name in several}
    names: dict[str, str] = {}
    for name in header:
        if name in _NOT_READ:
            continue
        if name not in fields:
            known = ", ".join((*fields, *_NOT_READ))
            raise CalibrationError(bad_value(f"{source}:1", "column", name, f"one of {known}"))
        if fields[name] in names:
            first = names[fields[name]]
            raise CalibrationError(f"{source}:1: columns {first} and {name} say the same: drop one")
        names[fields[name]] = name
    for field in ("kind", "ranks", "size"):
        if field not in names:
            raise CalibrationError(f"{source}:1: no column {' or '.join(columns[field])}")
    if not names.keys() & {"time", "busbw"}:
        raise CalibrationError(f"{source}:1: no column time, time_us, time_ns or busbw")
    return names


def sample_of(line: Line, source: str, agreement: float = _AGREEMENT) -> CurveSample:
    """The measurement of a line; time and bus bandwidth differ by `agreement` at most.

    Raises CalibrationError naming place, column and value.
    """
    kind = collective_kind(line.need("kind"), line.place, line.names["kind"])
    ranks = line.count("ranks", _MAX_RANKS)
    nodes = line.count("nodes", ranks) if "nodes" in line.names else 1
    size = line.quantity("size", _bytes, "above 0")
    machine = line.texts.get("machine", "")
    key = machine, line.texts.get("source", source), kind, ranks, nodes
    return key, size, _time(line, bus_factor(kind, ranks) * size, kind, agreement)


def _bytes(text: str) -> int:
    return parse_size_bytes(f"{text} B" if text.isdecimal() else text)


def _time(line: Line, bus_bytes: float, kind: CollectiveKind, agreement: float) -> int:
    """Picoseconds of a line; `bus_bytes` over the time is the bus bandwidth."""
    one_way = kind is CollectiveKind.SEND_RECV and "oneway" in line.texts
    field = "oneway" if one_way else "time"
    bandwidth = 0.0
    if line.texts.get("busbw", "0").strip("0."):  # else it is not given, or rounded to 0
        bandwidth = line.quantity("busbw", parse_bandwidth, "a bandwidth such as 215 GB/s")
    if field not in line.texts:
        if not bandwidth or not bus_bytes:
            raise CalibrationError(
                f"{line.place}: no time, and no bus bandwidth that tells it: expected one of them"
            )
        return max(1, round(bus_bytes / bandwidth * PS_PER_S))
    time = line.quantity(field, parse_time_ps, "a time above 0")
    said = bus_bytes / time * PS_PER_S
    if bandwidth >= 1e9 and not one_way and abs(said / bandwidth - 1) > agreement:
        raise CalibrationError(
            f"{line.place}: {line.names['busbw']} is {line.texts['busbw']}, but size and time give "
            f"{said / 1e9:.4g} GB/s: expected them to agree to {agreement:.0%}, for {kind} with "
            "the size of the full buffer"
        )
    return time
