"""Where the step goes, over one axis: a stack of parts for every value."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from stepsim.base.arrays import Floats, Ints
from stepsim.base.axes import Part, PartKind, parts_of
from stepsim.base.errors import SweepError
from stepsim.base.structs import Values
from stepsim.base.units import time_unit
from stepsim.files.sweep_table import PART_COLUMNS
from stepsim.show.figures.drawing import IDLE_LOOK, above, legend
from stepsim.show.figures.style import FigureStyle
from stepsim.show.palette import IDLE_GROUND, PART_TINTS
from stepsim.views.sweep.scales import name_ticks, plots_by, scale_of
from stepsim.views.sweep.view import View

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STACKING: Mapping[str, tuple[Part, ...]] = {
    part.label: (part,) for part in parts_of(*PartKind) if part.kind is not PartKind.IDLE
} | {"idle": parts_of(PartKind.IDLE)}
"""Parts by their label from the bottom of a stack: work, exposed communication, waiting."""

_MOST_STACKS = 48


def breakdown_figure(view: View, style: FigureStyle) -> "Figure":
    """A plot per value of `view.by`; the heights of a stack add up to the mean step of its ranks.

    Raises SweepError for more values along the axis than stacks can be told apart.
    """
    from matplotlib.patches import Patch

    if len(view.x.texts) > _MOST_STACKS:
        raise SweepError(
            f"axis {view.x.name} has {len(view.x.texts)} values: expected at most {_MOST_STACKS} "
            "stacks"
        )
    parts = view.table.fastest(view.shown, PART_COLUMNS)
    parts = parts[..., None] if view.by is None else parts
    scale, unit = time_unit(int(np.nanmax(parts.sum(axis=0))))
    count, most = parts.shape[2], 2 if style.narrow else 6
    rows = -(-count // most)
    figure = style.figure((2.4 if style.narrow else 2.8) * (1 if rows == 1 else 0.8 * rows))
    x, share = scale_of(view.x), 0.78 / min(count, most)
    plots = plots_by(figure, view.by, most, (x.label, f"step time ({unit})"), sharey=True)
    for i, axes in enumerate(plots):
        _draw_stacks(axes, view, x.order, parts[..., i] / scale, style, share)
    above(figure, style, *view.title())
    used = np.nansum(parts, axis=(1, 2)) > 0
    stacks = [label for label, several in STACKING.items() if used[[*several]].any()]
    legend(figure, style, [Patch(**_look(label)) for label in reversed(stacks)])
    return figure


def _look(label: str) -> Values:
    """How parts of a label are filled."""
    colour = IDLE_GROUND if label == "idle" else PART_TINTS[STACKING[label][0]][0]
    return {"label": label, **IDLE_LOOK, "facecolor": colour}


def _draw_stacks(
    axes: "Axes", view: View, order: Ints, parts: Floats, style: FigureStyle, share: float
) -> None:
    """Stacks in the order of the axis's values; `parts` has the shape (parts, values)."""
    places = np.arange(len(order), dtype=np.float64)
    base = np.zeros(len(order))
    for label, several in STACKING.items():
        height = np.nan_to_num(parts[[*several]].sum(axis=0)[order])
        axes.bar(places, height, bottom=base, width=0.8, **_look(label))
        base += height
    for place in places[np.isnan(parts[Part.COMPUTE][order])]:
        axes.annotate("failed", (place, 0), rotation=90, ha="center", va="bottom", fontsize="small")
    texts = [view.x.texts[i] for i in order.tolist()]
    if view.x.numeric:
        texts = [text.partition(" ")[0] for text in texts]
    every = max(1, -(-len(texts) // max(2, int(24 * share * style.width_in / 7))))
    name_ticks(axes, places[::every], texts[::every], style, share)
    axes.set_xlim(-0.6, len(order) - 0.4)
