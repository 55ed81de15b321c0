"""What all figures share: the writer, colours that mean the same everywhere, legends, titles.

matplotlib is imported when a figure is drawn, and its own settings are left alone: a figure is the
same whatever a user's matplotlibrc says.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stepsim.files.writing import check_figure_path, write_whole
from stepsim.parallel.schedules import BUILDERS, ActionKind
from stepsim.show.figures.style import CHARACTER_EM, FigureStyle, figure_style
from stepsim.workload.axes import Part

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = (
    "#4477aa",
    "#ee9944",
    "#bb3344",
    "#44aa99",
    "#882255",
    "#88ccee",
    "#004488",
    "#ee3377",
    "#805500",
    "#000000",
)
"""Colours of series, which readers with any colour blindness can tell apart."""

MARKERS = "osD^vPX*<>"

ACTION_COLOURS: Mapping[ActionKind, str] = MappingProxyType(
    {
        ActionKind.FORWARD: "#4477aa",
        ActionKind.BACKWARD: "#ee9944",
        ActionKind.INPUT_GRAD: "#bb3344",
        ActionKind.WEIGHT_GRAD: "#66c2a5",
    }
)
ACTION_NAMES: Mapping[ActionKind, str] = MappingProxyType(
    {
        ActionKind.FORWARD: "forward",
        ActionKind.BACKWARD: "backward",
        ActionKind.INPUT_GRAD: "input gradient",
        ActionKind.WEIGHT_GRAD: "weight gradient",
    }
)
PER_STEP, TRANSFER, IDLE, PATH = "#662266", "#444444", "#e9e9e9", "#000000"

PART_COLOURS: Mapping[Part, str] = MappingProxyType(
    {
        Part.COMPUTE: "#4477aa",
        Part.EXPOSED_TP: "#eecc66",
        Part.EXPOSED_EP: "#bb5566",
        Part.EXPOSED_DP: "#ee7733",
        Part.EXPOSED_PP: "#1b5e20",
        Part.SKEW: "#882255",
        Part.HEAD: "#eeeeee",
        Part.INNER: "#cccccc",
        Part.TAIL: "#a0a0a0",
        Part.HOST: "#332288",
    }
)
BACKGROUND, FAINT = "#e9e9e9", "#8a8a8a"

Draw = Callable[[FigureStyle], "Figure"]
"""What draws a figure in a style; it runs with the style's parameters set."""


def write_figure(draw: Draw, path: Path, style: FigureStyle | str = FigureStyle.SCREEN) -> None:
    """Draw a figure into a .png, .svg or .pdf file that is the same every time.

    Text stays text in .svg and .pdf. Raises OutputError when the file cannot be written, its suffix
    names no figure format, or there is no such style.
    """
    check_figure_path(path)
    kind = path.suffix[1:].lower()
    undated = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    data = io.BytesIO()
    chosen = figure_style(style)
    with styled(chosen):
        draw(chosen).savefig(data, format=kind, metadata=undated)
    write_whole(path, data.getvalue())


def styled(style: FigureStyle) -> Any:
    """A context in which matplotlib has the parameters of a style, and its defaults otherwise."""
    from matplotlib import rc_context, rcParamsDefault

    chosen: dict[Any, Any] = dict(rcParamsDefault) | style.parameters()
    return rc_context({k: v for k, v in chosen.items() if k.partition(".")[0] not in _NOT_DRAWN})


_NOT_DRAWN = frozenset(("backend", "backend_fallback", "interactive", "toolbar", "timezone"))


def series_colours(names: Sequence[str]) -> list[str]:
    """A colour for each of some series; a schedule has the same in every figure.

    Schedules of one family with other chunks are shades of one colour.
    """
    families = [name.partition(":") for name in names]
    if all(family in BUILDERS for family, _, _ in families):
        order = list(BUILDERS)
        return [
            shade(PALETTE[order.index(family)], _chunk_share(chunks))
            for family, _, chunks in families
        ]
    if len(names) <= len(PALETTE):
        return list(PALETTE[: len(names)])
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    scale = colormaps["viridis"]
    return [to_hex(scale(0.95 * i / (len(names) - 1))) for i in range(len(names))]


def _chunk_share(chunks: str) -> float:
    """How far a schedule with so many chunks is mixed with white."""
    return min(0.7, 0.3 * max(0, int(chunks).bit_length() - 2)) if chunks else 0.0


def shade(colour: str, share: float) -> str:
    """A colour `#rrggbb` mixed with a share of white."""
    channels = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(c + (255 - c) * share):02x}" for c in channels)


def ink_on(colour: str) -> str:
    """Black or white, whichever is easier to read on a colour; by W3C's relative luminance."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "black" if luminance > 0.179 else "white"


def legend(
    figure: "Figure",
    style: FigureStyle,
    handles: Sequence[Any],
    *,
    title: str = "",
    below: bool = False,
) -> None:
    """A legend outside the plots: at their right, or below them where a figure is narrow."""
    labels = [str(handle.get_label()) for handle in handles]
    if not (below or style.narrow):
        figure.legend(handles, labels, title=title or None, loc="outside right center")
        return
    em = max(map(len, labels), default=1) * CHARACTER_EM * 5 / 6 + 3.5
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


def head(axes: "Axes", style: FigureStyle, *lines: str, share: float = 0.82) -> None:
    """A title of some lines, broken to a share of the figure's width."""
    axes.set_title(style.wrapped((line for line in lines if line), share))
