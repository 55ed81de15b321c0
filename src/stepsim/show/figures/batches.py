"""Figure of real batches: lengths, steps by packer, work of ranks, a typical and a bad step."""

from typing import TYPE_CHECKING

import numpy as np

from stepsim.base.units import time_unit
from stepsim.explore.batches.draws import BatchStudy
from stepsim.show.figures.drawing import above, drawn
from stepsim.show.figures.style import FigureStyle
from stepsim.show.palette import series_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Documents of the histogram of lengths.
_SAMPLE = 10_000
_BINS = 50
_HIGH_IN = 7.2


@drawn
def plot_batches(study: BatchStudy, style: FigureStyle) -> "Figure":
    """Lengths, steps by packer, and work of ranks in two steps of the best packer."""
    figure = style.figure(_HIGH_IN)
    lengths, steps, maps = figure.subplots(3, 1)
    said = f"{len(study.packed[0].step_time_ps):,} steps each, seed {study.seed}"
    above(figure, style, study.job, said)
    _draw_lengths(lengths, study)
    _draw_steps(steps, study)
    _draw_work(maps, study, style)
    return figure


def _draw_lengths(axes: "Axes", study: BatchStudy) -> None:
    """A histogram of the lengths of documents, its edges in equal ratios."""
    lengths = study.drawn.draw(np.random.default_rng(study.seed), _SAMPLE)
    edges = np.geomspace(lengths.min(), lengths.max() + 1, _BINS)
    axes.stairs(np.histogram(lengths, bins=edges)[0], edges, color=series_colour(0), fill=True)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda tokens, _: f"{tokens:,.4g}")
    axes.set_xlabel("tokens of a document")
    axes.set_ylabel(f"of {_SAMPLE:,} documents")


def _draw_steps(axes: "Axes", study: BatchStudy) -> None:
    """A histogram of step times per packer."""
    every = np.concatenate([steps.step_time_ps for steps in study.packed])
    scale, unit = time_unit(int(every.max()))
    edges = np.linspace(every.min() / scale, every.max() / scale * (1 + 1e-9), _BINS)
    for number, steps in enumerate(study.packed):
        share = np.histogram(steps.step_time_ps / scale, bins=edges)[0] / len(steps.step_time_ps)
        axes.stairs(share, edges, color=series_colour(number), label=steps.packer)
    axes.set_xlabel(f"step time ({unit})")
    axes.set_ylabel("share of steps")
    axes.legend(fontsize="small")


def _draw_work(axes: "Axes", study: BatchStudy, style: FigureStyle) -> None:
    """Work of every microbatch in a typical step and, right of a line, in the slowest."""
    from matplotlib.ticker import MaxNLocator

    best = study.best
    both = np.hstack((best.typical, best.slowest))
    image = axes.imshow(both, aspect="auto", interpolation="nearest", cmap="viridis")
    microbatches = best.typical.shape[1]
    axes.axvline(microbatches - 0.5, color="white", linewidth=2)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.xaxis.set_major_formatter(lambda place, _: str(int(place) % microbatches))
    said = f"microbatch of a typical step, then of the slowest (packer {best.packer})"
    axes.set_xlabel(style.wrapped([said], 0.7))
    axes.set_ylabel("replica")
    axes.figure.colorbar(image, ax=axes, label="work, a full one is 1")
