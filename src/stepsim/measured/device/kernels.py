"""Kernels that are timed on a device, and what times them."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Protocol

from msgspec import Struct

from stepsim.base.structs import NameWithFields
from stepsim.measured.kernels_beside import SyntheticLoad
from stepsim.workload.model.plan import Precision
from stepsim.workload.rows import Phase


class KernelTimes(Struct, frozen=True, kw_only=True):
    """Times of a kernel that ran several times alone, in seconds."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle of the times, in seconds."""
        return median(self.seconds)

    @property
    def spread(self) -> float:
        """Half of what lies between the tenth and the ninetieth of a hundred, over the median."""
        ordered = sorted(self.seconds)
        tenth = len(ordered) // 10
        return (ordered[-1 - tenth] - ordered[tenth]) / 2 / self.median


class ProductCall(Struct, frozen=True, kw_only=True):
    """One of a layer's three products: `tokens` rows, weights of `inner` x `outer`.

    The forward multiplies (t, k) with the transposed weights, the input gradient (t, n) with the
    weights, the weight gradient the transposed (t, n) with (t, k).
    """

    phase: Phase
    tokens: int
    inner: int
    outer: int
    precision: Precision

    @property
    def label(self) -> str:
        """What it is, for people."""
        sides = " x ".join(map(str, self.shape))
        return f"product {self.phase}, {sides}, {self.precision}"

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows, columns and inner side of the product: m, n, k."""
        t, k, n = self.tokens, self.inner, self.outer
        shapes = {
            Phase.FORWARD: (t, n, k),
            Phase.INPUT_GRAD: (t, k, n),
            Phase.WEIGHT_GRAD: (n, k, t),
        }
        return shapes[self.phase]

    @property
    def flops(self) -> float:
        """Floating-point operations, 2 m n k."""
        return 2.0 * self.tokens * self.inner * self.outer


class AttentionCall(Struct, frozen=True, kw_only=True):
    """Causal fused attention of `batch` samples: keys are as wide as values."""

    batch: int
    heads: int
    kv_heads: int
    head_dim: int
    sequence: int
    backward: bool = False

    @property
    def label(self) -> str:
        """What it is, for people."""
        way = "backward" if self.backward else "forward"
        return f"attention {way}, {self.sequence} tokens, {self.rows} x {self.head_dim}"

    @property
    def rows(self) -> int:
        """Batch x heads."""
        return self.batch * self.heads

    @property
    def flops(self) -> float:
        """Operations that the mask leaves: 2 seq^2 a d forward, 2.5 times that backward."""
        forward = 2.0 * self.sequence**2 * self.rows * self.head_dim
        return 2.5 * forward if self.backward else forward


class MovingKind(NameWithFields):
    """Kernels that only move bytes; `bytes_moved` are those of an element, forward."""

    bytes_moved: float

    COPY = "copy", 4.0
    RESIDUAL = "residual", 6.0
    NORM = "norm", 4.0
    GATE = "gated activation", 6.0


class MovingCall(Struct, frozen=True, kw_only=True):
    """A kernel of `rows` x `width` elements of two bytes."""

    kind: MovingKind
    rows: int
    width: int

    @property
    def label(self) -> str:
        """What it is, for people."""
        return f"{self.kind}, {self.rows} x {self.width}"

    @property
    def bytes_moved(self) -> float:
        """Bytes read and written where each is touched once."""
        return self.kind.bytes_moved * self.rows * self.width


class LayerCall(Struct, frozen=True, kw_only=True):
    """One dense layer in plain torch, forward and backward of `batch` samples."""

    batch: int
    sequence: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    gated: bool


class LayerPasses(Struct, frozen=True, kw_only=True):
    """A layer's passes; `host` is what launching both takes, `kept_bytes` what the backward needs.

    `peak_bytes` is the most that was allocated beside weights. A CPU launches nothing and does not
    count what is allocated: None.
    """

    forward: KernelTimes
    backward: KernelTimes
    host: KernelTimes | None
    kept_bytes: int
    peak_bytes: int | None


class DeviceFacts(Struct, frozen=True, kw_only=True):
    """What a device says of itself; `reserved_bytes` are taken beside what torch allocates.

    `processors` are its multiprocessors, None where it does not say how many.
    """

    name: str
    memory_bytes: int
    reserved_bytes: int
    versions: tuple[str, ...]
    processors: int | None = None


class KernelTimer(Protocol):
    """Times kernels on one device, each alone, several times after a warm-up.

    Methods raise CalibrationError where the device or its library lacks a kernel.
    """

    @property
    def facts(self) -> DeviceFacts:
        """Name, memory and versions."""

    def product(self, call: ProductCall) -> KernelTimes:
        """Times of a product."""

    def attention(self, call: AttentionCall) -> KernelTimes:
        """Times of fused attention, of one pass."""

    def moving(self, call: MovingCall) -> KernelTimes:
        """Times of a kernel that only moves bytes."""

    def smallest(self) -> KernelTimes:
        """Times of a kernel of a few elements, one after the other without waiting."""

    def launch(self) -> KernelTimes | None:
        """What the host takes to launch one such kernel; None where nothing is launched."""

    def sustained(self, call: ProductCall, seconds: float) -> KernelTimes:
        """Times of a product that runs without a pause for so long, the first half left out."""

    def overlap(
        self,
        calls: Sequence[ProductCall | AttentionCall | MovingCall],
        loads: Sequence[SyntheticLoad],
        trace: Path,
    ) -> None:
        """Run kernels alone and beside each load, and write what ran as torch's profiler does."""

    def layer(self, call: LayerCall, trace: Path | None) -> LayerPasses:
        """Times and memory of a layer; its trace, as torch's profiler writes it, to a file."""
