"""The colours of the page's marks: all stand out from light and dark paper by at least 3 to 1.

On light paper a phase, an axis or a part of the step has the colour that it has in figures.
"""

from collections.abc import Mapping
from types import MappingProxyType

from stepsim.explain.memory import MemoryPart
from stepsim.show.palette import AXIS_SHADES, PART_COLOURS, SHADES, Shade
from stepsim.workload.axes import ParallelAxis, Part, PartKind

PAPERS = ("#ffffff", "#11161d")
"""What marks are drawn on: the page in light and in dark."""

Tint = tuple[str, str]
"""A colour on light paper and on dark paper."""

IDLE: Tint = ("#858c96", "#7d8794")
"""The outline of idle time."""

_AXES_ON_DARK: Mapping[ParallelAxis, str] = MappingProxyType(
    {
        ParallelAxis.TP: "#e3c14b",
        ParallelAxis.CP: "#c79bff",
        ParallelAxis.EP: "#f08fd2",
        ParallelAxis.FSDP: "#93cf63",
        ParallelAxis.DP: "#d99a8a",
        ParallelAxis.PP: "#4fc3d9",
    }
)
_SHADES_ON_DARK: Mapping[int, str] = MappingProxyType(
    {
        Shade.FORWARD: "#6fa8e6",
        Shade.BACKWARD: "#f0a35e",
        Shade.INPUT_GRAD: "#f07f97",
        Shade.WEIGHT_GRAD: "#5cc9b4",
        Shade.PER_STEP: "#b491e6",
        Shade.HOST: "#a9b4c2",
        Shade.SLOWED: "#ef8a8f",
        Shade.COMPUTE: "#6fa8e6",
        Shade.TRANSFER: "#4fc3d9",
        **{AXIS_SHADES[axis]: tint for axis, tint in _AXES_ON_DARK.items()},
    }
)
SHADE_LOOKS: Mapping[int, tuple[str, Tint]] = MappingProxyType(
    {shade: (name, (tint, _SHADES_ON_DARK[shade])) for shade, (name, tint) in SHADES.items()}
)
"""Name and colour of every shade of spans, in the order of their numbers."""

_PARTS_ON_DARK: Mapping[Part, str] = MappingProxyType(
    {
        Part.COMPUTE: "#6fa8e6",
        **{axis.exposed: tint for axis, tint in _AXES_ON_DARK.items()},
        Part.SKEW: "#ef8a8f",
        Part.HOST: "#a9b4c2",
        Part.EXPOSED_HOST: "#5cc9b4",
        Part.SLOWED: "#d99a8a",
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
    """What a page needs to draw answers: names and colours."""
    return {
        "shades": list(SHADE_LOOKS.values()),
        "parts": dict(PART_LOOKS),
        "memory": dict(MEMORY_LOOKS),
        "idle": IDLE,
    }
