"""What all figures share: the writer, legends, titles.

matplotlib is imported when a figure is drawn, and its own settings are left alone: a figure is the
same whatever a user's matplotlibrc says.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from stepsim.base.errors import OutputError, member
from stepsim.base.structs import File
from stepsim.base.writing import check_figure_path, write_whole
from stepsim.show.figures.style import CHARACTER_EM, FigureStyle
from stepsim.show.palette import IDLE, IDLE_GROUND

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Characters of a line of a legend where a figure is narrow.
_NARROW_LABEL = 16


FigureMaker = Callable[..., "Figure"]
"""Draws something; see `drawn`."""


def drawn(draw: FigureMaker) -> FigureMaker:
    """Let a function that draws something in a style take a path, and the name of a style.

    It runs with the style's parameters set. With a path the figure is also written into a .png,
    .svg or .pdf file that is the same every time, in which text stays text. A notebook shows the
    figure. What is returned raises OutputError when the file cannot be written, its suffix names no
    figure format, or there is no such style.
    """

    @wraps(draw)
    def plot(
        shown: Any,
        path: File | None = None,
        *,
        style: FigureStyle | str = FigureStyle.SCREEN,
        **more: Any,
    ) -> "Figure":
        chosen = member(FigureStyle, style, "style", OutputError)
        if path is not None:
            check_figure_path(Path(path))
        with styled(chosen):
            figure = draw(shown, chosen, **more)
        vars(figure)["_repr_png_"] = lambda: _drawn(figure, chosen, "png")
        if path is not None:
            write_whole(Path(path), _drawn(figure, chosen, Path(path).suffix[1:].lower()))
        return figure

    return plot


def _drawn(figure: "Figure", style: FigureStyle, kind: str) -> bytes:
    """The file of a figure, without the time at which it was made."""
    from matplotlib.backend_bases import get_registered_canvas_class

    undated = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    data, canvas = io.BytesIO(), get_registered_canvas_class(kind)(figure)
    with styled(style):  # `savefig` draws twice
        getattr(canvas, f"print_{kind}")(data, metadata=undated)
    return data.getvalue()


def svg_text(figure: "Figure") -> str:
    """A figure as a page shows it."""
    return _drawn(figure, FigureStyle.SCREEN, "svg").decode()


def styled(style: FigureStyle) -> Any:
    """A context in which matplotlib has the parameters of a style, and its defaults otherwise."""
    from matplotlib import rc_context, rc_params_from_file, rcParamsDefault

    common = rc_params_from_file(_COMMON, use_default_template=False)
    chosen: dict[Any, Any] = {**rcParamsDefault, **common, **style.parameters()}
    return rc_context({k: v for k, v in chosen.items() if k.partition(".")[0] not in _NOT_DRAWN})


_COMMON = Path(__file__).with_name("figures.mplstyle")
_NOT_DRAWN = frozenset(("backend", "backend_fallback", "interactive", "toolbar", "timezone"))


def legend(
    figure: "Figure", style: FigureStyle, handles: Sequence[Any] | None = None, title: str = ""
) -> int:
    """A legend below all plots, in as many columns as there is room for; returns its lines.

    Without `handles` it is of what has a label in the first plot.
    """
    handles = handles or figure.axes[0].get_legend_handles_labels()[0]
    labels = [str(handle.get_label()) for handle in handles]
    if style.narrow:
        labels = [fill(label, _NARROW_LABEL) for label in labels]
    longest = max((len(line) for label in labels for line in label.split("\n")), default=1)
    em = longest * CHARACTER_EM * 5 / 6 + 3.5
    columns = max(1, min(len(labels), int(style.width_in * 72 / (style.font_pt * em))))
    rows = -(-len(labels) // columns)
    figure.legend(
        handles,
        labels,
        title=title or None,
        loc="outside lower center",
        ncols=-(-len(labels) // rows),
        columnspacing=1.2,
    )
    return rows * max(label.count("\n") + 1 for label in labels)


IDLE_LOOK: Mapping[str, Any] = {"facecolor": IDLE_GROUND, "edgecolor": IDLE, "linewidth": 0.4}
"""How idle time is filled: paper, in a thin line as on pages."""


def above(figure: "Figure", style: FigureStyle, *lines: str) -> None:
    """A title of some lines above all that a figure shows."""
    figure.suptitle(style.wrapped(lines), x=0.01, ha="left")


def head(axes: "Axes", style: FigureStyle, *lines: str, share: float = 0.82) -> None:
    """A title of some lines, broken to a share of the figure's width."""
    axes.set_title(style.wrapped(filter(None, lines), share))
