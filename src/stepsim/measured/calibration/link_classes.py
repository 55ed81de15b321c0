"""Links inside nodes and between them, as the curves of a machine's groups show them.

Bandwidths come from the bulk lines of the fullest nodes. Latencies of whole collectives are put
down to what each pays once and what each step pays, inside a node and between nodes, by the steps
of the two algorithms of NCCL: a ring takes 2(n-1), a double binary tree goes up and down log2 of
the nodes and the chain inside a node. What the groups measured cannot tell is left out and listed.
"""

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from msgspec import Struct

from stepsim.base.arrays import Floats
from stepsim.measured.calibration.calibration import Fitted
from stepsim.measured.calibration.curves import CurveFit
from stepsim.measured.calibration.lines import least_distance
from stepsim.measured.clocks import NodePlacement
from stepsim.network.measured_times import FLOOR_BYTES, bus_factor
from stepsim.workload.rows import CollectiveKind

Missing = list[tuple[str, str]]
"""What could not be identified, each with the reason."""

_ROUNDS = {
    CollectiveKind.ALL_REDUCE: 2,
    CollectiveKind.ALL_GATHER: 1,
    CollectiveKind.REDUCE_SCATTER: 1,
}
"""How often a ring passes everything on, of the collectives whose latency is used."""
_CARRIERS = (*_ROUNDS, CollectiveKind.SEND_RECV)
"""Kinds that tell a link's bandwidth, the first ones preferred."""
_SLOWER = 0.95


class Regime(StrEnum):
    """Sizes that latencies are fitted to: the smallest ones, or those from 1 MiB on."""

    SMALL = "small"
    BULK = "bulk"


class Pattern(StrEnum):
    """Steps of an all-reduce over several nodes that explain its latency."""

    RING = "ring"
    TREE = "tree"


class LatencyFit(Struct, frozen=True, kw_only=True):
    """Latency of a regime's collectives in ps: once per collective, and per step.

    `together` is that of whole collectives, its residual how much groups differ. A part that the
    groups measured cannot tell is None. `pattern` says which steps explain several nodes better.
    """

    regime: Regime
    pattern: Pattern
    together: Fitted
    launch: Fitted | None
    node_step: Fitted | None
    fabric_step: Fitted | None


class Capacity(Struct, frozen=True, kw_only=True):
    """What payload gets of a rank's link, bytes/s per direction, as one group's bulk line shows it.

    `residual` is the median relative distance of the values of all `samples` groups: how far one
    number serves them.
    """

    placement: NodePlacement
    bandwidth: float
    kind: CollectiveKind
    ranks: int
    nodes: int
    residual: float
    samples: int


def node_capacity(fits: Sequence[CurveFit], missing: Missing) -> Capacity | None:
    """Bandwidth inside a node: the bus bandwidth of the largest group in one node."""
    groups = [fit for fit in _carriers(fits) if fit.curve.nodes == 1]
    if not groups:
        reason = "no all_reduce, all_gather, reduce_scatter or send_recv in one node from 1 MiB on"
        missing.append(("bandwidth inside a node", reason))
        return None
    return _capacity(NodePlacement.INTRA_NODE, groups, [fit.bus_bandwidth for fit in groups])


def fabric_capacity(
    fits: Sequence[CurveFit], inside: Capacity | None, missing: Missing
) -> Capacity | None:
    """Bandwidth of a rank's link between nodes, by the fullest nodes and most of them.

    Where the links inside a node are the slower ones, those between cannot be told.
    """
    groups = [fit for fit in _carriers(fits) if fit.curve.nodes > 1]
    name = "bandwidth between nodes"
    if not groups:
        reason = "no all_reduce, all_gather, reduce_scatter or send_recv over nodes from 1 MiB on"
        missing.append((name, reason))
        return None
    values = [_fabric_share(fit) * fit.bandwidth for fit in groups]
    found = _capacity(NodePlacement.INTER_NODE, groups, values)
    best = groups[_fullest(groups)]
    if inside and best.ranks_per_node > 1 and best.bus_bandwidth > _SLOWER * inside.bandwidth:
        limit = f"at least {found.bandwidth / 1e9:.4g} GB/s: links inside a node are the slower"
        missing.append((name, limit))
        return None
    return found


