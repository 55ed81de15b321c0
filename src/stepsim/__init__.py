"""stepsim: predict one training step on a cluster you do not have, and see why."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepsim import schedules
    from stepsim.api import Result, collective_time, load_topology, load_workload, simulate

__version__ = "0.1.0"
__all__ = [
    "Result",
    "__version__",
    "collective_time",
    "load_topology",
    "load_workload",
    "schedules",
    "simulate",
]


def __getattr__(name: str) -> object:
    """Import the interface when it is first used: `import stepsim` costs nothing."""
    if name == "schedules":
        import importlib

        return importlib.import_module("stepsim.schedules")
    if name in __all__:
        from stepsim import api

        return getattr(api, name)
    raise AttributeError(f"module 'stepsim' has no attribute {name!r}")
