"""How the positions of one dimension are wired: ports, hops and the links a move crosses.

A wiring knows only positions 0..n-1. Each position owns `ports` outgoing or incoming links; a move
from position a to b crosses links named by (owner position, port, share of the flow).
"""

from collections.abc import Iterator
from enum import StrEnum

import numpy as np

from stepsim.topology.links import Floats, Ints

Crossing = tuple[Ints, Ints, Ints, Floats]
"""Flow index, owner position, port, share of the flow: arrays of equal length."""


class DimensionKind(StrEnum):
    """How the NPUs of one dimension are wired."""

    RING = "ring"
    LINE = "line"
    FULLY_CONNECTED = "fully_connected"
    SWITCH = "switch"
    RAIL = "rail"

    @property
    def switched(self) -> bool:
        """True where NPUs meet in a switch: port 0 goes up to it, port 1 comes down."""
        return self in (DimensionKind.SWITCH, DimensionKind.RAIL)


def port_count(kind: DimensionKind, size: int) -> int:
    """Link numbers each position owns."""
    return size if kind is DimensionKind.FULLY_CONNECTED else 2


def peer_of(kind: DimensionKind, size: int, position: int, port: int) -> int | None:
    """Position a port leads to; None where no link is wired there. Switched ports return self."""
    match kind:
        case DimensionKind.SWITCH | DimensionKind.RAIL:
            return position
        case DimensionKind.FULLY_CONNECTED:
            return port if port != position else None
        case DimensionKind.RING:
            wired = size > 2 or (size == 2 and port == 0)
            return (position + (1 if port == 0 else -1)) % size if wired else None
        case DimensionKind.LINE:
            peer = position + (1 if port == 0 else -1)
            return peer if 0 <= peer < size else None


def link_count(kind: DimensionKind, size: int) -> int:
    """Links of `size` positions, each direction counted."""
    match kind:
        case DimensionKind.SWITCH | DimensionKind.RAIL:
            return 2 * size
        case DimensionKind.FULLY_CONNECTED:
            return size * (size - 1)
        case DimensionKind.RING:
            return 2 * size if size > 2 else 2 * (size - 1)
        case DimensionKind.LINE:
            return 2 * (size - 1)


def hops(kind: DimensionKind, size: int, a: Ints, b: Ints) -> Ints:
    """Links on the way from positions a to b, elementwise; 0 where they are equal."""
    match kind:
        case DimensionKind.SWITCH | DimensionKind.RAIL:
            return np.where(a == b, 0, 2)
        case DimensionKind.FULLY_CONNECTED:
            return np.where(a == b, 0, 1)
        case DimensionKind.RING:
            ahead = (b - a) % size
            return np.where(2 * ahead > size, size - ahead, ahead)
        case DimensionKind.LINE:
            return np.where(b < a, a - b, b - a)


def crossings(kind: DimensionKind, size: int, a: Ints, b: Ints) -> Iterator[Crossing]:
    """Links crossed between positions a and b (a != b elementwise), in batches.

    On a ring the shorter way is taken; opposite positions send half each way.
    """
    flow = np.arange(len(a), dtype=np.int64)
    whole = np.ones(len(a))
    match kind:
        case DimensionKind.SWITCH | DimensionKind.RAIL:
            yield flow, a, np.zeros_like(a), whole
            yield flow, b, np.ones_like(a), whole
        case DimensionKind.FULLY_CONNECTED:
            yield flow, a, b, whole
        case DimensionKind.LINE:
            yield from _walk(size, flow[b > a], a[b > a], (b - a)[b > a], 0, 1.0)
            yield from _walk(size, flow[b < a], a[b < a], (a - b)[b < a], 1, 1.0)
        case DimensionKind.RING:
            ahead = (b - a) % size
            behind = size - ahead
            both = (ahead == behind) & (size > 2)
            forward = (ahead <= behind) & ~both
            backward = ahead > behind
            yield from _walk(size, flow[forward], a[forward], ahead[forward], 0, 1.0)
            yield from _walk(size, flow[backward], a[backward], behind[backward], 1, 1.0)
            yield from _walk(size, flow[both], a[both], ahead[both], 0, 0.5)
            yield from _walk(size, flow[both], a[both], ahead[both], 1, 0.5)


def _walk(
    size: int, flow: Ints, start: Ints, count: Ints, port: int, share: float
) -> Iterator[Crossing]:
    """`count` steps from `start` through neighbours, leaving every position by `port`."""
    if flow.size == 0:
        return
    total = int(count.sum())
    first = np.repeat(np.cumsum(count) - count, count)
    step = np.arange(total, dtype=np.int64) - first
    direction = 1 if port == 0 else -1
    position = (np.repeat(start, count) + direction * step) % size
    yield np.repeat(flow, count), position, np.full(total, port), np.full(total, share)
