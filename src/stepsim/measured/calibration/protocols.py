"""Protocols of a machine's communication library, fitted to measured collectives.

Each protocol has a launch, a step on every kind of link, a share of the links' capacity and a rate
of local copies; a collective takes the fastest protocol and algorithm. The sum of squares of the
logarithm of ours / measured is least, with a weak pull to the start (`protocol_starts`), which
stays where nothing was measured, and of a tree's launch and share of NICs to those of the ring with
the same protocol. At first a soft minimum over the protocols is fitted, so that each
is moved by the sizes near those where it is the fastest; it ends within 1 % of the minimum itself.
"""

from collections.abc import Sequence
from math import inf, isfinite
from typing import Any, cast

import numpy as np
from msgspec import Struct, field

from stepsim.base.arrays import Floats, Ints
from stepsim.base.errors import CalibrationError
from stepsim.base.structs import replace
from stepsim.measured.calibration.protocol_starts import fitted_links, start_of
from stepsim.network.collectives import CollectiveShape, collective_shape, collective_times_ps
from stepsim.network.collectives.cost import carriers
from stepsim.network.collectives.flows import link_parameters
from stepsim.network.measured_times import MeasuredCurve
from stepsim.network.topology import Topology
from stepsim.network.topology.dimension import PLAIN, Library, Protocol
from stepsim.network.topology.nested import with_values
from stepsim.workload.rows import CollectiveKind

_SHARPNESS = (8.0, 32.0, 128.0)
_ROUNDS = 25
_CUT = 0.5
"""Logarithms off by more count less and less: measurements that were disturbed."""
_MOST_SIZES = 40
_BANDS = ((1e8, 2.0), (1e7, 1.33), (0.0, 1.0))
"""Weights from so many bytes on: large sizes are met more closely."""
_LAUNCH, _SHARE, _INSIDE, _OUTSIDE = 0.05, 0.1, 0.1, 0.1
"""Pull to the start of a parameter that is e times it, as the logarithm of a time that is off."""
_TIED = 1.0
"""Pull to a ring's launch and share of the links between nodes of a tree with e times as much."""
_RING, _TREE = "ring", "double_binary_tree"


def fit_protocols(
    topology: Topology, curves: Sequence[MeasuredCurve], start: Topology | None = None
) -> Topology:
    """The topology with a library fitted to curves; it starts from the one that is there.

    Or from that of another topology, `start`, whose links are called alike.
    Launch, endpoint latencies and efficiencies become those of the best protocol of each, the
    protocols what they have beyond. Raises CalibrationError where nothing was measured over more
    than one rank, or the topology cannot hold a group.
    """
    used = [_thinned(curve) for curve in curves if curve.ranks > 1]
    if not used:
        raise CalibrationError("no curve of more than one rank: nothing to fit protocols to")
    messages = any(curve.kind is CollectiveKind.SEND_RECV for curve in used)
    first = start or topology
    started = _explicit(first, start_of(first, messages=messages))
    named = {link for protocol in started.protocols for link in protocol.links}
    if not named <= set(fitted_links(topology)):
        raise CalibrationError(f"{topology.name}: expected the links {', '.join(sorted(named))}")
    problem = _Problem.of(_bare(topology), started, used)
    theta = problem.start
    for sharpness in _SHARPNESS:
        theta = _fitted(problem, theta, sharpness)
    several = any(curve.nodes > 1 for curve in used)
    return _factored(topology, problem.library(theta), several=several)


def with_library(topology: Topology, library: Library) -> Topology:
    """A topology with another library."""
    return cast(Topology, replace(cast(Any, topology), library=library))


