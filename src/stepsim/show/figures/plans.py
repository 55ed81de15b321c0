"""Simulated plans: step time against GPUs or memory, and the plans that no other beats in both."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from stepsim.base.units import time_unit
from stepsim.explore.plan.search import PlanSearch, SearchedPlan
from stepsim.show.figures.drawing import drawn, head, legend
from stepsim.show.figures.style import FigureStyle
from stepsim.show.palette import PATH, series_colour
from stepsim.step.plans import plan_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GIB = 2**30
_MOST_LABELS = 6


@drawn
def plot_plans(found: PlanSearch, style: FigureStyle) -> "Figure":
    """The simulated plans of a search: against GPUs where sizes differ, else memory."""
    sizes = sorted({each.plan.npus for each in found.plans})
    several, (scale, unit) = len(sizes) > 1, time_unit(max(each.judged_ps for each in found.plans))
    figure = style.figure(3.0 if style.narrow else 3.6)
    axes = figure.subplots()
    x, y = zip(*(_place(each, scale, several=several) for each in found.plans), strict=True)
    axes.scatter(x, y, s=12, color=series_colour(0), linewidths=0, label="simulated plan")
    front = plan_front(found.plans, several=several)
    edge = [_place(each, scale, several=several) for each in front]
    across, steps = zip(*edge, strict=True)
    axes.step(across, steps, where="post", color=PATH, linewidth=0.8, label="Pareto front")
    for each, place in list(zip(front, edge, strict=True))[:_MOST_LABELS]:
        axes.annotate(
            plan_words(each.plan),
            place,
            xytext=(3, 3),
            textcoords="offset points",
            fontsize=0.7 * style.font_pt,
        )
    if several:
        axes.set_xscale("log", base=2)
    axes.set_xlabel("GPUs" if several else "memory of the fullest rank (GiB)")
    axes.set_ylabel(f"step time ({unit})")
    axes.grid()
    gpus = f"{sizes[0]:,}" if not several else f"{sizes[0]:,} to {sizes[-1]:,}"
    name = found.plans[0].run.workload
    head(axes, style, f"{name} on {gpus} GPUs: {len(found.plans)} simulated plans")
    legend(figure, style)
    return figure


def plan_front(plans: Sequence[SearchedPlan], *, several: bool) -> list[SearchedPlan]:
    """Plans that no other beats in both, by GPUs (`several` sizes) or memory, ascending."""
    front: list[SearchedPlan] = []
    for each in sorted(plans, key=partial(_place, several=several)):
        if not front or each.judged_ps < front[-1].judged_ps:
            front.append(each)
    return front


def _place(plan: SearchedPlan, scale: int = 1, *, several: bool) -> tuple[float, float]:
    """Where a plan stands: its GPUs or its memory, and its step in a unit of so many ps."""
    across = plan.plan.npus if several else plan.memory_bytes / _GIB
    return across, plan.judged_ps / scale
