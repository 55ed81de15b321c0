"""Real batches: steps by packer, the best first said; a figure of lengths, steps and work."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from stepsim.base.units import format_time_ps, time_unit
from stepsim.documents.table import ERROR, TIME, Sheet, paths, table_of
from stepsim.explore.batches.draws import BatchSteps, BatchStudy
from stepsim.explore.batches.sweeps import BatchSweepDocument
from stepsim.show.figures.drawing import above, drawn
from stepsim.show.figures.style import FigureStyle
from stepsim.show.palette import series_colour
from stepsim.views.studies import first_failure, sampled_table
from stepsim.views.words import memory_words, settings_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_PARTS = "parts_ps.work, parts_ps.padding, parts_ps.waiting"
_PERCENTILES = {
    f"p{percent}": TIME.of(partial(BatchSteps.percentile_ps, percent=percent))
    for percent in (50, 90, 99)
}


def batches_shown(study: BatchStudy) -> Sheet:
    """What each packer makes of the same documents: the answer, then a row for each."""
    best, first = study.best, study.packed[0]
    ranked = sorted(study.packed, key=lambda steps: -steps.tokens_per_s)
    times = best.tokens_per_s / first.tokens_per_s
    over = "" if best is first else f", {times:.2f} times {first.packer}"
    yield (
        f"{format_time_ps(round(best.mean_ps))} per step with packer {best.packer} "
        f"({format_time_ps(round(best.percentile_ps(90)))} in one of ten), "
        f"{best.tokens_per_s:,.0f} tokens/s net of padding{over}"
    )
    yield (
        f"{best.waiting:.1%} of it is waiting for the longest microbatches; a step of full "
        f"sequences, each one document, takes {format_time_ps(study.planned_ps)}"
    )
    yield (
        f"memory {memory_words(best.memory_bytes, study.capacity_bytes)}, with the largest "
        f"microbatch, {best.fullest:.2f} of a full one"
    )
    yield table_of(
        f"{len(first.step_time_ps)} steps of documents from {study.source}, seed {study.seed}",
        ranked,
        paths(
            "packer, mean step = mean_ps, p50, p90, p99, waiting, padding, fullest:.2f, "
            "tokens/s = tokens_per_s:,.0f, gain",
            {
                **_PERCENTILES,
                "gain": ERROR.of(lambda steps: steps.tokens_per_s / first.tokens_per_s - 1),
            },
        ),
    )
    parts = paths(f"packer, {_PARTS}, step = mean_ps")
    yield table_of("where the mean step goes", ranked, parts)
    yield (
        "waiting: of the steps' time, against the same steps with equal microbatches; fullest: "
        f"tokens of the largest microbatch over a full one; gain: in tokens/s over {first.packer}"
    )
    yield from _without_room(study)


def _without_room(study: BatchStudy) -> Iterator[str]:
    """A line for every packer whose largest microbatch does not fit."""
    for steps in study.packed:
        if steps.memory_bytes > study.capacity_bytes:
            held = memory_words(steps.memory_bytes, study.capacity_bytes)
            yield (
                f"memory: packer {steps.packer} has a microbatch of {steps.fullest:.2f} times the "
                f"tokens of a full one, with which a rank holds {held}"
            )


def batch_sweep_shown(found: BatchSweepDocument) -> Sheet:
    """The scenario with most tokens, and a row for each; why the first failure failed."""
    ran: list[Any] = [each for each in found.scenarios if not each.error]
    best = max(ran, key=lambda each: each.tokens_per_s)
    yield (
        f"{settings_words(best.settings)}: {best.tokens_per_s:,.0f} tokens/s net of padding, "
        f"{format_time_ps(best.mean_ps)} per step, {best.waiting_ps / best.mean_ps:.1%} of it "
        "waiting"
    )
    columns = paths(
        "mean step = mean_ps, p90_ps, work_ps, padding_ps, waiting_ps, tokens/s = tokens_per_s:,.0f"
    )
    yield sampled_table(found, f"{found.steps} steps each, seed {found.seed}", columns)
    yield from first_failure(found)


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
