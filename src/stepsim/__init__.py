"""stepsim: predict one training step on a cluster you do not have, and see why."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepsim import schedules
    from stepsim.api import Result, collective_time, simulate
    from stepsim.loading import load_topology, load_workload
    from stepsim.runs import (
        calibrate,
        load_run,
        read_calibration,
        simulate_run,
        validate,
        what_if,
        write_calibration,
    )

__version__ = "0.1.0"
__all__ = [
    "Result",
    "__version__",
    "calibrate",
    "collective_time",
    "load_run",
    "load_topology",
    "load_workload",
    "read_calibration",
    "schedules",
    "simulate",
    "simulate_run",
    "validate",
    "what_if",
    "write_calibration",
]
_HOMES = {
    "api": ("Result", "collective_time", "simulate"),
    "loading": ("load_topology", "load_workload"),
    "runs": (
        "calibrate",
        "load_run",
        "read_calibration",
        "simulate_run",
        "validate",
        "what_if",
        "write_calibration",
    ),
}


def __getattr__(name: str) -> object:
    """Import the interface when it is first used: `import stepsim` costs nothing."""
    import importlib

    if name == "schedules":
        return importlib.import_module("stepsim.schedules")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"stepsim.{home}"), name)
    raise AttributeError(f"module 'stepsim' has no attribute {name!r}")
