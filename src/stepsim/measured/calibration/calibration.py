"""A calibration: what runs and micro-benchmarks tell, each with its residual and sample count.

What could not be identified is absent, and `unidentified` says why.
"""

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated

import numpy as np
from msgspec import Meta, field
from msgspec.structs import asdict

from stepsim.base.axes import CollectiveKind
from stepsim.base.errors import CalibrationError, within
from stepsim.base.fields import Bandwidth, Difference, Time
from stepsim.base.structs import SCHEMA_VERSION, Bytes, Count, Names, TomlTable, Version
from stepsim.base.units import MAX_INT64, PS_PER_S
from stepsim.measured.clocks import DEFAULT_NODE_SIZE, NodePlacement
from stepsim.network.measured_times import CommTable, Degree, MeasuredCurve
from stepsim.network.topology import Dimension, DimensionKind, LinkClass, NestedTopology
from stepsim.workload.model.calibration import HeldStep, MeasuredKernels, MeasuredRate

Ratio = Annotated[float, Meta(ge=0, le=1e6, description="relative: 0.1 is 10 %")]

CLEAR = 2.0
"""Standard errors that a number must be above its bound to count as seen."""


class Fitted(TomlTable):
    """One number: the typical distance of the samples that it came from, relative to it."""

    value: float
    residual: Ratio
    samples: Annotated[int, Meta(ge=1)]

    def __post_init__(self) -> None:
        if not (math.isfinite(self.value) and self.value >= 0):
            raise CalibrationError(f"value is {self.value}: expected a finite number, 0 or more")


class FittedTime(Fitted):
    """`[host_overhead]` and the like: a time in ps."""

    value: Time


class FittedSpeed(Fitted):
    """`[optimizer]` and the like: bytes per second."""

    value: Bandwidth


def fitted(samples: Sequence[float]) -> FittedSpeed:
    """Median of samples, and their median distance from it."""
    values = np.array(samples, np.float64)
    middle = float(np.median(values))
    residual = float(np.median(np.abs(values - middle)))
    return FittedSpeed(
        value=middle, residual=residual / middle if middle else 0.0, samples=len(values)
    )


class LinkFit(TomlTable):
    """`[[point_to_point]]`: messages between two ranks, latency + size / bandwidth.

    `residual` is the median relative distance of a message's time from that, `sizes` the distinct
    message sizes it came from. `both_ways` tells whether the messages were halves of exchanges.
    """

    placement: NodePlacement
    latency_ps: Time
    bandwidth: Bandwidth
    residual: Ratio
    samples: Count
    sizes: tuple[Bytes, ...] = ()
    both_ways: bool = True

    def __post_init__(self) -> None:
        if self.latency_ps < 0 or not self.bandwidth > 0:
            raise CalibrationError(
                f"{self.placement}: latency {self.latency_ps} ps, bandwidth {self.bandwidth}: "
                "expected a latency of 0 or more and a bandwidth above 0"
            )

    def time_ps(self, size_bytes: int) -> float:
        """Time of one message."""
        return self.latency_ps + size_bytes / self.bandwidth * PS_PER_S


# Messages that cost nothing.
_FREE = LinkFit(
    placement=NodePlacement.INTRA_NODE,
    latency_ps=0,
    bandwidth=math.inf,
    residual=0.0,
    samples=0,
)


class ExpertImbalance(TomlTable):
    """`[[expert_imbalance]]`: tokens of the busiest expert rank over the mean, of one run."""

    source: str
    ep: Degree
    experts: Degree | None = None
    mean: Ratio
    largest: Ratio
    samples: Count


class LayerTimes(TomlTable):
    """`[[layer_times]]`: what a layer and the ends of the pipeline cost in one run, in ps.

    They hold for runs of the same hidden size, sequence, experts, tp and ep.
    """

    source: str
    hidden: Count
    sequence: Count
    experts: Degree | None = None
    tp: Degree
    ep: Degree
    forward_ps: Difference
    backward_ps: Difference
    first_forward_ps: Difference
    first_backward_ps: Difference
    last_forward_ps: Difference
    last_backward_ps: Difference
    get_batch_ps: Difference
    loss_ps: Difference


class LeafOverhead(TomlTable):
    """`[leaf_overhead]`: what logs of leaf modules do not show, see `stepsim.runs.leaf`.

    `action` is host time in ps of a forward or a backward, `layer_factor` what a layer takes over
    what its leaf modules take. Residuals are how far each moves if every step is off by its spread.
    """

    action: FittedTime
    layer_factor: Fitted

    def __post_init__(self) -> None:
        if self.layer_factor.value < 1:
            raise CalibrationError(
                f"layer_factor is {self.layer_factor.value}: expected at least 1, the leaf modules"
            )


_ABOUT = ("schema_version", "sources", "traces", "node_size", "unidentified")


