"""Calibration files, `calibration.toml`; what they hold: `stepsim.measured.calibration.toml`."""

from pathlib import Path

from stepsim.base.arguments import checked
from stepsim.base.documents import SCHEMA_VERSION, toml_text
from stepsim.base.errors import CalibrationError, StepsimError, bad_value
from stepsim.files.reading import read_toml
from stepsim.files.writing import write_whole
from stepsim.measured.calibration.calibration import Calibration
from stepsim.measured.calibration.toml import CalibrationFile


@checked
def read_calibration(path: str | Path) -> Calibration:
    """Calibration in a TOML file; raises CalibrationError naming file, field and value."""
    file = read_toml(Path(path), CalibrationFile, CalibrationError, "calibration")
    if file.schema_version != SCHEMA_VERSION:
        allowed = str(SCHEMA_VERSION)
        raise CalibrationError(bad_value(str(path), "schema_version", file.schema_version, allowed))
    try:
        return file.calibration()
    except StepsimError as error:
        raise CalibrationError(f"{path}: {error}") from None


@checked
def write_calibration(calibration: Calibration, path: str | Path) -> None:
    """Write a calibration; raises OutputError when the file cannot be written."""
    write_whole(Path(path), toml_text(CalibrationFile.of(calibration)).encode())
