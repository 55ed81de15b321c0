"""Colours that mean the same in every figure and on every page, and looks of any number of series.

matplotlib is imported only for more series than there are chosen colours.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum

import numpy as np

from stepsim.base.arrays import Ints
from stepsim.base.axes import ParallelAxis, Part
from stepsim.base.structs import Values, shipped
from stepsim.run.spans import COMMUNICATIONS, UNKNOWN, Spans, TaskKind, TaskPhase

Tint = tuple[str, str]
"""A colour on light paper, which figures are, and on dark paper."""


# looks are a name in words, and a tint
_COLOURS = shipped(__file__, "colours.toml", Values)
PALETTE: Sequence[str] = _COLOURS["series"]
"""Colours of series, which readers with any colour blindness can tell apart."""
_MARKERS = "osD^vPX*<>"
PATH = "#000000"
IDLE, IDLE_GROUND = "#868686", "#f3f4f5"
"""Idle is paper: the line around it, and what is inside."""
BACKGROUND, FAINT = "#e9e9e9", "#8a8a8a"


class Shade(IntEnum):
    """What a span is, as far as its colour tells, but for communication: see `AXIS_SHADES`."""

    FORWARD = 0
    BACKWARD = 1
    INPUT_GRAD = 2
    WEIGHT_GRAD = 3
    PER_STEP = 4
    HOST = 5
    SLOWED = 6
    COMPUTE = 7
    TRANSFER = 8


AXIS_SHADES: Mapping[ParallelAxis, int] = {
    axis: len(Shade) + i for i, axis in enumerate(ParallelAxis)
}
"""Shades of communication: collectives of an axis, and the messages of a pipeline."""
SHADES: Mapping[int, tuple[str, Tint]] = dict(
    enumerate((*_COLOURS["shades"].values(), *_COLOURS["axes"].values()))
)
"""Name and colour of every shade, in the order of their numbers."""
_PART_SHADES: Mapping[Part, int] = {
    Part.COMPUTE: Shade.COMPUTE,
    Part.HOST: Shade.HOST,
    Part.SLOWED: Shade.SLOWED,
    **{axis.exposed: number for axis, number in AXIS_SHADES.items()},
}
PART_TINTS: Mapping[Part, Tint] = {
    part: SHADES[_PART_SHADES[part]][1] if part in _PART_SHADES else _COLOURS["parts"][part.key]
    for part in Part
}
MEMORY_LOOKS: Mapping[str, Tint] = _COLOURS["memory"]
"""The colours of what memory is for, by its name."""


def span_shades(spans: Spans, axes: Sequence[ParallelAxis] | None = None) -> Ints:
    """The shade of every span, as far as its phase is told; `axes` are those of communications.

    Without `axes`, as of a recorded run, communication is of one shade. A gradient reduction as a
    whole, of several communications, has the shade of its axis.
    """
    of_phase = [Shade.__members__.get(phase.name, Shade.COMPUTE) for phase in TaskPhase]
    shades = np.array(of_phase)[np.searchsorted(list(TaskPhase), spans.phase)]
    shades[spans.phase == TaskPhase.UPDATE] = Shade.PER_STEP
    moved = np.full(len(spans), Shade.TRANSFER.value)
    if axes is not None:
        shades[spans.entry == UNKNOWN] = Shade.PER_STEP
        of_axis = [AXIS_SHADES[axis] for axis in axes] + [AXIS_SHADES[ParallelAxis.DP]]
        moved = np.array(of_axis)[spans.group]
    shades[spans.of_kind(TaskKind.HOST)] = Shade.HOST
    shades[spans.slowed] = Shade.SLOWED
    return np.where(spans.of_kind(*COMMUNICATIONS), moved, shades)


def series_colour(number: int) -> str:
    """The colour of a series by its number: one of thirty, further ones lighter and lighter."""
    chosen = (*PALETTE, *_COLOURS["more"])
    rounds, place = divmod(number, len(chosen))
    return shade(chosen[place], 0.6 * rounds / (rounds + 1))


def series_marker(number: int) -> str:
    """The marker of a series by its number; they repeat after ten."""
    return _MARKERS[number % len(_MARKERS)]


def series_colours(names: Sequence[str], known: Sequence[str] = ()) -> list[str]:
    """A colour for each of some series; those of a family that is `known` have the same everywhere.

    Names of one family with other numbers, such as schedules of other chunks, are its
    shades. Others have those of their places, and where there are more than ten they run from
    dark to light.
    """
    families = [name.partition(":") for name in names]
    if all(family in known for family, _, _ in families):
        return [
            shade(series_colour(known.index(family)), _chunk_share(chunks))
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
    channels = bytes.fromhex(colour[1:])
    return f"#{bytes(round(c + (255 - c) * share) for c in channels).hex()}"


def ink_on(colour: str) -> str:
    """Black or white, whichever is easier to read on a colour."""
    return "black" if contrast(colour, "#000000") > contrast(colour, "#ffffff") else "white"


def contrast(one: str, other: str) -> float:
    """The contrast of two colours such as `#2f6fb3`, from 1 to 21, as WCAG 2 defines it."""
    dark, light = sorted(map(_luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    """Relative luminance of a colour by WCAG 2, from 0 of black to 1 of white."""
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (channel / 255 for channel in bytes.fromhex(colour[1:]))
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
