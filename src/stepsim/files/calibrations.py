"""Calibrations of predictions: TOML, and the GEMM tables that rates are fitted to.

A `calibration.toml` of measured runs holds a `Calibration`.
"""

from pathlib import Path

from stepsim.base.axes import Phase
from stepsim.base.errors import CalibrationError, errors_at
from stepsim.base.fields import checked
from stepsim.base.structs import File, replace, toml_text
from stepsim.base.writing import write_whole
from stepsim.files.reading import csv_rows, first_bytes, number_in, read_text, read_toml
from stepsim.measured.calibration.calibration import Calibration
from stepsim.measured.calibration.products import fit_products
from stepsim.workload.model.calibration import (
    MeasuredRate,
    ModelCalibration,
)
from stepsim.workload.model.choices import Precision
from stepsim.workload.model.device import Device
from stepsim.workload.model.pricing import WEIGHT_GRADIENT_FACTOR


def read_model_calibration(path: Path) -> ModelCalibration:
    """A calibration written by `stepsim calibrate model`; raises CalibrationError."""
    found = read_toml(path, ModelCalibration, CalibrationError, "calibration of predictions")
    return replace(found, path=str(path))


def fit_gemm_rates(path: Path, device: Device, precision: Precision) -> MeasuredRate:
    """Rate and start of a table of measured products: columns m, n, k and tflops.

    Rows that a column `precision` gives another one are passed over; those that a column `phase`
    calls weight gradients are slower by what predictions add to them. Fitted to shapes of at least
    1,024 a side (all where there are none): the time is flops / rate + start, residuals relative.
    Raises CalibrationError for fewer than three shapes.
    """
    text = read_text(path, CalibrationError, "table of matrix products", "CSV")
    names, rows = csv_rows(path, text, CalibrationError)
    columns = ("m", "n", "k", "tflops" if "tflops" in names else "tflops_median")
    for name in columns:
        if name not in names:
            raise CalibrationError(f"{path}: no column {name}: expected m, n, k, tflops")
    sides, seconds = list[tuple[float, float, float]](), list[float]()
    for number, row in rows:
        if row.get("precision", precision) == precision:
            place = f"{path}: row {number}"
            m, n, k, tflops = (
                number_in(place, name, row[name], CalibrationError) for name in columns
            )
            slower = row.get("phase") == Phase.WEIGHT_GRAD
            tflops *= WEIGHT_GRADIENT_FACTOR if slower else 1.0
            sides.append((m, n, k))
            seconds.append(2.0 * m * n * k / (tflops * 1e12))
    with errors_at(path, CalibrationError):
        return fit_products(sides, seconds, device, precision)


def is_model_calibration(path: Path) -> bool:
    """Whether a file holds numbers of predictions, not times of a traced machine."""
    start = first_bytes(path, 1 << 16)
    tables = b"[[factor]]", b"[[rate]]"
    return b"schema_version" not in start and any(table in start for table in tables)


@checked
def read_calibration(path: File) -> Calibration:
    """Calibration in a TOML file; raises CalibrationError naming file, field and value."""
    if is_model_calibration(Path(path)):
        raise CalibrationError(f"{path}: a calibration of predictions: expected one of traced runs")
    return read_toml(Path(path), Calibration, CalibrationError, "calibration")


@checked
def write_calibration(calibration: Calibration, path: File) -> None:
    """Write a calibration; raises OutputError when the file cannot be written."""
    write_whole(Path(path), toml_text(calibration).encode())
