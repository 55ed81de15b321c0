"""The colours of the page's marks: all stand out from light and dark paper by at least 3 to 1.

On light paper a phase, an axis or a part of the step has the colour that it has in figures.
"""

from collections.abc import Mapping

from stepsim.base.axes import Part, PartKind
from stepsim.base.structs import Values, shipped
from stepsim.show.palette import MEMORY_LOOKS, PART_TINTS, SHADES, Tint, ink_on

PAPERS = ("#ffffff", "#11161d")
"""What marks are drawn on: the page in light and in dark."""
PART_LOOKS: Mapping[str, tuple[str, Tint | None]] = {
    part.key: (part.label, None if part.kind is PartKind.IDLE else PART_TINTS[part])
    for part in Part
}
"""Name and colour of every part of a step, by its key; idle time has none."""


def looks() -> dict[str, object]:
    """What a page needs to draw answers: names, colours, inks of words, what terms mean."""
    return {
        "shades": [(name, tint, tuple(map(ink_on, tint))) for name, tint in SHADES.values()],
        "parts": PART_LOOKS,
        "memory": MEMORY_LOOKS,
        "terms": shipped(__file__, "terms.toml", Values),
    }
