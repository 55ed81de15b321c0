"""Page of real batches: packers, lengths, steps, work of ranks."""

from typing import TYPE_CHECKING, Any

import numpy as np

from stepsim.base.arrays import Floats
from stepsim.base.units import format_time_ps
from stepsim.explore.batches.draws import BatchStudy
from stepsim.show.figures.batches import LENGTHS_WORDS, length_histogram, step_histograms
from stepsim.show.figures.style import GRID
from stepsim.show.headlines import Headline
from stepsim.show.page.figures import Plot, new_figure, new_source
from stepsim.show.page.page import Chart, Page, Section
from stepsim.show.page.write import notes_section
from stepsim.show.palette import PALETTE
from stepsim.show.tables.batches import batches_shown
from stepsim.show.tables.model import Table

if TYPE_CHECKING:
    from bokeh.models import LinearColorMapper

_HIGH_PX, _ROW_PX = 300, 22


def batches_page(study: BatchStudy, *, command: str) -> Page:
    """What a study of drawn batches found."""
    best, shown = study.best, list(batches_shown(study))
    tables = tuple(each for each in shown if isinstance(each, Table))
    said = tuple(each for each in shown if isinstance(each, str))
    return Page(
        title=study.job,
        subtitle=f"{len(best.step_time_ps):,} steps of documents from {study.source}",
        facts=(
            Headline(name="best packer", value=best.packer),
            Headline(name="mean step", value=format_time_ps(round(best.mean_ps))),
            Headline(name="one of ten", value=format_time_ps(round(best.percentile_ps(90)))),
            Headline(name="tokens/s", value=f"{best.tokens_per_s:,.0f}"),
            Headline(name="waiting", value=f"{best.waiting:.1%}", share=max(best.waiting, 0.0)),
        ),
        settings=(("lengths", study.source), ("seed", str(study.seed))),
        sections=(
            Section(name="packers", heading="Packers", tables=tables, notes=said[2:]),
            Section(name="steps", heading="Steps", charts=(_steps(study),)),
            Section(name="lengths", heading="Lengths", charts=(_lengths(study),)),
            Section(
                name="work",
                heading="Work of ranks by microbatch",
                text="A full microbatch of one document is 1.",
                charts=tuple(_work(study)),
            ),
            notes_section(study.warnings),
        ),
        command=command,
    )


def _bars(figure: Any, name: str, counts: Floats, edges: Floats, **look: Any) -> None:
    source = new_source(name, left=edges[:-1], right=edges[1:], top=counts)
    figure.quad(left="left", right="right", top="top", bottom=0, source=source, name=name, **look)


def _chart(figure: Any, name: str, described: str, **more: Any) -> Chart:
    height = int(figure.height)
    plot = Plot(
        name=name, described=described, height_px=height, figure=figure, data={"kind": "plain"}
    )
    return Chart(plot=plot, **more)


def _new(name: str, **axes: Any) -> Any:
    from bokeh.models import DataRange1d

    figure = new_figure(name, _HIGH_PX, DataRange1d(), DataRange1d(start=0), **axes)
    figure.ygrid.grid_line_color = GRID
    return figure


def _lengths(study: BatchStudy) -> Chart:
    edges, counts = length_histogram(study)
    figure = _new("lengths", x_axis_type="log")
    _bars(figure, "lengths", counts, edges, fill_color=PALETTE[0], line_color=None)
    figure.xaxis.axis_label, figure.yaxis.axis_label = LENGTHS_WORDS
    return _chart(figure, "lengths", "Histogram of the lengths of documents")


def _steps(study: BatchStudy) -> Chart:
    edges, shares, _, unit = step_histograms(study)
    figure = _new("steps")
    legend = []
    for number, (steps, share) in enumerate(zip(study.packed, shares, strict=True)):
        colour = PALETTE[number % len(PALETTE)]
        _bars(figure, f"steps-{number}", share, edges, fill_color=colour, fill_alpha=0.6,
              line_color=None)  # fmt: skip
        legend.append((steps.packer, colour))
    figure.xaxis.axis_label = f"step time ({unit})"
    figure.yaxis.axis_label = "share of steps"
    return _chart(figure, "steps", "Histogram of step times by packer", legend=tuple(legend))


def _work(study: BatchStudy) -> list[Chart]:
    """A map of a typical step and one of the slowest, on one scale of colours."""
    from bokeh.models import LinearColorMapper
    from bokeh.palettes import Viridis256

    best = study.best
    maps = {"typical step": best.work(best.typical), "slowest step": best.work(best.slowest)}
    low, high = (float(edge(list(maps.values()))) for edge in (np.min, np.max))
    mapper = LinearColorMapper(palette=Viridis256, low=low, high=max(high, low + 1e-9))
    return [
        _map(f"work-{number}", title, work, mapper)
        for number, (title, work) in enumerate(maps.items())
    ]


def _map(name: str, title: str, work: Floats, mapper: "LinearColorMapper") -> Chart:
    from bokeh.models import ColorBar, Range1d

    replicas, microbatches = work.shape
    height = min(max(replicas * _ROW_PX, _HIGH_PX // 2), 2 * _HIGH_PX) + 60
    columns, rows = Range1d(-0.5, microbatches - 0.5), Range1d(replicas - 0.5, -0.5)
    figure = new_figure(name, height, columns, rows)
    row, column = (each.ravel() for each in np.indices(work.shape))
    source = new_source(
        name, left=column - 0.5, right=column + 0.5, low=row - 0.5, high=row + 0.5,
        value=work.ravel(),
    )  # fmt: skip
    figure.quad(
        left="left", right="right", bottom="low", top="high", source=source, name=name,
        fill_color={"field": "value", "transform": mapper}, line_color=None,
    )  # fmt: skip
    figure.add_layout(ColorBar(color_mapper=mapper, width=12), "right")
    figure.xaxis.axis_label, figure.yaxis.axis_label = "microbatch", "replica"
    return _chart(figure, name, f"Work of ranks by microbatch, {title}", title=title)
