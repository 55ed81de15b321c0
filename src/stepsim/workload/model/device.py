"""What a rank computes on: rates of matrix products and of memory, from a device file."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, TypeVar

import numpy as np
from msgspec import Meta, Struct, field

from stepsim.base.arrays import Floats
from stepsim.base.errors import PlanError
from stepsim.base.structs import Amount, Positive, TomlTable
from stepsim.base.units import PS_PER_S
from stepsim.workload.model.kernels import (
    USUAL_SCAN,
    GroupedRate,
    GroupedShape,
    ScanRate,
    ScanShape,
)
from stepsim.workload.model.plan import Precision
from stepsim.workload.rows import OPTIMIZER_STEP

_NARROW, _WIDE, _LATENT = 64, 192, 512
AnyFloats = TypeVar("AnyFloats", float, Floats)
_PROCESSORS = 132  # as Hopper has, where nobody says how many
_LENT = {"fp16": "bf16", "mxfp8": "fp8_block", "fp8_block": "fp8"}


class MatrixRate(Struct, frozen=True, kw_only=True):
    """Matrix products in one precision: `flops / rate + start_ps`; rates in FLOP per second."""

    rate: float
    peak: float
    start_ps: int = 0

    def seconds(self, flops: Floats, launches: Floats, sustained: float = 1.0) -> Floats:
        """Time of products of so many operations in so many launches."""
        return flops / (self.rate * sustained) + self.start_ps / PS_PER_S * launches


class AttentionRate(TomlTable, frozen=True, kw_only=True):
    """`[attention.flash2]` and the like: flash attention of one kernel family at head width 128.

    Causal work is counted, in FLOP/s.
    The rate is `rate` times k / (k + `half_sequence` / 2) times w / (w + `half_work`), where k are
    the keys that a token reads, half of the sequence where it reads all before it, and w is
    sequence x batch x heads; `narrow` is its share at head width 64, `wide` the forward's from 192
    on. The backward runs at `backward` of the long forward's rate. Where a token reads a window or
    chosen keys, it pays for `window_keys` more, as tiles at their ends are computed whole (None:
    `half_sequence` / 2). Kernels take `shared_heads` that share a key together, and `latent_heads`
    where the key is latent attention's: they compute as many where a rank has fewer.
    """

    rate: Annotated[float, Meta(ge=1e-6, description="TFLOP/s in files")]
    half_sequence: Amount = 0.0
    half_work: Amount = 0.0
    narrow: Positive = 0.75
    wide: Positive = 1.0
    backward: Positive = 0.85
    window_keys: Amount | None = None
    shared_heads: Annotated[int, Meta(ge=1, le=10_000)] = 64
    latent_heads: Annotated[int, Meta(ge=1, le=10_000)] = 64

    def flops_per_s(
        self,
        sequence: Floats,
        rows: Floats,
        head_dim: int,
        *,
        backward: bool,
        keys: Floats | None = None,
    ) -> Floats:
        """The rate at a sequence and batch x heads `rows`; a backward needs half as much work."""
        half, work = 0.5 if backward else 1.0, sequence * rows
        longest = self.rate * self._share(head_dim, backward=backward)
        filled = sequence / (sequence + half * self.half_sequence)
        if keys is not None:
            more = self.half_sequence / 2 if self.window_keys is None else self.window_keys
            filled = keys / (keys + half * more)
        return longest * filled * work / (work + half * self.half_work)

    def computed(self, heads: Floats, head_dim: int) -> Floats:
        """Heads that are computed over those that share a key on a rank."""
        together = self.latent_heads if head_dim > _LATENT else self.shared_heads
        return np.maximum(together / heads, 1.0)

    def _share(self, head_dim: int, *, backward: bool) -> float:
        """The share of the rate at a head width; only the forward gains from wide heads."""
        passed = self.backward if backward else 1.0
        if head_dim <= _NARROW:
            return self.narrow * passed
        return passed if backward or head_dim < _WIDE else self.wide


class Device(Struct, frozen=True, kw_only=True):
    """An accelerator: `sustained` is the share of short benchmarks' rates kept in training.

    Devices of one `generation` share what was not measured for each of them. `memory_share` is what
    kernels reach of the bandwidth (bytes/s); no kernel is shorter than `kernel_floor_ps`.
    `processors` (streaming multiprocessors) take tiles of products, as if there were 132 where
    nobody says how many. `channel_bandwidth` (bytes/s) is what one block of collectives moves on
    the fast links. `grouped` are kernels of all experts by precision (also `fp8_block`); where
    experts are launched one by one, each costs `group_start_ps` more. `scans` are families of
    linear attention. Operators that PyTorch calls by a name take `slower` times as long as by these
    numbers, where a trace told it. `reserved_bytes` are contexts and communication buffers.
    `framework` names what its jobs are trained with where nobody says it. `sources` say where each
    number is from, see `stepsim.workload.model.evidence`.
    """

    name: str
    memory_bytes: int
    memory_bandwidth: float
    rates: Mapping[Precision, MatrixRate]
    attention: Mapping[str, AttentionRate]
    grouped: Mapping[str, GroupedRate] = field(default_factory=lambda: MappingProxyType({}))
    scans: Mapping[str, ScanRate] = field(default_factory=lambda: MappingProxyType({}))
    slower: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    processors: int | None = None
    channel_bandwidth: float | None = None
    group_start_ps: int = 4_000_000
    vector_rate: float = 0.0
    sustained: float = 1.0
    memory_share: float = 0.8
    kernel_floor_ps: int = 3_000_000
    reserved_bytes: int = 0
    watts: float | None = None
    price_per_hour: float | None = None
    topology: str | None = None
    generation: str = ""
    framework: str | None = None
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def bytes_per_s(self) -> float:
        """What kernels reach of the memory's bandwidth."""
        return self.memory_bandwidth * self.memory_share

    def update_seconds(self, moved: AnyFloats) -> AnyFloats:
        """Time of an optimizer's kernels that move so many bytes."""
        return moved / self.bytes_per_s * self.slower.get(OPTIMIZER_STEP, 1.0)

    @property
    def tile_processors(self) -> int:
        """How many tiles of products run at a time."""
        return self.processors or _PROCESSORS

    @property
    def usual_precision(self) -> Precision:
        """The format of products where nobody says it, and of heads: bf16, or fp16 without it."""
        return Precision.BF16 if Precision.BF16 in self.rates else Precision.FP16

    def rate_of(self, precision: Precision) -> MatrixRate:
        """The rate in a precision; raises PlanError where the device has none."""
        found = self.rates.get(precision)
        if found is None:
            raise PlanError(
                f"precision is {precision}: {self.name} has {', '.join(sorted(self.rates))}"
            )
        return found

    def grouped_rate(self, kind: str) -> GroupedRate:
        """The kernel of all groups in a precision, or in the one that lends it its own.

        Where the device names none, groups reach the share of the peak that products reach.
        """
        name: str | None = kind
        while name is not None:
            if name in self.grouped:
                return self.grouped[name]
            name = _LENT.get(name)
        rate = self.rate_of(Precision.FP8 if kind == "fp8_block" else Precision(kind))
        return GroupedRate(share=rate.rate / rate.peak)

    def grouped_seconds(
        self, kind: str, shape: GroupedShape, tiles: Floats, moved: Floats
    ) -> Floats:
        """Time of one kernel of all groups, of so many tiles and bytes of memory.

        Neither hides the other wholly: the root of the sum of both squares.
        """
        reached = self.grouped_rate(kind)
        precision = Precision.FP8 if kind == "fp8_block" else Precision(kind)
        rate = reached.share * self.rate_of(precision).peak * self.sustained
        memory = moved / (reached.memory_share * self.memory_bandwidth)
        return np.hypot(shape.seconds(tiles, rate, self.tile_processors), memory)

    def scan_seconds(
        self, shape: ScanShape, flops: Floats, sequence: Floats, *, backward: bool
    ) -> Floats:
        """Time of a scan over sequences of so many tokens; its launches grow with its passes."""
        rate = self.scans.get(shape.family, USUAL_SCAN)
        passes = shape.passes[backward]
        peak = self.rate_of(self.usual_precision).peak * self.sustained
        products = flops / (rate.share * peak) if rate.share else 0.0
        rounds = rate.rounds(shape.heads, self.tile_processors)
        steps = passes * np.ceil(sequence / shape.chunk)
        return rate.waiting(steps, rounds, passes) + products
