"""The colours of the page's marks: all stand out from light and dark paper by at least 3 to 1.

Reports and figures have other ones (`show/palette`), which are the same on both papers, but for
those that could not be seen on dark paper.
"""

from collections.abc import Mapping
from types import MappingProxyType

from stepsim.explain.memory import MemoryPart
from stepsim.show.palette import AXIS_SHADES, SHADES, Shade
from stepsim.workload.axes import ParallelAxis, Part, PartKind

PAPERS = ("#ffffff", "#11161d")
"""What marks are drawn on: the page in light and in dark."""

Tint = tuple[str, str]
"""A colour on light paper and on dark paper."""

_BLUE: Tint = ("#2f6fb3", "#6fa8e6")
_ORANGE: Tint = ("#c8691c", "#f0a35e")
_ROSE: Tint = ("#b83a5b", "#f07f97")
_TEAL: Tint = ("#1f8a78", "#5cc9b4")
_PURPLE: Tint = ("#6a3d9a", "#b491e6")
_SLATE: Tint = ("#55606e", "#a9b4c2")
_GOLD: Tint = ("#96750a", "#e3c14b")
_VIOLET: Tint = ("#8a4fd0", "#c79bff")
_PINK: Tint = ("#c2459f", "#f08fd2")
_GREEN: Tint = ("#4d8a1f", "#93cf63")
_BROWN: Tint = ("#7d3c2f", "#d99a8a")
_CYAN: Tint = ("#0b7285", "#4fc3d9")
_RED: Tint = ("#a4262c", "#ef8a8f")
IDLE: Tint = ("#858c96", "#7d8794")
"""The outline of idle time."""

_OF_AXES: Mapping[ParallelAxis, Tint] = MappingProxyType(
    {
        ParallelAxis.TP: _GOLD,
        ParallelAxis.CP: _VIOLET,
        ParallelAxis.EP: _PINK,
        ParallelAxis.FSDP: _GREEN,
        ParallelAxis.DP: _BROWN,
        ParallelAxis.PP: _CYAN,
    }
)

_SHADES: Mapping[int, Tint] = MappingProxyType(
    {
        Shade.FORWARD: _BLUE,
        Shade.BACKWARD: _ORANGE,
        Shade.INPUT_GRAD: _ROSE,
        Shade.WEIGHT_GRAD: _TEAL,
        Shade.PER_STEP: _PURPLE,
        Shade.HOST: _SLATE,
        Shade.SLOWED: _RED,
        Shade.COMPUTE: _BLUE,
        Shade.TRANSFER: _CYAN,
        **{AXIS_SHADES[axis]: tint for axis, tint in _OF_AXES.items()},
    }
)
SHADE_LOOKS: Mapping[int, tuple[str, Tint]] = MappingProxyType(
    {shade: (name, _SHADES[shade]) for shade, (name, _) in SHADES.items()}
)
"""Name and colour of every shade of spans, in the order of their numbers."""

_PARTS: Mapping[Part, Tint] = MappingProxyType(
    {
        Part.COMPUTE: _BLUE,
        **{axis.exposed: tint for axis, tint in _OF_AXES.items()},
        Part.SKEW: _RED,
        Part.HOST: _SLATE,
        Part.EXPOSED_HOST: _TEAL,
        Part.SLOWED: _BROWN,
    }
)
PART_LOOKS: Mapping[str, tuple[str, Tint, str]] = MappingProxyType(
    {
        part.key: (part.label, _PARTS.get(part, IDLE), "idle" if part.kind is PartKind.IDLE else "")
        for part in Part
    }
)
"""Name and colour of every part of a step, by its key, and whether it is idle time."""

_MEMORY = (_BLUE, _ORANGE, _PURPLE, _SLATE, _GOLD, _TEAL, _PINK, _BROWN, _CYAN)
MEMORY_LOOKS: Mapping[str, Tint] = MappingProxyType(
    dict(zip(map(str, MemoryPart), _MEMORY, strict=False))
)
"""The colours of what memory is for, by its name."""


def looks() -> dict[str, object]:
    """What a page needs to draw answers: names and colours."""
    return {
        "shades": list(SHADE_LOOKS.values()),
        "parts": dict(PART_LOOKS),
        "memory": dict(MEMORY_LOOKS),
        "idle": IDLE,
    }
