"""What a user set of a run, as text: results record it, so that two of them can be compared."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields, is_dataclass
from typing import Any

from stepsim.network.measured_times import CommTable
from stepsim.workload.scaling import ComputeScale

_TOLD_ELSEWHERE = frozenset(
    {
        "activation_size",
        "chunks",
        "contention",
        "fold_ranks",
        "global_batch",
        "microbatch_size",
        "microbatches",
        "npus",
        "p2p",
        "plan",
        "pp",
        "progress",
        "rank_order",
        "schedule",
        "topology",
        "workload",
    }
)
"""Arguments of `simulate` that a report shows by what they did."""


def changed_settings(
    arguments: Mapping[str, object], defaults: Mapping[str, object]
) -> dict[str, str]:
    """Arguments of `simulate` that are not the default, by name, e.g. `{"slow": "12:1.3"}`.

    Those that a report shows anyway, such as the schedule, are left out.
    """
    return {
        name: text
        for name, value in arguments.items()
        if name not in _TOLD_ELSEWHERE and value != defaults[name] and (text := _text(value))
    }


def _text(value: object) -> str:
    """A value as a user writes it; empty where it says nothing."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, CommTable):
        return value.source
    if is_dataclass(value):
        return _changed_fields(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_text(each)}" for name, each in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(_text, value))
    return "" if value is None else str(value)


def _changed_fields(value: Any) -> str:
    """Fields of a dataclass that are not the default; one factor where all phases have it."""
    if isinstance(value, ComputeScale) and len(set(astuple(value))) == 1:
        return "" if value.forward == 1 else str(value.forward)
    changed = [f for f in fields(value) if getattr(value, f.name) != f.default]
    return ", ".join(f"{f.name} {_text(getattr(value, f.name))}" for f in changed)
