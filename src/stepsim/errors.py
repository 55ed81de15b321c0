"""The exceptions stepsim raises: one tree, one clear message each.

Every exception takes the message as its only argument, so that it survives pickling and
SimPy's re-raising (`type(error)(*error.args)`).
"""


class StepsimError(Exception):
    """Base of all errors a user can cause; the command line prints it and exits with 2."""


class UnitError(StepsimError):
    """A quantity has no unit, an unknown unit, or a value outside its range."""


class WorkloadError(StepsimError):
    """A workload file cannot be read or means something stepsim cannot run."""


class TopologyError(StepsimError):
    """A topology file is malformed, or the topology cannot hold the job."""


class PlanError(StepsimError):
    """Parallel degrees, microbatches or options contradict each other."""


class ScheduleError(StepsimError):
    """A pipeline schedule does not exist for these ranks, microbatches or chunks."""


class SimulationError(StepsimError):
    """A run could not finish; the message names the stuck tasks and what each waits for."""


class TraceError(StepsimError):
    """A measured run cannot be read, or its operations cannot have happened as written."""


class CalibrationError(StepsimError):
    """A calibration file is malformed, or holds nothing for what is asked."""


class SweepError(StepsimError):
    """A sweep cannot be run as asked, or its database holds something else."""


class OutputError(StepsimError):
    """A result cannot be written where the user asked."""


def bad_value(place: str, field: str, value: object, allowed: str) -> str:
    """Message for one wrong value: where it stands, what it is, and what is allowed."""
    shown = repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:57]}..."
    return f"{place}: {field} is {shown}: expected {allowed}"
