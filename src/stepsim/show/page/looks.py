"""The colours of the page's marks: all stand out from light and dark paper by at least 3 to 1.

On light paper a phase, an axis or a part of the step has the colour that it has in figures.
"""

from collections.abc import Mapping
from types import MappingProxyType

from stepsim.explain.memory import MemoryPart
from stepsim.show.palette import AXIS_SHADES, PART_COLOURS, SHADES, Shade, ink_on
from stepsim.workload.axes import ParallelAxis, Part, PartKind

PAPERS = ("#ffffff", "#11161d")
"""What marks are drawn on: the page in light and in dark."""

Tint = tuple[str, str]
"""A colour on light paper and on dark paper."""

IDLE: Tint = ("#858c96", "#7d8794")
"""The outline of idle time."""

_AXES_ON_DARK: Mapping[ParallelAxis, str] = MappingProxyType(
    {
        ParallelAxis.TP: "#e7c84f",
        ParallelAxis.CP: "#c298ff",
        ParallelAxis.EP: "#fc90e4",
        ParallelAxis.FSDP: "#a5e179",
        ParallelAxis.DP: "#d7a179",
        ParallelAxis.PP: "#3eb1ce",
    }
)
_SHADES_ON_DARK: Mapping[int, str] = MappingProxyType(
    {
        Shade.FORWARD: "#8ecaff",
        Shade.BACKWARD: "#eca056",
        Shade.INPUT_GRAD: "#d65f83",
        Shade.WEIGHT_GRAD: "#7fc0a5",
        Shade.PER_STEP: "#957be6",
        Shade.HOST: "#9eb1bb",
        Shade.SLOWED: "#ff8696",
        Shade.COMPUTE: "#5588c0",
        Shade.TRANSFER: "#64d4e6",
        **{AXIS_SHADES[axis]: tint for axis, tint in _AXES_ON_DARK.items()},
    }
)
SHADE_LOOKS: Mapping[int, tuple[str, Tint]] = MappingProxyType(
    {shade: (name, (tint, _SHADES_ON_DARK[shade])) for shade, (name, tint) in SHADES.items()}
)
"""Name and colour of every shade of spans, in the order of their numbers."""

_PARTS_ON_DARK: Mapping[Part, str] = MappingProxyType(
    {
        Part.COMPUTE: _SHADES_ON_DARK[Shade.COMPUTE],
        **{axis.exposed: tint for axis, tint in _AXES_ON_DARK.items()},
        Part.SKEW: "#c9756e",
        Part.HOST: _SHADES_ON_DARK[Shade.HOST],
        Part.EXPOSED_HOST: "#75e4ce",
        Part.SLOWED: _SHADES_ON_DARK[Shade.SLOWED],
    }
)
PART_LOOKS: Mapping[str, tuple[str, Tint, str]] = MappingProxyType(
    {
        part.key: (part.label, IDLE, "idle")
        if part.kind is PartKind.IDLE
        else (part.label, (PART_COLOURS[part], _PARTS_ON_DARK[part]), "")
        for part in Part
    }
)
"""Name and colour of every part of a step, by its key, and whether it is idle time."""

_MEMORY: tuple[Tint, ...] = (
    ("#2f6fb3", "#6fa8e6"),
    ("#c8691c", "#f0a35e"),
    ("#6a3d9a", "#b491e6"),
    ("#55606e", "#a9b4c2"),
    ("#96750a", "#e3c14b"),
    ("#1f8a78", "#5cc9b4"),
    ("#c2459f", "#f08fd2"),
    ("#7d3c2f", "#d99a8a"),
    ("#0b7285", "#4fc3d9"),
)
MEMORY_LOOKS: Mapping[str, Tint] = MappingProxyType(
    dict(zip(map(str, MemoryPart), _MEMORY, strict=False))
)
"""The colours of what memory is for, by its name."""


def looks() -> dict[str, object]:
    """What a page needs to draw answers: names, colours, what words on shades are written in."""
    return {
        "shades": [(name, tint, tuple(map(ink_on, tint))) for name, tint in SHADE_LOOKS.values()],
        "parts": dict(PART_LOOKS),
        "memory": dict(MEMORY_LOOKS),
        "idle": IDLE,
    }
