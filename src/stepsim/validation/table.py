"""A user's own measurements against simulated steps."""

from collections.abc import Sequence
from typing import Any

from stepsim.base.errors import StepsimError, TraceError
from stepsim.files.step_table import MeasuredStep
from stepsim.measured.calibration.calibration import Calibration
from stepsim.network.measured_times import CommTable
from stepsim.step.simulate import simulate
from stepsim.validation.load import simulate_options
from stepsim.validation.validate import Compared, Source
from stepsim.workload.scaling import parse_compute_scale


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
    known = simulate_options(calibration) if calibration else {}
    known |= {"comm_table": table} if table else {}
    return [_compare(each, known) for each in measurements]


def _compare(measurement: MeasuredStep, known: dict[str, Any]) -> Compared:
    try:
        result = simulate(
            measurement.workload,
            measurement.topology,
            schedule=measurement.schedule,
            **known | _arguments(measurement),
        )
    except StepsimError as error:
        raise TraceError(f"{measurement.where}: {error}") from None
    report = result.report
    options = [f"{name} {value}" for name, value in measurement.options.items()]
    names = [measurement.workload.name, report.schedule, report.topology, *options]
    return Compared(
        name=", ".join(names),
        source=Source.PREDICTION,
        simulated_ps=report.step_time_ps,
        measured_ps=measurement.measured_ps,
        notes=tuple(f"{measurement.where}: {note}" for note in report.warnings),
    )


def _arguments(measurement: MeasuredStep) -> dict[str, Any]:
    """Options as arguments of `simulate`."""
    arguments: dict[str, Any] = dict(measurement.options)
    if "compute_scale" in arguments:
        arguments["compute_scale"] = parse_compute_scale(arguments["compute_scale"])
    if "expert_skew" in arguments:
        arguments["expert_load"] = arguments.pop("expert_skew")
    return arguments
