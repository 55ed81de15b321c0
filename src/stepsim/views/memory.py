"""What ranks hold over time: of the fullest stage by what it is for, of every stage in all."""

from typing import TYPE_CHECKING

import numpy as np

from stepsim.base.errors import PlanError
from stepsim.base.units import time_unit
from stepsim.core.timeline import Timeline
from stepsim.documents.trace import Curves
from stepsim.explain.memory import StepMemory, memory_curves
from stepsim.show.figures.drawing import drawn, head, legend
from stepsim.show.figures.style import FigureStyle
from stepsim.show.palette import MEMORY_LOOKS, PATH, series_colours
from stepsim.step.prepared import SimulatedStep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GIB = 2**30
_MOST_STAGES = 64


@drawn
def plot_memory(step: SimulatedStep, style: FigureStyle) -> "Figure":
    """The memory of a step over time; raises PlanError where it is not known."""
    memory = step.memory
    if memory is None:
        raise PlanError(
            f"{step.report.workload}: nothing says what its ranks hold: expected a model, or "
            "--activation-size"
        )
    report, plan = step.report, step.plan
    fullest = memory.peaks.index(memory.fullest)
    rows = 1 + (plan.pp > 1)
    figure = style.figure((6 + 17 * rows) / 9)
    every = figure.subplots(rows, squeeze=False, sharex=True)[:, 0]
    scale, unit = time_unit(report.step_time_ps)
    head(
        every[0],
        style,
        f"{report.workload} on {report.topology}, {plan.words}: {report.schedule}, memory",
        f"stage {fullest}, the fullest, by what its bytes are for",
    )
    _draw_parts(
        every[0], memory_curves(step.timeline, memory.held, fullest * plan.stage_ranks), scale
    )
    for axes in every:
        axes.set_ylabel("GiB")
        if memory.capacity_bytes:
            whole = memory.capacity_bytes / _GIB
            axes.axhline(whole, color=PATH, linestyle="--", linewidth=0.8, label="the device's")
    if plan.pp > 1:
        _draw_stages(every[1], step.timeline, memory, scale)
        head(every[1], style, "every stage, from the first (dark) to the last (light)")
    every[-1].set_xlim(0, report.step_time_ps / scale)
    every[-1].set_xlabel(f"time ({unit})")
    legend(figure, style)
    return figure


def _draw_parts(axes: "Axes", curves: Curves, scale: int) -> None:
    """Areas above each other, those that are held throughout below."""
    times = curves.time_ps / scale
    tops = np.cumsum(curves.values, axis=1) / _GIB
    below = np.zeros(len(times))
    for i, name in enumerate(curves.names):
        if curves.values[:, i].any():
            colour, top = MEMORY_LOOKS[name][0], tops[:, i]
            axes.fill_between(times, below, top, step="post", color=colour, label=name, linewidth=0)
            below = top


def _draw_stages(axes: "Axes", timeline: Timeline, memory: StepMemory, scale: int) -> None:
    """All bytes of every stage; some of them where there are many."""
    stages = len(memory.peaks)
    shown = sorted({round(i) for i in np.linspace(0, stages - 1, min(stages, _MOST_STAGES))})
    colours = series_colours([str(stage) for stage in range(max(stages, 11))])
    for stage in shown:
        rank = stage * timeline.graph.plan.stage_ranks
        curves = memory_curves(timeline, memory.held, rank)
        total = curves.values.sum(axis=1) / _GIB
        colour = colours[stage * (len(colours) - 1) // max(stages - 1, 1)]
        axes.step(curves.time_ps / scale, total, where="post", color=colour, linewidth=0.8)
