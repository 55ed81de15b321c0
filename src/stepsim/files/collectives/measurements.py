"""Files of measured collectives: what nccl-tests prints, or tables as CSV."""

from collections.abc import Sequence
from pathlib import Path

from stepsim.base.axes import CollectiveKind
from stepsim.base.errors import CalibrationError
from stepsim.base.structs import File
from stepsim.files.collectives.nccl_tests import is_nccl_tests, parse_nccl_tests
from stepsim.files.collectives.times_csv import parse_comm_table
from stepsim.files.reading import read_text
from stepsim.network.measured_times import CommTable


def read_measurements(paths: Sequence[Path], kind: CollectiveKind | None = None) -> CommTable:
    """The curves of all files; `kind` is that of nccl-tests output that does not name its own.

    Raises CalibrationError naming the file and the line at fault.
    """
    expected = "measured collectives as CSV, or what nccl-tests prints"
    tables = []
    for path in paths:
        text = read_text(path, CalibrationError, "measurements", expected)
        if is_nccl_tests(text):
            tables.append(parse_nccl_tests(text, source=str(path), kind=kind))
        else:
            tables.append(parse_comm_table(text, source=str(path)))
    return CommTable(
        source=", ".join(table.source for table in tables),
        curves=tuple(curve for table in tables for curve in table.curves),
        warnings=tuple(warning for table in tables for warning in table.warnings),
    )


def load_benchmarks(
    nccl: CommTable | File | Sequence[File] | None, source: str = ""
) -> CommTable | None:
    """All curves together, or those that fit `source`; None where nothing is named.

    `source` are texts that machine or run of a curve must hold (not: after `!`).
    """
    if not nccl:
        return None
    named = [nccl] if isinstance(nccl, File) else nccl
    table = named if isinstance(named, CommTable) else read_measurements(list(map(Path, named)))
    return table.choose(source) if source else table