def group_members(topology: Topology, ranks: int, nodes: int) -> Ints:
    """The NPUs of a group of about equally many ranks on each of so many nodes, the first of each.

    Raises CalibrationError where a node has fewer.
    """
    each = -(-ranks // nodes)
    if each > topology.node_size or nodes * topology.node_size > topology.npus:
        raise CalibrationError(
            f"{ranks} ranks in {nodes} nodes: {topology.name} has {topology.npus} NPUs, "
            f"{topology.node_size} in a node"
        )
    places = np.arange(ranks, dtype=np.int64)
    return places // each * topology.node_size + places % each


def placed_shape(
    topology: Topology, curve: MeasuredCurve
) -> tuple[Topology, Ints, CollectiveShape]:
    """The topology with room for a curve's group, its NPUs, and its collective traced."""
    grown = topology.fit(topology.node_size * curve.nodes) if topology.grows else topology
    members = group_members(grown, curve.ranks, curve.nodes)
    return grown, members, collective_shape(grown, curve.kind, members)


def _thinned(curve: MeasuredCurve) -> MeasuredCurve:
    """At most 40 sizes, evenly by their logarithms."""
    sizes = np.log(curve.size_bytes)
    if len(sizes) <= _MOST_SIZES:
        return curve
    wanted = np.linspace(sizes[0], sizes[-1], _MOST_SIZES)
    kept = np.unique(np.abs(sizes[:, None] - wanted).argmin(axis=0))
    return replace(curve, size_bytes=curve.size_bytes[kept], time_ps=curve.time_ps[kept])


def _bare(topology: Topology) -> Topology:
    """The topology without launch, endpoint latency and efficiency, which the protocols get."""
    values = {f"{link}.endpoint_latency": 0.0 for link in fitted_links(topology)}
    values |= {f"{link}.efficiency": 1.0 for link in fitted_links(topology)}
    return with_values(with_library(topology, PLAIN), {**values, "launch_latency": 0})


def _explicit(topology: Topology, library: Library) -> Library:
    """The library with the topology's launch, endpoint latencies and efficiencies in it.

    One that the topology does not have yet has all of them already.
    """
    if not topology.library.protocols:
        return library
    names = {link.name: link for link in topology.link_classes}
    explicit = tuple(
        replace(
            each,
            launch_ps=each.launch_ps + topology.launch_latency_ps,
            steps_ps=tuple((n, s + names[n].endpoint_latency_ps) for n, s in each.steps_ps),
            rates=tuple((n, rate * names[n].efficiency) for n, rate in each.rates),
        )
        for each in library.protocols
    )
    return replace(library, protocols=explicit)


def _factored(topology: Topology, library: Library, *, several: bool) -> Topology:
    """The topology with what the protocols share as its own numbers, undoing `_explicit`.

    Links between nodes keep their efficiency where one node was measured only.
    """
    links = fitted_links(topology)
    launch = min(each.launch_ps for each in library.protocols)
    steps = {n: min(dict(each.steps_ps)[n] for each in library.protocols) for n in links}
    best = {n: max(dict(each.rates)[n] for each in library.protocols) for n in links}
    if not several:
        own = {link.name: link.efficiency for link in topology.link_classes}
        best |= {link: max(best[link], own[link]) for link in links[1:]}
    shares = {n: float(f"{rate:.4g}") for n, rate in best.items()}
    protocols = tuple(
        replace(
            each,
            launch_ps=each.launch_ps - launch,
            steps_ps=tuple((n, step - steps[n]) for n, step in each.steps_ps),
            rates=tuple((n, float(f"{min(1.0, r / shares[n]):.3g}")) for n, r in each.rates),
        )
        for each in library.protocols
    )
    values: dict[str, float] = {"launch_latency": launch}
    for link in links:
        values |= {f"{link}.endpoint_latency": steps[link], f"{link}.efficiency": shares[link]}
    return with_library(with_values(topology, values), replace(library, protocols=protocols))


class _Problem(Struct, frozen=True, kw_only=True):
    """Curves on a bare topology, and the protocols that are to meet them.

    A protocol's parameters are the logarithms of its launch, steps, rates and, if it copies, copy
    bandwidth, in this order; `start`, `pull` and the `most` they may be are those of all protocols
    after each other.
    """

    starts: Library
    placed: tuple[tuple[Topology, Ints, CollectiveShape], ...]
    curves: tuple[MeasuredCurve, ...]
    start: Floats
    pull: Floats
    most: Floats
    weights: Floats
    measured: Floats
    ties: Floats
    known: dict[tuple[int, bytes], Floats] = field(default_factory=dict)

    @classmethod
    def of(cls, bare: Topology, library: Library, curves: Sequence[MeasuredCurve]) -> "_Problem":
        """The problem on a bare topology."""
        sizes = np.concatenate([curve.size_bytes for curve in curves])
        weights = np.select([sizes >= least for least, _ in _BANDS], [w for _, w in _BANDS])
        return cls(
            starts=library,
            placed=tuple(placed_shape(with_library(bare, library), curve) for curve in curves),
            curves=tuple(curves),
            start=np.concatenate([_parameters(each) for each in library.protocols]),
            pull=np.concatenate([_pulls(each) for each in library.protocols]),
            most=np.concatenate([_most(each) for each in library.protocols]),
            weights=weights.astype(np.float64),
            measured=np.concatenate([np.log(curve.time_ps) for curve in curves]),
            ties=_ties(library.protocols),
        )

    def parts(self, theta: Floats) -> list[Floats]:
        """Parameters of each protocol."""
        ends = np.cumsum([len(_parameters(each)) for each in self.starts.protocols])
        return np.split(theta, ends[:-1])

    def library(self, theta: Floats) -> Library:
        """The protocols that have these parameters."""
        pairs = zip(self.starts.protocols, self.parts(theta), strict=True)
        return replace(self.starts, protocols=tuple(_protocol(*pair) for pair in pairs))

    def times(self, theta: Floats) -> Floats:
        """Logarithms of the times of every protocol (rows) alone; infinite where it serves not."""
        return np.stack([self.alone(k, part) for k, part in enumerate(self.parts(theta))])

    def alone(self, number: int, part: Floats) -> Floats:
        """Logarithms of the times of one protocol with these parameters."""
        key = number, part.tobytes()
        if key not in self.known:
            if len(self.known) > 64:
                self.known.clear()
            protocol = _protocol(self.starts.protocols[number], part)
            self.known[key] = np.concatenate(
                [
                    _log_times(replace(self.starts, protocols=(protocol,)), curve, *placed)
                    for curve, placed in zip(self.curves, self.placed, strict=True)
                ]
            )
        return self.known[key]

    def off(self, times: Floats, sharpness: float) -> Floats:
        """Weighted logarithm of ours / measured; the soft minimum of `times` is ours."""
        least = times.min(axis=0)
        soft = least - np.log(np.exp(-sharpness * (times - least)).sum(axis=0)) / sharpness
        off: Floats = (soft - self.measured) * self.weights
        return off

    def slopes(self, theta: Floats, times: Floats, sharpness: float) -> Floats:
        """Derivatives of `off` by every parameter, as columns."""
        columns, here, step = [], self.off(times, sharpness), -1e-3  # rates end at 1
        for number, part in enumerate(self.parts(theta)):
            for place in range(len(part)):
                moved, changed = part.copy(), times.copy()
                moved[place] += step
                changed[number] = self.alone(number, moved)
                columns.append((self.off(changed, sharpness) - here) / step)
        return np.stack(columns, axis=1)


def _log_times(
    library: Library,
    curve: MeasuredCurve,
    topology: Topology,
    members: Ints,
    shape: CollectiveShape,
) -> Floats:
    """Logarithms of a curve's times with this library; infinite where it does not serve."""
    candidates = tuple(
        replace(each, carrier=carrier)
        for each in {each.algorithm: each for each in shape.candidates}.values()
        for carrier in carriers(topology, library, members, curve.kind, each.algorithm.algorithm)
    )
    if not candidates:
        return np.full(len(curve.size_bytes), inf)
    links, launch = link_parameters(topology.link_classes), np.zeros(1, dtype=np.int64)
    carried = replace(shape, candidates=candidates)
    times, _ = collective_times_ps(carried, curve.size_bytes.astype(np.float64), launch, links)
    found: Floats = np.log(np.maximum(times, 1))
    return found


def _parameters(protocol: Protocol) -> Floats:
    values = [
        max(protocol.launch_ps, 1000),
        *(max(step, 1000) for _, step in protocol.steps_ps),
        *(rate for _, rate in protocol.rates),
        *([protocol.copy_bandwidth] if isfinite(protocol.copy_bandwidth) else []),
    ]
    return np.log(np.array(values, dtype=np.float64))


def _pulls(protocol: Protocol) -> Floats:
    steps = [_INSIDE, *[_OUTSIDE] * (len(protocol.steps_ps) - 1)]
    copies = [_SHARE] * isfinite(protocol.copy_bandwidth)
    return np.array([_LAUNCH, *steps, *[_SHARE] * len(protocol.rates), *copies])


def _most(protocol: Protocol) -> Floats:
    """Rates are at most 1."""
    most = np.full(len(_pulls(protocol)), inf)
    first = 1 + len(protocol.steps_ps)
    most[first : first + len(protocol.rates)] = 0.0
    return most


def _ties(protocols: Sequence[Protocol]) -> Floats:
    """A row per pair of parameters that a ring and a tree of one protocol share, zero if equal.

    NCCL launches both alike (`baseLat` of tuning.cc), and their kernels send to a NIC in the same
    way. Two nodes alone cannot tell a tree's launch from its steps between nodes, nor its share of
    NICs that they do not fill: a ring shows them in one node, and by filling the NICs.
    """
    ends = np.cumsum([len(_parameters(each)) for each in protocols]).tolist()
    first = dict(zip(((p.name, p.algorithms) for p in protocols), [0, *ends], strict=False))
    rows = []
    for protocol in protocols:
        ring = first.get((protocol.name, (_RING,)))
        if ring is None or protocol.algorithms != (_TREE,):
            continue
        tree, rates = first[protocol.name, (_TREE,)], 1 + len(protocol.steps_ps)
        for place in (0, *range(rates + 1, rates + len(protocol.rates))):
            row = np.zeros(ends[-1])
            row[[tree + place, ring + place]] = _TIED, -_TIED
            rows.append(row)
    return np.stack(rows) if rows else np.zeros((0, ends[-1]))


def _protocol(start: Protocol, parameters: Floats) -> Protocol:
    values = np.exp(parameters).tolist()
    ends = 1 + len(start.steps_ps), 1 + len(start.steps_ps) + len(start.rates)
    steps = zip(start.steps_ps, values[1 : ends[0]], strict=True)
    rates = zip(start.rates, values[ends[0] : ends[1]], strict=True)
    return replace(
        start,
        launch_ps=round(values[0]),
        steps_ps=tuple((link, round(value)) for (link, _), value in steps),
        rates=tuple((link, min(1.0, value)) for (link, _), value in rates),
        copy_bandwidth=values[-1] if isfinite(start.copy_bandwidth) else inf,
    )


def _fitted(problem: _Problem, theta: Floats, sharpness: float) -> Floats:
    """The parameters of the least cost near `theta` (Levenberg and Marquardt)."""
    own, tied, damping = np.diag(problem.pull**2), problem.ties.T @ problem.ties, 1e-2
    times = problem.times(theta)
    cost = _cost(problem, theta, times, sharpness)
    for _ in range(_ROUNDS):
        off = problem.off(times, sharpness)
        slopes = problem.slopes(theta, times, sharpness)
        weighed = slopes.T / (1 + (off / _CUT) ** 2)
        square = weighed @ slopes + own + tied
        down = -(weighed @ off + own @ (theta - problem.start) + tied @ theta)
        before = cost
        for _ in range(8):
            ahead = np.linalg.solve(square + damping * np.diag(np.diag(square)), down)
            tried = np.minimum(theta + np.clip(ahead, -1, 1), problem.most)
            times_there = problem.times(tried)
            cost_there = _cost(problem, tried, times_there, sharpness)
            if cost_there < cost:
                theta, times, cost = tried, times_there, cost_there
                damping = max(damping / 6, 1e-4)
                break
            damping *= 4
        if before - cost <= 1e-4 * before:
            break
    return theta


def _cost(problem: _Problem, theta: Floats, times: Floats, sharpness: float) -> float:
    off = problem.off(times, sharpness)
    pulled = (problem.pull * (theta - problem.start)) ** 2
    tied = (problem.ties @ theta) ** 2
    return float((np.log1p((off / _CUT) ** 2) * _CUT**2).sum() + pulled.sum() + tied.sum())
