"""A user's own measurements: rows of workload, topology, schedule, options and measured seconds.

CSV with a header line, or TOML with `[[run]]` tables, with the same names:

    workload,topology,schedule,microbatches,measured_s
    gpt.txt,hgx-h100,1f1b,32,4.21

`measured_log` names a framework's log of steps instead of the seconds. Paths are relative to the
table. Empty cells mean the default.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec

from stepsim.base.errors import TraceError
from stepsim.base.structs import Noun, explain_wrong
from stepsim.base.units import PS_PER_S, Value
from stepsim.files.load import beside
from stepsim.files.reading import DEFAULT_TOPOLOGY, csv_rows, number_in, read_text, toml_values
from stepsim.files.traces.step_lines import read_step_log
from stepsim.options import OPTIONS

# Options of a row beside workload, topology and schedule, and what each is in TOML.
_OPTIONS: Mapping[str, type[Any]] = {
    name: str if option.read else option.quantity.kind
    for name, option in OPTIONS.items()
    if (option.read or not option.is_file) and name != "schedule"
}

MeasuredStepRow = msgspec.defstruct(
    "MeasuredStepRow",
    [
        ("workload", str),
        ("topology", str, DEFAULT_TOPOLOGY),
        ("schedule", str, "1f1b"),
        ("measured_s", float | msgspec.UnsetType, msgspec.UNSET),
        ("measured_log", str | msgspec.UnsetType, msgspec.UNSET),
        *((name, kind | msgspec.UnsetType, msgspec.UNSET) for name, kind in _OPTIONS.items()),
    ],
    namespace={"__doc__": "A measured step: seconds, and options of `stepsim simulate`."},
    forbid_unknown_fields=True,
    kw_only=True,
)
_COLUMNS = MeasuredStepRow.__struct_fields__


class StepTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A table of measured steps as TOML; a CSV has the same columns."""

    run: list[MeasuredStepRow]  # type: ignore[valid-type]


class MeasuredStep(Noun):
    """One measured step. `where` is its place in the table."""

    where: str
    workload: Path
    topology: str | None
    schedule: str
    options: Mapping[str, Value]
    measured_ps: int


def read_step_table(path: Path) -> list[MeasuredStep]:
    """The rows of a table; raises TraceError naming file, row, column and value at fault."""
    text = read_text(path, TraceError, "table", "a table of measured runs")
    rows = list(_toml_rows(path, text) if path.suffix == ".toml" else _csv_rows(path, text))
    if not rows:
        raise TraceError(f"{path}: no rows: expected {', '.join(_COLUMNS[:4])}, ...")
    place = cache(partial(beside, path))  # `validate` reads 25,000 rows in 1 s so, 12 without
    return [_step(path, where, row, place) for where, row in rows]


def _csv_rows(path: Path, text: str) -> Iterator[tuple[str, Mapping[str, Value]]]:
    for line, row in csv_rows(path, text, TraceError)[1]:
        yield f"{path}:{line}", {name: cell for name, cell in row.items() if cell}


def _toml_rows(path: Path, text: str) -> Iterator[tuple[str, Mapping[str, Value]]]:
    document = toml_values(path, text, TraceError)
    runs = document.get("run", [])
    if set(document) - {"run"} or not isinstance(runs, list):
        raise TraceError(f"{path}: expected [[run]] tables only")
    for number, run in enumerate(runs, 1):
        if not isinstance(run, dict):
            raise TraceError(f"{path}: run {number}: expected a [[run]] table")
        yield f"{path}: run {number}", run


def _step(
    path: Path, where: str, row: Mapping[str, Value], place: Callable[[str], Path]
) -> MeasuredStep:
    texts = {name: str(value) for name, value in row.items()}
    try:
        said = msgspec.to_builtins(msgspec.convert(texts, MeasuredStepRow, strict=False))
    except msgspec.ValidationError as error:
        why = explain_wrong(where, texts, MeasuredStepRow, str(error), strict=False)
        raise TraceError(why) from None
    if len(row.keys() & {"measured_s", "measured_log"}) != 1:
        raise TraceError(f"{where}: expected one of measured_s and measured_log")
    topology = texts.get("topology")
    file = Path(topology or "")
    if file.suffix or len(file.parts) > 1:  # else it is a shipped one's name
        topology = str(path.parent / file)
    options = {name: said[name] for name in row if name in _OPTIONS}
    return MeasuredStep(
        where=where,
        workload=place(said["workload"]),
        topology=topology,
        schedule=said["schedule"],
        options=options,
        measured_ps=_measured(path, where, texts, options),
    )


def _measured(path: Path, where: str, row: Mapping[str, str], options: Mapping[str, Value]) -> int:
    """The step as stated, or as a framework's log tells it."""
    if "measured_s" in row:
        seconds = number_in(where, "measured_s", row["measured_s"], TraceError, most=1e6)
        return round(seconds * PS_PER_S)
    names = ("npus", "global_batch", "sequence")
    counts = [each for each in map(options.get, names) if isinstance(each, int) and each > 0]
    tokens = None
    if len(counts) == len(names):
        npus, samples, length = counts
        tokens = samples * length // npus
    return read_step_log(path.parent / row["measured_log"]).median_ps(tokens)
