"""stepsim: predict one training step on a cluster you do not have, and see why."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepsim import schedules
    from stepsim.api import Result, collective_time, simulate
    from stepsim.loading import load_topology, load_workload

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
    import importlib

    if name == "schedules":
        return importlib.import_module("stepsim.schedules")
    if name in __all__:
        home = "loading" if name.startswith("load_") else "api"
        return getattr(importlib.import_module(f"stepsim.{home}"), name)
    raise AttributeError(f"module 'stepsim' has no attribute {name!r}")
