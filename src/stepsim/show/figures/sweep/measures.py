"""The number that lines and maps show: step time with its unit, or bubble fraction."""

from dataclasses import dataclass

from stepsim.base.arrays import Floats
from stepsim.base.units import PS_PER_S
from stepsim.explore.sweep.table import SweepTable
from stepsim.show.figures.sweep.scales import TIMES, unit_of
from stepsim.show.figures.sweep.views import FigureKind, View


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Values over the axes of a view, in the unit that the label names; NaN without a result."""

    values: Floats
    label: str


def measure(table: SweepTable, view: View, kind: FigureKind) -> Measure:
    """Step times or bubble fractions of the fastest scenarios."""
    if kind is FigureKind.BUBBLE:
        (fractions,) = table.fastest(view.shown, ["bubble_fraction"])
        return Measure(values=100 * fractions, label="bubble (% of the pipeline)")
    (times,) = table.fastest(view.shown, ["step_time_ps"]) / PS_PER_S
    scale, unit = unit_of(times, TIMES)
    return Measure(values=times / scale, label=f"step time ({unit})")
