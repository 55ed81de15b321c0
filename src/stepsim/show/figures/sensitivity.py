"""Figures of sensitivities and of noise."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stepsim.base.units import format_time_ps, time_unit
from stepsim.explore.noise.draws import NoiseResult
from stepsim.explore.sensitivity import Sensitivity, describe
from stepsim.show.figures.drawing import above, drawn, legend
from stepsim.show.figures.style import FigureStyle
from stepsim.show.palette import PALETTE, PATH

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROW_IN = 0.2
_PERCENTILES = (50, 95, 99)
_BINS = 60
_LEAST_SHOWN = 0.001


@drawn
def plot_sensitivity(found: Sensitivity, style: FigureStyle) -> "Figure":
    """A bar per parameter that is worth something, the longest on top."""
    from matplotlib.patches import Patch

    rows = [slope for slope in found.slopes if slope.gain][::-1]
    figure = style.figure(1.0 + _ROW_IN * max(len(rows), 1))
    axes = figure.subplots()
    colours = [PALETTE[slope.one_sided] for slope in rows]
    gains = [100 * slope.gain for slope in rows]
    bars = axes.barh([describe(slope) for slope in rows], gains, color=colours)
    shown = [f"{each:.2g} %" if each >= _LEAST_SHOWN else f"< {_LEAST_SHOWN} %" for each in gains]
    axes.bar_label(bars, shown, padding=2, fontsize="small")
    axes.margins(x=0.2 if style.narrow else 0.12)
    axes.set_xlabel("step time saved (%)")
    title = found.job or f"{Path(found.workload).name} on {found.topology}: {found.schedule}"
    said = f"step {format_time_ps(found.step_time_ps)}; each changed by 1 % to the better"
    above(figure, style, title, said)
    if any(slope.one_sided for slope in rows):
        names = "same critical path", "another path takes over"
        handles = [Patch(color=PALETTE[i], label=name) for i, name in enumerate(names)]
        legend(figure, style, handles)
    return figure


@drawn
def plot_noise(found: NoiseResult, style: FigureStyle) -> "Figure":
    """A histogram of step times, with the planned one and percentiles marked."""
    figure = style.figure(2.8)
    axes = figure.subplots()
    said = f"step times of {len(found.step_time_ps):,} samples; variation: {found.model.words}"
    above(figure, style, found.job, said)
    scale, unit = time_unit(int(found.step_time_ps.max()))
    times = found.step_time_ps / scale
    axes.hist(times, bins=min(_BINS, max(1, int(np.sqrt(len(times))))), color=PALETTE[0])
    planned = found.planned_ps / scale
    label = f"without noise: {format_time_ps(found.planned_ps)}"
    lines = [axes.axvline(planned, color=PATH, label=label)]
    for percent, dashes in zip(_PERCENTILES, ("-", "--", ":"), strict=True):
        time = found.percentile_ps(percent)
        label = f"p{percent}: {format_time_ps(time)}"
        lines.append(axes.axvline(time / scale, color=PALETTE[2], linestyle=dashes, label=label))
    axes.set_xlabel(f"step time ({unit})")
    axes.set_ylabel("samples")
    legend(figure, style, lines)
    return figure