class Calibration(TomlTable, omit_defaults=False, dict=True):
    """A calibration: what runs tell about a machine; `node_size` ranks share a node.

    `sources` are the names of the runs, `traces` the fingerprints of their ranks' traces.
    `host_overhead` is host time per action in ps, `gradient_launch` the time that a gradient
    operation takes whatever its size; `gradient_scaling` and `optimizer` are bytes of fp32
    gradients per second, `collective` measured curves. For the steps of models `rates` are those
    of matrix products, `kernels` what those of a class took, and `held` measured steps beside their
    predictions.
    """

    schema_version: Version = SCHEMA_VERSION
    sources: Annotated[Names, Meta(description="what it was calibrated on")]
    traces: Annotated[Names, Meta(description="fingerprints of the ranks' traces")] = ()
    node_size: Annotated[Degree, Meta(description="ranks of a node")] = DEFAULT_NODE_SIZE
    host_overhead: FittedTime | None = None
    gradient_launch: FittedTime | None = None
    gradient_scaling: FittedSpeed | None = None
    optimizer: FittedSpeed | None = None
    leaf_overhead: LeafOverhead | None = None
    point_to_point: tuple[LinkFit, ...] = ()
    expert_imbalance: tuple[ExpertImbalance, ...] = ()
    unidentified: Annotated[
        tuple[tuple[str, str], ...], Meta(description="what runs could not tell, and why")
    ] = ()
    layer_times: tuple[LayerTimes, ...] = ()
    rates: tuple[MeasuredRate, ...] = field(default=(), name="rate")
    kernels: tuple[MeasuredKernels, ...] = ()
    held: tuple[HeldStep, ...] = ()
    collective: tuple[MeasuredCurve, ...] = ()

    def __post_init__(self) -> None:
        within("node_size", self.node_size, 1, error=CalibrationError)
        placements = [link.placement for link in self.point_to_point]
        if len(set(placements)) != len(placements):
            raise CalibrationError("point_to_point: expected each placement once")
        _ = self.collectives  # raises for curves that stand twice

    @property
    def empty(self) -> bool:
        """Whether nothing could be identified."""
        return not any(value for name, value in asdict(self).items() if name not in _ABOUT)

    @cached_property
    def collectives(self) -> CommTable | None:
        """The measured curves; None without any."""
        return CommTable(source="collective", curves=self.collective) if self.collective else None

    def comm_table(self) -> CommTable | None:
        """Times of collectives, and of messages as the runs had them where they tell; or None.

        Messages of runs replace those of micro-benchmarks: both sides of an exchange send, which
        takes longer than a message alone.
        """
        messages = {curve.nodes: curve for curve in map(message_curve, self.point_to_point)}
        others = [
            curve
            for curve in self.collective
            if curve.kind is not CollectiveKind.SEND_RECV or curve.nodes not in messages
        ]
        curves = (*others, *messages.values())
        return CommTable(source="calibration", curves=curves) if curves else None


def message_curve(link: LinkFit) -> MeasuredCurve:
    """The messages of a placement as a curve of a table, from 1 KiB to 1 GiB.

    Raises CalibrationError where they take longer than 2**63 - 1 ps.
    """
    sizes = 1 << np.arange(10, 31, dtype=np.int64)
    if link.time_ps(int(sizes[-1])) > MAX_INT64:
        raise CalibrationError(
            f"point_to_point {link.placement}: 1 GiB takes {link.time_ps(1 << 30):.3g} ps: at most "
            "2**63 - 1 ps"
        )
    times = link.latency_ps + np.rint(sizes * (PS_PER_S / link.bandwidth)).astype(np.int64)
    return MeasuredCurve(
        machine="",
        source="messages of measured runs",
        kind=CollectiveKind.SEND_RECV,
        ranks=2,
        nodes=1 if link.placement is NodePlacement.INTRA_NODE else 2,
        sizes=tuple(sizes.tolist()),
        times_ps=tuple(np.maximum(times, 1).tolist()),
    )


MESSAGE_LINKS = {NodePlacement.INTRA_NODE: "node", NodePlacement.INTER_NODE: "fabric"}
"""Links of `message_topology`."""


def message_topology(links: Sequence[LinkFit], node_size: int) -> NestedTopology:
    """A topology on which point-to-point messages cost what a calibration says.

    Nodes hold `node_size` ranks. A placement that was not calibrated takes the numbers of the
    other one; without any, messages are free.
    """
    found = {link.placement: link for link in links}
    inside = found.get(NodePlacement.INTRA_NODE) or found.get(NodePlacement.INTER_NODE) or _FREE
    across = found.get(NodePlacement.INTER_NODE) or inside

    node, fabric = (
        LinkClass(
            name=name, latency_ps=0, bandwidth=fit.bandwidth, endpoint_latency_ps=fit.latency_ps
        )
        for name, fit in zip(MESSAGE_LINKS.values(), (inside, across), strict=True)
    )
    return NestedTopology(
        name="calibrated",
        source="message times of measured runs",
        dimensions=(
            Dimension(kind=DimensionKind.SWITCH, size=node_size, link=node),
            Dimension(kind=DimensionKind.RAIL, size=2, link=fabric),
        ),
        grows=True,
    )
