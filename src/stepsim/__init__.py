"""stepsim: predict one training step on a cluster you do not have, and see why."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepsim.base.errors import (
        StepsimError as StepsimError,
    )
    from stepsim.base.errors import (
        StepsimWarning as StepsimWarning,
    )
    from stepsim.face import (
        AgainstResult as AgainstResult,
    )
    from stepsim.face import (
        Comparison as Comparison,
    )
    from stepsim.face import (
        NoiseDistribution as NoiseDistribution,
    )
    from stepsim.face import (
        Result as Result,
    )
    from stepsim.face import (
        SensitivityResult as SensitivityResult,
    )
    from stepsim.face import (
        collective_time as collective_time,
    )
    from stepsim.face import (
        compare as compare,
    )
    from stepsim.face import (
        load_topology as load_topology,
    )
    from stepsim.face import (
        load_workload as load_workload,
    )
    from stepsim.face import (
        noise as noise,
    )
    from stepsim.face import (
        sensitivity as sensitivity,
    )
    from stepsim.face import (
        simulate as simulate,
    )
    from stepsim.face.batches import (
        BatchesResult as BatchesResult,
    )
    from stepsim.face.batches import (
        batches as batches,
    )
    from stepsim.face.inspections import (
        InspectionResult as InspectionResult,
    )
    from stepsim.face.inspections import (
        inspect as inspect,
    )
    from stepsim.face.inspections import (
        list_models as list_models,
    )
    from stepsim.face.logs import (
        LogExplanationResult as LogExplanationResult,
    )
    from stepsim.face.logs import (
        explain_log as explain_log,
    )
    from stepsim.face.models import (
        ModelPlan as ModelPlan,
    )
    from stepsim.face.models import (
        make_schedule as make_schedule,
    )
    from stepsim.face.models import (
        model as model,
    )
    from stepsim.face.plans import (
        PlanResult as PlanResult,
    )
    from stepsim.face.plans import (
        assert_plan as assert_plan,
    )
    from stepsim.face.plans import (
        plan as plan,
    )
    from stepsim.face.runs import (
        ImprovementsResult as ImprovementsResult,
    )
    from stepsim.face.runs import (
        StragglersResult as StragglersResult,
    )
    from stepsim.face.runs import (
        ValidationResult as ValidationResult,
    )
    from stepsim.face.runs import (
        calibrate as calibrate,
    )
    from stepsim.face.runs import (
        improve as improve,
    )
    from stepsim.face.runs import (
        load_profile as load_profile,
    )
    from stepsim.face.runs import (
        load_run as load_run,
    )
    from stepsim.face.runs import (
        read_calibration as read_calibration,
    )
    from stepsim.face.runs import (
        simulate_run as simulate_run,
    )
    from stepsim.face.runs import (
        stragglers as stragglers,
    )
    from stepsim.face.runs import (
        validate as validate,
    )
    from stepsim.face.runs import (
        what_if as what_if,
    )
    from stepsim.face.runs import (
        write_calibration as write_calibration,
    )
    from stepsim.face.sweeps import (
        SweepResult as SweepResult,
    )
    from stepsim.face.sweeps import (
        load_sweep as load_sweep,
    )
    from stepsim.face.sweeps import (
        sweep as sweep,
    )
    from stepsim.parallel import schedules as schedules

__version__ = "0.1.0"
_HOMES = {
    "base.errors": "StepsimError StepsimWarning",
    "face": (
        "AgainstResult Comparison NoiseDistribution Result SensitivityResult "
        "collective_time compare load_topology load_workload noise sensitivity "
        "simulate"
    ),
    "face.batches": "BatchesResult batches",
    "face.plans": "PlanResult assert_plan plan",
    "face.runs": (
        "ImprovementsResult StragglersResult ValidationResult calibrate "
        "improve load_profile load_run read_calibration simulate_run "
        "stragglers validate what_if write_calibration"
    ),
    "face.inspections": "InspectionResult inspect list_models",
    "face.logs": "LogExplanationResult explain_log",
    "face.models": "ModelPlan make_schedule model",
    "face.sweeps": "SweepResult load_sweep sweep",
}
"""The public names, by the modules that have them."""
__all__ = ["__version__", "schedules", *" ".join(_HOMES.values()).split()]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    """Import the interface when it is first used: `import stepsim` costs nothing."""
    import importlib

    if name == "schedules":
        return importlib.import_module("stepsim.parallel.schedules")
    for home, names in _HOMES.items():
        if name in names.split():
            return getattr(importlib.import_module(f"stepsim.{home}"), name)
    raise AttributeError(f"module 'stepsim' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, which are imported when they are first used."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
