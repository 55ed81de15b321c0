"""A user's own measurements against simulated steps."""

from collections.abc import Sequence
from typing import Any

from stepsim.api import simulate
from stepsim.errors import StepsimError, TraceError
from stepsim.formats.step_table import MeasuredStep
from stepsim.validation.validate import Compared, Source


def validate_table(measurements: Sequence[MeasuredStep]) -> list[Compared]:
    """Simulate every row and compare step times.

    Raises TraceError naming the row where a simulation refuses its input.
    """
    return [_compare(each) for each in measurements]


def _compare(measurement: MeasuredStep) -> Compared:
    options: dict[str, Any] = dict(measurement.options)
    try:
        result = simulate(
            measurement.workload,
            measurement.topology,
            schedule=measurement.schedule,
            **options,
        )
    except StepsimError as error:
        raise TraceError(f"{measurement.where}: {error}") from None
    name = f"{measurement.workload.name} {result.report.schedule} {result.report.topology}"
    return Compared(
        name=name,
        source=Source.PREDICTION,
        simulated_ps=result.report.step_time_ps,
        measured_ps=measurement.measured_ps,
    )
