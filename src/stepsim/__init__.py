"""stepsim: predict one training step on a cluster you do not have, and see why."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepsim.base.errors import StepsimError, StepsimWarning
    from stepsim.face import (
        AgainstResult,
        Comparison,
        NoiseDistribution,
        Result,
        SensitivityResult,
        collective_time,
        compare,
        load_topology,
        load_workload,
        noise,
        sensitivity,
        simulate,
    )
    from stepsim.face.batches import BatchesResult, batches
    from stepsim.face.inspections import InspectionResult, inspect, list_models
    from stepsim.face.logs import LogExplanationResult, explain_log
    from stepsim.face.models import ModelPlan, make_schedule, model
    from stepsim.face.plans import PlanResult, assert_plan, plan
    from stepsim.face.runs import (
        ImprovementsResult,
        StragglersResult,
        ValidationResult,
        calibrate,
        improve,
        load_profile,
        load_run,
        read_calibration,
        simulate_run,
        stragglers,
        validate,
        what_if,
        write_calibration,
    )
    from stepsim.face.sweeps import SweepResult, load_sweep, sweep
    from stepsim.parallel import schedules

__version__ = "0.1.0"
__all__ = [
    "AgainstResult",
    "BatchesResult",
    "Comparison",
    "ImprovementsResult",
    "InspectionResult",
    "LogExplanationResult",
    "ModelPlan",
    "NoiseDistribution",
    "PlanResult",
    "Result",
    "SensitivityResult",
    "StepsimError",
    "StepsimWarning",
    "StragglersResult",
    "SweepResult",
    "ValidationResult",
    "__version__",
    "assert_plan",
    "batches",
    "calibrate",
    "collective_time",
    "compare",
    "explain_log",
    "improve",
    "inspect",
    "list_models",
    "load_profile",
    "load_run",
    "load_sweep",
    "load_topology",
    "load_workload",
    "make_schedule",
    "model",
    "noise",
    "plan",
    "read_calibration",
    "schedules",
    "sensitivity",
    "simulate",
    "simulate_run",
    "stragglers",
    "sweep",
    "validate",
    "what_if",
    "write_calibration",
]
_HOMES = {
    "base.errors": ("StepsimError", "StepsimWarning"),
    "face": (
        "AgainstResult",
        "Comparison",
        "NoiseDistribution",
        "Result",
        "SensitivityResult",
        "collective_time",
        "compare",
        "load_topology",
        "load_workload",
        "noise",
        "sensitivity",
        "simulate",
    ),
    "face.batches": ("BatchesResult", "batches"),
    "face.plans": (
        "PlanResult",
        "assert_plan",
        "plan",
    ),
    "face.runs": (
        "ImprovementsResult",
        "StragglersResult",
        "ValidationResult",
        "calibrate",
        "improve",
        "load_profile",
        "load_run",
        "read_calibration",
        "simulate_run",
        "stragglers",
        "validate",
        "what_if",
        "write_calibration",
    ),
    "face.inspections": (
        "InspectionResult",
        "inspect",
        "list_models",
    ),
    "face.logs": (
        "LogExplanationResult",
        "explain_log",
    ),
    "face.models": (
        "ModelPlan",
        "make_schedule",
        "model",
    ),
    "face.sweeps": (
        "SweepResult",
        "load_sweep",
        "sweep",
    ),
}


def __getattr__(name: str) -> object:
    """Import the interface when it is first used: `import stepsim` costs nothing."""
    import importlib

    if name == "schedules":
        return importlib.import_module("stepsim.parallel.schedules")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"stepsim.{home}"), name)
    raise AttributeError(f"module 'stepsim' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, which are imported when they are first used."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
