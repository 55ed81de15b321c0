"""A user's own measurements against simulated steps."""

from collections.abc import Sequence

from stepsim.base.errors import StepsimError, TraceError
from stepsim.files.asked import read_inputs
from stepsim.files.step_table import MeasuredStep
from stepsim.measured.calibration.applied import with_calibration
from stepsim.measured.calibration.calibration import Calibration
from stepsim.network.measured_times import CommTable
from stepsim.step.simulate import SimulatedStep, simulate_step
from stepsim.validation.validate import Compared, Source


def validate_table(
    measurements: Sequence[MeasuredStep],
    calibration: Calibration | None = None,
    table: CommTable | None = None,
) -> list[Compared]:
    """Simulate every row and compare step times.

    A calibration sets host time, where the row does not, and times of collectives; `table` holds
    other times of collectives. Raises TraceError naming the row where a simulation refuses its
    input.
    """
    return [_compare(each, calibration, table) for each in measurements]


def _compare(
    measurement: MeasuredStep, calibration: Calibration | None, table: CommTable | None
) -> Compared:
    try:
        report = _simulated(measurement, calibration, table).report
    except StepsimError as error:
        raise TraceError(f"{measurement.where}: {error}") from None
    said = (*report.findings, *report.warnings)
    options = [f"{name} {value}" for name, value in measurement.options.items()]
    names = [measurement.workload.name, report.schedule, report.topology, *options]
    return Compared(
        name=", ".join(names),
        source=Source.PREDICTION,
        simulated_ps=report.step_time_ps,
        measured_ps=measurement.measured_ps,
        notes=tuple(f"{measurement.where}: {note}" for note in said),
    )


def _simulated(
    measurement: MeasuredStep, calibration: Calibration | None, table: CommTable | None
) -> SimulatedStep:
    """The step of a row; `table` comes before the calibration's times of collectives."""
    typed = {"comm_table": table, "schedule": measurement.schedule, **measurement.options}
    job = read_inputs(measurement.workload, measurement.topology, typed)
    options = with_calibration(job.options, calibration) if calibration else job.options
    return simulate_step(job.workload, job.topology, options, notes=job.notes)
