"""Figure of real batches: lengths of documents, steps by packer, work of ranks by microbatch."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stepsim.base.units import time_unit
from stepsim.explore.batches.draws import BatchSteps, BatchStudy
from stepsim.show.figures.drawing import make_figure
from stepsim.show.figures.style import FigureStyle
from stepsim.show.palette import PALETTE
from stepsim.workload.documents import Lengths

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SAMPLE = 10_000
_BINS = 50


def plot_batches(
    study: BatchStudy,
    path: str | Path | None = None,
    *,
    style: FigureStyle | str = FigureStyle.SCREEN,
) -> "Figure":
    """Draw lengths, steps by packer, and the work of ranks in the longest of the first steps.

    Raises OutputError as `make_figure`.
    """
    return make_figure(lambda chosen: _figure(study, chosen), path, style)


def _figure(study: BatchStudy, style: FigureStyle) -> "Figure":
    figure = style.figure(7.2)
    top, middle, bottom = figure.subplots(3, 1)
    said = f"{len(study.packed[0].step_ps):,} steps each, seed {study.seed}"
    figure.suptitle(style.wrapped([study.job, said]), x=0.01, ha="left")
    _draw_lengths(top, study.drawn)
    _draw_steps(middle, study)
    best = max(study.packed, key=lambda steps: steps.tokens_per_s)
    _draw_work(bottom, best)
    return figure


def _draw_lengths(axes: "Axes", lengths: Lengths) -> None:
    drawn = lengths.draw(np.random.default_rng(0), _SAMPLE)
    edges = np.geomspace(drawn.min(), drawn.max() + 1, _BINS)
    axes.hist(drawn, bins=edges.tolist(), color=PALETTE[0])
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda tokens, _: f"{tokens:,.0f}")
    axes.set_xlabel("tokens of a document")
    axes.set_ylabel("documents")


def _draw_steps(axes: "Axes", study: BatchStudy) -> None:
    """Share of the steps that are over by a time, a line per packer."""
    scale, unit = time_unit(max(int(steps.step_ps.max()) for steps in study.packed))
    for number, steps in enumerate(study.packed):
        times = np.sort(steps.step_ps) / scale
        over = np.arange(1, len(times) + 1) / len(times)
        axes.step(times, over, color=PALETTE[number % len(PALETTE)], label=steps.packer)
    axes.set_xlabel(f"step time ({unit})")
    axes.set_ylabel("share of steps")
    axes.legend(fontsize="small", loc="lower right")


def _draw_work(axes: "Axes", steps: BatchSteps) -> None:
    """Squares of lengths by rank and microbatch, in the longest step."""
    image = axes.imshow(
        steps.slowest.squares[0], aspect="auto", interpolation="nearest", cmap="viridis"
    )
    axes.set_xlabel(f"microbatch (packer {steps.packer}, the longest step)")
    axes.set_ylabel("replica")
    axes.figure.colorbar(image, ax=axes, label="sum of squared lengths")
