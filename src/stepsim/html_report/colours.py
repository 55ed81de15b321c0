"""Colours of a page; spans and parts have those of the figures, see `stepsim.plots`."""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

from stepsim.analysis import Part
from stepsim.workload import Axis, Phase


class Shade(IntEnum):
    """What a span is, as far as its colour tells."""

    FORWARD = 0
    BACKWARD = 1
    INPUT_GRAD = 2
    WEIGHT_GRAD = 3
    PER_STEP = 4
    HOST = 5
    TP = 6
    EP = 7
    DP = 8
    MESSAGE = 9


SHADES: Mapping[Shade, tuple[str, str]] = MappingProxyType(
    {
        Shade.FORWARD: ("forward", "#4477aa"),
        Shade.BACKWARD: ("backward", "#ee9944"),
        Shade.INPUT_GRAD: ("input gradient", "#bb3344"),
        Shade.WEIGHT_GRAD: ("weight gradient", "#66c2a5"),
        Shade.PER_STEP: ("per step", "#662266"),
        Shade.HOST: ("host", "#332288"),
        Shade.TP: ("tp collective", "#eecc66"),
        Shade.EP: ("ep collective", "#bb5566"),
        Shade.DP: ("dp collective", "#ee7733"),
        Shade.MESSAGE: ("message", "#444444"),
    }
)
"""Name and colour of every shade, in the order of their numbers."""

PHASES: Mapping[Phase, Shade] = MappingProxyType(
    {
        Phase.FORWARD: Shade.FORWARD,
        Phase.INPUT_GRAD: Shade.INPUT_GRAD,
        Phase.WEIGHT_GRAD: Shade.WEIGHT_GRAD,
    }
)
COLLECTIVES: Mapping[Axis, Shade] = MappingProxyType(
    {Axis.TP: Shade.TP, Axis.EP: Shade.EP, Axis.DP: Shade.DP, Axis.PP: Shade.MESSAGE}
)
PARTS: Mapping[Part, str] = MappingProxyType(
    {
        Part.COMPUTE: "#4477aa",
        Part.EXPOSED_TP: "#eecc66",
        Part.EXPOSED_EP: "#bb5566",
        Part.EXPOSED_DP: "#ee7733",
        Part.EXPOSED_PP: "#1b5e20",
        Part.SKEW: "#882255",
        Part.HEAD: "#e2e2e2",
        Part.INNER: "#c4c4c4",
        Part.TAIL: "#a0a0a0",
        Part.HOST: "#332288",
    }
)
SERIES = ("#4477aa", "#ee9944", "#bb3344", "#44aa99", "#882255", "#88ccee", "#004488", "#805500")
IDLE, PATH, GRID = "#efefef", "#000000", "#e2e2e2"
