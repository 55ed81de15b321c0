"""Figure of real batches: lengths, steps by packer, work of ranks, a typical and a bad step."""

from typing import TYPE_CHECKING

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.units import time_unit
from stepsim.explore.batches.draws import BatchStudy
from stepsim.show.figures.drawing import drawn
from stepsim.show.figures.style import FigureStyle
from stepsim.show.palette import PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

SAMPLE = 10_000
"""Documents of the histogram of lengths."""
LENGTHS_WORDS = "tokens of a document", f"of {SAMPLE:,} documents"
"""What the histogram of lengths has on its axes."""
_BINS = 50
_HIGH_IN = 7.2


@drawn
def plot_batches(study: BatchStudy, style: FigureStyle) -> "Figure":
    """Lengths, steps by packer, and work of ranks in two steps of the best packer."""
    figure = style.figure(_HIGH_IN)
    _draw_study(figure, study, style)
    return figure


def _draw_study(figure: "FigureBase", study: BatchStudy, style: FigureStyle) -> None:
    """Histograms of lengths and of steps, and maps of work."""
    lengths, steps, maps = figure.subplots(3, 1)
    said = f"{len(study.packed[0].step_time_ps):,} steps each, seed {study.seed}"
    figure.suptitle(style.wrapped([study.job, said]), x=0.01, ha="left")
    _draw_lengths(lengths, study)
    _draw_steps(steps, study)
    _draw_work(maps, study, style)


def length_histogram(study: BatchStudy) -> tuple[Floats, Floats]:
    """Edges of lengths in equal ratios, and how many of 10,000 documents are between them."""
    lengths = study.sample(SAMPLE)
    edges = np.geomspace(lengths.min(), lengths.max() + 1, _BINS)
    return edges, np.histogram(lengths, bins=edges)[0].astype(np.float64)


def step_histograms(study: BatchStudy) -> tuple[Floats, list[Floats], int, str]:
    """Edges of step times in a unit, shares of steps between them by packer, ps and unit."""
    every = np.concatenate([steps.step_time_ps for steps in study.packed])
    scale, unit = time_unit(int(every.max()))
    edges = np.linspace(every.min() / scale, every.max() / scale * (1 + 1e-9), _BINS)
    shares = [
        np.histogram(steps.step_time_ps / scale, bins=edges)[0] / len(steps.step_time_ps)
        for steps in study.packed
    ]
    return edges, shares, scale, unit


def _draw_lengths(axes: "Axes", study: BatchStudy) -> None:
    edges, counts = length_histogram(study)
    axes.stairs(counts, edges, color=PALETTE[0], fill=True)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda tokens, _: f"{tokens:,.4g}")
    axes.set_xlabel(LENGTHS_WORDS[0])
    axes.set_ylabel(LENGTHS_WORDS[1])


def _draw_steps(axes: "Axes", study: BatchStudy) -> None:
    """A histogram of step times per packer."""
    edges, shares, _, unit = step_histograms(study)
    for number, (steps, share) in enumerate(zip(study.packed, shares, strict=True)):
        axes.stairs(share, edges, color=PALETTE[number % len(PALETTE)], label=steps.packer)
    axes.set_xlabel(f"step time ({unit})")
    axes.set_ylabel("share of steps")
    axes.legend(fontsize="small")


def _draw_work(axes: "Axes", study: BatchStudy, style: FigureStyle) -> None:
    """Work of every microbatch in a typical step and, right of a line, in the slowest."""
    from matplotlib.ticker import MaxNLocator

    best = study.best
    typical, slowest = best.work(best.typical), best.work(best.slowest)
    image = axes.imshow(
        np.hstack((typical, slowest)), aspect="auto", interpolation="nearest", cmap="viridis"
    )
    microbatches = typical.shape[1]
    axes.axvline(microbatches - 0.5, color="white", linewidth=2)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.xaxis.set_major_formatter(lambda place, _: str(int(place) % microbatches))
    said = f"microbatch of a typical step, then of the slowest (packer {best.packer})"
    axes.set_xlabel(style.wrapped([said], 0.7))
    axes.set_ylabel("replica")
    axes.figure.colorbar(image, ax=axes, label="work, a full one is 1")