def fit_latencies(fits: Sequence[CurveFit], regime: Regime, missing: Missing) -> LatencyFit | None:
    """Latencies of a regime, by the pattern that fits better."""
    groups = [(fit, latency) for fit in fits if (latency := _latency_ps(fit, regime)) > 0]
    if not groups:
        where = f"up to {FLOOR_BYTES >> 10} KiB" if regime is Regime.SMALL else "from 1 MiB on"
        missing.append((f"latency, {regime} sizes", f"no ring collective with sizes {where}"))
        return None
    values = np.array([latency for _, latency in groups])
    best: tuple[float, Pattern, Floats, Floats] | None = None
    for pattern in Pattern:
        columns = np.array([_steps(fit, pattern) for fit, _ in groups], dtype=np.float64)
        factors = _solve(columns, values)
        distance = float(np.abs(columns @ factors / values - 1).sum())
        if best is None or distance < best[0]:
            best = distance, pattern, columns, factors
    assert best is not None
    _, pattern, columns, factors = best
    parts = _parts(columns, factors, values)
    for number, name in enumerate(("launch", "step inside a node", "step between nodes")):
        if parts[number] is None:
            apart = "the groups measured do not tell it from the other parts"
            reason = apart if columns[:, number].any() else "no group measured has one"
            missing.append((f"{name}, {regime} sizes", reason))
    middle = float(np.median(values))
    spread = float(np.median(np.abs(values - middle)))
    return LatencyFit(
        regime=regime,
        pattern=pattern,
        together=Fitted(value=middle, residual=spread, samples=len(values)),
        launch=parts[0],
        node_step=parts[1],
        fabric_step=parts[2],
    )


def _carriers(fits: Sequence[CurveFit]) -> list[CurveFit]:
    return [fit for fit in fits if fit.curve.kind in _CARRIERS and fit.bus_bandwidth]


def _fabric_share(fit: CurveFit) -> float:
    """Collective sizes that a rank's link between nodes carries: k ranks per node have k links.

    A ring puts 2(n-1)/n of an all-reduce on a node's links, a double binary tree twice all of it,
    but once over two nodes. The one with fewer bytes is taken, as NCCL does where it can.
    """
    curve = fit.curve
    two = curve.kind is CollectiveKind.ALL_REDUCE and curve.nodes == 2
    return (1.0 if two else bus_factor(curve.kind, curve.ranks)) / fit.ranks_per_node


def _fullest(groups: Sequence[CurveFit]) -> int:
    """Place of the group with the most ranks per node, then the most ranks, then the best kind."""
    order = [
        (fit.ranks_per_node, fit.curve.ranks, -_CARRIERS.index(fit.curve.kind)) for fit in groups
    ]
    return order.index(max(order))


def _capacity(
    placement: NodePlacement, groups: Sequence[CurveFit], values: Sequence[float]
) -> Capacity:
    best = _fullest(groups)
    curve = groups[best].curve
    return Capacity(
        placement=placement,
        bandwidth=values[best],
        kind=curve.kind,
        ranks=curve.ranks,
        nodes=curve.nodes,
        residual=float(np.median(np.abs(np.array(values) / values[best] - 1))),
        samples=len(groups),
    )


def _latency_ps(fit: CurveFit, regime: Regime) -> float:
    """The smallest size's time, or the bulk line's latency, of a ring collective; 0 if unknown."""
    curve = fit.curve
    if curve.kind not in _ROUNDS or not fit.regimes:
        return 0.0
    if regime is Regime.BULK:
        return fit.bulk.latency_ps if fit.bulk and curve.ranks > 1 else 0.0
    if int(curve.size_bytes[0]) > FLOOR_BYTES:
        return 0.0
    return float(fit.times_ps(curve.size_bytes[:1])[0])


def _steps(fit: CurveFit, pattern: Pattern) -> tuple[int, int, int]:
    """Launches, steps inside a node and steps between nodes of a collective."""
    ranks, nodes, rounds = fit.curve.ranks, fit.curve.nodes, _ROUNDS[fit.curve.kind]
    if nodes == 1:
        return 1, rounds * (ranks - 1), 0
    if pattern is Pattern.TREE and fit.curve.kind is CollectiveKind.ALL_REDUCE:
        return 1, 2 * (fit.ranks_per_node - 1), 2 * (nodes - 1).bit_length()
    return 1, 0, rounds * (ranks - 1)


def _solve(columns: Floats, values: Floats) -> Floats:
    """Factors of the columns that are independent of those before them; 0 for the others."""
    kept: list[int] = []
    for number in range(columns.shape[1]):
        if np.linalg.matrix_rank(columns[:, [*kept, number]]) > len(kept):
            kept.append(number)
    factors = np.zeros(columns.shape[1])
    factors[kept] = least_distance(columns[:, kept], values)
    return factors


def _parts(columns: Floats, factors: Floats, values: Floats) -> list[Fitted | None]:
    """Each factor with its mean residual, None where the columns do not determine it."""
    certain = np.diag(np.linalg.pinv(columns) @ columns)
    distance = np.abs(columns @ factors - values)
    parts: list[Fitted | None] = []
    for number, factor in enumerate(factors.tolist()):
        used = columns[:, number] > 0
        if not used.any() or certain[number] < 1 - 1e-6:
            parts.append(None)
            continue
        residual = float(np.mean(distance[used] / columns[used, number]))
        parts.append(Fitted(value=factor, residual=residual, samples=int(np.count_nonzero(used))))
    return parts
