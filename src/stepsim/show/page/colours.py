"""Colours of a page's spans: those of the figures, see `stepsim.show.figures.drawing`."""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType

from stepsim.parallel.schedules import ActionKind
from stepsim.show.figures.drawing import (
    ACTION_COLOURS,
    ACTION_NAMES,
    PART_COLOURS,
    PER_STEP,
    TRANSFER,
)
from stepsim.workload.axes import ParallelAxis, Part
from stepsim.workload.rows import Phase


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


_ACTIONS = {
    Shade.FORWARD: ActionKind.FORWARD,
    Shade.BACKWARD: ActionKind.BACKWARD,
    Shade.INPUT_GRAD: ActionKind.INPUT_GRAD,
    Shade.WEIGHT_GRAD: ActionKind.WEIGHT_GRAD,
}
SHADES: Mapping[Shade, tuple[str, str]] = MappingProxyType(
    {
        **{s: (ACTION_NAMES[kind], ACTION_COLOURS[kind]) for s, kind in _ACTIONS.items()},
        Shade.PER_STEP: ("per step", PER_STEP),
        Shade.HOST: ("host", PART_COLOURS[Part.HOST]),
        Shade.TP: ("tp collective", PART_COLOURS[Part.EXPOSED_TP]),
        Shade.EP: ("ep collective", PART_COLOURS[Part.EXPOSED_EP]),
        Shade.DP: ("dp collective", PART_COLOURS[Part.EXPOSED_DP]),
        Shade.MESSAGE: ("message", TRANSFER),
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
COLLECTIVES: Mapping[ParallelAxis, Shade] = MappingProxyType(
    {
        ParallelAxis.TP: Shade.TP,
        ParallelAxis.EP: Shade.EP,
        ParallelAxis.DP: Shade.DP,
        ParallelAxis.PP: Shade.MESSAGE,
    }
)
