"""stepsim: predict one training step on a cluster you do not have, and see why."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepsim.base.errors import (
        StepsimError as StepsimError,
        StepsimWarning as StepsimWarning,
    )
    from stepsim.face.batches import (
        BatchesResult as BatchesResult,
        batches as batches,
    )
    from stepsim.face.inspections import (
        InspectionResult as InspectionResult,
        inspect as inspect,
        list_models as list_models,
    )
    from stepsim.face.logs import (
        LogExplanationResult as LogExplanationResult,
        explain_log as explain_log,
    )
    from stepsim.face.models import (
        Plan as Plan,
        make_schedule as make_schedule,
        model as model,
    )
    from stepsim.face.plans import (
        PlanResult as PlanResult,
        assert_plan as assert_plan,
        plan as plan,
    )
    from stepsim.face.results import (
        AgainstResult as AgainstResult,
        Comparison as Comparison,
        NoiseDistribution as NoiseDistribution,
        Result as Result,
        SensitivityResult as SensitivityResult,
    )
    from stepsim.face.runs import (
        ImprovementsResult as ImprovementsResult,
        StragglersResult as StragglersResult,
        ValidationResult as ValidationResult,
        calibrate as calibrate,
        improve as improve,
        load_profile as load_profile,
        load_run as load_run,
        read_calibration as read_calibration,
        simulate_run as simulate_run,
        stragglers as stragglers,
        validate as validate,
        what_if as what_if,
        write_calibration as write_calibration,
    )
    from stepsim.face.steps import (
        collective_time as collective_time,
        compare as compare,
        load_topology as load_topology,
        load_workload as load_workload,
        noise as noise,
        sensitivity as sensitivity,
        simulate as simulate,
    )
    from stepsim.face.sweeps import (
        SweepResult as SweepResult,
        load_sweep as load_sweep,
        sweep as sweep,
    )
    from stepsim.parallel import schedules as schedules

__version__ = "0.1.0"
# The public names, by the modules that have them.
_HOMES = {
    "base.errors": "StepsimError StepsimWarning",
    "face.results": "AgainstResult Comparison NoiseDistribution Result SensitivityResult",
    "face.steps": "collective_time compare load_topology load_workload noise sensitivity simulate",
    "face.batches": "BatchesResult batches",
    "face.plans": "PlanResult assert_plan plan",
    "face.runs": (
        "ImprovementsResult StragglersResult ValidationResult calibrate "
        "improve load_profile load_run read_calibration simulate_run "
        "stragglers validate what_if write_calibration"
    ),
    "face.inspections": "InspectionResult inspect list_models",
    "face.logs": "LogExplanationResult explain_log",
    "face.models": "Plan make_schedule model",
    "face.sweeps": "SweepResult load_sweep sweep",
}
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
