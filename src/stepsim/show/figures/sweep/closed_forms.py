"""Bubble fractions that papers give, for even stages and messages that take no time."""

import ast
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Floats
from stepsim.base.errors import ScheduleError
from stepsim.explore.sweep.table import SweepTable
from stepsim.parallel.schedules import build, parse_name
from stepsim.show.figures.sweep.views import View

_POINTS = 200


class _ClosedForm(Struct, frozen=True, kw_only=True):
    """A curve of bubble fractions over microbatches, of one schedule and number of stages."""

    microbatches: Floats
    fraction: Floats


def bubble_closed_form(schedule: str, stages: int, microbatches: Floats) -> Floats | None:
    """Bubble over pipeline time of even stages, (P-1) / (v m + P-1), None where none is known.

    `schedule` is a name such as `1f1b` or `interleaved:4`. P stages, m microbatches, v chunks.
    Huang et al., GPipe (arXiv:1811.06965); Narayanan et al., Megatron-LM (arXiv:2104.04473), who
    divide by the ideal time instead of the whole. Interleaved ones need m to be a multiple of P;
    between those the curve is only a guide.
    """
    if schedule.endswith(".csv"):
        return None
    _, named = parse_name(schedule)
    try:
        built = build(schedule, ranks=stages, microbatches=stages)
    except ScheduleError:
        return None
    chunks = built.placement.chunks
    if not built.fills_once or (chunks > 1 and named is None):
        return None
    fraction: Floats = (stages - 1) / (chunks * microbatches + stages - 1)
    return fraction


def closed_forms(table: SweepTable, view: View) -> Sequence[_ClosedForm | None]:
    """The curve of each line of a figure over microbatches, None for a line that has none."""
    names = view.by.texts if view.by else ("",)
    if view.x.name != "microbatches":
        return [None] * len(names)
    counts = np.array(view.x.values, dtype=np.float64)
    places = np.geomspace(counts.min(), counts.max(), _POINTS)
    return [_curve(table, view, name, places) for name in names]


def _curve(table: SweepTable, view: View, name: str, places: Floats) -> _ClosedForm | None:
    own = {view.by.name: name} if view.by else {}
    settings = {key: own.get(key, _fixed(table, key)) for key in ("schedule", "pp")}
    if None in settings.values():
        return None
    fraction = bubble_closed_form(str(settings["schedule"]), int(str(settings["pp"])), places)
    return None if fraction is None else _ClosedForm(microbatches=places, fraction=fraction)


def _fixed(table: SweepTable, name: str) -> object:
    """What all scenarios of a sweep have, None where an axis varies it."""
    if any(axis.name == name for axis in table.axes):
        return None
    if name == "pp":
        return table.identity.get("stages")
    text = table.identity.get(f"option {name}")
    return ast.literal_eval(text) if text else "1f1b"
