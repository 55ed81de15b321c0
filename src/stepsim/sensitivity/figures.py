"""Figures of sensitivities and of noise."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stepsim.batch.noise import NoiseResult
from stepsim.plots import write_figure
from stepsim.sensitivity.analysis import Sensitivity
from stepsim.sensitivity.names import describe
from stepsim.units import PS_PER_S, format_time_ps

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH_IN, _ROW_IN = 7.0, 0.26
_BAR, _SHADE, _PLANNED, _MARKS = "#4477aa", "#ee9944", "#000000", "#cc6677"
_PERCENTILES = (50, 95, 99)
_BINS = 60


def plot_sensitivity(found: Sensitivity, path: Path) -> None:
    """Draw what one per cent of everything is worth; raises OutputError."""
    write_figure(lambda: sensitivity_figure(found), path)


def plot_noise(found: NoiseResult, path: Path) -> None:
    """Draw the distribution of step times; raises OutputError."""
    write_figure(lambda: noise_figure(found), path)


def sensitivity_figure(found: Sensitivity) -> "Figure":
    """A bar per parameter that is worth something, the longest on top."""
    from matplotlib.figure import Figure

    rows = [slope for slope in found.slopes if slope.gain][::-1]
    figure = Figure(figsize=(_WIDTH_IN, 1.1 + _ROW_IN * max(len(rows), 1)), layout="constrained")
    axes = figure.add_subplot()
    names = [describe(slope) for slope in rows]
    bars = axes.barh(
        names,
        [100 * slope.gain for slope in rows],
        color=[_SHADE if slope.one_sided else _BAR for slope in rows],
    )
    axes.bar_label(bars, [f"{100 * slope.gain:.2g} %" for slope in rows], padding=3, fontsize=7)
    axes.margins(x=0.12)
    axes.set_xlabel("step time saved (%)")
    axes.spines[["top", "right"]].set_visible(False)
    title = f"{Path(found.workload).name}, {found.topology}, {found.schedule}"
    axes.set_title(f"{title}: {format_time_ps(found.step_time_ps)}", loc="left")
    if any(slope.one_sided for slope in rows):
        figure.text(0.99, 0.01, "orange: the critical path changes", ha="right", fontsize=7)
    return figure


def noise_figure(found: NoiseResult) -> "Figure":
    """A histogram of step times, with the planned one and percentiles marked."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH_IN, 3.4), layout="constrained")
    axes = figure.add_subplot()
    seconds = found.step_time_ps / PS_PER_S
    axes.hist(seconds, bins=min(_BINS, max(1, int(np.sqrt(len(seconds))))), color=_BAR)
    planned = found.planned_ps / PS_PER_S
    axes.axvline(
        planned, color=_PLANNED, label=f"without noise: {format_time_ps(found.planned_ps)}"
    )
    for percent, dashes in zip(_PERCENTILES, ("-", "--", ":"), strict=True):
        time = found.percentile_ps(percent)
        label = f"p{percent}: {format_time_ps(time)}"
        axes.axvline(time / PS_PER_S, color=_MARKS, linestyle=dashes, label=label)
    axes.set_xlabel("step time (s)")
    axes.set_ylabel(f"samples of {len(seconds)}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper right")
    return figure
