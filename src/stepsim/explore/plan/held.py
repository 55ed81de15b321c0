"""What a search of plans holds fixed, and what it varies where it is asked to."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from stepsim.base.errors import PlanError
from stepsim.files.models.launch import LaunchForm, launch_form
from stepsim.options import OPTIONS
from stepsim.step.model_plan import exchange_of
from stepsim.step.plan_space import PlanSpace
from stepsim.workload.model.choices import ExpertDispatch, Recompute
from stepsim.workload.model.plan import ModelPlan

_Values = Mapping[str, tuple[object, ...]]

_WIDER: Mapping[str, _Values] = MappingProxyType(
    {
        "zero": {"zero": (1, 3)},
        "recompute": {"recompute": (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)},
        "overlap": {"dp_overlap": (False, True), "tp_comm_overlap": (False, True)},
        "dispatch": {"dispatch": tuple(ExpertDispatch)},
        "graphs": {"cuda_graph": (False, True)},
    }
)
_OF_TORCH: Mapping[str, _Values] = MappingProxyType(
    {
        "zero": {"zero": (0, 3)},
        "recompute": {"recompute": (Recompute.NONE, Recompute.OPERATORS, Recompute.FULL)},
    }
)
"""Of these torchtitan has others."""

_HELD = (
    *("zero", "recompute", "dp_overlap", "tp_comm_overlap", "dispatch", "cuda_graph"),
    *("schedule", "precision", "cp_comm", "sequence_parallel", "attention"),
)


def wider_values(names: Iterable[str], framework: str) -> dict[str, tuple[object, ...]]:
    """Values of the options that a search varies beside degrees, by the names of the options.

    `names` are groups of options: zero, recompute, overlap, dispatch, graphs. Raises PlanError.
    """
    torch = launch_form(framework) is LaunchForm.TORCHTITAN
    groups = {**_WIDER, **_OF_TORCH} if torch else _WIDER
    values: dict[str, tuple[object, ...]] = {}
    for name in names:
        if name not in groups:
            raise PlanError(f"search is {name!r}: expected one of {', '.join(groups)}")
        values.update(groups[name])
    return values


def held_values(space: PlanSpace) -> dict[str, str]:
    """Options that all plans of a space share, with their values as people type them."""
    return {
        name: OPTIONS[name].text(value)
        for name in _HELD
        for value in [_held(space, name)]
        if value is not None
    }


def _held(space: PlanSpace, name: str) -> object:
    """The one value of an option; None where it has values, or where it does nothing."""
    if name == "dispatch" and not space.architecture.is_sparse:
        return None
    if name == "cp_comm":
        return exchange_of(space.base)
    if name in ("precision", "sequence_parallel", "attention"):
        asked = getattr(space.base, name)
        return getattr(ModelPlan(), name) if asked is None else asked
    values = space.values(name)
    return values[0] if len(values) == 1 else None
