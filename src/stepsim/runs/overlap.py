"""What communications take of GPUs, from profiles and from tables of kernels beside them."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct

from stepsim.base.errors import CalibrationError, PlanError
from stepsim.files.accelerators import read_device, read_gpu
from stepsim.files.beside_csv import read_beside_rows
from stepsim.files.traces.forms import read_profile
from stepsim.measured.calibration.overlap import FEWEST_ROWS, EngineFit, fit_overlap
from stepsim.measured.device.kernels import AttentionCall, KernelTimer, MovingCall, ProductCall
from stepsim.measured.device.shapes import Shapes
from stepsim.measured.kernels_beside import BesideRow, SyntheticLoad, beside_rows
from stepsim.workload.model.calibration import MeasuredTraits, ModelCalibration
from stepsim.workload.model.device import Device
from stepsim.workload.model.plan import Precision
from stepsim.workload.overlap import GpuLimits

OverlapFits = Sequence[tuple[Device, EngineFit]]
"""What was found of each device's communications."""


def overlap_rows(paths: Sequence[Path]) -> tuple[list[BesideRow], list[str]]:
    """Kernels alone and beside communication, and what to know of the profiles they are from.

    Raises CalibrationError where no kernel ran both ways, TraceError for a file that is no profile.
    """
    rows: list[BesideRow] = []
    notes: list[str] = []
    for path in paths:
        if path.suffix == ".csv":
            rows += read_beside_rows(path)
        else:
            profile = read_profile(path)
            rows += beside_rows(profile)
            notes += profile.warnings
    if not rows:
        raise CalibrationError(
            f"{', '.join(map(str, paths))}: no kernel ran both alone and beside communication, "
            "twice each: expected compute and communication on streams of their own"
        )
    return rows, notes


def calibrate_overlap_rows(
    rows: Sequence[BesideRow], device: str | None, sources: Sequence[str]
) -> tuple[ModelCalibration, OverlapFits]:
    """What communications took of each GPU, and how far the law is off with it.

    All rows are of `device` where it is given. Raises PlanError for a GPU that no device file
    describes.
    """
    groups: dict[str, list[BesideRow]] = {}
    for row in rows:
        groups.setdefault(row.gpu, []).append(row)
    devices = {called: read_device(device) if device else _called(called) for called in groups}
    of_device: dict[str, list[BesideRow]] = {}
    for called, own in groups.items():
        of_device.setdefault(devices[called].name, []).extend(own)
    known = {found.name: found for found in devices.values()}
    fits = [
        (known[name], fit)
        for name, own in sorted(of_device.items())
        for fit in fit_overlap(own, GpuLimits.of(known[name]))
    ]
    measured = tuple(
        MeasuredTraits(
            device=found.name, engine=fit.engine, traits=fit.traits, rows=fit.rows, error=fit.error
        )
        for found, fit in fits
    )
    few = f"no communication has {FEWEST_ROWS} clean kernels of 10 us and more beside it"
    notes = () if fits else (f"{', '.join(sources)}: {few}: nothing is calibrated",)
    return ModelCalibration(overlap=measured, sources=tuple(sources), notes=notes), fits


def _called(called: str) -> Device:
    try:
        return read_gpu(called)
    except PlanError as error:
        raise PlanError(f"{error} (--device)") from None


class MeasuredOverlap(Struct, frozen=True, kw_only=True):
    """Kernels that a timer ran alone and beside loads, and the limits of their GPU."""

    rows: list[BesideRow]
    gpu: GpuLimits


def measured_overlap(
    timer: KernelTimer, shapes: Shapes, loads: Sequence[SyntheticLoad], device: Device
) -> MeasuredOverlap:
    """Kernels of a model alone and beside loads on the timer's device, as its profiler saw them.

    Raises CalibrationError where the device runs no such loads.
    """
    calls: list[ProductCall | AttentionCall | MovingCall]
    calls = [*shapes.products((Precision.BF16,)), *shapes.attention(), *shapes.moving()]
    with TemporaryDirectory() as folder:
        trace = Path(folder) / "overlap.json"
        timer.overlap(calls, loads, trace)
        rows = beside_rows(read_profile(trace), apart=True)
    return MeasuredOverlap(rows=rows, gpu=GpuLimits.of(device))
