"""Simulated plans: step time against GPUs or memory, and the plans that no other beats in both."""

from collections.abc import Sequence
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
    several = len({each.plan.npus for each in found.plans}) > 1
    figure = style.figure(3.0 if style.narrow else 3.6)
    axes = figure.subplots()
    scale, unit = time_unit(max(each.judged_ps for each in found.plans))
    points = [(_across(each, several=several), each.judged_ps / scale) for each in found.plans]
    x, y = zip(*points, strict=True)
    axes.scatter(x, y, s=12, color=series_colour(0), linewidths=0, label="simulated plan")
    front = plan_front(found.plans, several=several)
    edge = [(_across(each, several=several), each.judged_ps / scale) for each in front]
    across, steps = zip(*edge, strict=True)
    axes.step(across, steps, where="post", color=PATH, linewidth=0.8, label="Pareto front")
    for each, (here, step) in list(zip(front, edge, strict=True))[:_MOST_LABELS]:
        axes.annotate(
            plan_words(each.plan),
            (here, step),
            xytext=(3, 3),
            textcoords="offset points",
            fontsize=0.7 * style.font_pt,
        )
    if several:
        axes.set_xscale("log", base=2)
    axes.set_xlabel("GPUs" if several else "memory of the fullest rank (GiB)")
    axes.set_ylabel(f"step time ({unit})")
    axes.grid()
    sizes = sorted({each.plan.npus for each in found.plans})
    gpus = f"{sizes[0]:,}" if not several else f"{sizes[0]:,} to {sizes[-1]:,}"
    name = found.plans[0].run.workload
    head(axes, style, f"{name} on {gpus} GPUs: {len(found.plans)} simulated plans")
    legend(figure, style, axes.get_legend_handles_labels()[0])
    return figure


def plan_front(plans: Sequence[SearchedPlan], *, several: bool) -> list[SearchedPlan]:
    """Plans that no other beats in both, by GPUs (`several` sizes) or memory, ascending."""
    front: list[SearchedPlan] = []
    for each in sorted(plans, key=lambda one: (_across(one, several=several), one.judged_ps)):
        if not front or each.judged_ps < front[-1].judged_ps:
            front.append(each)
    return front


def _across(plan: SearchedPlan, *, several: bool) -> float:
    return plan.plan.npus if several else plan.memory_bytes / _GIB
