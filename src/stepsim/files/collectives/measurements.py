"""Files of measured collectives, whatever wrote them: the list of forms, each with its reader."""

from collections.abc import Callable, Sequence
from pathlib import Path

from stepsim.base.errors import CalibrationError
from stepsim.base.structs import Noun
from stepsim.files.collectives.nccl_tests import is_nccl_tests, parse_nccl_tests
from stepsim.files.collectives.times_csv import parse_comm_table
from stepsim.files.reading import read_text
from stepsim.network.measured_times import CommTable
from stepsim.workload.axes import CollectiveKind


class _Format(Noun):
    """A form of files: what it is called, how a text is told to be one, and what is in it.

    `parse` takes text, name of the file, and the kind of what does not name its own.
    """

    name: str
    tells: Callable[[str], bool]
    parse: Callable[[str, str, CollectiveKind | None], CommTable]


_FORMATS = (
    _Format(
        name="what nccl-tests prints",
        tells=is_nccl_tests,
        parse=lambda text, source, kind: parse_nccl_tests(text, source=source, kind=kind),
    ),
    _Format(
        name="measured collectives as CSV",
        tells=lambda text: True,
        parse=lambda text, source, kind: parse_comm_table(text, source=source),
    ),
)
"""The first that tells a text to be its own reads it."""


def read_measurements(paths: Sequence[Path], kind: CollectiveKind | None = None) -> CommTable:
    """The curves of all files; `kind` is that of nccl-tests output that does not name its own.

    Raises CalibrationError naming the file and the line at fault.
    """
    expected = ", or ".join(each.name for each in reversed(_FORMATS))
    tables = []
    for path in paths:
        text = read_text(path, CalibrationError, "measurements", expected, encoding="utf-8-sig")
        form = next(each for each in _FORMATS if each.tells(text))
        tables.append(form.parse(text, str(path), kind))
    return CommTable(
        source=", ".join(table.source for table in tables),
        curves=tuple(curve for table in tables for curve in table.curves),
        warnings=tuple(warning for table in tables for warning in table.warnings),
    )
